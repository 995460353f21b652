"""What was said falsely or for no use: each case was found in real configurations."""

from cases import outcome
from conf_files import Files
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.hit import WHOLE_TREE
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux, select_rules
from nginx_tune.conf.tree import parse_text, read_tree
from nginx_tune.documents.facts import Dataset, Facts, Sizes

POOL = (
    "events {} http { upstream app { server 127.0.0.1:81; keepalive 8; keepalive_timeout 65s; %s } "
    "server { listen 80; location / { proxy_pass http://app; } } "
    "server { listen 127.0.0.1:81; keepalive_timeout %s; return 204; } }"
)
DOLLARS = (
    "events {} http { server { root /a/%s; location / { proxy_pass http://a.example; "
    "proxy_set_header Host $$host; proxy_set_header A $$remote_addr; proxy_set_header B $$scheme; "
    "} } }"
)
LIMIT = (
    "events {} http { limit_conn_zone $binary_remote_addr zone=a:1m; "
    "server { listen 443 ssl http2; location %s; } } }"
)
GZIP = (
    "events {} http { gzip on; gzip_types text/css; "
    "server { listen 80; location / { return 204; } %s } }"
)
BY_VARIABLE = (
    "events {} http { resolver 10.0.0.53; upstream app { server 10.0.0.1:443; } "
    "server { listen 80; set $to %s; location / { proxy_pass https://$to$request_uri; } } }"
)
GZIP_HOST = linux(flags=("--with-http_gzip_static_module",))
SHORT_FILES = Dataset(
    path="/srv",
    files=9,
    sizes=Sizes(mean_bytes=300, p50_bytes=300, p90_bytes=400, p99_bytes=500, max_bytes=500),
)

