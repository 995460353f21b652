"""What the grammar of values says against every nginx: where ours speaks, all of them refuse."""

from pathlib import Path

import pytest
from needs import lacks
from nginx_versions import Nginx, every_version
from rows import each_row
from scratch_nginx import config_test

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("nginx", "root")

RULES = [rule for rule in ALL if rule.id.startswith("cf-")]
HTTP = "events {} http { %s }"
SERVER = HTTP % "server { %s }"
LOCATION = SERVER % "location / { %s }"
PEER = HTTP % "upstream u { server 127.0.0.1 %s; }"
CACHE = HTTP % "proxy_cache_path DIR/c keys_zone=c:1m %s;"

INVALID = [
    HTTP % "client_body_timeout 60sec;",
    HTTP % "sendfile yes;",
    HTTP % "client_max_body_size 1t;",
    HTTP % "client_body_buffer_size 1g;",
    HTTP % "gzip_comp_level 10;",
    HTTP % "proxy_buffers 0 8k;",
    HTTP % "ssl_protocols TLSv1.4;",
    HTTP % "keepalive_requests many;",
    HTTP % "send_timeout 1y;",
    HTTP % "send_timeout '1s 1m';",
    HTTP % "proxy_next_upstream http_418;",
    SERVER % "keepalive_timeout off;",
    SERVER % "error_log DIR/e wrn;",
    SERVER % "return 1000;",
    SERVER % "return nowhere;",
    SERVER % "rewrite ^ /x lst;",
    SERVER % "listen 99999;",
    SERVER % "listen 127.0.0.1:0;",
    "worker_processes many; events {}",
    "events { worker_connections 1k; }",
    SERVER % "error_page 200 /x;",
    SERVER % "error_page 404 600 =200 /x;",
    HTTP % "limit_req_zone $uri zone=a:1m rate=10r/d;",
    HTTP % "limit_req_zone $uri zone=a:1m rate=0r/s;",
    "thread_pool big threads=0; events {}",
    "thread_pool big threads=many; events {}",
    "thread_pool big max_queue=9; events {}",
]
OF_THEIR_OWN = [
    HTTP % "open_file_cache inactive=20s;",
    HTTP % "open_log_file_cache valid=1m;",
    HTTP % "access_log DIR/a.log combined flush=1s;",
    SERVER % "access_log DIR/$host.log combined buffer=32k;",
    SERVER % "access_log DIR/$host.log combined gzip;",
    LOCATION % "proxy_pass 127.0.0.1:8080;",
    LOCATION % "proxy_pass ftp://127.0.0.1;",
    LOCATION % "grpc_pass http://127.0.0.1:1;",
    LOCATION % "fastcgi_pass http://127.0.0.1:1;",
    LOCATION % "memcached_pass http://127.0.0.1:1;",
    LOCATION % "limit_except FETCH { deny all; }",
    LOCATION % "directio -1;",
    HTTP % "limit_req_zone $host zone=a:1m rate=1r/s; limit_req zone=a burst=0;",
    HTTP % "limit_req_zone $host zone=a:1m rate=1r/s; limit_req zone=a burst=5 delay=0;",
    HTTP % "limit_conn_zone $host zone=a:1m; limit_conn a 0;",
    HTTP % "limit_conn_zone $host zone=a:1m; limit_conn a 65536;",
    HTTP % "proxy_cache_path DIR/c keys_zone=a:1m levels=1:3;",
    HTTP % "proxy_cache_path DIR/c keys_zone=a:1m levels=1:1:1:1;",
    LOCATION % "directio big;",
    SERVER % "listen 127.0.0.1:8080 backlog=none;",
    SERVER % "listen 127.0.0.1:8080 backlog=0;",
    SERVER % "listen [::1]:8080 ipv6only=maybe;",
    HTTP % "proxy_temp_path DIR/t 1 0;",
    HTTP % "client_body_temp_path DIR/t one;",
    SERVER % "proxy_redirect on;",
    SERVER % "proxy_cache_valid 200 1hour;",
    SERVER % "proxy_cache_valid 99 1h;",
    SERVER % "fastcgi_cache_valid ok 1h;",
    "worker_cpu_affinity all; events {}",
    SERVER % "disable_symlinks yes;",
    SERVER % "proxy_store_access user:rwx;",
    SERVER % "aio thread;",
    SERVER % "allow localhost;",
    SERVER % "deny 10.0.0.0/33;",
    SERVER % "deny 10.0.0.256;",
    SERVER % "allow 10.0.0;",
    SERVER % "deny fe80::/129;",
    SERVER % "allow 10.0.0.0-10.0.0.9;",
    HTTP % "ssl_session_cache shared:SSL;",
    HTTP % "ssl_session_cache share:SSL:10m;",
    HTTP % "ssl_session_cache shared:SSL:10g;",
    "events { use epol; }",
    SERVER % "expires 30days;",
    SERVER % "expires never;",
    SERVER % "expires modified max;",
    PEER % "weight=0",
    PEER % "fail_timeout=30sec",
    PEER % "max_fails=-1",
    HTTP % "upstream u { server 127.0.0.1; keepalive on; }",
    HTTP % "open_file_cache max=0;",
    HTTP % "open_file_cache max=10 inactive=20ms;",
    HTTP % "open_log_file_cache max=10 valid=1minute;",
    HTTP % "limit_conn_zone $uri zone=a;",
    HTTP % "limit_conn_zone $uri zone=a:10;",
    HTTP % "limit_req_zone $uri zone=a:1g rate=1r/s;",
    HTTP % "upstream u { zone u 8k; server 127.0.0.1; }",
    HTTP % "proxy_cache_path DIR/c keys_zone=a:4k;",
    CACHE % "max_size=1t",
    CACHE % "max_size=1.5g",
    CACHE % "max_size=10gb",
    CACHE % "inactive=60min",
    SERVER % "keepalive_timeout 5s 6x;",
    SERVER % "error_page 4xx /x;",
    SERVER % "listen 127.0.0.1:80800000000;",
    SERVER % "set a b;",
    HTTP % "map $uri a { default 1; }",
    HTTP % "geo a { default 1; }",
    HTTP % "resolver 127.0.0.1 valid=30sec;",
    HTTP % "resolver 127.0.0.1 ipv6=no;",
]
"""Of directives that read their arguments by code of their own."""
TWICE = [
    HTTP % "sendfile on; sendfile off;",
    HTTP % "client_max_body_size 1m; client_max_body_size 2m;",
    SERVER % "root /a; root /b;",
    LOCATION % "proxy_pass http://127.0.0.1; proxy_pass http://127.0.0.2;",
    LOCATION % "try_files /a =404; try_files /b =404;",
    "worker_processes 1; worker_processes 2; events {}",
    "events {} events {}",
    "events {} http {} http {}",
    "thread_pool a threads=4; thread_pool a threads=8; events {}",
    "thread_pool default threads=4; thread_pool default threads=4; events {}",
    HTTP % "log_format a b; log_format a c;",
    HTTP % "proxy_cache_path DIR/c keys_zone=a:1m; proxy_cache_path DIR/c keys_zone=b:1m;",
    HTTP % "proxy_cache_path DIR/c keys_zone=a:1m; proxy_cache_path DIR/d keys_zone=a:1m;",
    HTTP % "limit_req_zone $host zone=a:1m rate=1r/s; limit_conn_zone $host zone=a:1m;",
    HTTP % "limit_conn_zone $host zone=a:1m; limit_conn_zone $uri zone=a:1m;",
    HTTP % "proxy_cache_path DIR/c keys_zone=a:1m; fastcgi_cache_path DIR/c keys_zone=b:1m;",
    HTTP % "ssl_session_cache shared:a:1m; server { listen 81; ssl_session_cache shared:a:2m; }",
    HTTP % "upstream a { zone z 64k; server 127.0.0.1; } upstream b { zone z 1m; server 127.1; }",
]
LISTEN = [
    SERVER % "listen 127.0.0.1:81; listen 127.0.0.1:81;",
    SERVER % "listen 81; listen *:81;",
    SERVER % "listen [::1]:81; listen [::1]:81 backlog=9;",
    SERVER % "listen unix:DIR/s; listen unix:DIR/s;",
    HTTP % "server { listen 81 default_server; } server { listen 0.0.0.0:81 default_server; }",
    HTTP % "server { listen 81 default; } server { server_name b; listen 81 default_server; }",
]
REFUSED_LOCATION = [
    SERVER % "location /a { location /b { } }",
    SERVER % "location /ab { location /a { } }",
    SERVER % "location = /a { location /a/b { } }",
    SERVER % "location @a { location /a { } }",
    SERVER % "location /a { location @b { } }",
    SERVER % r"location ~ \.php$ { location /x { } }",
    SERVER % "location ~ b { proxy_pass http://127.0.0.1:9/; }",
    SERVER % "location ~* b { proxy_pass http://127.0.0.1?x; }",
    SERVER % "location @b { proxy_pass http://127.0.0.1:9/x/; }",
    SERVER % "location / { if ($uri) { proxy_pass http://127.0.0.1/x; } }",
    SERVER % "location ~b { proxy_pass http://unix:/s:/x; }",
]
REFERENCE = [
    SERVER % "limit_req zone=a;",
    SERVER % "limit_conn a 1;",
    LOCATION % "proxy_pass http://127.0.0.1; proxy_cache a;",
    SERVER % "access_log DIR/a gzip;",
    SERVER % "access_log DIR/a nope;",
]
VARIABLE = [
    SERVER % "return 200 $nope;",
    SERVER % "return 301 https://$host$request_uri$;",
    SERVER % 'add_header X "5$ a month";',
    LOCATION % "proxy_pass http://$nope;",
    SERVER % "root /$nope;",
    SERVER % "add_header X $nope;",
    SERVER % "if ($nope) { return 404; }",
    HTTP % "map $nope $x { default 1; }",
    HTTP % "log_format a $nope;",
    LOCATION % "fastcgi_param A $nope;",
]
LOCATIONS = [
    SERVER % "location /x {} location ^~ /x {}",
    SERVER % "location = /x {} location =/x {}",
    SERVER % "location /a { location /a/b {} location /a/b {} }",
]
PARAMETER = [SERVER % "listen 127.0.0.1:1 foo;", PEER % "wieght=3", CACHE % "maxsize=1g"]
UPSTREAM = [
    HTTP % "upstream u { server 127.0.0.1 backup; }",
    HTTP % "upstream u { }",
    HTTP % "upstream u { server 127.0.0.1; } upstream U { server 127.0.0.2; }",
    HTTP % "upstream u { ip_hash; server 127.0.0.1; server 127.0.0.2 backup; }",
    HTTP % "upstream u { hash $uri; server 127.0.0.1; server 127.0.0.2 backup; }",
    HTTP % "upstream u { random; server 127.0.0.1; server 127.0.0.2 backup; }",
]
RIGHT = [
    HTTP % "access_log off; open_file_cache off; upstream u { server 127.0.0.1; keepalive 1; }",
    SERVER % "access_log DIR/$host.log combined; access_log DIR/b combined gzip flush=1s;",
    SERVER % "access_log syslog:server=127.0.0.1,tag=a combined;",
    HTTP % "open_file_cache max=1000 inactive=20s; open_log_file_cache max=9 valid=1m;",
    LOCATION % "proxy_pass HTTP://127.0.0.1; limit_except get { deny all; } directio 1g;",
    LOCATION % "set $a http://127.0.0.1; proxy_pass $a; directio off;",
    LOCATION % "grpc_pass GRPC://127.0.0.1:1;",
    LOCATION % "grpc_pass 127.0.0.1:1;",
    LOCATION % "fastcgi_pass 127.0.0.1:9000;",
    SERVER % "listen 127.0.0.1:8080 backlog=16;",
    SERVER % "location ~ b { proxy_pass http://unix:/s:; }",
    SERVER % "location @a {} location @a {} location ~ b {} location ~ b {}",
    SERVER % "location /x {} location /X {} location = /x {}",
    SERVER % 'location ~ (?<q>x) { return 200 "$q $1 $HOST"; }',
    SERVER % "set $a 1; return 200 ${a}b;",
    SERVER % "listen 127.0.0.1:00080; return 0;",
    SERVER % "error_log DIR/e debug_http; keepalive_timeout 5s 6s;",
    HTTP % "map $uri $a { ~^/(?P<way>.) $way; } server { return 200 $a$way; }",
    HTTP % "open_file_cache_valid 1y; send_timeout '1m 30s'; gzip_types a/b; gzip_types c/d;",
    HTTP % "proxy_next_upstream off; client_max_body_size 1g; sendfile ON;",
    SERVER % "access_log DIR/a combined buffer=1m flush=1s; location / { if ($arg_x) { root /; } }",
    HTTP % "upstream u { server 127.0.0.1 down; server 127.0.0.2 backup; }",
    HTTP % "upstream u { least_conn; server 127.0.0.1; server 127.0.0.2 backup; }",
    SERVER % "error_page 404 =200 /x; error_page 500 502 = @b; error_page 300 /y; location @b {}",
    HTTP % "limit_req_zone $uri zone=a:1m rate=10; limit_req_zone $uri zone=b:1m rate=030r/m;",
    "thread_pool a threads=1 max_queu=9; events {}",  # passed over in silence
    "thread_pool a threads=1; thread_pool default threads=02 max_queue=0; events {}",
    HTTP % "server { listen 81 default_server; } server { listen 127.0.0.1:81 default_server; }",
    HTTP % "server { listen 81; } server { listen 81; server_name b; listen [::]:81; }",
    SERVER % "location /a { location /a { } location ~ b { location ~ c { } } }",
    SERVER % "location ~ b { proxy_pass http://127.0.0.1:9; }",
    SERVER % "location @a { proxy_pass http://[::1]; } location ^~ /ab { location /ab { } }",
    SERVER % "location ~ b { proxy_pass http://127.0.0.1$uri; proxy_set_header A http://a/; }",
    SERVER % "location ~ b { proxy_pass http://unix:/s; }",
    SERVER % "allow 10.0.0.0/8; deny ::1; allow fe80::/10; allow unix:; deny 10.0.0.1/0; deny all;",
    SERVER % "allow 127.0.0.; allow ::ffff:10.0.0.1;",
    SERVER % "proxy_cache_valid any 1m; proxy_cache_valid 200 302 1h30m; proxy_cache_valid 5;",
    SERVER % "expires -1; location /a { expires @15h30m; } location /b { expires modified +24h; }",
    SERVER % "location /c { expires epoch; } location /d { expires $arg_x; } disable_symlinks on;",
    HTTP % "ssl_session_cache builtin:1000 shared:SSL:1m; open_file_cache off;",
    HTTP % "open_file_cache max=1000 inactive=20s; open_log_file_cache max=9 min_uses=2 valid=1m;",
    HTTP % "resolver 127.0.0.1:53 valid=1m30s ipv6=off; proxy_redirect off;",
    HTTP % "upstream u { zone u 32k; server 127.0.0.1 weight=2 fail_timeout=0; keepalive 9; }",
    HTTP % "proxy_temp_path DIR/t 1 2 3; proxy_store_access user:rw all:r; geo $uri $b { }",
    "worker_cpu_affinity auto 0101; events { use epoll; } http { limit_conn_zone a zone=z:32k; }",
    SERVER % "location /c/ { proxy_pass http://[::1]/x/; }",
    LOCATION % "proxy_buffer_size 128k; proxy_buffers 4 128k; proxy_max_temp_file_size 0;",
    LOCATION % "proxy_buffers 8 16k; proxy_buffer_size 32k; proxy_busy_buffers_size 64k;",
    HTTP % "log_format a b; log_format b b; proxy_cache_path DIR/c keys_zone=c:1m;",
    *(SERVER % f'location ~ "{pattern}" {{ }}' for pattern in (
        "[]a(]", "(?<a>x)(?'b'y)", "a++b*?", "[[:alpha:](]", r"\\(", r"\\Q(\\E*", "(?x) a # (",
        "(?i)a(?-i:b)",
        "(?#()a", "a{2", "(?|(a)|(b))", "(?<=a)(?!b)", "(*UTF8)a", "(|a)", "^(?>a)+$",
    )),
    SERVER % 'if ($uri = "(") { return 404; } location "/(" { } location ^~ /*a { }',
    HTTP % "map $uri $a { default 1; (b 2; ~c 3; ~c 4; }",
    HTTP % "geo $b { 10.0.0./8 1; ::/0 1; default 2; }",
    HTTP % "split_clients $uri $a { 60% 1; 39.99% 2; .01% 3; * 4; }",
    HTTP % "geo $a { ranges; 10.0.0.1-10.0.0.9 1; } geo $uri $b { delete 10.0.0.0/8; }",
    "events { worker_connections 2; } http { server { listen 81; listen 127.0.0.1:81; } }",
    PEER % "weight=3 max_conns=1 max_fails=0 fail_timeout=1s backup; server 127.0.0.2",
]  # fmt: skip


