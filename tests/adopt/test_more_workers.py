"""What is told of more workers: limits of which each has its own, and Lua that ran in one."""

from __future__ import annotations

import pytest
from situations import host, load, nginx, site

from nginx_tune.adopt.changing import hold_against
from nginx_tune.adopt.naming import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide import decide
from nginx_tune.documents.decisions import Decision


def decided(conf: str, version: str = "1.26.3", cpus: float = 8) -> dict[str, Decision]:
    tree = parse_text(conf, file="/n.conf")
    facts = host(nginx=nginx(version, ["--with-threads"]), cpus=cpus)
    made = decide(facts, load(cold_peak=200), site=site_in(tree, site(roots=["/srv/1"])))
    return {d.id: d for d in hold_against(made, tree).decisions}


BOUND = """%s
events { }
http {
    upstream app { %s server 10.0.0.1 max_conns=9; server 10.0.0.2; }
    server { root /srv/1; location /a { proxy_pass http://app; } }
}
"""
FOUR = "worker_processes 4;"


@pytest.mark.parametrize(
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
    said = [one for one in found["workers"].risks if "max_conns=9 counts in each worker" in one]
    assert len(said) == told
    if told:
        assert zones == []
        assert [s.directive for s in found["workers"].settings] == ["worker_processes"]


LUA = "%s events { } http { %s server { root /srv/1; location /l { %s } } }"
TIMER = "init_worker_by_lua_block { ngx.timer.every(1, tick) }"
CONTENT = "content_by_lua_block { ngx.say(count()) }"


@pytest.mark.parametrize(
    ("main", "http", "location", "line"),
    [
        ("", TIMER, CONTENT, "/n.conf:1 init_worker_by_lua_block runs in each worker"),
        ("", "init_worker_by_lua_file /w.lua;", "", "init_worker_by_lua_file runs in each worker"),
        ("worker_processes 1;", "", CONTENT, "/n.conf:1 content_by_lua_block: what Lua keeps"),
        ("", "", "access_by_lua 'x()';", "/n.conf:1 access_by_lua: what Lua keeps"),
        ("", "lua_shared_dict d 1m;", "", ""),
        ("", "", "js_content main.hello;", ""),
        ("worker_processes 4;", TIMER, CONTENT, ""),
        ("worker_processes auto;", TIMER, CONTENT, ""),
    ],
)
def test_lua_of_one_worker_is_told_of_before_there_are_more(
    main: str, http: str, location: str, line: str
) -> None:
    found = decided(LUA % (main, http, location))["workers"]
    said = [one for one in found.risks if "_by_lua" in one]
    assert len(said) == bool(line)
    assert all(line in one for one in said)
    if line:
        assert [s.args for s in found.settings] == [["auto"]]


def test_one_worker_that_stays_the_only_one_is_told_nothing() -> None:
    found = decided(LUA % ("worker_processes 1;", TIMER, ""), cpus=1)["workers"]
    assert not [one for one in found.risks if "_by_lua" in one]
