from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``aio on`` on Linux for files read through the page cache."""
    if "aio" not in context.names or context.is_linux is False:
        return
    reported: dict[Directive, Directive | None] = {}
    for served in context.served:
        aio = served.scope.effective("aio")
        if aio is not None and aio.value == "on":
            directio = served.scope.effective("directio")
            if directio is None or directio.value == "off":
                reported.setdefault(aio, directio)
    if reported and context.is_linux is None:
        yield MissingFacts(("kernel.system",))
        return
    for aio, directio in reported.items():
        yield Hit(
            aio,
            "without directio, aio on still reads in the event loop",
            [written(aio), default("directio", "off") if directio is None else written(directio)],
        )


_FLAGS = ("--with-threads", "--with-file-aio")
_CONF = "events { } http { server { location / { root /srv/media; aio on; %s } } }"

RULE = Rule(
    id="io-aio-on-no-directio",
    severity="warning",
    title="aio on without directio",
    why="On Linux io_submit() is asynchronous only for files opened with O_DIRECT. Any other read "
    "blocks in the call, and the worker waits for the disk as without aio.",
    fix="Use aio threads; instead, or add directio SIZE; for large files.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio",
        "nginx: src/os/unix/ngx_linux_aio_read.c",
    ),
    proof="source-only",
    whole_tree=True,
    about="No package of the versions that the tests run on is built with file AIO.",
    bad=Example(_CONF % "", linux(flags=_FLAGS)),
    good=Example(_CONF % "directio 4m;", linux(flags=_FLAGS)),
    check=check,
)
