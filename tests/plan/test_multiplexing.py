"""HTTP/2 stays off where what stands was made for one request after another."""

from made_decisions import decide
from rows import each_row
from situations import host, load, nginx, site

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.decisions import Decision

CONF = """events { }
%s
http {
    %s
    server {
        listen %s; ssl_certificate c.pem; ssl_certificate_key k.pem; root /srv/1;
        %s
    }
}
"""


def held(
    server: str = "",
    http: str = "",
    main: str = "",
    listen: str = "443 ssl",
    version: str = "1.26.3",
) -> Decision:
    tree = parse_text(CONF % (main, http, listen, server), file="/n.conf")
    facts = host(nginx=nginx(version, ["--with-http_v2_module", "--with-threads"]))
    given = site_in(tree, site(roots=["/srv/1"]))
    decisions = decide(facts, load(cold_peak=200), site=given)
    return {d.id: d for d in as_changes(decisions, tree).decisions}["http2"]


SNI = (
    "stream { map $ssl_preread_server_name $to { a.test 10.0.0.7:443; default %s; }"
    " server { listen 443; ssl_preread on; proxy_pass $to; } }"
)
BY_ADDRESS = SNI.replace("$ssl_preread_server_name", "$remote_addr") % "[::1]:8443"


UPLOADS = "location / { proxy_pass http://10.0.0.1; %s proxy_request_buffering off; }"


@each_row("version", ["1.22.1", "1.26.3"])
@each_row(
    ("main", "http", "server", "listen", "reason"),
    [
        ("", "", "location / { content_by_lua_block { ngx.say(1) } }", "443 ssl", "by_lua_block"),
        ("", "access_by_lua_file /a.lua;", "", "443 ssl", "/n.conf:4 access_by_lua_file"),
        ("", "", "if ($server_protocol != HTTP/1.1) { return 444; }", "443 ssl", "/n.conf:7 if"),
        ("", "", 'if ($request !~ "HTTP/1.[01]$") { return 400; }', "443 ssl", "/n.conf:7 if"),
        ("", "", "if ( $server_protocol = HTTP/2.0 ) { return 444; }", "443 ssl", "/n.conf:7 if"),
        ("", "", "add_header Connection keep-alive;", "443 ssl", "RFC 9113, 8.2.2"),
        ("", "", UPLOADS % "", "443 ssl", "/n.conf:7 proxy_request_buffering off"),
        (SNI % "127.0.0.1:8443", "", "", "127.0.0.1:8443 ssl", "RFC 9113, 9.1.1"),
        (SNI % "unix:/run/h.sock", "", "", "unix:/run/h.sock ssl", "RFC 9113, 9.1.1"),
    ],
)
def test_it_stays_off(
    main: str, http: str, server: str, listen: str, reason: str, version: str
) -> None:
    d = held(server, http, main, listen, version)
    assert (d.verdict, d.settings) == ("keep", [])
    assert reason in d.summary


@each_row(
    ("main", "http", "server", "listen"),
    [
        ("", "", "if ($server_protocol = HTTP/1.0) { return 444; }", "443 ssl"),
        ("", "", "if ($server_protocol ~ (?<v>1.0)) { return 444; }", "443 ssl"),
        ("", "", "if ($request_method = POST) { return 405; }", "443 ssl"),
        ("", "", "location / { log_by_lua_block { print(1) } }", "443 ssl"),
        (SNI % "127.0.0.1:8443", "", "", "9443 ssl"),
        (BY_ADDRESS, "", "", "8443 ssl"),
    ],
)
def test_it_is_written_elsewhere(main: str, http: str, server: str, listen: str) -> None:
    assert [s.directive for s in held(server, http, main, listen).settings] == ["http2"]


def test_a_server_whose_listen_has_it_needs_no_directive() -> None:
    d = held(listen="443 ssl http2")
    assert (d.verdict, d.settings) == ("keep", [])
    assert held(listen="443 ssl http2; listen 8443 ssl").settings


BURST = "limit_req_zone $binary_remote_addr zone=r:1m rate=10r/s;"


def test_what_a_page_at_once_may_meet_is_a_risk() -> None:
    risks = held("limit_req zone=r burst=20;", BURST).risks
    assert any("/n.conf:7 limit_req zone=r burst=20" in one for one in risks)
    assert not any("limit_req" in one for one in held("limit_req zone=r burst=200;", BURST).risks)


def test_an_upgrade_of_the_origin_would_end_answers() -> None:
    passed = "location / { %s proxy_pass http://10.0.0.1; }"
    assert any("proxy_hide_header Upgrade" in one for one in held(passed % "").risks)
    risks = held(passed % "proxy_hide_header upgrade;").risks
    assert not any("proxy_hide_header" in one for one in risks)


@each_row(
    "line",
    [
        "add_header Connection keep-alive;",
        "add_header connection close always;",
        "location / { add_header Transfer-Encoding chunked; }",
        "location / { if ($arg_a) { add_header Keep-Alive timeout=5; } }",
        "add_header Proxy-Connection $mine;",
        "add_header TE gzip;",
        "add_trailer Upgrade h2;",
        "location / { add_header_inherit merge; add_header A b; } add_header Upgrade h2;",
        'more_set_headers -s 200 "A: b" "Upgrade: websocket";',
        "location / { proxy_pass http://10.0.0.1; proxy_pass_header Upgrade; }",
        "location / { fastcgi_pass 10.0.0.1:9; } fastcgi_pass_header Proxy-Connection;",
    ],
)
def test_a_header_of_the_connection_would_end_answers(line: str) -> None:
    d = held(line)
    assert (d.verdict, d.settings) == ("keep", [])
    assert "RFC 9113, 8.2.2" in d.summary
    assert d.summary.startswith("Not written: /n.conf:7 ")


