"""Decisions held against a site: each setting says where it is to go."""

import re
from pathlib import Path

import msgspec
import pytest
from command_line import RunCli
from made_decisions import decide
from rows import each_row
from situations import GIBIBYTE, host, load, nginx, site
from tiers import REPEAT, dice, draws

from nginx_tune.audit.engine import audit
from nginx_tune.audit.rules import ca_keys_zone_small
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.cache_growth import SMALLEST_ZONE_MEBIBYTES
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.workload.profiles import workload_for
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.documents.facts import Dataset
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, Workload

CONF = """\
user www-data;
events { worker_connections 768; }
http {
    server {
        listen 80;
        location / { root /srv/1; sub_filter a b; }
        location /b/ {
            root /srv/1;
            aio threads;
        }
        location /c/ { root /srv/1; aio off; }
    }
}
"""


def held(conf: str = CONF) -> dict[str, Decision]:
    decisions = decide(host(), load(cold_peak=200), site=site(roots=["/srv/1"]))
    return {d.id: d for d in as_changes(decisions, parse_text(conf, file="/n.conf")).decisions}


def test_each_setting_names_file_line_and_block() -> None:
    pools = held()["thread-pools"]
    (aio,) = pools.settings
    assert [(p.file, p.line, p.text, p.change) for p in aio.places] == [
        ("/n.conf", 11, "aio off", True)
    ]


def test_what_stands_outside_http_names_its_line() -> None:
    (line,) = [s for s in held()["connections"].settings if s.directive == "worker_connections"]
    (place,) = line.places
    assert (place.line, place.text, place.change) == (2, "worker_connections 768", True)


def test_a_filter_that_reads_bodies_is_named() -> None:
    assert any("/n.conf:6 sub_filter a b" in risk for risk in held()["thread-pools"].risks)
    silent = held(CONF.replace("sub_filter a b;", ""))["thread-pools"]
    assert not any("bodies into pieces" in risk for risk in silent.risks)


@each_row(
    "lines",
    [
        "proxy_cache_key $host$uri;",
        "proxy_cache_key $uri$cookie_user;",
        "proxy_cache c; proxy_cache_key $uri$http_accept_language;",
        "proxy_cache c;",
    ],
)
def test_the_key_of_a_cache_stays(lines: str) -> None:
    """Without what it tells apart one user's pages would be served to another."""
    facts = host(mount="/data")
    decisions = decide(facts, Workload(kind="cache"), site=site(cache_dirs=["/data/1"]))
    conf = (
        "events {} http { server { listen 80; "
        f"location / {{ proxy_pass http://$a; {lines} }} }} }}"
    )
    wanted = [
        s
        for d in as_changes(decisions, parse_text(conf)).decisions
        for s in d.settings
        if s.directive == "proxy_cache_key"
    ]
    assert wanted == []


SITE = """\
events {}
http {
    log_format own '$remote_addr';
    proxy_cache_path /data/1/cache levels=2 keys_zone=own:10m max_size=5g;
    access_log /logs/a.log own;
    upstream App { server 10.0.0.1:9 weight=2; server 10.0.0.1:10; }
    server {
        listen 443 ssl;
        ssl_certificate /c.pem;
        ssl_certificate_key k.pem;
        location / { proxy_pass http://App; proxy_cache own; }
        location /plain/ { proxy_pass http://App; }
        location /files/ { root /srv/1; }
    }
    server { listen 80; location / { root /srv/2; } }
}
"""
HTTP2 = ["--with-threads", "--with-http_ssl_module", "--with-http_v2_module"]


def adopted(
    conf: str = SITE, kind: Kind = "cache", version: str = "1.26.3", **parts: object
) -> dict[str, Decision]:
    """What ``recommend -c`` decides."""
    tree = parse_text(conf, file="/n.conf")
    facts = host(disks=3, mount="/data", nginx=nginx(version, HTTP2))
    workload = msgspec.structs.replace(load(cold_peak=200, rate=5000), kind=kind)
    given = complete_site(site_in(tree, Site(**parts)), facts, kind)  # type: ignore[arg-type]
    decisions = as_changes(decide(facts, workload, site=given), tree)
    return {d.id: d for d in decisions.decisions}


def wanted(found: dict[str, Decision], directive: str) -> list[Setting]:
    return [s for d in found.values() for s in d.settings if s.directive == directive]


@each_row("kind", ["static", "media", "cache", "proxy"])
def test_nothing_is_named_that_the_site_has_not(kind: Kind) -> None:
    found = adopted(kind=kind)
    words = [
        word for d in found.values() for s in d.settings for word in (s.block, *s.args, *s.needs)
    ]
    for own in ("origin", "nginx_tune", "cache_1", "$disk", "pool_1", "nginx-cache", "@root_2"):
        assert not any(own in word for word in words), own
    for decision in found.values():
        for one in decision.settings:
            assert one.places, one


