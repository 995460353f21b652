"""``io-aio-write-missing``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_bytes
from nginx_tune.conf.workers import asked_pool

SAFE_SINCE = (1, 21, 4)
"""Before that HTTP/2 requests could hang with aio_write."""

_WITH_TEMP_FILES = frozenset({"proxy", "fastcgi", "uwsgi", "scgi"})


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Upstream responses that go to files in the event loop beside a thread pool."""
    if "aio" not in context.names:
        return
    told: dict[Directive, Directive] = {}
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
        may_be_large = passed.module == "proxy"  # pages of an application fit their buffers
        if keeps or (may_be_large and parse_bytes(passed.value("max_temp_file_size", "1024m"))):
            told.setdefault(aio, passed.place)
    if told and context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
    elif context.version is not None and context.version >= SAFE_SINCE:
        for aio, place in told.items():
            yield Hit(
                aio,
                "the pool reads files here, but responses are written to files in the event loop",
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
    why="What an upstream sends faster than the client takes it, and all that is cached, goes "
    "through a temporary file. Without aio_write those writes are made by the worker, and wait "
    "where the disk or the kernel's dirty limit makes them wait.",
    fix="aio_write on; beside aio threads, and compare: nginx-tune validate NEW --against OLD.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio_write",
        "Dropbox 2017: Optimizing web servers for high throughput and low latency",
    ),
    proof="source-only",
    since="1.21.4",
    about="Of FastCGI, uwsgi and SCGI it is told where answers are cached or stored: pages seldom "
    "outgrow their buffers. aio_write is there since 1.9.13; versions before 1.21.4 are left out "
    "for their faults (io-aio-buggy-version).",
    by_absence=True,
    bad=Example(_CONF % "", linux()),
    good=Example(_CONF % "aio_write on;", linux()),
    check=check,
)