CASES: dict[str, tuple[str, str, Facts | None, int | str]] = {
    "servers that a script chooses": (
        "up-keepalive-idle-mismatch", POOL % ("balancer_by_lua_block { x() }", "5s"), None, 0,
    ),
    "ports, of a part of a configuration": (
        "up-ports-exhaustion", "server { location / { proxy_pass http://10.0.0.1; } }",
        linux(sysctls={"net.ipv4.ip_local_port_range": "32768 60999"}), WHOLE_TREE,
    ),
    "a name in stream that is looked up again": (
        "up-stream-static-dns",
        ("events {} stream { upstream u { zone u 64k; server a.example:1 resolve; } "
        "server { listen 1; proxy_pass u; } }"),
        None, 0,
    ),
    "a name in an upstream of stream": (
        "up-stream-static-dns",
        ("events {} stream { upstream u { server a.example:1; } "
        "server { listen 1; proxy_pass u; } }"),
        None, 1,
    ),
    "another path is asked for": (
        "up-proxies-to-itself",
        "events {} http { server { listen 80; location /a { proxy_pass http://127.0.0.1/b; } } }",
        None, 0,
    ),
    "a scheme of the request to an upstream": (
        "up-proxy-pass-no-resolver",
        ("events {} http { upstream app { server 10.0.0.1; } "
        "server { location / { proxy_pass $scheme://app$request_uri; } } }"),
        None, 0,
    ),
    "an address by a variable": (
        "up-proxy-pass-no-resolver",
        "events {} http { server { set $to 10.0.0.1:81; location / { proxy_pass http://$to; } } }",
        None, 0,
    ),
    "a parameter of another module's balancer": (
        "cf-parameter-unknown",
        "events {} http { upstream u { fair; server 10.0.0.1 srun_id=a; } }",
        None, 0,
    ),
    "a limit of logins": (
        "lim-req-no-burst",
        ("events {} http { limit_req_zone $binary_remote_addr zone=a:1m rate=5r/m; "
        "server { limit_req zone=a; } }"),
        None, 0,
    ),
    "a plain literal in the default profile": (
        "up-literal-no-keepalive",
        "events {} http { server { location / { proxy_pass http://10.0.0.1; } } }",
        None, 0,
    ),
    "a name by a variable that no upstream has": (
        "up-literal-no-keepalive", BY_VARIABLE % "a.internal", linux(version="1.27.3"), 1,
    ),
    "a name by a variable, which only that resolves again": (
        "up-literal-no-keepalive", BY_VARIABLE % "a.internal", linux(version="1.27.2"), 0,
    ),
    "a variable with a name that clients send": (
        "up-literal-no-keepalive", BY_VARIABLE % "$http_x_app", linux(version="1.30.6"), 0,
    ),
    "a variable with the name of an upstream": (
        "up-literal-no-keepalive", BY_VARIABLE % "app", linux(version="1.30.6"), 0,
    ),
    "a named location of the server around a part": (
        "cf-named-location-missing", "location / { error_page 404 = @far; root /srv; }",
        None, WHOLE_TREE,
    ),
    "a named location that the server of a part lacks": (
        "cf-named-location-missing",
        "server { location / { error_page 404 = @far; root /srv; } }", None, 1,
    ),
    "words that a template cuts": (
        "cf-directive-arguments",
        "events {} http { ssl_ciphers <%= @ciphers -%>; server { listen 80; } }", None, 0,
    ),
    "servers that the commercial nginx is given": (
        "cf-upstream-refused", "upstream u { zone u 64k; }", None, 0,
    ),
    "an upstream of nobody": ("cf-upstream-refused", "upstream u { keepalive 4; }", None, 1),
    "one server whose places all stream": (
        "px-buffering-off-global",
        ("events {} http { server { proxy_buffering off; location / { proxy_pass http://10.0.0.1; "
        "} location /a { proxy_pass http://10.0.0.1; } } }"),
        None, 0,
    ),
    "an address for the shell to fill in": (
        "up-proxy-pass-no-resolver",
        "events {} http { server { location / { proxy_pass http://$FLASK_SERVER_ADDR; } } }",
        None, 0,
    ),
    "a long wait for an upstream of the including file": (
        "up-connect-timeout",
        "location / { fastcgi_pass php; fastcgi_connect_timeout 360s; }", None, 0,
    ),
    "tcp_nopush where no files are served": (
        "io-nopush-no-sendfile",
        ("events {} http { tcp_nopush on; server { listen 80; location / { "
        "proxy_pass http://10.0.0.1; } } }"),
        None, 0,
    ),
    "Lua in stream, which has a module of its own": (
        "cf-directive-misplaced",
        ("events {} stream { lua_code_cache on; init_by_lua_block { x() } server { listen 1; "
        "content_by_lua_block { y() } } }"),
        None, 0,
    ),
    "Lua of http in the wrong block of http": (
        "cf-directive-misplaced", "events { lua_code_cache on; } http {}", None, 1,
    ),
    "a port and a limit of more digits than a number may have": (
        "cf-value-invalid",
        ("events {} http { limit_conn_zone $host zone=a:1m; limit_conn a N; server { listen N; } }"
         .replace("N", "9" * 4400)),
        None, 2,
    ),
    "a text that http returns without a code": (
        "cf-value-invalid", "events {} http { server { listen 1; return BACKEND; } }", None, 1,
    ),
    "a placeholder in capitals in stream": (
        "up-stream-static-dns",
        ("events {} stream { upstream u { server IP_1:6443; } "
        "server { listen 1; proxy_pass u; } }"),
        None, 0,
    ),
    "a scheme in stream, which is no name": (
        "up-stream-static-dns",
        "events {} stream { server { listen 1; proxy_pass http://a.example:80; } }",
        None, 0,
    ),
    "a port in the name of the default server": (
        "cn-location-unreachable",
        "events {} http { server { listen 1; server_name a.example:1; } server { listen 1; } }",
        None, 0,
    ),
    "an upstream that another file may hold": (
        "up-literal-no-keepalive", "location / { grpc_pass grpcs://app; }", None, WHOLE_TREE,
    ),
    "an older name of fonts, which nothing is sent as": (
        "gz-compressed-types", "events {} http { gzip_types application/x-font-woff; server { } }",
        linux(version="1.26.3"), 0,
    ),
    "an older name of fonts in the time of it": (
        "gz-compressed-types", "events {} http { gzip_types application/font-woff; server { } }",
        linux(version="1.14.2"), 1,
    ),
    "an older name of fonts that the configuration gives": (
        "gz-compressed-types",
        ("events {} http { types { application/font-woff woff; } "
        "gzip_types application/font-woff; server { } }"),
        linux(version="1.26.3"), 1,
    ),
    "a limit for a place that few ask at once": (
        "lim-conn-h2", LIMIT % "/login { limit_conn a 5", None, 0,
    ),
    "a small limit of all pages": ("lim-conn-h2", LIMIT % "/ { limit_conn a 5", None, 1),
    "a health check that closes": (
        "cn-keepalive-extreme", "location = /ping { keepalive_timeout 0; fastcgi_pass a; }",
        None, 0,
    ),
    "pages of errors alone": (
        "gz-dynamic-static-files", GZIP % "location @e { root /srv/errors; }", GZIP_HOST, 0,
    ),
    "challenges of certificates alone": (
        "gz-dynamic-static-files", GZIP % "location /.well-known/ { root /srv/e; }", GZIP_HOST, 0,
    ),
    "pictures alone": (
        "gz-dynamic-static-files",
        GZIP % r"location ~* \.(?:jpe?g|png|webp)$ { root /srv; }", GZIP_HOST, 0,
    ),
    "pictures with their stylesheets": (
        "gz-dynamic-static-files",
        GZIP % r"location ~* \.(jpg|css|js)$ { root /srv; }", GZIP_HOST, 1,
    ),
    "pictures by the directory": (
        "gz-dynamic-static-files", GZIP % "location /a { root /srv/Images; }", GZIP_HOST, 0,
    ),
    "pictures by the place": (
        "gz-dynamic-static-files", GZIP % "location /media/ { root /srv; }", GZIP_HOST, 0,
    ),
    "a directory that is empty": (
        "gz-dynamic-static-files", GZIP % "location /a { root /srv; }",
        replace(GZIP_HOST, datasets=[Dataset(path="/srv", files=0, bytes=0)]), 0,
    ),
    "files that are shorter than is compressed": (
        "gz-dynamic-static-files", GZIP % "location /a { root /srv; gzip_min_length 1k; }",
        replace(GZIP_HOST, datasets=[SHORT_FILES]), 0,
    ),
    "files that are no shorter than is compressed": (
        "gz-dynamic-static-files", GZIP % "location /a { root /srv; }",
        replace(GZIP_HOST, datasets=[SHORT_FILES]), 1,
    ),
    "video by its types": (
        "gz-dynamic-static-files",
        GZIP % "location /hls/ { types { video/mp2t ts; } default_type video/mp4; root /srv; }",
        GZIP_HOST, 0,
    ),
    "a cache that no location uses": (
        "ca-no-max-size", "events {} http { proxy_cache_path /c keys_zone=c:1m; server { } }",
        None, 0,
    ),
    "a cache that an unknown name may use": (
        "ca-no-max-size",
        ("events {} http { proxy_cache_path /c keys_zone=c:1m; server { location / {"
        " proxy_pass http://b; proxy_cache $arg_c; } } }"),
        None, 1,
    ),
    "a server with its port, in a part": (
        "up-literal-no-keepalive", "location / { grpc_pass grpcs://app:443; }", None, 1,
    ),
    "a name that another server's answer gives": (
        "up-proxy-pass-no-resolver",
        ("events {} http { server { location / { auth_request /a; "
        "auth_request_set $backend $upstream_http_x; proxy_pass http://$backend; } } }"),
        None, 0,
    ),
    "a name that a script gives": (
        "up-proxy-pass-no-resolver",
        ("events {} http { js_set $backend main.choose; server { location / { "
        "proxy_pass http://$backend; } } }"),
        None, 0,
    ),
    "a name that the request brings": (
        "up-proxy-pass-no-resolver",
        "events {} http { server { location / { proxy_pass http://$http_x_backend; } } }", None, 1,
    ),
    "no connection is kept, said twice": (
        "cn-keepalive-extreme",
        "events {} http { keepalive_timeout 0; keepalive_requests 1; server { } }", None, 1,
    ),
    "none is kept in one server, and few requests in another": (
        "cn-keepalive-extreme",
        "events {} http { server { keepalive_timeout 0; } server { keepalive_requests 1; } }",
        None, 2,
    ),
    "dollars doubled for a program that fills single ones in": (
        "cf-variable-unknown", DOLLARS % "$ssl_cert", None, 0,
    ),
    "doubled dollars beside a single one": (
        "cf-variable-unknown", DOLLARS % "$uri", None, 3,
    ),
    "one doubled dollar": (
        "cf-variable-unknown", "events {} http { server { return 200 $$host; } }", None, 1,
    ),
    "a socket's path with nothing behind it": (
        "cf-location-refused",
        "events {} http { server { location ~ a { proxy_pass http://unix:/s:; } } }", None, 0,
    ),
    "a socket's path with another behind it": (
        "cf-location-refused",
        "events {} http { server { location ~ a { proxy_pass http://unix:/s:/; } } }", None, 1,
    ),
    "the queue of an address that a template fills in": (
        "ls-backlog-capped", "server { listen %ip%:%port%; }",
        linux(sysctls={"net.core.somaxconn": "128"}), 0,
    ),
}  # fmt: skip


