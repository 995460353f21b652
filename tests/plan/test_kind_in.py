"""The kind that a configuration shows, and how far it is believed."""

from pathlib import Path

from command_line import RunCli
from made_decisions import decide
from rows import each_row
from situations import host, load, site

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import kind_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.base import encode
from nginx_tune.documents.workload import Workload

PROXIED = "location / { proxy_pass http://127.0.0.1:8080; }"
FILES = "location /files/ { root /srv; }"
CACHED = "location /c/ { proxy_pass http://127.0.0.1:8080; proxy_cache z; }"


def conf(server: str) -> str:
    zone = "proxy_cache_path /srv/c keys_zone=z:10m max_size=1g;"
    return f"events {{}} http {{ {zone} server {{ listen 80; {server} }} }}"


@each_row(
    ("server", "kind", "others"),
    [
        (PROXIED, "proxy", []),
        ("location / { fastcgi_pass 127.0.0.1:9000; }", "proxy", []),
        ("location / { grpc_pass grpc://127.0.0.1:9000; }", "proxy", []),
        (FILES, "static", []),
        ("location / { root /srv; mp4; }", "media", []),
        (CACHED, "cache", []),
        (PROXIED + FILES, "proxy", ["static"]),
        (PROXIED + FILES + CACHED, "cache", ["static", "proxy"]),
        ("root /srv; location /api/ { proxy_pass http://127.0.0.1:8080; }", "static", ["proxy"]),
    ],
)
def test_kind_is_what_answers(server: str, kind: str, others: list[str]) -> None:
    found = kind_in(parse_text(conf(server), file="/n.conf"))
    assert found is not None
    assert found.kind == kind
    assert found.reason.startswith("from /n.conf:1 ")
    assert ("; also " in found.reason) == bool(others)
    assert all(f"{other} (/n.conf:1 " in found.reason for other in others)


STREAM = "events {} stream { server { listen 53; %s } }"


def test_a_stream_that_is_passed_on_is_a_proxy_with_two_slots_a_client() -> None:
    tree = parse_text(STREAM % "proxy_pass 127.0.0.1:8053;", file="/n.conf")
    found = kind_in(tree)
    assert found is not None
    assert found.kind == "proxy"
    assert "/n.conf:1" in found.reason
    assert kind_in(parse_text(STREAM % "return ok;", file="/n.conf")) is None
    decisions = decide(host(), load("proxy", cold_peak=200), site=site())
    held = {one.id: one for one in as_changes(decisions, tree).decisions}
    assert "client and upstream" in held["connections"].summary
    written = [line for one in held.values() for line in one.settings]
    assert {line.context for line in written} <= {"main", "events"}
    assert any("has no http" in one.summary for one in held.values())
    # Beside an http of its own all of it has a place.
    both = parse_text(conf(PROXIED) + STREAM.removeprefix("events {}") % "", file="/n.conf")
    kept = {one.id: one for one in as_changes(decisions, both).decisions}
    assert not any("has no http" in one.summary for one in kept.values())


def test_nothing_that_answers_shows_no_kind() -> None:
    assert kind_in(parse_text("events {} http { server { return 204; } }", file="/n.conf")) is None


def test_an_assumed_kind_gives_no_high_confidence() -> None:
    workload = load(cold_peak=200)
    for provenance in ("assumed", "declared"):
        known = Workload(
            **{
                **{name: getattr(workload, name) for name in workload.__struct_fields__},
                "kind_provenance": provenance,
            }
        )
        found = decide(host(), known, site=site()).decisions
        assert any(d.confidence == "high" for d in found) == (provenance == "declared")


@each_row(
    ("workload", "args", "said"),
    [
        (None, [], "Kind of site: proxy (from {path}:1 proxy_pass)"),
        (Workload(), [], "Kind of site: proxy (from {path}:1 proxy_pass)"),
        (Workload(kind="cache", kind_provenance="learnt"), [], "Kind of site: cache (learnt)"),
        (None, ["--kind", "static"], "Kind of site: static (declared)"),
    ],
)
def test_recommend_says_the_kind_and_where_it_is_from(
    run_cli: RunCli, tmp_path: Path, workload: Workload | None, args: list[str], said: str
) -> None:
    path, facts, asked = (tmp_path / name for name in ("n.conf", "facts.json", "workload.json"))
    path.write_text(f"events {{}} http {{ server {{ listen 80; {PROXIED} }} }}\n")
    facts.write_bytes(encode(host()))
    if workload is not None:
        asked.write_bytes(encode(workload))
        args = [*args, "--workload", str(asked)]
    shown = run_cli("-v", "recommend", "--facts", str(facts), "-c", str(path), *args)
    assert said.format(path=path) in shown.stdout, shown.stderr
    if "proxy" in said:
        assert "sendfile not applicable" in " ".join(shown.stdout.split())
        assert "upstream-keepalive not applicable" not in " ".join(shown.stdout.split())
