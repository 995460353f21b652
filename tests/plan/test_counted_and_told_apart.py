"""HTTP/2 stays off beside what counts or chooses, whichever way round it says so."""

from rows import each_row
from test_multiplexing import held

WHITELIST = (
    "geo $wl { default 0; 10.0.0.0/8 1; } map $wl $lim { 0 $binary_remote_addr; 1 ''; } "
    "%s $lim zone=p:1m%s;"
)


@each_row(
    ("http", "server"),
    [
        (WHITELIST % ("limit_conn_zone", ""), "limit_conn p 10;"),
        ("limit_conn_zone $http_cf_connecting_ip zone=p:1m;", "limit_conn p 10;"),
        ("limit_conn_zone $cookie_sid zone=p:1m;", "location /a/ { limit_conn p 5; }"),
        ("limit_conn_zone $ip zone=p:1m;", "set $ip $remote_addr; limit_conn p 10;"),
        ("limit_conn_zone $binary_remote_addr zone=p:1m; limit_conn p 31;", ""),
        # Of all clients together: each of them brings more at once.
        ("limit_conn_zone $server_name zone=p:1m;", "limit_conn p 100;"),
        ("limit_conn_zone all zone=p:1m;", "limit_conn p 500;"),
    ],
)
def test_a_limit_of_connections_hinders_whatever_its_key(http: str, server: str) -> None:
    d = held(server, http)
    assert (d.verdict, d.settings) == ("keep", [])
    assert "counts each concurrent HTTP/2 request as a connection" in d.summary
    assert held(f"{server} limit_conn_dry_run on;", http).settings


def test_a_limit_that_a_page_does_not_reach_hinders_nothing() -> None:
    assert held("limit_conn p 100;", "limit_conn_zone $cookie_sid zone=p:1m;").settings
    other = "limit_conn p 9; } server { listen 80; limit_conn p 5;"
    assert held(f"}} server {{ listen 80; {other}", "limit_conn_zone $uid zone=p:1m;").settings


@each_row(
    ("http", "is_told"),
    [
        (WHITELIST % ("limit_req_zone", " rate=5r/s"), True),
        ("limit_req_zone $cookie_sid zone=p:1m rate=5r/s;", True),
        ("limit_req_zone all zone=p:1m rate=5r/s;", False),
    ],
)
def test_a_limit_of_requests_is_a_risk_by_any_key_that_varies(http: str, *, is_told: bool) -> None:
    d = held("limit_req zone=p burst=20;", http)
    assert d.settings
    assert any("limit_req zone=p burst=20" in one for one in d.risks) is is_told
    dry = held("limit_req zone=p burst=20; limit_req_dry_run on;", http).risks
    assert not any("limit_req" in one for one in dry)


BY_PROTOCOL = "map $server_protocol $bad { default 0; HTTP/2.0 1; }"
BY_KEY = "map $server_protocol $k { HTTP/2.0 $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/s;"


@each_row(
    ("http", "server"),
    [
        (BY_PROTOCOL, "if ($bad) { return 403; }"),
        (BY_PROTOCOL, 'location / { if ($bad = "1") { return 403; } }'),
        (BY_PROTOCOL, "set $deny $bad; if ($deny) { return 403; }"),
        (BY_PROTOCOL, "set $deny 0; if ($arg_a) { set $deny $bad; } if ($deny) { return 403; }"),
        (f"{BY_PROTOCOL} map $bad $deny {{ 1 yes; }}", "if ($deny) { return 403; }"),
        ("map $server_protocol $b { default 1; ~^HTTP/1 0; }", "if ($b) { return 444; }"),
        ('map "$server_protocol:$uri" $b { ~^HTTP/2 1; }', "if ($b) { return 444; }"),
        ("map $uri $b { default $server_protocol; }", "if ($b = HTTP/2.0) { return 444; }"),
        ('map $http_connection $b { "" 1; default 0; }', "if ($b) { return 444; }"),
        ("", 'if ($http_connection = "") { return 444; }'),
        ("", "if ($http_connection !~* keep) { return 444; }"),
        ("map $server_protocol $to { HTTP/2.0 /new; }", "location / { return 302 $to$uri; }"),
        ("map $server_protocol $to { HTTP/2.0 /n; }", "if ($arg_a) { rewrite ^ $to last; }"),
        (BY_KEY, "limit_req zone=k burst=99;"),
    ],
)
def test_what_a_map_makes_of_the_protocol_hinders(http: str, server: str) -> None:
    d = held(server, http)
    assert (d.verdict, d.settings) == ("keep", [])
    assert "treats HTTP/2 differently from HTTP/1.1" in d.summary
    assert d.summary.startswith("Not written: /n.conf:7 ")


@each_row(
    ("http", "server"),
    [
        # As every site with websockets has it: nothing is chosen by it.
        (
            "map $http_upgrade $up { default upgrade; '' close; }",
            "location / { proxy_pass http://10.0.0.1; proxy_set_header Connection $up; }",
        ),
        # Who asks for a websocket goes on to come over HTTP/1.1.
        ("", "location / { if ($http_connection ~* upgrade) { return 426; } }"),
        ("map $http_connection $u { ~*upgrade 1; default 0; }", "if ($u) { return 426; }"),
        ("map $server_protocol $old { HTTP/1.0 1; default 0; }", "if ($old) { return 426; }"),
        ("map $server_protocol $b { volatile; HTTP/1.1 0; HTTP/2.0 0; }", "if ($b) { return 4; }"),
        (BY_PROTOCOL, "add_header X-Protocol $bad;"),
        (BY_PROTOCOL, "} server { listen 80; if ($bad) { return 403; }"),
        (BY_PROTOCOL, "set $bad 0; if ($bad) { return 403; }"),
        ("", "return 200 $server_protocol;"),
        ("map $remote_addr $b { 10.0.0.1 1; }", "if ($b) { return 403; }"),
        ("map $a $b { default $b$a; } map $b $a { default $a$b; }", "if ($b) { return 403; }"),
    ],
)
def test_what_is_the_same_over_both_hinders_nothing(http: str, server: str) -> None:
    assert [s.directive for s in held(server, http).settings] == ["http2"]
