"""Effective values, variables, pools, served directories, listeners."""

from conf_readers import tree_of
from rows import each_row

from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.logs import main_error_logs
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.served import searches_roots, served_paths
from nginx_tune.conf.variables import Variables
from nginx_tune.conf.workers import asked_pool, declared_pools, pool_names


def _scopes(http: str) -> dict[str, Scope]:
    return {str(s).removeprefix("server > "): s for s in scopes(tree_of(f"http {{ {http} }}"))}


def test_the_innermost_value_holds() -> None:
    found = _scopes(
        """
        sendfile off; aio threads;
        server {
            sendfile on;
            location /a/ {
                aio off;
                location /a/b/ { sendfile off; if ($x) { root /r; sendfile on; } }
            }
            location /c/ { }
        }
        """
    )
    values = {name: (s.value("sendfile"), s.value("aio")) for name, s in found.items()}
    assert values == {
        "server": ("on", "threads"),
        "location /a/": ("on", "off"),
        "location /a/ > location /a/b/": ("off", "off"),
        "location /a/ > location /a/b/ > if ($x)": ("on", "off"),
        "location /c/": ("on", "threads"),
    }
    assert found["server"].effective("directio") is None
    assert found["server"].value("directio", "off") == "off"


def test_a_level_that_sets_an_array_replaces_the_outer_one() -> None:
    found = _scopes(
        """
        add_header A 1; add_header B 2;
        server { location /a/ { add_header C 3; } location /b/ { } }
        """
    )
    headers = {name: [d.value for d in s.effective_all("add_header")] for name, s in found.items()}
    assert headers == {"server": ["A", "B"], "location /a/": ["C"], "location /b/": ["A", "B"]}


def test_an_if_in_a_server_is_no_scope_and_streams_are_not_http() -> None:
    tree = tree_of("http { server { if ($x) { return 403; } } } stream { server { listen 1; } }")
    assert [scope.kind for scope in scopes(tree)] == ["server"]
    assert listeners(tree) == []


@each_row(
    ("http", "text", "values", "complete"),
    [
        ("split_clients $uri $d { 50% a; * b; }", "p_$d", {"p_a", "p_b"}, True),
        ("split_clients $uri $d { 50% a; 49% b; }", "$d", {"a", "b", ""}, True),
        ("split_clients $uri $d { 33.33% a; 33.33% b; 33.34% c; }", "$d", {"a", "b", "c"}, True),
        ("map $host $d { a.example 1; default 2; }", "${d}x", {"1x", "2x"}, True),
        ("map $host $d { hostnames; *.example 1; }", "$d", {"1", ""}, True),
        ("map $host $d { ~^(.)x $1; default 2; }", "$d", {"2"}, False),
        ("map $D $e { a 1; b 2; } split_clients $uri $d { 1% a; * b; }", "$e", {"1", "2"}, True),
        ("map $d $e { a 1; } split_clients $uri $d { 1% a; * b; }", "$e", {"1", ""}, True),
        ("map $a $b { x $a; default 1; } map $b $a { x $b; default 2; }", "$a", {"1", "2"}, False),
        ("", "plain", {"plain"}, True),
        ("", "$http_x", set(), False),
    ],
)
def test_what_a_variable_can_be(http: str, text: str, values: set[str], complete: bool) -> None:
    tree = tree_of(f"http {{ {http} server {{ location / {{ }} }} }}")
    found = Variables(tree).possible(text, scopes(tree)[-1])
    assert (set(found.known), found.complete) == (values, complete)


@each_row(
    ("server", "values", "complete"),
    [
        ("set $d a; location / { }", {"a"}, True),
        ("set $d a; location / { set $d b; }", {"b"}, True),
        ("set $d a; location / { if ($x) { set $d b; } }", {"a", "b"}, True),
        ("set $d a; if ($x) { set $d b; } location / { }", {"a", "b"}, True),
        ("location / { if ($x) { set $d b; } }", {"b"}, False),
        ("set $d a; location /o/ { set $d no; location /o/i/ { } }", {"a"}, True),
        ("set $c a; set $d $c$c; location / { }", {"aa"}, True),
        ("set $d $arg_d; location / { }", set(), False),
    ],
)
def test_set_lines_that_a_request_passes(server: str, values: set[str], complete: bool) -> None:
    tree = tree_of(f"http {{ server {{ {server} }} server {{ set $d other; }} }}")
    inner = [s for s in scopes(tree) if s.kind == "location"][-1]
    found = Variables(tree).possible("$d", inner)
    assert (set(found.known), found.complete) == (values, complete)


def test_values_do_not_grow_without_end() -> None:
    tables = "".join(
        f"split_clients $uri $v{n} {{ {''.join(f'1% {i};' for i in range(60))} * x; }}"
        for n in range(6)
    )
    tree = tree_of(f"http {{ {tables} server {{ location / {{ }} }} }}")
    found = Variables(tree).possible("$v0$v1$v2$v3$v4$v5", scopes(tree)[-1])
    assert not found.complete
    assert len(found.known) < 5000


