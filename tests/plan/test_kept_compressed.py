"""Places that HTTP/1.1, or a kept connection that closes, would give wrong answers stay."""

from rows import each_row
from test_kept import KEPT, PLAIN, conf, kept, lines, said

from nginx_tune.documents.decisions import Decision

HARMED = [
    "sub_filter a b;",
    "ssi on;",
    "add_before_body /x;",
    "add_after_body /x;",
    "xslt_stylesheet /x.xslt;",
    "image_filter test;",
    "subs_filter a b;",
    "body_filter_by_lua_block { ngx.arg[1] = 1 }",
    "js_body_filter main.text;",
    "override_charset on;",
    "source_charset koi8-r; charset utf-8;",
    "source_charset $from; charset $from;",
    "source_charset koi8-r;",
    "length_hiding on;",
    "srcache_store POST /store;",
    "xss_get on;",
    "proxy_cache c;",
    "proxy_store on;",
    'proxy_cache c; proxy_set_header Accept-Encoding "gzip";',
    "sub_filter a b; proxy_set_header Accept-Encoding $http_accept_encoding;",
    "sub_filter a b; gunzip on;",
]
UNHARMED = [
    "ssi off;",
    'add_after_body "";',
    "image_filter off;",
    "proxy_cache off;",
    "proxy_store off;",
    "charset utf-8;",
    "source_charset UTF-8; charset utf-8;",
    "source_charset koi8-r; charset off;",
    "source_charset off; charset utf-8;",
    'source_charset koi8-r; charset utf-8; proxy_set_header Accept-Encoding "";',
    'sub_filter a b; proxy_set_header Accept-Encoding "";',
    "ssi on; proxy_set_header Accept-Encoding identity;",
    'proxy_cache c; proxy_set_header Accept-Encoding "";',
    "proxy_cache c; gunzip on;",
    "proxy_cache c; proxy_cache_key $uri$http_accept_encoding;",
    "proxy_cache c; proxy_pass_request_headers off;",
    "sub_filter a b; proxy_http_version 1.1;",
    "proxy_next_upstream timeout error;",
    "proxy_next_upstream error http_503;",
]
FINAL = ["proxy_next_upstream off;", "proxy_next_upstream http_503 non_idempotent;"]


def changed(decision: Decision) -> set[str]:
    """The places that get what kept connections need."""
    return {
        place.text
        for one in decision.settings
        if one.directive in ("proxy_http_version", "proxy_set_header")
        for place in one.places
    }


def first(line: str) -> str:
    return line.partition(";")[0].partition(" {")[0]


def at(line: str) -> str:
    return f"location /w {{ {line}\nproxy_pass http://app; }}"


@each_row("line", [*HARMED, *FINAL])
@each_row("group", ["", "keepalive 300;"])
def test_a_place_that_would_be_harmed_stays_and_is_named(line: str, group: str) -> None:
    alone = kept(conf(at(line), group))
    assert changed(alone) == set()
    assert bool([one for one in lines(alone) if one.directive == "keepalive"]) is False
    assert f"/n.conf:6 {first(line)}" in said(alone)
    is_whole_servers = line.startswith(("ssi", "add_"))
    other = f"}} server {{ listen 81; {PLAIN}"
    both = kept(conf(f"{at(line)}\n{other if is_whole_servers else PLAIN}", group))
    assert changed(both) == {"location /"}
    assert any(f"/n.conf:6 {first(line)}" in risk for risk in both.risks)


@each_row("line", UNHARMED)
def test_a_place_that_would_not_be_harmed_is_changed(line: str) -> None:
    decision = kept(conf(at(line)))
    assert {one.directive for one in lines(decision)} >= {"keepalive", "proxy_set_header"}
    assert not any("not kept" in risk for risk in decision.risks)


@each_row("line", [*HARMED[:8], *HARMED[10:12], *FINAL])
def test_since_1_29_7_nothing_changes_in_such_places(line: str) -> None:
    decision = kept(conf(at(line)), "measured", "1.30.0")
    assert [one.directive for one in lines(decision)] == ["keepalive"]


@each_row("line", ["ssi on;", "add_after_body /api/foot;"])
def test_a_place_whose_answers_become_parts_of_pages_stays(line: str) -> None:
    """A compressed part spoils the page around it."""
    page = f"location /page {{ root /srv; {line} }}"
    decision = kept(conf(f"{page}\n{PLAIN}"))
    assert changed(decision) == set()
    assert first(line) in said(decision)
    apart = kept(conf(f"{page}\n}} server {{ listen 81; {PLAIN}"))
    assert changed(apart) == {"location /"}


