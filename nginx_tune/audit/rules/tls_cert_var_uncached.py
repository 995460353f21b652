from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive

CACHE_SINCE = (1, 27, 4)

_OLDER = (
    "Give each certificate its own server block where possible, or update to nginx 1.27.4 or later "
    "and set ssl_certificate_cache max=1000 inactive=1h valid=10m;"
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Certificates that are read from files for each handshake."""
    reported: set[Directive] = set()
    servers = {server: None for listener in context.tls_listeners for server in listener.servers}
    for server in servers:
        cache = server.effective("ssl_certificate_cache")
        if cache is not None and cache.value.lower() != "off":
            continue
        for line in server.effective_all("ssl_certificate"):
            # $acme_cert_… holds a certificate of Angie, in memory.
            if line.value.startswith(("data:", "$acme_cert_")) or line in reported:
                continue
            if "$" in line.value:
                reported.add(line)
                is_older = context.version is not None and context.version < CACHE_SINCE
                yield Hit(
                    line,
                    "the certificate and key are read and parsed for every handshake",
                    [written(line), default("ssl_certificate_cache", "off")],
                    fix=_OLDER if is_older else "",
                )


_CONF = """
events {}
http { server {
    listen 443 ssl;
    ssl_certificate /etc/ssl/$ssl_server_name.crt;
    ssl_certificate_key /etc/ssl/$ssl_server_name.key;
    %s
    return 204;
} }
"""

RULE = Rule(
    id="tls-cert-var-uncached",
    severity="warning",
    title="certificates are loaded for each handshake",
    why="A certificate whose name has variables is opened, read and parsed in the event loop for "
    "each new connection. On a cold or slow disk every other connection of the worker waits.",
    fix="Set ssl_certificate_cache max=1000 inactive=1h valid=10m; (since nginx 1.27.4).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_certificate_cache",
        "nginx: src/http/ngx_http_request.c, ngx_http_ssl_certificate",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.15.9",
    about="Variables that hold the certificate itself (data:$name) load nothing and are not "
    "reported.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "ssl_certificate_cache max=1000 inactive=1h valid=10m;"),
    check=check,
)
