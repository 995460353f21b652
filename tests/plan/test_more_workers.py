"""What is told of more workers: limits of which each has its own, and Lua that ran in one."""

from made_decisions import decide
from rows import each_row
from situations import host, load, nginx, site

from nginx_tune.audit.engine import audit
from nginx_tune.audit.rule import linux
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.decisions import Decision


def decided(conf: str, version: str = "1.26.3", cpus: float = 8) -> dict[str, Decision]:
    tree = parse_text(conf, file="/n.conf")
    facts = host(nginx=nginx(version, ["--with-threads"]), cpus=cpus)
    made = decide(facts, load(cold_peak=200), site=site_in(tree, site(roots=["/srv/1"])))
    return {d.id: d for d in as_changes(made, tree).decisions}


BOUND = """%s
events { }
http {
    upstream app { %s server 10.0.0.1 max_conns=9; server 10.0.0.2; }
    server { root /srv/1; location /a { proxy_pass http://app; } }
}
"""
FOUR = "worker_processes 4;"


@each_row(
    ("main", "group", "version", "told"),
    [
        ("", "", "1.26.3", False),
        ("worker_processes 1;", "", "1.26.3", False),
        ("", "zone app 64k;", "1.26.3", False),
        (FOUR, "zone app 64k;", "1.26.3", False),
        ("worker_processes auto;", "", "1.26.3", False),
        (FOUR, "", "1.26.3", True),
        ("", "sticky;", "1.26.3", True),
        ("", "", "1.8.1", True),
    ],
)
def test_a_bound_of_each_worker_is_told_where_the_plan_adds_no_zone(
    main: str, group: str, version: str, *, told: bool
) -> None:
    found = decided(BOUND % (main, group), version)
    zones = [s for s in found["upstream-keepalive"].settings if s.directive == "zone"]
    said = [one for one in found["workers"].risks if "max_conns=9 counts per worker" in one]
    assert len(said) == told
    if told:
        assert zones == []
        assert [s.directive for s in found["workers"].settings] == ["worker_processes"]


LUA = "%s events { } http { %s server { root /srv/1; location /l { %s } } }"
TIMER = "init_worker_by_lua_block { ngx.timer.every(1, tick) }"
CONTENT = "content_by_lua_block { ngx.say(count()) }"


@each_row(
    ("main", "http", "location", "line"),
    [
        ("", TIMER, CONTENT, "/n.conf:1 init_worker_by_lua_block runs in each worker"),
        ("", "init_worker_by_lua_file /w.lua;", "", "init_worker_by_lua_file runs in each worker"),
        ("worker_processes 1;", "", CONTENT, "/n.conf:1 content_by_lua_block: each worker"),
        ("", "", "access_by_lua 'x()';", "/n.conf:1 access_by_lua: each worker"),
        ("", "lua_shared_dict d 1m;", "", ""),
        ("", "", "js_content main.hello;", ""),
        ("worker_processes 4;", TIMER, CONTENT, ""),
        ("worker_processes auto;", TIMER, CONTENT, ""),
    ],
)
def test_lua_of_one_worker_stays_in_one(main: str, http: str, location: str, line: str) -> None:
    found = decided(LUA % (main, http, location))["workers"]
    assert line in found.blocked_by
    assert bool(found.blocked_by) is bool(line)
    is_changed = not line and "auto" not in main
    assert [s.args for s in found.settings] == [["auto"]] * is_changed
    told = audit(parse_text(LUA % (main, http, location), file="/n.conf"), linux(cpus=8)).findings
    of_one = [one for one in told if one.rule == "lim-workers-one"]
    assert [line in one.fix for one in of_one] == [True] * (not main or main.endswith(" 1;"))
    assert [one.severity == "advice" for one in of_one] == [bool(line)] * len(of_one)


UDP = """%s
events { }
stream { %s }
http { server { root /srv/1; } }
"""
SESSIONS = "server { listen 53 udp%s; proxy_pass 10.0.0.1:53; %s }"
SHARED = "server { listen 53 udp; proxy_pass 10.0.0.1:53; } server { listen 53 udp%s; return x; }"
SIBLING = "server { listen 10.0.0.9:53 udp; proxy_pass 10.0.0.1:53; } %s"


@each_row("conf", [LUA % ("", TIMER, ""), UDP % ("", SESSIONS % ("", ""))])
def test_one_worker_that_stays_the_only_one_is_told_nothing(conf: str) -> None:
    found = decided(f"worker_processes 1; {conf}", cpus=1)["workers"]
    assert found.blocked_by == ""
    assert "Not written" not in found.summary


@each_row("main", ["", "worker_processes 1;", "worker_processes 2;"])
@each_row(
    ("stream", "is_of_one"),
    [
        (SESSIONS % ("", ""), True),
        (SESSIONS % ("", "proxy_requests 5;"), True),
        (SESSIONS % ("", "proxy_responses 4;"), True),
        (SESSIONS % (" bind", ""), True),
        (SESSIONS % (" reuseport", ""), False),
        (SESSIONS % ("", "proxy_requests 1;"), False),
        (SESSIONS % ("", "proxy_responses 0;"), False),
        (SESSIONS % ("", "proxy_responses 1;"), False),
        (f"proxy_requests 1; {SESSIONS % ('', '')}", False),
        (f"proxy_requests 1; {SESSIONS % ('', 'proxy_requests 3;')}", True),
        ("server { listen 53 udp; return x; }", False),
        ("server { listen 53; proxy_pass 10.0.0.1:53; }", False),
        (SHARED % "", True),
        (SHARED % " reuseport", False),
        (SIBLING % "", True),
        (SIBLING % "server { listen *:53 udp; return x; }", True),
        (SIBLING % "server { listen *:53 udp reuseport; return x; }", False),
        (SIBLING % "server { listen *:54 udp reuseport; return x; }", True),
    ],
)
def test_sessions_of_datagrams_stay_at_one_worker(
    stream: str, main: str, *, is_of_one: bool
) -> None:
    found = decided(UDP % (main, stream))["workers"]
    is_blocked = is_of_one and "2" not in main
    assert bool(found.blocked_by) is is_blocked
    assert bool(found.settings) is not is_blocked
    if is_blocked:
        assert found.blocked_by.startswith("/n.conf:3 listen ")
        assert "without reuseport" in found.blocked_by
        assert found.risks == []
