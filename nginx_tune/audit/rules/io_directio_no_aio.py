"""``io-directio-no-aio``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.storage import is_in_memory
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``directio`` for files that are read in the event loop."""
    if "directio" not in context.names:
        return
    told: dict[Directive, Directive | None] = {}
    for served in context.served:
        directio, aio = served.scope.effective("directio"), served.scope.effective("aio")
        if served.via == "cache" or directio is None or directio.value == "off":
            continue  # files of a cache are never opened with O_DIRECT
        if (aio is None or aio.value == "off") and not is_in_memory(served.path, context.facts):
            told.setdefault(directio, aio)
    for directio, aio in told.items():
        yield Hit(
            directio,
            f'files of "{directio}" and larger are read from the disk in the event loop, each time',
            [written(directio), default("aio", "off") if aio is None else written(aio)],
        )


_CONF = "events { } http { server { location / { root /srv/media; directio 4m; %s } } }"

RULE = Rule(
    id="io-directio-no-aio",
    severity="warning",
    title="directio without aio",
    why="Files from that size on bypass the page cache and sendfile: every read waits for the "
    "disk, even the second one of the same file, and the worker with all its connections waits "
    "with it.",
    fix="Remove directio, or put aio threads; beside it.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#directio",
        "nginx: src/core/ngx_output_chain.c, ngx_output_chain_as_is",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.30"),
    whole_tree=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "aio threads;"),
    check=check,
)
