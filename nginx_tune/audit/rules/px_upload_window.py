from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.http2 import held_uploads
from nginx_tune.conf.listeners import http2_servers
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.units import nginx_size


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Unbuffered uploads over HTTP/2 with a small window."""
    if not any(name.endswith("_request_buffering") for name in context.names):
        return
    servers = http2_servers(context.scopes, context.listeners)
    reported: set[Directive] = set()
    for line, window_bytes in held_uploads(s for s in context.scopes if s.server in servers):
        if line not in reported:
            reported.add(line)
            yield Hit(
                line,
                f"over HTTP/2 at most {nginx_size(window_bytes)} of an unbuffered upload arrive "
                "per round trip",
                [written(line), Evidence(fact="window", value=window_bytes, unit="bytes")],
            )


_CONF = """
events {}
http { server {
    listen 443 ssl http2; client_max_body_size 9g;
    location / { proxy_pass http://10.0.0.1; proxy_request_buffering off; %s }
} }
"""

RULE = Rule(
    id="px-upload-window",
    severity="warning",
    title="unbuffered uploads over HTTP/2 wait for a small window",
    why="The flow-control window of an unbuffered body is http2_body_preread_size (64k) or "
    "client_body_buffer_size, whichever is larger: 0.8 MB/s at a round trip of 80 ms, ten to "
    "twenty times slower than over HTTP/1.1, which has only TCP's window.",
    fix="Set client_body_buffer_size 1m; there (512k is enough for most), or turn request "
    "buffering on.",
    sources=(
        "nginx: src/http/v2/ngx_http_v2.c, ngx_http_v2_read_request_body",
        "https://nginx.org/en/docs/http/ngx_http_v2_module.html#http2_body_preread_size",
        "github.com/nextcloud/server issue 25297",
        "github.com/tus/tusd issue 1106",
    ),
    proof="source-only",
    since="1.9.14",
    about="nginx-tune plan leaves HTTP/2 off for the same reason. Not reported if no body may be "
    "larger than the window (client_max_body_size, 1m by default).",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "client_body_buffer_size 1m;"),
    check=check,
)