@each_row(
    "line",
    [
        "add_header Vary Upgrade;",
        'add_header Connection "";',
        "add_header Upgrade $http_upgrade;",
        "add_header TE trailers;",
        'more_set_headers "Connection:" "X-Connection: a";',
        "location / { proxy_pass http://10.0.0.1; proxy_set_header Connection close; }",
        # nginx keeps these of an upstream to itself, whatever it is told.
        "location / { proxy_pass http://10.0.0.1; proxy_pass_header Connection; }",
        "location / { proxy_pass http://10.0.0.1; } fastcgi_pass_header Upgrade;",
    ],
)
def test_headers_that_no_answer_has_hinder_nothing(line: str) -> None:
    assert [s.directive for s in held(line).settings] == ["http2"]


def test_a_header_that_the_server_undoes_hinders_nothing() -> None:
    assert held(http="add_header Connection close;", server="add_header A b;").settings
    assert not held(http="add_header Connection close;").settings


@each_row("module", ["proxy", "fastcgi", "uwsgi", "scgi"])
@each_row("size", ["", "client_max_body_size 0;", "client_max_body_size 100m;"])
def test_uploads_that_are_passed_on_as_they_come_keep_the_window_of_tcp(
    module: str, size: str
) -> None:
    line = (UPLOADS % size).replace("proxy", module).replace("http://", "")
    d = held(line)
    assert (d.verdict, d.settings) == ("keep", [])
    assert f"/n.conf:7 {module}_request_buffering off: HTTP/2 limits the upload" in d.summary
    assert "64k per round trip" in d.summary
    narrow = held(line, "client_body_buffer_size 256k;")
    assert "256k per round trip" in narrow.summary


@each_row(
    "server",
    [
        UPLOADS % "client_body_buffer_size 1m;",
        f"http2_body_preread_size 2m; {UPLOADS % 'client_max_body_size 0;'}",
        UPLOADS % "client_max_body_size 64k;",
        UPLOADS % "proxy_pass_request_body off;",
        UPLOADS % "proxy_set_body a;",
        "location / { proxy_pass http://10.0.0.1; proxy_buffering off; }",
        "proxy_request_buffering off; location / { fastcgi_pass 10.0.0.1:9; }",
        f"{UPLOADS % ''} listen 444 ssl http2;",
    ],
)
def test_uploads_that_lose_nothing_hinder_nothing(server: str) -> None:
    d = held(server)
    assert "per round trip" not in d.summary
    if "444" not in server:
        assert [s.directive for s in d.settings] == ["http2"]


def test_uploads_without_tls_hinder_nothing() -> None:
    plain = f"}} server {{ listen 80; {UPLOADS % ''}"
    assert held(plain).settings


SIZES = ["http2_max_field_size", "http2_max_header_size"]
LARGE = "large_client_header_buffers 4 32k;"


def sizes(server: str = "", http: str = "", listen: str = "443 ssl") -> dict[str, str]:
    settings = held(server, http, listen=listen, version="1.18.0").settings
    return {s.directive: s.args[0] for s in settings if s.directive in SIZES}


def test_http2_takes_the_headers_that_http1_takes_before_both_have_one_limit() -> None:
    assert sizes() == dict(zip(SIZES, ["8k", "34k"], strict=True))
    assert sizes(LARGE) == sizes(http=LARGE) == dict(zip(SIZES, ["32k", "130k"], strict=True))
    assert sizes(LARGE, LARGE.replace("32k", "8k")) == sizes(LARGE)
    first = "client_header_buffer_size 64k;"
    assert sizes(first) == dict(zip(SIZES, ["64k", "97k"], strict=True))
    assert held(version="1.19.6").settings == held(version="1.18.0").settings
    assert [s.directive for s in held(version="1.19.7").settings] == ["listen"]


def test_the_server_that_takes_most_says_for_all() -> None:
    """A browser asks for other names of a certificate over the connection that it has."""
    more = f"}} server {{ listen 443; server_name b; {LARGE} return 301 https://a/;"
    assert sizes(more)["http2_max_field_size"] == "32k"
    elsewhere = f"}} server {{ listen 80; {LARGE} return 301 https://a/;"
    assert sizes(elsewhere)["http2_max_field_size"] == "8k"


def test_limits_of_http2_that_stand_are_their_operators() -> None:
    enough = "http2_max_field_size 8k; http2_max_header_size 64k;"
    assert sizes(enough) == sizes(http=enough) == {}
    assert list(sizes("http2_max_field_size 16k;")) == SIZES[1:]
    for small in ("http2_max_field_size 4k;", "http2_max_header_size 32k;", f"{enough} {LARGE}"):
        d = held(small, version="1.18.0")
        assert (d.verdict, d.settings) == ("keep", [])
        assert "/n.conf:7 http2_max_" in d.blocked_by
    assert held("http2_max_field_size 4k;", version="1.22.1").settings


def test_where_http2_is_spoken_its_limits_are_left() -> None:
    assert sizes(listen="443 ssl http2") == {}
    assert list(sizes(listen="443 ssl http2; } server { listen 8443 ssl")) == SIZES


def test_a_first_buffer_beyond_the_large_ones_is_of_http1_alone() -> None:
    line = "client_header_buffer_size 64k;"
    d = held(line)
    assert (d.verdict, d.settings) == ("keep", [])
    assert d.blocked_by.startswith("/n.conf:7 client_header_buffer_size 64k ")
    assert "large_client_header_buffers applies (set it to 4 64k)" in d.blocked_by
    assert held(f"{line} large_client_header_buffers 4 64k;").settings
    assert held("client_header_buffer_size 8k;").settings
