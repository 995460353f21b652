"""Where the rules about proxies, caches, TLS, logs and clients must speak, be silent, or say what
they lack."""

from cases import outcome
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import GIB, linux
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import (
    Dataset,
    ErrorLog,
    Facts,
    Network,
    Nginx,
    PathStorage,
    Storage,
    Tcp,
)
from nginx_tune.documents.log_messages import LoggedMessage

NEW = linux(version="1.30.6", cpus=8)
HDD = linux(disks={"/spool": ("sda", "hdd")})
SSD = linux(disks={"/spool": ("sda", "ssd")})
PORTS = "kernel.sysctls[net.ipv4.ip_local_port_range]"


def http(text: str, main: str = "") -> str:
    return f"{main} events {{}} http {{ {text} }}"


POOLED = "server 10.0.0.1; keepalive 9;"
SHARED = (
    "events {} stream { server { listen 1 ssl; %s return a; }"
    " server { listen 1 ssl%s; %s return b; } }"
)


def proxy(location: str, upstream: str = "server 10.0.0.1;", outer: str = "") -> str:
    return http(
        f"upstream app {{ {upstream} }} {outer} server {{ listen 80;"
        f" location / {{ proxy_pass http://app; {location} }} }}"
    )


def cache(location: str, path: str = "max_size=100g", outer: str = "") -> str:
    return proxy(
        f"proxy_cache c; {location}", outer=f"proxy_cache_path /c keys_zone=c:1m {path}; {outer}"
    )


def tls(server: str) -> str:
    return http(f"server {{ listen 443 ssl; {server} return 204; }}")


FIVE = "".join(f"server 10.0.0.{n};" for n in range(5))
LIVES = "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;"

STORE = (
    "events {} http { server { proxy_buffering off; client_max_body_size %s; "
    "location /v2/ { proxy_pass http://10.0.0.1; } location / { proxy_pass http://10.0.0.2; } } }"
)
HEALTH = (
    "events {} http { upstream u { server 10.0.0.1; keepalive 8; } server { "
    "location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ''; } "
    "location %s { proxy_pass http://u; %s } } }"
)

RETURNS = http(
    "upstream u { server 10.0.0.1; } server { listen 80; %s location %s { proxy_pass http://u; } }"
)
HERE = "server 127.0.0.1:8080; server localhost:8081;"


def short(waiting: int = 0, name: str = "", ports: str = "32768\t60999") -> Facts:
    """A host with connections in TIME_WAIT, or lines on ports that ran out."""
    lines = [LoggedMessage(id="ports-used-up", name=name, lines=9)] if name else []
    return replace(
        linux(sysctls={"net.ipv4.ip_local_port_range": ports}),
        network=Network(tcp=Tcp(time_wait=waiting)),
        error_logs=[ErrorLog(path="/var/log/nginx/error.log", messages=lines)],
    )