def _judged(nginx: Nginx, tmp_path: Path, conf: str) -> tuple[set[str], set[str], bool]:
    """The rules that fire with and without the version, and whether nginx accepts."""
    path = tmp_path / "nginx.conf"
    path.write_text(f"pid DIR/pid; error_log DIR/log; {conf}".replace("DIR", str(tmp_path)))
    tree = read_tree(str(path), LiveHost())
    flags = tuple(word for word in nginx.build.split() if word.startswith("--with"))
    facts = linux(version=nginx.version, flags=flags)
    known, unknown = (
        {one.rule for one in audit(tree, given, RULES).findings} for given in (facts, None)
    )
    accepted = config_test(path, nginx.program, under=("unshare", "--net")).returncode == 0
    return known, unknown, accepted


LINES = [
    *(SERVER % f'location ~ "{pattern}" {{ }}' for pattern in (
        "a(b", "a)b", "[a", "[^]a", "*a", "(?:+a)", "a|?b", "a**", "(?<1a>x)", "(?P<a-b>x)",
        "(?<>x)",
    )),
    SERVER % "server_name ~^(a;",
    SERVER % "rewrite (a /b;",
    SERVER % "if ($uri ~ a[b) { return 404; }",
    SERVER % 'if ( $uri !~* "(" ) { return 404; }',
    HTTP % "map $uri $a { ~*(b 1; }",
    HTTP % "map $uri $a { default 1; default 1; }",
    HTTP % "split_clients $uri $a { 60% 1; 40.01% 2; * 3; }",
    HTTP % "geo $a { 10.0.0.0/33 1; }",
    HTTP % "geo $a { default 0; proxy localhost; }",
    SERVER % "listen 81 ssl;",
    HTTP % "server { listen 81; } server { listen 81 ssl; server_name b; ssl_certificate c; }",
    "events { worker_connections 2; } http { server { listen 81; listen 82; } }",
    "events { worker_connections 3; } http { server { listen 81-83; } }",
]  # fmt: skip
BUFFERS = [
    LOCATION % "proxy_buffer_size 128k;",
    HTTP % "fastcgi_buffer_size 16k; server { location / { fastcgi_buffers 4 8k; } }",
    LOCATION % "proxy_buffers 4 4k; proxy_busy_buffers_size 32k;",
    LOCATION % "uwsgi_buffers 4 16k; uwsgi_busy_buffers_size 8k;",
    LOCATION % "scgi_buffers 1 16k;",
    LOCATION % "proxy_temp_file_write_size 1k;",
    LOCATION % "proxy_max_temp_file_size 1k;",
]
CASES = {
    "cf-buffers-refused": BUFFERS,
    "cf-lines-refused": LINES,
    "cf-value-invalid": [*INVALID, *OF_THEIR_OWN],
    "cf-directive-twice": TWICE,
    "cf-reference-unknown": REFERENCE,
    "cf-variable-unknown": VARIABLE,
    "cf-location-twice": LOCATIONS,
    "cf-listen-twice": LISTEN,
    "cf-location-refused": REFUSED_LOCATION,
    "cf-parameter-unknown": PARAMETER,
    "cf-upstream-refused": UPSTREAM,
}


