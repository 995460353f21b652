"""Upstreams, who passes requests to them, caches and TLS listeners."""

from rows import each_row

from nginx_tune.conf.listeners import listeners, tls_listeners
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.served import caches, caching
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.conf.upstreams import (
    Pass,
    host_of,
    is_resolved_once,
    lost_connection_header,
    passes,
    sent_header,
    stands_before,
    upstreams,
)
from nginx_tune.conf.values import parse_bytes, parse_seconds
from nginx_tune.conf.variables import Variables


def _http(text: str) -> ConfTree:
    tree = parse_text(f"events {{}} http {{ {text} }}")
    assert tree.complete, tree.unparsed
    return tree


def _passes(text: str) -> list[Pass]:
    tree = _http(text)
    return passes(scopes(tree), Variables(tree))


@each_row(
    ("line", "addresses", "is_tls"),
    [
        ("proxy_pass http://App;", ("app",), False),
        ("proxy_pass http://app:81/x/;", ("app:81",), False),
        ("proxy_pass https://[::1]:81;", ("[::1]:81",), True),
        ("proxy_pass http://unix:/run/App.sock:/x/;", ("unix:/run/App.sock",), False),
        ("fastcgi_pass unix:/run/php.sock;", ("unix:/run/php.sock",), False),
        ("fastcgi_pass 127.0.0.1:9000;", ("127.0.0.1:9000",), False),
        ("grpc_pass grpcs://app;", ("app",), True),
        ("set $to app; proxy_pass http://$to;", ("app",), False),
        ("proxy_pass http://$pool;", ("a", "b"), False),
        ("proxy_pass $http_to;", (), False),
    ],
)
def test_whom_a_line_passes_requests_to(
    line: str, addresses: tuple[str, ...], is_tls: bool
) -> None:
    table = "split_clients $uri $pool { 50% a; * b; }"
    (found,) = _passes(f"{table} server {{ location / {{ {line} }} }}")
    assert (found.addresses, found.is_tls) == (addresses, is_tls)


def test_every_location_and_if_that_passes_is_found() -> None:
    found = _passes(
        "server { location / { proxy_pass http://a; location /x { } "
        "if ($arg_b) { proxy_pass http://b; } } location /c { fastcgi_pass c:1; } }"
    )
    assert [one.addresses for one in found] == [("a",), ("b",), ("c:1",)]


def test_headers_of_an_outer_level_are_lost_as_a_set() -> None:
    (found,) = _passes(
        'proxy_set_header Connection ""; server { location / {'
        " proxy_set_header Host $host; proxy_pass http://a; } }"
    )
    assert sent_header(found.scope, "proxy", "connection") is None
    lost = lost_connection_header(found.scope)
    assert lost is not None
    assert lost.args == ("Connection", "")
    (kept,) = _passes(
        'proxy_set_header Connection ""; server { location / { proxy_pass http://a; } }'
    )
    line = sent_header(kept.scope, "proxy", "connection")
    assert line is not None
    assert line.args[1] == ""
    assert lost_connection_header(kept.scope) is None


def test_upstreams() -> None:
    tree = _http(
        "upstream App { keepalive 8; server 10.0.0.1 down; server b:81 backup; least_conn; }"
        "upstream local { server unix:/a; }"
    )
    app, local = upstreams(tree)
    assert app.name == "app"
    assert [peer.value for peer in app.peers] == ["b:81"]
    assert app.balancer is not None
    assert app.keepalive is not None
    assert stands_before(app.block, app.keepalive, app.balancer)
    assert not stands_before(app.block, app.balancer, app.keepalive)
    assert local.is_unix
    assert not app.is_unix
    assert not app.is_loopback
    assert local.is_loopback
    assert local.balancer is None


@each_row(
    ("address", "host", "is_name"),
    [
        ("10.0.0.1:80", "10.0.0.1", False),
        ("[2001:db8::1]:80", "[2001:db8::1]", False),
        ("unix:/run/a", "", False),
        ("localhost:80", "localhost", False),
        ("App.Example.com", "app.example.com", True),
        ("app:80", "app", True),
    ],
)
def test_hosts(address: str, host: str, is_name: bool) -> None:
    assert host_of(address) == host
    assert is_resolved_once(host) is is_name


def test_caches_and_who_uses_them() -> None:
    tree = _http(
        "proxy_cache_path /a keys_zone=a:10m max_size=1g use_temp_path=off;"
        "fastcgi_cache_path /b keys_zone=b:1m;"
        "proxy_cache a; server { location / { proxy_pass http://x; }"
        " location /off { proxy_cache off; proxy_pass http://x; }"
        " location /f { fastcgi_cache $c; fastcgi_pass x; set $c b; } location /s { root /w; } }"
    )
    variables = Variables(tree)
    found = caches(tree)
    assert [(c.directory, c.zone, c.keys_bytes, c.max_bytes, c.has_own_temp) for c in found] == [
        ("/a", "a", 10 << 20, 1 << 30, True),
        ("/b", "b", 1 << 20, None, False),
    ]
    users = caching(passes(scopes(tree), variables), found, variables)
    assert [[cache.zone for cache in user.caches] for user in users] == [["a"], ["b"]]


def test_tls_listeners_belong_to_their_default_server() -> None:
    tree = _http(
        "server { listen 443 ssl; server_name a; }"
        "server { listen 443 ssl default_server; server_name b; }"
        "server { listen 444; ssl on; } server { listen 80; } server { listen 443 quic; }"
    )
    servers = [scope for scope in scopes(tree) if scope.kind == "server"]
    found = list(tls_listeners(listeners(tree), servers))
    assert [one.listener.address for one in found] == ["*:443", "*:444", "*:443"]
    assert found[0].default is servers[1]
    assert found[0].servers == servers[:2]


@each_row(
    ("text", "expected"),
    [("10m", 10 << 20), ("1G", 1 << 30), ("0", 0), ("8K", 8192), ("x", None), ("-1", None)],
)
def test_bytes(text: str, expected: int | None) -> None:
    assert parse_bytes(text) == expected


@each_row(
    ("text", "expected"),
    [("75", 75.0), ("1m30s", 90.0), ("1h 30m", 5400.0), ("500ms", 0.5), ("s", None), ("", None)],
)
def test_seconds(text: str, expected: float | None) -> None:
    assert parse_seconds(text) == expected