def test_the_own_cache_keeps_its_zone_and_levels() -> None:
    (line,) = wanted(adopted(), "proxy_cache_path")
    assert line.args[0] == "/data/1/cache"
    assert "levels=2" in line.args
    assert [a for a in line.args if a.startswith("keys_zone=own:")]
    assert [(p.line, p.change) for p in line.places] == [(4, True)]
    assert wanted(adopted(), "proxy_cache") == []
    bare = adopted(SITE.replace("levels=2 ", ""))
    assert "levels" not in " ".join(wanted(bare, "proxy_cache_path")[0].args)


@each_row(
    ("directory", "is_refused"),
    [
        ("/data/1/cache/sub", True),
        ("/data/1", True),
        ("/data/1/cache/../cache/x", True),
        ("/data/1/cachet", False),
        ("/data/2", False),
    ],
)
def test_no_cache_lies_inside_another(directory: str, is_refused: bool) -> None:
    free = SITE.replace("proxy_cache own;", "")  # else the site chooses its caches itself
    found = adopted(free, cache_dirs=[directory])
    paths = [s.args[0] for s in wanted(found, "proxy_cache_path")]
    assert paths == ([] if is_refused else [directory])
    said = any(f"no cache in {directory}" in risk for d in found.values() for risk in d.risks)
    assert said == is_refused


def test_settings_of_a_proxy_go_where_requests_are_passed_on() -> None:
    found = adopted(version="1.22.1")
    (version,) = wanted(found, "proxy_http_version")
    # That which has a cache stays: HTTP/1.1 would fill it with what is compressed for some.
    assert [p.line for p in version.places] == [12]
    (keepalive,) = wanted(found, "keepalive")
    assert [p.text for p in keepalive.places] == ["upstream App"]
    assert keepalive.needs == [
        "proxy_http_version 1.1 (location)", 'proxy_set_header Connection "" (location)',
    ]  # fmt: skip
    assert (
        wanted(adopted(SITE.replace("upstream App {", "upstream App { zone z 64k;")), "zone") == []
    )


def test_connections_to_servers_of_no_upstream_group_are_not_kept() -> None:
    found = adopted(SITE.replace("http://App", "http://127.0.0.1:9"), version="1.22.1")
    assert wanted(found, "proxy_http_version") == []
    found = adopted(SITE.replace("http://App", "http://$x"), version="1.22.1")
    assert wanted(found, "proxy_http_version") == [], "what the variable names is not known"
    named = SITE.replace("http {", "http { map $host $x { default app; a 127.0.0.1:9; }", 1)
    found = adopted(named.replace("http://App", "http://$x"), version="1.22.1")
    assert wanted(found, "proxy_http_version"), "the variable may name one"


@each_row(("masks", "stays"), [("01 10", True), ("auto", False)])
def test_workers_that_are_bound_to_cpus_stay_as_many(masks: str, *, stays: bool) -> None:
    """Those beyond the masks would all run on the last one's CPU."""
    found = adopted(f"worker_processes 99; worker_cpu_affinity {masks};\n{SITE}")
    assert (wanted(found, "worker_processes") == []) == stays
    assert ("binds each worker" in found["workers"].summary) == stays


@each_row(
    ("path", "held_gib", "is_bound"),
    [
        ("/data/1/cache", 9, True),
        ("/data/1/cache", 3500, False),
        ("/data/1/cache", None, False),
        ("/elsewhere/cache", None, False),
    ],
    ids=["holds less", "holds more", "not scanned", "of no known disk"],
)
def test_a_cache_without_a_bound_gets_none_on_an_assumption(
    path: str, held_gib: int | None, *, is_bound: bool
) -> None:
    """It may be larger: nginx would delete the rest. The disk has 3.6 TiB, of which four fifths."""
    conf = SITE.replace(" max_size=5g", "").replace("/data/1/cache", path)
    tree = parse_text(conf, file="/n.conf")
    held = [Dataset(path=path, files=9000, bytes=held_gib << 30)] if held_gib else []
    facts = host(disks=3, mount="/data", nginx=nginx("1.26.3", HTTP2), datasets=held)
    own = complete_site(site_in(tree, Site()), facts, "cache")
    decided = decide(facts, load("cache", data_bytes=None, cold_peak=200), site=own)
    found = {d.id: d for d in as_changes(decided, tree).decisions}
    words = [word for s in wanted(found, "proxy_cache_path") for word in s.args]
    assert any(word.startswith("max_size=") for word in words) is is_bound