def _refused(rule: str, nginx: Nginx, tmp_path: Path) -> None:
    for conf in CASES[rule]:
        assert _judged(nginx, tmp_path, conf) == ({rule}, {rule}, False), conf


@every_version
def test_cf_buffers_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-buffers-refused", nginx, tmp_path)


@every_version
def test_cf_lines_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-lines-refused", nginx, tmp_path)
    for words, since in {"keepalive 0": (1, 29, 7), "keepalive 00": (1, 29, 7)}.items():
        conf = HTTP % f"upstream u {{ server 127.0.0.1; {words}; }}"
        known, unknown, accepted = _judged(nginx, tmp_path, conf)
        assert (known, unknown) == (set() if accepted else {"cf-lines-refused"}, set()), conf
        assert accepted is (nginx.number >= since[:2]), conf


@every_version
def test_cf_value_invalid_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-value-invalid", nginx, tmp_path)


@every_version
def test_cf_directive_twice_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-directive-twice", nginx, tmp_path)


@every_version
def test_cf_reference_unknown_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-reference-unknown", nginx, tmp_path)


@every_version
def test_cf_variable_unknown_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-variable-unknown", nginx, tmp_path)


@every_version
def test_cf_location_twice_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-location-twice", nginx, tmp_path)


@every_version
def test_cf_listen_twice_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-listen-twice", nginx, tmp_path)


