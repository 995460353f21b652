"""What a decision says for itself where it would have changed something and is blocked."""

from made_decisions import decide
from rows import each_row
from situations import host, load, nginx, site

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import GOES_WITH, left_alone, needed_by, site_in, with_companions
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions
from nginx_tune.documents.workload import Kind

PROXY = "events {}\nhttp { upstream a { server 10.0.0.1; server 10.0.0.2; %s }\nserver { %s } }"


def held(text: str, name: str, kind: Kind = "static", *, http3: bool = False) -> Decision:
    tree = parse_text(text, file="/n.conf")
    flags = ["--with-http_v2_module", "--with-http_v3_module", "--with-threads"]
    given = site_in(tree, site(roots=["/srv/1"], http3=http3))
    decisions = decide(host(nginx=nginx("1.26.3", flags)), load(kind), site=given)
    return {d.id: d for d in as_changes(decisions, tree).decisions}[name]


TLS = "events {}\nhttp { server { listen 443 ssl%s; root /srv/1; %s } }"


@each_row(
    ("text", "name", "reason"),
    [
        (TLS % ("", "access_by_lua_file a;"), "http2", "/n.conf:2 access_by_lua_file a: Lua "),
        (TLS % ("", ""), "http3", "add a quic listener yourself"),
        (TLS % ("", "add_header Upgrade a;"), "http3", "/n.conf:2 add_header Upgrade a sends"),
        (f"rtmp {{ }}\n{TLS % ('', '')}", "workers", "/n.conf:1 rtmp lacks"),
    ],
)
def test_it_says_what_speaks_against_it(text: str, name: str, reason: str) -> None:
    d = held(text, name, http3=True)
    assert d.blocked_by.startswith(reason)
    assert not d.settings


def test_what_stands_or_is_written_says_nothing() -> None:
    assert held(TLS % ("; http2 on", "access_by_lua_file a;"), "http2").blocked_by == ""
    written = held(TLS % ("", ""), "http2")
    assert written.settings
    assert written.blocked_by == ""
    assert held("events {}\nstream { }", "http2").blocked_by == ""
    rtmp = f"worker_processes auto; rtmp {{ }}\n{TLS % ('', '')}"
    assert held(rtmp, "workers").blocked_by == ""


def _decisions(*ids: str) -> list[Decision]:
    tree = parse_text(PROXY % ("", "location / { proxy_pass http://a; }"), file="/n.conf")
    given = site_in(tree, site(cache_dirs=["/srv/1"]))
    made = as_changes(decide(host(), load("cache", cold_peak=200), site=given), tree)
    assert {one.id for one in made.decisions if one.settings} >= set(ids)
    return made.decisions


def test_every_name_of_the_table_is_a_decision() -> None:
    known = set(DecisionId.__args__)  # type: ignore[attr-defined]  # of a Literal
    assert known >= set(GOES_WITH) | {n for b in GOES_WITH.values() for one in b for n in one.needs}


def test_the_table_is_followed_to_its_end_and_only_where_something_is_written() -> None:
    every = _decisions("cache-layout", "cache-key", "aio-write", "thread-pools")
    cached = {"cache-layout", "cache-key"}
    assert with_companions(every, ["cache-updates"]) == {"cache-updates", *cached}
    assert with_companions(every, ["sendfile"]) == {"sendfile"}
    ids = {one.id for one in every}
    left = left_alone(every, ids - {"cache-key"})
    assert left.items() >= {"cache-layout": "cache-key", "cache-updates": "cache-layout"}.items()
    assert not left_alone(every, ids)
    idle = [one for one in every if one.id != "cache-key"]
    layout = next(one for one in idle if one.id == "cache-layout")
    assert not [*needed_by(layout, idle)]


def test_a_cache_whose_key_finds_no_place_is_left_out_too() -> None:
    tree = parse_text(PROXY % ("", "location / { proxy_pass http://a; }"), file="/n.conf")
    every = Decisions(decisions=_decisions("cache-layout", "cache-key"))
    changes = plan_changes(every, tree, lambda _: {"cache-key"})
    reasons = {one.decision: one.reason for one in changes.refusals}
    assert reasons["cache-layout"] == "it depends on cache-key, which is left out"
    written = {hunk.decision for file in changes.files for hunk in file.hunks}
    assert "thread-pools" in written
    assert not written & {"cache-layout", "cache-key", "cache-updates"}