CASES: dict[str, tuple[str, str, Facts | None, int | str]] = {
    "a key of braced variables without arguments": (
        "ca-key-without-args", cache("proxy_cache_key ${host}${uri}${slice_range};"), None, 1,
    ),
    "a key of method and path without arguments": (
        "ca-key-without-args", cache("proxy_cache_key $request_method$host$uri;"), None, 1,
    ),
    "a key whose arguments stand in a variable of the operator": (
        "ca-key-without-args", cache("proxy_cache_key $host$uri$uri_arguments;"), None, 0,
    ),
    "a large buffer into a pipe in stream": (
        "log-buffer-pipe",
        "events {} stream { log_format a b; access_log /dev/stdout a buffer=32k flush=1s; }",
        None, 1,
    ),
    "a buffer without a flush time in a server of stream": (
        "log-buffer-no-flush",
        "events {} stream { log_format a b; server { access_log /a.log a buffer=4k; } }", None, 1,
    ),
    "a second TLS server of stream without a certificate": (
        "cf-stream-refused", SHARED % ("ssl_certificate a;", "", ""), NEW, 0,
    ),
    "a default TLS server of stream that comes second": (
        "cf-stream-refused", SHARED % ("", " default_server", "ssl_certificate a;"), NEW, 0,
    ),
    "a first TLS server of stream without a certificate": (
        "cf-stream-refused", SHARED % ("", "", "ssl_certificate a;"), NEW, 1,
    ),
    "a TLS server of stream behind one that rejects handshakes": (
        "cf-stream-refused", SHARED % ("ssl_reject_handshake on;", "", ""), NEW, 1,
    ),
    "a service of stream without a port": (
        "cf-stream-refused",
        "events {} stream { upstream b { server a service=_a._tcp resolve; } }", NEW, 0,
    ),
    "publishers that rtmp allows by its own words": (
        "cf-value-invalid",
        "load_module ngx_rtmp_module.so; rtmp { server { application a { allow publish all; } } }",
        None, 0,
    ),
    "no pool in a version that is not known": (
        "up-keepalive-missing", proxy(""), Facts(), "nginx.nginx_version",
    ),
    "no pool on this host": ("up-keepalive-missing", proxy("", HERE), short(50_000), 0),
    "no pool on this host whose ports ran out": (
        "up-keepalive-missing", proxy("", HERE), short(name="127.0.0.1:8081"), 1,
    ),
    "no pool here, and ports ran out to another": (
        "up-keepalive-missing", proxy("", HERE), short(name="127.0.0.1:9000"), 0,
    ),
    "a server of this host named in the line and a port for each": (
        "up-literal-no-keepalive", proxy("").replace("//app", "//127.0.0.1:81"), short(26_000), 1,
    ),
    "no pool in a server that answers all itself": (
        "up-keepalive-missing", RETURNS % ("if ($a) { return 404; } return 404;", "/"), linux(), 0,
    ),
    "no pool below a return that a break may skip": (
        "up-keepalive-missing", RETURNS % ("if ($a) { break; } return 404;", "/"), linux(), 1,
    ),
    "no pool in the page of an error that the server returns": (
        "up-keepalive-missing", RETURNS % ("error_page 503 @m; return 503;", "@m"), linux(), 1,
    ),
    "no pool for WebSockets alone": ("up-keepalive-missing", proxy(LIVES), linux(), 0),
    "a pool that is turned off": (
        "up-keepalive-http10", proxy("proxy_http_version 1.0;", "server a; keepalive 0;"), NEW, 0,
    ),
    "a pool and a filter of bodies": (
        "up-keepalive-http10",
        proxy("sub_filter a b;", POOLED), linux(), 1,
    ),
    "a pool that nothing uses, of answers that are cached": (
        "up-keepalive-http10", proxy("proxy_cache c;", POOLED), linux(), 1,
    ),
    "a pool that is used, beside answers that are cached": (
        "up-keepalive-http10",
        HEALTH % ("/pages/", "proxy_set_header Host a; proxy_cache c;"), linux(), 0,
    ),
    "a pool and bodies that go on as they come": (
        "up-keepalive-http10",
        proxy("proxy_cache c; proxy_request_buffering off;", POOLED), linux(), 0,
    ),
    "a pool and a filter at HTTP/1.1": (
        "up-keepalive-http10",
        proxy("sub_filter a b; proxy_http_version 1.1;", POOLED), linux(), 1,
    ),
    "HTTP/1.0 that asks to be kept alive": (
        "up-keepalive-http10",
        proxy("proxy_set_header Connection keep-alive;", "server a; keepalive 9;"), linux(), 0,
    ),
    "an explicit 1.0 in the newest version": (
        "up-keepalive-http10", proxy("proxy_http_version 1.0;", "server a; keepalive 9;"), NEW, 1,
    ),
    "implicit pools with as many workers as there are CPUs": (
        "up-keepalive-1297-change",
        "worker_processes auto;" + proxy("location /a { proxy_pass http://app; }"),
        replace(NEW, cpu=replace(NEW.cpu, online=None)), "cpu.online",
    ),
    "no sysctls": ("up-ports-exhaustion", proxy(""), linux(), PORTS),
    "unix sockets take no ports": (
        "up-ports-exhaustion", proxy("", "server unix:/a;"), linux(), 0,
    ),
    "an upstream that nobody uses": (
        "up-static-dns", http("upstream app { server app.test; }"), None, 0,
    ),
    "five servers and a bound on the time": (
        "up-retry-unbounded", proxy("proxy_next_upstream_timeout 10s;", FIVE), None, 0,
    ),
    "five servers and no retries": (
        "up-retry-unbounded", proxy("proxy_next_upstream off;", FIVE), None, 0,
    ),
    "failures between one server": (
        "up-zone-missing", "worker_processes 4;" + proxy("", "server a max_fails=3;"), None, 0,
    ),
    "failures that do not count": (
        "up-zone-missing",
        "worker_processes 4;" + proxy("", "server a max_fails=0; server b max_fails=0;"), None, 0,
    ),
    "one worker": ("up-zone-missing", proxy("", "server a max_conns=3;"), None, 0),
    "a server without buffers in either direction": (
        "px-buffering-off-global",
        http(
            "server { proxy_buffering off; proxy_request_buffering off;"
            " location /a { proxy_pass http://a; } location /b { proxy_pass http://b; } }"
        ),
        None, 0,
    ),
    "a fast disk": ("px-temp-spill", proxy("", outer="proxy_temp_path /spool;"), SSD, 0),
    "the path that the build says": (
        "px-temp-spill", proxy(""),
        replace(
            HDD,
            nginx=Nginx(
                version="1.22.1", prefix="/usr", flags=["--http-proxy-temp-path=/spool/proxy"]
            ),
        ),
        1,
    ),
    "bodies of the default size": (
        "px-body-spill",
        proxy("client_max_body_size 1m;", outer="client_body_temp_path /spool;"), HDD, 0,
    ),
    "bodies without a limit": (
        "px-body-spill",
        proxy("client_max_body_size 0;", outer="client_body_temp_path /spool;"), HDD, 1,
    ),
    "bodies that are passed on as they come": (
        "px-body-spill",
        proxy(
            "client_max_body_size 0; proxy_request_buffering off;",
            outer="client_body_temp_path /spool;",
        ),
        HDD, 0,
    ),
    "a store without a limit": ("px-buffering-off-global", STORE % "0", None, 0),
    "a place of a pool that is no health check": (
        "up-keepalive-http10", HEALTH % ("= /api/users", ""), linux(version="1.26.3"), 1,
    ),
    "pages of an application beside a pool of threads": (
        "io-aio-write-missing",
        "events {} http { aio threads; server { location / { fastcgi_pass 127.0.0.1:1; } } }",
        linux(version="1.26.3"), 0,
    ),
    "cached pages beside a pool of threads": (
        "io-aio-write-missing",
        ("events {} http { aio threads; fastcgi_cache_path /c keys_zone=c:1m; "
        "server { location / { fastcgi_pass 127.0.0.1:1; fastcgi_cache c; } } }"),
        linux(version="1.26.3"), 1,
    ),
    "free space is a bound": ("ca-no-max-size", cache("", "min_free=10g"), None, 0),
    "a zone with a key for each block": ("ca-keys-zone-small", cache("", "max_size=10m"), None, 0),
    "a cache that is empty": (
        "ca-keys-zone-small", cache(""),
        replace(linux(), datasets=[Dataset(path="/c", files=0, bytes=0)]), 0,
    ),
    "a cache with large files": (
        "ca-keys-zone-small", cache(""),
        replace(linux(), datasets=[Dataset(path="/c", files=2000, bytes=40 * GIB)]), 0,
    ),
    "stale answers meanwhile": (
        "ca-stampede", cache("proxy_cache_use_stale error updating;"), None, 0,
    ),
    "slice 0": ("ca-slice-incomplete", cache("slice 0;"), None, 0),
    "slices under another name": (
        "ca-slice-incomplete",
        cache(
            "slice 1m; set $part $slice_range; proxy_cache_key $uri$part;"
            " proxy_set_header Range $part;"
        ),
        None, 1,
    ),
    "a purge of nginx Plus": (
        "io-aio-cache-purge",
        http(
            "aio threads; proxy_cache_path /c keys_zone=c:1m; server { location / {"
            " proxy_pass http://b; proxy_cache c; proxy_cache_purge $purge; } }"
        ),
        None, 0,
    ),
    "a purge by method": (
        "io-aio-cache-purge",
        http(
            "aio threads; fastcgi_cache_path /c keys_zone=c:1m; server { location / {"
            " fastcgi_pass b; fastcgi_cache c; fastcgi_cache_purge PURGE from 127.0.0.1; } }"
        ),
        None, 1,
    ),
    "sessions by tickets": (
        "tls-cache-small",
        http("server { listen 443 ssl; ssl_session_cache shared:S:1m; ssl_session_timeout 1d; }"),
        None, 0,
    ),
    "buffers of files for all connections": (
        "px-buffers-memory",
        http("server { root /srv; output_buffers 32 2m; }"), linux(memory_limit_mib=1024), 1,
    ),
    "a log to nowhere": (
        "log-buffer-pipe", http("access_log /dev/null combined buffer=64k; server { }"), None, 0,
    ),
    "tickets": ("tls-no-resumption", tls("ssl_session_cache off;"), None, 0),
    "a certificate in a variable": (
        "tls-cert-var-uncached", tls("ssl_certificate data:$cert;"), None, 0,
    ),
    "a log on NFS": (
        "log-unbuffered-hot", http("access_log /logs/a; server {}"),
        replace(linux(), storage=Storage(paths=[PathStorage(path="/logs", filesystem="nfs4")])), 1,
    ),
    "a log on a local disk": (
        "log-unbuffered-hot", http("access_log /logs/a; server {}"),
        linux(disks={"/logs": ("sda", "hdd")}), 0,
    ),
    "variables in syslog's tag": (
        "log-var-path", http("server { access_log syslog:server=10.0.0.1,tag=$host; }"), None, 0,
    ),
    "debug in memory": (
        "log-debug-prod", http("", "error_log memory:32m debug; error_log /e.log;"), None, 0,
    ),
    "debug in a stream": (
        "log-debug-prod", "events {} stream { server { error_log /e debug; } }", None, 1,
    ),
    "a build without debug": (
        "log-debug-prod", http("", "error_log /e debug;"), linux(), 0,
    ),
    "gzip of HTML alone": (
        "gz-dynamic-static-files", http("gzip on; server { root /w; }"), linux(), 0,
    ),
    "a billion requests": (
        "cn-keepalive-extreme",
        http("keepalive_requests 1000000000; server { listen 443 ssl http2; }"), None, 1,
    ),
    "status by another module": (
        "ob-no-status", http("server { location / { vhost_traffic_status_display; } }"), None, 0,
    ),
    "metrics of a script": (
        "ob-no-status",
        http("server { location /m { content_by_lua_block { metric_library:collect() } } }"),
        None, 0,
    ),
}  # fmt: skip