@each_row("held_gib", [None, 60])
def test_a_cache_that_was_not_scanned_is_not_bound_by_what_is_free(held_gib: int | None) -> None:
    """What it holds takes no part of that: all beyond 9 GiB of its 60 would be deleted."""
    tree = parse_text(SITE.replace(" max_size=5g", ""), file="/n.conf")
    facts = host(disks=3, mount="/data", nginx=nginx("1.26.3", HTTP2))
    paths = [
        msgspec.structs.replace(p, size_bytes=100 << 30, available_bytes=10 << 30)
        for p in facts.storage.paths
    ]
    storage = msgspec.structs.replace(facts.storage, paths=paths)
    held = [Dataset(path="/data/1/cache", files=9, bytes=held_gib << 30)] if held_gib else []
    facts = msgspec.structs.replace(facts, storage=storage, datasets=held)
    own = site_in(tree, Site())
    found = as_changes(decide(facts, load("cache", cold_peak=200), site=own), tree).decisions
    (path,) = [s for d in found for s in d.settings if s.directive == "proxy_cache_path"]
    bounds = [word for word in path.args if word.startswith(("max_size=", "min_free="))]
    assert bool(bounds) == bool(held_gib)
    assert not any(word.startswith("inactive=") for word in path.args), "nobody asked for it"
    assert "not scanned" not in path.reason


def test_the_log_keeps_its_format_or_gets_one_that_is_there() -> None:
    (log,) = wanted(adopted(), "access_log")
    assert log.args[:2] == ["/logs/a.log", "own"]
    assert log.needs == ["log_format own (/n.conf:3)"]
    (log,) = wanted(adopted(SITE.replace("a.log own", "a.log")), "access_log")
    assert log.args[:2] == ["/logs/a.log", "combined"]
    assert log.needs == []


def test_threads_need_their_pool() -> None:
    (aio,) = wanted(adopted(kind="static"), "aio")
    assert len(aio.needs) == 1
    assert aio.needs[0].startswith("thread_pool default threads=")
    declared = "thread_pool default threads=900 max_queue=1;\n" + SITE
    (aio,) = wanted(adopted(declared, kind="static"), "aio")
    assert aio.needs[0].startswith("thread_pool default")


@each_row(("version", "place"), [("1.22.1", 8), ("1.26.3", 7)])
def test_http2_goes_where_tls_is(version: str, place: int) -> None:
    (one,) = adopted(version=version)["http2"].settings
    assert [p.line for p in one.places] == [place]
    plain = adopted(SITE.replace("443 ssl", "443"), version=version)["http2"]
    assert plain.settings == []


def test_a_site_without_a_cache_may_get_one_with_all_it_needs() -> None:
    conf = SITE.replace("proxy_cache own;", "").replace("    proxy_cache_path", "    #")
    found = adopted(conf)
    (choice,) = wanted(found, "proxy_cache")
    assert choice.args == ["cache_$disk"]
    assert sum("keys_zone=cache_" in one for one in choice.needs) == 3
    assert any(one.startswith("split_clients") for one in choice.needs)
    assert [p.line for p in choice.places] == [11, 12]