@each_row(("file", "count"), [("tcp.conf", 0), ("/etc/nginx/nginx.conf", 1)])
def test_a_stream_in_a_file_of_its_own_has_no_events(file: str, count: int) -> None:
    tree = parse_text("stream { server { listen 1; } }", file=file)
    found = audit(tree, None, [one for one in ALL if one.id == "cf-events-missing"]).findings
    assert len(found) == count


@each_row("name", CASES)
def test_case(name: str) -> None:
    rule, conf, facts, expected = CASES[name]
    assert outcome(rule, conf, facts) == expected


def test_of_several_places_the_widest_is_shown() -> None:
    tree = parse_text(
        "events {} http { server { location /setup/first { proxy_pass https://10.0.0.1; }\n"
        "location / { proxy_pass https://10.0.0.1; } } }"
    )
    rules = [one for one in ALL if one.id == "up-literal-no-keepalive"]
    assert [one.line for one in audit(tree, None, rules).findings] == [2]


@each_row(
    "rule", ["ob-no-status", "ls-reuseport-reload-loss", "up-ports-exhaustion", "lim-conn-default"]
)
def test_what_holds_for_nearly_everybody_is_said_in_the_strict_profile(rule: str) -> None:
    assert rule not in {one.id for one in select_rules(ALL)}
    assert rule in {one.id for one in select_rules(ALL, profile="strict")}
    assert rule in {one.id for one in select_rules(ALL, select=[rule])}