@each_row("name", CASES)
def test_case(name: str) -> None:
    rule, conf, facts, expected = CASES[name]
    assert outcome(rule, conf, facts) == expected


def test_the_fix_beside_an_upgrade_header_keeps_websockets() -> None:
    conf = proxy(
        "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;"
        " proxy_set_header Connection $connection;",
        "server 10.0.0.1; keepalive 9;",
        outer="map $http_upgrade $connection { default upgrade; '' close; }",
    )
    (rule,) = (one for one in ALL if one.id == "up-keepalive-http10")
    (found,) = audit(parse_text(conf), linux(), [rule]).findings
    assert found.fix.startswith('In the map of $connection (nginx.conf:1), write "" instead of')
    assert outcome(rule.id, conf.replace("'' close", '"" ""'), linux()) == 0


_UPGRADE = (
    "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;"
    " proxy_set_header Connection $connection;"
)
_MAP = "map $http_upgrade $connection { default upgrade; '' close; }"


@each_row(
    ("location", "said"),
    [
        (_UPGRADE, 'In the map of $connection (nginx.conf:1), write "" instead of close'),
        (_UPGRADE.replace("$connection", "$http_connection"), 'default upgrade; "" ""; }'),
        ("", 'Connection ""; next to the other proxy_set_header lines of that block'),
    ],
)
def test_a_pool_ends_no_websockets(location: str, said: str) -> None:
    (rule,) = (one for one in ALL if one.id == "up-keepalive-missing")
    (found,) = audit(parse_text(proxy(location, outer=_MAP)), linux(), [rule]).findings
    assert said in found.fix
    assert ('Connection "";' in found.fix) is (location == "")


@each_row(("seconds", "words"), [(90, "up to 90 s"), (300, "timeout 300 is never reached")])
def test_a_connect_timeout_ends_with_the_kernels_patience(seconds: int, words: str) -> None:
    (rule,) = (one for one in ALL if one.id == "up-connect-timeout")
    tree = parse_text(proxy(f"proxy_connect_timeout {seconds};"))
    (found,) = audit(tree, linux(), [rule]).findings
    assert words in found.message