@every_version
def test_cf_location_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-location-refused", nginx, tmp_path)


@every_version
def test_cf_upstream_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-upstream-refused", nginx, tmp_path)


OBSOLETE_LINES = [
    "http2_push /a;",
    "http2_push_preload on;", "http2_max_concurrent_pushes 3;", "ssl_session_tickets on;",
    "keepalive_requests 9;",
]  # fmt: skip


@every_version
def test_cf_directive_obsolete_is_warned_of(nginx: Nginx, tmp_path: Path) -> None:
    for line in OBSOLETE_LINES:
        path = tmp_path / "nginx.conf"
        path.write_text(f"pid {tmp_path}/pid; error_log stderr warn; {SERVER % line}")
        said = config_test(path, nginx.program, under=("unshare", "--net")).stderr
        found = audit(read_tree(str(path), LiveHost()), linux(version=nginx.version), RULES)
        fired = {one.rule for one in found.findings}
        assert ("cf-directive-obsolete" in fired) is ("is obsolete" in said), line


VERSIONED = {
    SERVER % "listen 127.0.0.1:1 quic;": (1, 26),
    SERVER % "listen 127.0.0.1:1 multipath;": (1, 30),
    CACHE % "min_free=1m": (1, 22),
    HTTP % "resolver 127.0.0.1; upstream u { zone u 64k; server a.example resolve; }": (1, 30),
}


@every_version
def test_cf_parameter_unknown_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-parameter-unknown", nginx, tmp_path)
    for conf, since in VERSIONED.items():
        known, unknown, accepted = _judged(nginx, tmp_path, conf)
        assert ("cf-parameter-unknown" in known) is (nginx.number < since), conf
        assert "cf-parameter-unknown" not in unknown, conf
        if nginx.number < since:
            assert not accepted, conf


def test_cf_module_not_loaded_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    conf = "events {} stream { server { listen 127.0.0.1:1; proxy_pass 127.0.0.1:2; } }"
    known, unknown, accepted = _judged(nginx, tmp_path, conf)
    if "--with-stream=dynamic" not in nginx.build:
        lacks("debian-build", "this nginx has stream inside")
    assert (known, unknown, accepted) == ({"cf-module-not-loaded"}, set(), False)


@every_version
@each_row("conf", RIGHT)
def test_what_is_right_is_taken(nginx: Nginx, tmp_path: Path, conf: str) -> None:
    assert _judged(nginx, tmp_path, conf) == (set(), set(), True)