def test_rules_on_descriptors_name_one_value() -> None:
    conf = "events {} http { open_file_cache max=100000; server { root /srv; } }"
    rules = {"lim-nofile-lt-2x", "io-open-cache-fd-budget"}
    found = audit(
        parse_text(conf.replace("{}", "{ worker_connections 1024; }", 1)),
        linux(nofile=(1024, 1 << 20)),
        [one for one in ALL if one.id in rules],
    ).findings
    values = {one.rule: one.fix.partition(";")[0] for one in found}
    assert set(values) == rules
    assert set(values.values()) == {"Set worker_rlimit_nofile 102400"}


def test_a_file_that_is_included_twice_is_one_cause() -> None:
    server = "server { listen %s; server_name a.example; }"
    text = f"{server % 80} {server % 81}"
    main = "events {} http { include /a; include /b; include /c; }"
    files = {"/main": main, "/a": text, "/b": text, "/c": server % 80}
    tree = read_tree("/main", Files({name: text.encode() for name, text in files.items()}))
    found = audit(tree, None, [one for one in ALL if one.id == "cf-server-name-twice"]).findings
    assert [(one.file, "same text" in one.fix) for one in found] == [("/b", True), ("/c", False)]


@each_row("connections", [2048, 400_000])
@each_row("rule", ["lim-nofile-lt-2x", "lim-conn-exceeds-rlimit"])
def test_no_fix_contradicts_the_limits_of_the_host(rule: str, connections: int) -> None:
    nofile = connections + 1 if rule == "lim-nofile-lt-2x" else connections - 1
    conf = (
        f"worker_rlimit_nofile {nofile}; events {{ worker_connections {connections}; }} http {{ }}"
    )
    host = linux(nofile=(1024, connections + 1), can_raise=False)
    for can_raise in (True, False):
        facts = replace(host, limits=replace(host.limits, can_raise=can_raise, nr_open=1 << 20))
        found = audit(parse_text(conf), facts, [one for one in ALL if one.id == rule])
        (fix,) = (one.fix for one in found.findings)
        assert fix.startswith("First raise the hard limit") is not can_raise
    low = replace(host, limits=replace(host.limits, nr_open=connections + 1))
    found = audit(parse_text(conf), low, [one for one in ALL if one.id == rule])
    assert found.findings[0].fix.startswith("First raise fs.nr_open")