def test_maps_of_maps_do_not_take_for_ever() -> None:
    maps = "".join(f"map $v{n} $v{n + 1} {{ default $v{n}$v{n}; }}" for n in range(60))
    tree = tree_of(f"http {{ {maps} server {{ location / {{ set $v0 x; }} }} }}")
    assert not Variables(tree).possible("$v60", scopes(tree)[-1]).complete


def test_thread_pools() -> None:
    tree = tree_of(
        "thread_pool a threads=16 max_queue=0; thread_pool b threads=x bogus;"
        "http { server { location / { aio threads=$p; } } }"
    )
    pools = declared_pools(tree)
    assert (pools["a"].threads, pools["a"].max_queue) == (16, 0)
    assert (pools["b"].threads, pools["b"].max_queue) == (None, 65536)
    assert pool_names(tree) == {"a", "b"}
    assert pool_names(tree_of("http { aio threads; }")) == {"default"}
    asked = [asked_pool(d) for d in tree_of("aio on; aio threads=x; aio threads;").main]
    assert asked == [None, "x", "default"]
    assert asked_pool(None) is None


@each_row(
    ("http", "served"),
    [
        ("server { root /w; }", {("root", "/w")}),
        ("server { root /w; location / { } }", {("root", "/w")}),
        ("server { root /w; location /m/ { } }", {("root", "/w"), ("root", "/w/m")}),
        ("server { root /w; location ~ x { } location / { } }", {("root", "/w")}),
        ("server { location /m/ { alias /d/; location ~ y { } } }", {("alias", "/d")}),
        ("server { root /w; location / { proxy_pass http://b; } }", set()),
        ("server { root /w; return 301 https://x; location / { } }", set()),
        ("server { root /w; location / { } location ~ /\\.ht { deny all; } }", {("root", "/w")}),
        ("server { root $host; location / { } }", set()),
        ("server { root html; location / { } }", set()),
        (
            "split_clients $uri $d { 50% 1; * 2; } server { location / { root /d$d; } }",
            {("root", "/d1"), ("root", "/d2")},
        ),
        (
            """
            proxy_cache_path /c1 keys_zone=one:1m; proxy_cache_path /c2 keys_zone=two:1m;
            proxy_cache one;
            server { root /w; location / { proxy_pass http://b; }
                     location /x/ { proxy_cache off; proxy_pass http://b; } }
            """,
            {("cache", "/c1")},
        ),
        (
            """
            split_clients $uri $d { 50% 1; * 2; }
            proxy_cache_path /c1 keys_zone=z_1:1m; proxy_cache_path /c2 keys_zone=z_2:1m;
            server { location / { proxy_cache z_$d; proxy_pass http://b; } }
            """,
            {("cache", "/c1"), ("cache", "/c2")},
        ),
    ],
)
def test_which_directories_are_served(http: str, served: set[tuple[str, str]]) -> None:
    found = served_paths(tree_of(f"http {{ {http} }}"))
    assert {(one.via, one.path) for one in found} == served


@each_row(
    ("server", "searches"),
    [
        ("root /a; location / { try_files $uri @b; } location @b { root /b; }", True),
        ("root /a; error_page 404 = @b; location @b { root /b; }", True),
        ("root /a; try_files $uri @b; location @b { try_files $uri =404; }", False),
        ("root /a; error_page 404 /404.html; location = /404.html { root /b; }", False),
        ("root /a; location /b/ { root /b; }", False),
    ],
)
def test_which_configurations_search_roots_in_turn(server: str, *, searches: bool) -> None:
    other = "server { root /c; location @b { root /d; } }"
    assert searches_roots(tree_of(f"http {{ server {{ {server} }} {other} }}")) is searches


def test_listeners_are_shared_by_address() -> None:
    found = listeners(
        tree_of(
            """http {
            server { listen 80; listen [::]:80; listen 443 quic reuseport; listen 443 ssl; }
            server { listen *:80 reuseport; listen 0.0.0.0:443; listen unix:/run/x; }
            server { listen 127.0.0.1; listen localhost:81; }
            }"""
        )
    )
    seen = {
        (one.address, one.is_quic): (len(one.lines), one.reuseport is not None) for one in found
    }
    assert seen == {
        ("*:80", False): (2, True),
        ("[::]:80", False): (1, False),
        ("*:443", True): (1, True),
        ("*:443", False): (2, False),
        ("unix:/run/x", False): (1, False),
        ("127.0.0.1:80", False): (1, False),
        ("localhost:81", False): (1, False),
    }


def test_the_main_error_log() -> None:
    assert main_error_logs(tree_of("error_log /l debug; http { error_log /h; }"), "/c") == ["/l"]
    assert main_error_logs(tree_of("error_log syslog:server=x; error_log stderr;"), "/c") == []
    assert main_error_logs(tree_of(""), "/c") == ["/c"]
    assert main_error_logs(tree_of(""), "stderr") == []
    assert main_error_logs(tree_of(""), None) == []
