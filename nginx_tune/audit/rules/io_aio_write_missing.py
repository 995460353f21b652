from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_bytes
from nginx_tune.conf.workers import asked_pool

SAFE_SINCE = (1, 21, 4)
"""The first version in which aio_write cannot hang HTTP/2 requests."""

_WITH_TEMP_FILES = frozenset({"proxy", "fastcgi", "uwsgi", "scgi"})


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Upstream responses written to files in the event loop where a thread pool reads."""
    if "aio" not in context.names:
        return
    reported: dict[Directive, Directive] = {}
    for passed in context.passes:
        aio = passed.scope.effective("aio")
        if (
            aio is None
            or asked_pool(aio) is None
            or passed.module not in _WITH_TEMP_FILES
            or passed.scope.value("aio_write", "off") == "on"
            or passed.value("buffering", "on") == "off"
        ):
            continue
        keeps = passed.value("cache", "off") != "off" or passed.effective("store") is not None
        may_be_large = passed.module == "proxy"  # application pages fit into their buffers
        if keeps or (may_be_large and parse_bytes(passed.value("max_temp_file_size", "1024m"))):
            reported.setdefault(aio, passed.place)
    if reported and context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
    elif context.version is not None and context.version >= SAFE_SINCE:
        for aio, place in reported.items():
            yield Hit(
                aio,
                "a thread pool reads files here, but responses are still written in the event loop",
                [written(aio), written(place), default("aio_write", "off")],
            )


_CONF = """
events { }
http {
    proxy_cache_path /var/cache/nginx keys_zone=media:64m max_size=100g min_free=10g
        use_temp_path=off;
    server { location / {
        proxy_pass http://127.0.0.1:8080; proxy_cache media; aio threads; %s
    } }
}
"""

RULE = Rule(
    id="io-aio-write-missing",
    severity="advice",
    title="responses are written to files in the event loop",
    why="Responses that arrive faster than the client reads them, and all cached responses, go "
    "through a temporary file. Without aio_write the worker itself writes them, and blocks when "
    "the disk or the kernel's dirty-page limit makes it wait.",
    fix="Add aio_write on; to the block with aio threads, and compare: nginx-tune validate NEW "
    "--against OLD.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio_write",
        "Dropbox 2017: Optimizing web servers for high throughput and low latency",
    ),
    proof="source-only",
    since="1.21.4",
    about="For FastCGI, uwsgi and SCGI it is reported only where responses are cached or stored, "
    "because pages rarely outgrow their buffers. aio_write exists since 1.9.13; versions before "
    "1.21.4 are left out because of their bugs (io-aio-buggy-version).",
    by_absence=True,
    bad=Example(_CONF % "", linux()),
    good=Example(_CONF % "aio_write on;", linux()),
    check=check,
)