def test_the_command_names_the_sites_own(run_cli: RunCli, tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(SITE)
    facts = tmp_path / "facts.json"
    facts.write_bytes(encode(host(nginx=nginx("1.22.1", HTTP2))))
    workload = tmp_path / "workload.json"
    workload.write_bytes(encode(load("cache")))
    run = run_cli("-v", "recommend", "--facts", facts, "--workload", workload, "-c", conf)
    assert run.returncode == 0, run.stderr
    assert f"({conf}:6 upstream App), needs proxy_http_version 1.1 (location)" in run.stdout
    assert "upstream_origin" not in run.stdout
    assert "cache_1" not in run.stdout


def cached(
    zone: str, most: str, files: int, bytes_: int, memory: int = 64 * GIBIBYTE, more: str = ""
) -> tuple[Decision, list[str]]:
    """What is decided of a cache that was scanned, and what the audit says of its keys."""
    conf = (
        f"events {{}} http {{ proxy_cache_path /data/1/c levels=2 keys_zone=own:{zone} "
        f"max_size={most} {more}; server {{ location / {{ proxy_cache own; "
        "proxy_cache_key $host$request_uri; proxy_pass http://127.0.0.1:9; } } }"
    )
    tree = parse_text(conf, file="/n.conf")
    scan = Dataset(path="/data/1/c", files=files, bytes=bytes_)
    facts = msgspec.structs.replace(
        host(mount="/data", memory_bytes=memory), datasets=[scan] if files else []
    )
    given = complete_site(site_in(tree, Site()), facts, "cache")
    decided = decide(facts, workload_for("cache", facts, None), site=given)
    found = {d.id: d for d in as_changes(decided, tree).decisions}
    audited = audit(tree, facts, rules=[ca_keys_zone_small.RULE]).findings
    return found["cache-layout"], [one.fix or "" for one in audited]


def test_keys_that_are_too_few_name_file_line_and_value() -> None:
    decision, fixes = cached("1m", "100g", 400_000, 10 * GIBIBYTE)
    assert decision.verdict == "raise"
    assert decision.summary.startswith(
        "/n.conf:1 keys_zone=own:1m holds 7000 keys, but max_size has room for 3744915 files of "
        "28.0 KiB: enlarge it to 535m."
    )
    (line,) = decision.settings
    assert "keys_zone=own:535m" in line.args
    assert "keys_zone=own:535m" in fixes[0]


def test_more_keys_than_needed_stay_and_so_do_the_operators_own_words() -> None:
    decision, fixes = cached(
        "900m", "100g", 400_000, 10 * GIBIBYTE, more="inactive=7d loader_files=9 purger=off"
    )
    (line,) = decision.settings
    assert {"keys_zone=own:900m", "inactive=7d", "loader_files=9", "purger=off"} <= {*line.args}
    assert fixes == []
    assert "enlarge" not in decision.summary


def test_an_assumed_size_of_objects_enlarges_nothing() -> None:
    decision, _ = cached("1m", "100g", 0, 0)
    assert "keys_zone=own:1m" in " ".join(a for s in decision.settings for a in s.args)
    assert "enlarge" not in decision.summary


@pytest.mark.long
def test_audit_and_decision_agree_on_keys() -> None:
    rng = dice("keys of a cache")
    told = beyond = 0
    for _ in range(draws(15, 200)):
        zone, most = rng.choice([1, 10, 100, 1000, 5000]), rng.choice([1, 10, 100, 1000, 20_000])
        files = rng.randint(1000, 3_000_000)
        each, memory = rng.choice([4096, 20_000, 300_000, 9_000_000]), rng.choice([1, 16, 256])
        decision, fixes = cached(f"{zone}m", f"{most}g", files, files * each, memory * GIBIBYTE)
        said = "enlarge" in decision.summary or any("lower max_size" in r for r in decision.risks)
        assert said == bool(fixes), (REPEAT, zone, most, each, memory, fixes)
        if said and not (over := any("lower max_size" in r for r in decision.risks)):
            (size,) = re.findall(r"enlarge it to (\d+)m", decision.summary)
            (least,) = re.findall(r"keys_zone=own:(\d+)m", fixes[0])
            assert int(size) == max(SMALLEST_ZONE_MEBIBYTES, int(least))
            told += 1
        elif said:
            beyond += over
    assert told, REPEAT
    assert beyond, REPEAT


_EMPTY = "events { } http { %s access_log off; %s }"


@each_row(
    ("http", "servers", "written"),
    [
        ("sendfile on;", "", []),
        ("", "", ["on"]),
        ("sendfile off;", "", ["on"]),
        ("", "server { listen 80; location / { return 200 ok; } }", []),
        ("", "server { listen 80; return 301 https://$host; location /x { root /srv; } }", []),
        ("", "server { listen 80; location / { stub_status; } location /f { root /f; } }", ["on"]),
        ("", "server { listen 80; location / { return 200; } location /l { perl x; } }", []),
    ],
)
def test_sendfile_goes_where_files_are_sent(http: str, servers: str, written: list[str]) -> None:
    tree = parse_text(_EMPTY % (http, servers), file="/n.conf")
    decisions = decide(host(), load(), site=site_in(tree, site()))
    (found,) = [d for d in as_changes(decisions, tree).decisions if d.id == "sendfile"]
    assert [one.args[0] for one in found.settings] == written
    assert found.blocked_by == ""


@each_row(
    ("servers", "is_cleartext"),
    [
        ("server { listen 80 http2; root /srv/1; }", True),
        ("server { listen 80; http2 on; root /srv/1; }", True),
        ("http2 on; server { listen 80; root /srv/1; }", True),
        ("server { listen 80; root /srv/1; }", False),
        ("server { listen 80; listen 443 ssl; http2 on; root /srv/1; }", False),
        (
            "server { listen 443 ssl http2; root /srv/1; } server { listen 80; return 301 /; }",
            False,
        ),
    ],
)
def test_sendfile_is_off_beside_pools_where_the_listeners_speak_cleartext_http2(
    servers: str, is_cleartext: bool
) -> None:
    tree = parse_text(f"events {{}} http {{ sendfile on; {servers} }}", file="/n.conf")
    own = site_in(tree, site(roots=["/srv/1"]))
    assert own.cleartext_http2 is is_cleartext
    decisions = {d.id: d for d in decide(host(), load(cold_peak=200), site=own).decisions}
    assert decisions["thread-pools"].verdict == "enable"
    assert (decisions["sendfile"].verdict == "disable") is is_cleartext
