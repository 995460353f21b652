"""What is true and of no use stays unsaid, and what is like it and matters is said.

Each kind was found in a draw from public repositories; the second of a pair is the case that the
cure must not silence.
"""

from cases import outcome
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.context import AuditProfile
from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.facts_machine import Listener

LOST = (
    "events {} http { server { add_header X-Content-Type-Options nosniff; "
    "add_header X-Frame-Options DENY; %s } }"
)
QUIC = "events {} http { server { listen 443 ssl; listen 443 quic; listen [::]:443 quic; %s } }"
UPGRADE = (
    "events {} http { server { location %s { proxy_pass http://10.0.0.1; "
    "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; %s } } }"
)
FOR_ALL = 'proxy_set_header Connection "upgrade"; '
CACHED = (
    "server { listen 443 ssl; server_name a.org; location / { proxy_pass http://app; "
    "proxy_set_header Host $host; proxy_cache pages; proxy_cache_key $scheme$uri$args; } }"
)
TOKENS = (
    "events {} http { proxy_cache_path /c keys_zone=c:1m; server { %s location / { "
    "proxy_pass http://10.0.0.1; proxy_cache c; proxy_cache_valid 10m; %s } } }"
)
PASSED_ON = "proxy_set_header Authorization $http_authorization; "
OTHER_ORIGINS = 'add_header Access-Control-Allow-Headers "Content-Type,Authorization";'
CLIENT = (
    "events {} http { proxy_set_header X-Real-IP $remote_addr; %s server { location / { "
    "proxy_pass http://10.0.0.1; proxy_set_header X-Forwarded-For $remote_addr; } } }"
)
OTHER_SERVER = (
    "events {} http { server { listen 443 quic; server_name a.org; } "
    "server { listen 443 ssl; server_name A.org b.org; %s } }"
)
STREAMS = (
    'events {} http { map $http_upgrade $c { default upgrade; "" close; } '
    "upstream s { server 10.0.0.1:4000; } server { location %s { proxy_pass http://s; "
    "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $c; } } }"
)
GZIP_STATIC = ("--with-http_gzip_static_module",)
ON_GZIP = linux(flags=GZIP_STATIC)
FILES = "events {} http { gzip on; gzip_types text/css; server { %s } }"
KEY = (
    "events {} http { proxy_cache_path /c keys_zone=c:1m; server { location / { "
    "proxy_pass http://10.0.0.1; proxy_cache c; proxy_cache_key $uri; %s } } }"
)
HOST_LOST = (
    "events {} http { server { proxy_set_header Host $host; location ~ ^/(.*) { proxy_pass %s; "
    "proxy_set_header X-Real-IP $remote_addr; } } }"
)
GROUP = (
    "events {} http { upstream u { %s } server { location / { proxy_pass http://u; } } "
    "server { location / { proxy_pass http://%s; } } }"
)
ONE_WORKER = "events {} http { server { listen 80; location %s { root /srv/www; } } }"
UNTIL = (
    "events {} http { %s server { %s location /.well-known/acme-challenge/ { root /srv; } "
    "location / { proxy_pass %s; } } }"
)
ON_HOST = linux(cpus=8)
DROPS = replace(
    linux(sysctls={"net.core.somaxconn": "128"}),
    listeners=[Listener(address="0.0.0.0", port=80, backlog=128, drops=900, of_nginx=True)],
)
CASES: dict[str, tuple[str, str, Facts | None, int]] = {
    "a short queue that has overflowed": (
        "ls-backlog-capped", "events {} http { server { listen 80; } }", DROPS, 0,
    ),
    "a short queue of another port": (
        "ls-backlog-capped", "events {} http { server { listen 81; } }", DROPS, 1,
    ),
    "a server for monitors alone": (
        "cn-keepalive-extreme",
        ("events {} http { server { keepalive_timeout 0; location = /status { stub_status; } "
        "location ~ ^/(fpm-status|fpm-ping)$ { fastcgi_pass a; } } }"), None, 0,
    ),
    "a server with a status beside its pages": (
        "cn-keepalive-extreme",
        ("events {} http { server { keepalive_timeout 0; location = /status { stub_status; } "
        "location / { root /srv; } } }"), None, 1,
    ),
    "a playlist's headers": (
        "cn-add-header-lost",
        LOST % r"location ~ \.m3u8$ { root /srv; add_header Cache-Control no-cache; }", None, 0,
    ),
    "a WebSocket in a server that only redirects": (
        "cn-shutdown-timeout",
        ("events {} http { server { return 301 https://$host; location /ws/ { "
        "proxy_pass http://10.0.0.1; proxy_http_version 1.1; "
        "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } } }"),
        None, 0,
    ),
    "headers of a site's own files": (
        "cn-add-header-lost",
        LOST % "location /static/ { alias /srv/s/; add_header Cache-Control public; }", None, 0,
    ),
    "an upgrade for everything": ("cn-shutdown-timeout", UPGRADE % ("/", FOR_ALL), None, 0),
    "TLS to this machine": (
        "up-literal-no-keepalive",
        "events {} http { server { location / { proxy_pass https://127.0.0.1:8443; } } }", None, 0,
    ),
    "headers of a pattern that is not plain": (
        "cn-add-header-lost",
        LOST % "location ~ ^/(api|(x|y)z)/ { proxy_pass http://10.0.0.1; add_header X-A a; }",
        None, 1,
    ),
    "headers of what is known by its place": (
        "cn-add-header-lost",
        LOST % "location /.well-known/matrix { root /srv; add_header X-A a; }", None, 0,
    ),
    "HTTP/3 of a server that refuses all": (
        "ls-quic-not-announced", QUIC % "location / { return 403; }", None, 0,
    ),
    "HTTP/3 of a server that refuses all by itself": (
        "ls-quic-not-announced", QUIC % "return 421; location /a { root /srv; }", None, 0,
    ),
    "HTTP/3 of a server that refuses some, told once for both addresses": (
        "ls-quic-not-announced", QUIC % "location /a { return 403; }", None, 1,
    ),
    "HTTP/3 of a server that no response over TCP can announce": (
        "ls-quic-not-announced", QUIC.replace("listen 443 ssl; ", "") % "root /srv;", None, 0,
    ),
    "HTTP/3 of a server whose name answers over TCP elsewhere": (
        "ls-quic-not-announced", OTHER_SERVER % "", None, 1,
    ),
    "HTTP/3 that the other server of the name announces": (
        "ls-quic-not-announced", OTHER_SERVER % "add_header Alt-Svc h3;", None, 0,
    ),
    "an upgrade beside a cache that upgrades bypass": (
        "cn-shutdown-timeout",
        UPGRADE % ("/app", FOR_ALL + "proxy_cache_bypass $http_upgrade;"), None, 0,
    ),
    "such lines in a location for WebSockets": (
        "cn-shutdown-timeout",
        UPGRADE % ("/app/ws/", FOR_ALL + "proxy_cache_bypass $http_upgrade;"), None, 1,
    ),
    "an upstream for streams alone": (
        "up-keepalive-missing", STREAMS % "/api/v1/streaming", linux(), 0,
    ),
    "an upstream for pages and WebSockets": ("up-keepalive-missing", STREAMS % "/", linux(), 1),
    "files that a filter changes": (
        "gz-dynamic-static-files", FILES % "location / { root /srv; ssi on; }", ON_GZIP, 0,
    ),
    "files that no filter changes": (
        "gz-dynamic-static-files", FILES % "location / { root /srv; ssi off; }", ON_GZIP, 1,
    ),
    "a cache where nothing is stored": (
        "ca-key-without-args", KEY % "proxy_no_cache $arg_a 1;", None, 0,
    ),
    "a cache where some is stored": (
        "ca-key-without-args", KEY % 'proxy_no_cache $arg_a 0 "";', None, 1,
    ),
    "Host for a public host": (
        "px-set-header-lost", HOST_LOST % "$1://$2.$3.amazonaws.com/$4", None, 0,
    ),
    "Host for a name of a private network": (
        "px-set-header-lost", HOST_LOST % "http://app.internal", None, 1,
    ),
    "a debug log that http replaces": (
        "log-debug-prod", "error_log /l debug; events {} http { error_log /m warn; }", None, 0,
    ),
    "a debug log that http replaces, in a build that writes it": (
        "log-debug-prod", "error_log /l debug; events {} http { error_log /m warn; }",
        linux(flags=("--with-debug",)), 1,
    ),
    "a log named off that each server replaces": (
        "log-debug-prod", "events {} http { error_log off; server { error_log /a; } }", None, 0,
    ),
    "a log named off that one server replaces": (
        "log-debug-prod", "events {} http { error_log off; server { error_log /a; } server { } }",
        None, 1,
    ),
    "a debug log that stream uses": (
        "log-debug-prod", "error_log /l debug; events {} http { error_log /m; } stream { }",
        None, 1,
    ),
    "a group of names": (
        "up-static-dns", GROUP % ("server a:80; server b:80; server c:80;", "u"), None, 1,
    ),
    "a group of names in stream": (
        "up-stream-static-dns",
        ("events {} stream { upstream u { server a:53; server b:53; } "
        "server { listen 53; proxy_pass u; } server { listen 54; proxy_pass c:53; } }"), None, 2,
    ),
    "two groups with a name in common": (
        "up-static-dns",
        GROUP % ("server a:80; server b:80; } upstream v { server b:80; server a:80;", "v"), None,
        1,
    ),
    "two groups with a name of their own": (
        "up-static-dns",
        GROUP % ("server a:80; server b:80; } upstream v { server b:80; server c:80;", "v"), None,
        2,
    ),
    "an upgrade where the client asks for one": (
        "cn-shutdown-timeout", UPGRADE % ("/", "proxy_set_header Connection $to; "), None, 1,
    ),
    "an upgrade for a server whose name says it": (
        "cn-shutdown-timeout",
        (UPGRADE % ("/", FOR_ALL)).replace("10.0.0.1", "chat-websocket:8080"), None, 1,
    ),
    "an upgrade around all locations": (
        "cn-shutdown-timeout",
        ("events {} http { proxy_set_header Upgrade $http_upgrade; "
        "proxy_set_header Connection upgrade; server { location /shop { "
        "proxy_pass http://10.0.0.1; } } }"), None, 0,
    ),
    "an upgrade around all locations, one of which is silent for long": (
        "cn-shutdown-timeout",
        ("events {} http { proxy_set_header Upgrade $http_upgrade; "
        "proxy_set_header Connection upgrade; server { location /shop { "
        "proxy_pass http://10.0.0.1; proxy_read_timeout 1d; } } }"), None, 1,
    ),
    "an upgrade that nginx itself takes away": (
        "cn-shutdown-timeout", UPGRADE % ("/live/", ""), None, 0,
    ),
    "names beside a certificate": (
        "up-static-dns", UNTIL % ("", "listen 80; listen 443 ssl;", "http://app:80"), None, 1,
    ),
    "names where another file may bring the certificate's server": (
        "up-static-dns", UNTIL % ("include /none/*.conf;", "listen 80;", "http://app:80"), None, 1,
    ),
    "a key without a host in a part, whose server may not be the first": (
        "ca-key-without-host", CACHED, None, 0,
    ),
    "a key without a host in the first server": (
        "ca-key-without-host",
        ("events {} http { proxy_cache_path /c keys_zone=pages:1m; "
        f"upstream app {{ server 10.0.0.1; }} {CACHED} }}"), None, 1,
    ),
    "a cache of answers to the tokens of other origins": (
        "ca-authorization-cached", TOKENS % (OTHER_ORIGINS, ""), None, 1,
    ),
    "a cache whose server gets one token for all": (
        "ca-authorization-cached",
        TOKENS % (OTHER_ORIGINS, 'proxy_set_header Authorization "Basic YTph";'), None, 0,
    ),
    "a cache whose server gets the headers of nobody": (
        "ca-authorization-cached",
        TOKENS % (OTHER_ORIGINS, "proxy_pass_request_headers off;"), None, 0,
    ),
    "a cache behind a password of nginx's own": (
        "ca-authorization-cached",
        TOKENS % ("auth_basic all; auth_basic_user_file /p;", PASSED_ON), None, 0,
    ),
    "a cache that a variable of the tree's own keeps answers out of": (
        "ca-authorization-cached", TOKENS % ("", PASSED_ON + "proxy_no_cache $skip;"), None, 0,
    ),
    "a cache that a cookie keeps answers out of": (
        "ca-authorization-cached",
        TOKENS % ("", PASSED_ON + "proxy_no_cache $cookie_session;"), None, 1,
    ),
    "a cache that its server keeps answers out of": (
        "ca-authorization-cached",
        TOKENS % ("", PASSED_ON + "proxy_no_cache $upstream_http_x_private;"), None, 0,
    ),
    "a cache whose key tells cookies apart": (
        "ca-authorization-cached",
        TOKENS % ("", PASSED_ON + "proxy_cache_key $uri$cookie_session;"), None, 0,
    ),
    "a cache of errors": (
        "ca-authorization-cached",
        TOKENS.replace("10m", "404 10m") % ("", PASSED_ON), None, 0,
    ),
    "a client's address that another header tells": ("px-set-header-lost", CLIENT % "", None, 0),
    "one worker for certificates alone": (
        "lim-workers-one", ONE_WORKER % "/.well-known/acme-challenge/", ON_HOST, 0,
    ),
}  # fmt: skip
NEEDS = {"a key without a host in a part, whose server may not be the first"}
"""Of these the audit says what it lacks."""