def test_a_line_around_all_servers_counts_too() -> None:
    """A place that turns it off for itself may be a part of another's page."""
    own = "location / { ssi off; proxy_pass http://app; }"
    decision = kept(conf(f"{own}\nlocation /page {{ root /srv; }}", more="ssi on;"))
    assert changed(decision) == set()


ASKING = [
    "content_by_lua_block { ngx.say(ngx.location.capture('/').body) }",
    "access_by_lua_block { require('guard').check() }",
    "rewrite_by_lua_file /srv/a.lua;",
    "content_by_lua 'ngx.location.capture_multi({})';",
    "js_content join.pages;",
    "echo_location_async /;",
]
ALONE = [
    "access_by_lua_block { if ngx.var.arg_x then return ngx.exit(403) end }",
    "header_filter_by_lua_block { ngx.header.x = require('y') }",
    "auth_request /auth;",
    "mirror /auth;",
    "perl main::f;",
    "js_header_filter main.f;",
]


@each_row("line", ASKING)
def test_a_place_that_a_script_may_ask_stays(line: str) -> None:
    """A subrequest carries the client's Accept-Encoding, and the script would read gzip."""
    decision = kept(conf(f"location /page {{ {line} }}\n{PLAIN}"))
    assert changed(decision) == set()
    assert "a script with a subrequest to this location" in said(
        decision
    ) or "cannot read gzip" in said(decision)
    plain = PLAIN.replace("{", '{ proxy_set_header Accept-Encoding "";')
    for other in (plain, f"}} server {{ listen 81; {PLAIN}"):
        assert changed(kept(conf(f"location /page {{ {line} }}\n{other}"))) == {"location /"}
    if "by_lua" in line:
        assert changed(kept(conf(PLAIN, more=line))) == set()


@each_row("line", ALONE)
def test_a_place_beside_what_reads_no_body_is_changed(line: str) -> None:
    assert changed(kept(conf(f"location /page {{ {line} }}\n{PLAIN}"))) == {"location /"}


@each_row("line", ["sub_filter a b;", "proxy_next_upstream off;"])
def test_a_place_around_another_that_would_inherit_stays_too(line: str) -> None:
    inner = f"location /a/w {{ {line} proxy_pass http://app; }}"
    decision = kept(conf(f"location /a {{ proxy_pass http://app;\n{inner} }}\n{PLAIN}"))
    assert changed(decision) == {"location /"}
    assert f"/n.conf:7 {first(line)}" in said(decision)


REUSING = 'proxy_http_version 1.1; proxy_set_header Connection "";'


@each_row(
    ("location", "is_kept"),
    [
        (f"{REUSING} proxy_next_upstream off; proxy_pass http://app;", False),
        (f"{REUSING} proxy_next_upstream error; proxy_pass http://app;", True),
        (f"{REUSING} proxy_pass http://app;", True),
        ("grpc_next_upstream off; grpc_pass grpc://app;", False),
        ("grpc_pass grpc://app;", True),
    ],
)
def test_no_keepalive_wakes_a_place_whose_errors_are_final(location: str, *, is_kept: bool) -> None:
    """Such a place needs but the group's line to have its connections kept."""
    decision = kept(conf(f"location /w {{ {location} }}"))
    assert bool(lines(decision)) is is_kept
    assert ("gets 502, even a GET" in said(decision)) is not is_kept


def test_what_a_post_meets_on_a_closing_connection_is_said() -> None:
    decision = kept(conf(PLAIN))
    assert {one.directive for one in lines(decision)} == {*KEPT}
    assert any(
        "a POST on a connection that the origin is closing gets 502" in risk
        for risk in decision.risks
    )


@each_row(
    ("group", "version", "written"),
    [
        ("", "1.26.3", ["1s"]),
        ("", "1.15.2", []),
        ("", "1.30.0", ["1s"]),
        ("keepalive 300;", "1.26.3", []),
        ("keepalive_timeout 30s;", "1.26.3", []),
    ],
)
def test_idle_connections_end_before_a_server_ends_them(
    group: str, version: str, written: list[str]
) -> None:
    """What stands is its operator's, and says so."""
    decision = kept(conf(PLAIN, group), "measured", version)
    found = [one for one in decision.settings if one.directive == "keepalive_timeout"]
    assert [one.args[0] for one in found] == written
    assert "Tomcat 20 s" in said(decision)
    assert ("before 1.15.3" in said(decision)) is (version == "1.15.2")
