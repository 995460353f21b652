"""``io-aio-on-no-directio``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``aio on`` on Linux for files that are read through the page cache."""
    if "aio" not in context.names or context.is_linux is False:
        return
    told: dict[Directive, Directive | None] = {}
    for served in context.served:
        aio = served.scope.effective("aio")
        if aio is not None and aio.value == "on":
            directio = served.scope.effective("directio")
            if directio is None or directio.value == "off":
                told.setdefault(aio, directio)
    if told and context.is_linux is None:
        yield MissingFacts(("kernel.system",))
        return
    for aio, directio in told.items():
        yield Hit(
            aio,
            "without directio, aio on reads in the event loop",
            [written(aio), default("directio", "off") if directio is None else written(directio)],
        )


_FLAGS = ("--with-threads", "--with-file-aio")
_CONF = "events { } http { server { location / { root /srv/media; aio on; %s } } }"

RULE = Rule(
    id="io-aio-on-no-directio",
    severity="warning",
    title="native aio without directio",
    why="On Linux io_submit() is asynchronous for files opened with O_DIRECT only. Anything else "
    "it reads before it comes back, and the worker waits for the disk as without aio.",
    fix="aio threads; instead, or directio of a size with it for large files.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio",
        "nginx: src/os/unix/ngx_linux_aio_read.c",
    ),
    proof="source-only",
    whole_tree=True,
    about="No package of the versions that the proofs run on is built with file AIO.",
    bad=Example(_CONF % "", linux(flags=_FLAGS)),
    good=Example(_CONF % "directio 4m;", linux(flags=_FLAGS)),
    check=check,
)