_TLS_CACHE = "events {} http { server { listen 443 ssl; ssl_session_cache %s; } }"
TEXTS: dict[str, tuple[str, str, str | None, str, str]] = {
    "sessions in a shared cache too": (
        "tls-cache-builtin", _TLS_CACHE % "builtin shared:S:1m", None,
        "shared cache finds them", "only if the same worker",
    ),
    "sessions in each worker alone": (
        "tls-cache-builtin", _TLS_CACHE % "builtin", None,
        "only if the same worker", "shared cache",
    ),
    "a timeout of FastCGI": (
        "up-connect-timeout",
        ("events {} http { server { location / { fastcgi_connect_timeout 300; "
        "fastcgi_pass 10.0.0.1:9000; } } }"),
        None, "Set fastcgi_connect_timeout", "proxy_connect_timeout",
    ),
    "TLS by a line of older versions": (
        "cf-directive-version", "events {} http { server { listen 443; ssl on; } }", "1.26.3",
        "listen 443 ssl;", "Remove the directive",
    ),
    "a directive of newer versions": (
        "cf-directive-version", "events {} http { http2 on; }", "1.22.1",
        "Remove the directive", "listen 443 ssl;",
    ),
    "a pattern that stands twice": (
        "cn-location-unreachable",
        r"events {} http { server { location ~ \.a$ { } location ~ \.a$ { return 404; } } }", None,
        "Remove one of the two", "query string",
    ),
    "a log of a word that is no switch": (
        "log-debug-prod", "error_log none; events {} http { }", None,
        'a file named "none"', "level debug",
    ),
    "a log named off beside another": (
        "log-debug-prod", "events {} http { error_log off; server { error_log /a; } server { } }",
        None, "except in blocks with a log of their own", "no other log",
    ),
    "a log of many lines": (
        "log-debug-prod", "error_log /l debug; events {} http { }", None,
        "level debug", "no switch",
    ),
    "a pool that a map closes": (
        "up-keepalive-http10",
        ("events {} http { map $http_upgrade $c { default upgrade; '' close; } "
        "upstream u { server 10.0.0.1; keepalive 8; } server { location / { proxy_pass http://u; "
        "proxy_http_version 1.1; proxy_set_header Connection $c; } } }"), None,
        "(the value of $c)", "passed on as HTTP/1.0",
    ),
    "buffers beside a larger first one": (
        "px-buffers-memory",
        ("events { worker_connections 99999; } http { server { location / { "
        "fastcgi_pass 10.0.0.1:9000; fastcgi_buffer_size 256K; fastcgi_buffers 8192 4k; } } }"),
        "1.22.1",
        "fastcgi_buffers 129 4k: the least beside fastcgi_buffer_size 256K", "proxy_",
    ),
    "files beside pages that a filter changes": (
        "gz-dynamic-static-files",
        FILES % r"location / { root /srv/a; ssi on; } location ~ \.css$ { root /srv/b; }",
        "1.22.1", "not where ssi on is in effect", '"/srv/a"',
    ),
    "a name with a path that is cut": (
        "up-static-dns",
        "events {} http { server { location /auth/ { proxy_pass http://auth:3000/; } } }", "1.26.3",
        ("set $backend auth:3000; rewrite ^/auth/(.*)$ /$1 break; proxy_pass http://$backend;"),
        "unchanged",
    ),
    "a group of names that a variable cannot hold": (
        "up-static-dns", GROUP % ("server a:80; server b:80;", "u"), "1.26.3",
        '"a" and "b" are resolved', "set $backend",
    ),
    "one wrong word of several": (
        "cf-value-invalid", "events {} http { gzip_proxied expired must-revalidate; }", None,
        'not "must-revalidate"', 'not "expired"',
    ),
    "types that are compressed": (
        "gz-compressed-types",
        "events {} http { gzip_types image/png image/gif image/jpeg image/webp; server { } }", None,
        "and 1 more are already compressed", " is already",
    ),
}  # fmt: skip
"""Words that a finding must and must not have, by the case that it is about."""


@each_row("name", TEXTS)
def test_a_finding_speaks_of_its_own_case(name: str) -> None:
    rule, conf, version, present, absent = TEXTS[name]
    (chosen,) = (one for one in ALL if one.id == rule)
    facts = linux(version=version, flags=GZIP_STATIC) if version else None
    (found,) = audit(parse_text(conf), facts, [chosen]).findings
    text = f"{found.message}\n{found.why}\n{found.fix}"
    assert present in text
    assert absent not in text


@each_row("name", CASES)
def test_case(name: str) -> None:
    rule, conf, facts, expected = CASES[name]
    found = outcome(rule, conf, facts)
    assert found == ("the whole configuration" if name in NEEDS else expected)


@each_row(("profile", "expected"), [("default", 0), ("strict", 1)])
@each_row(
    "name", ["headers of a site's own files", "an upgrade for everything", "TLS to this machine"]
)
def test_what_is_of_little_use_is_said_in_the_strict_profile(
    name: str, profile: AuditProfile, expected: int
) -> None:
    rule, conf, facts, _ = CASES[name]
    rules = [one for one in ALL if one.id == rule]
    assert len(audit(parse_text(conf), facts, rules, profile=profile).findings) == expected
