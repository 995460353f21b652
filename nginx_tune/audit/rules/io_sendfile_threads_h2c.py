from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import cleartext_http2_servers
from nginx_tune.conf.workers import asked_pool


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Thread pools with sendfile where a server speaks HTTP/2 without TLS."""
    if not {"aio", "sendfile"} <= context.names:
        return
    plain = cleartext_http2_servers(context.scopes, context.listeners)
    reported: set[Directive] = set()
    for served in context.served:
        aio, sendfile = served.scope.effective("aio"), served.scope.effective("sendfile")
        if served.scope.server not in plain or aio is None or asked_pool(aio) is None:
            continue
        if sendfile is None or sendfile.value.lower() != "on" or aio in reported:
            continue
        reported.add(aio)
        yield Hit(
            aio,
            "a cleartext HTTP/2 connection has one sendfile() in the pool at a time, and all its "
            "streams wait for it",
            [written(aio), written(sendfile)],
        )


_CONF = """
events {}
http {
    sendfile %s;
    server {
        listen 8080 http2;
        location / { root /srv; aio threads; }
    }
}
"""

RULE = Rule(
    id="io-sendfile-threads-h2c",
    severity="warning",
    title="thread pools with sendfile over HTTP/2 without TLS",
    why="A connection has one sendfile task. While a cold file is read for one stream, the frames "
    "of all others wait, even those of files in memory.",
    fix="Set sendfile off; where threads serve files over cleartext HTTP/2.",
    sources=(
        "https://github.com/nginx/nginx/blob/master/src/os/unix/ngx_linux_sendfile_chain.c",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio",
    ),
    proof="source-only",
    about="Over TLS, bodies are read into buffers, each read its own task. With concurrent "
    "requests for cold files the p90 was 52 ms, and 0.3 ms with sendfile off (docs/http2.md).",
    bad=Example(_CONF % "on"),
    good=Example(_CONF % "off"),
    check=check,
)
