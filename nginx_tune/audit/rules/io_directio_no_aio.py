from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.storage import is_in_memory
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``directio`` for files read in the event loop."""
    if "directio" not in context.names:
        return
    reported: dict[Directive, Directive | None] = {}
    for served in context.served:
        directio, aio = served.scope.effective("directio"), served.scope.effective("aio")
        if served.via == "cache" or directio is None or directio.value == "off":
            continue  # nginx never opens cache files with O_DIRECT
        if (aio is None or aio.value == "off") and not is_in_memory(served.path, context.facts):
            reported.setdefault(directio, aio)
    for directio, aio in reported.items():
        yield Hit(
            directio,
            f'with "{directio}", larger files are read from disk in the event loop every time',
            [written(directio), default("aio", "off") if aio is None else written(aio)],
        )


_CONF = "events { } http { server { location / { root /srv/media; directio 4m; %s } } }"

RULE = Rule(
    id="io-directio-no-aio",
    severity="warning",
    title="directio without aio",
    why="Files of that size and above bypass the page cache and sendfile: every read waits for the "
    "disk, even the second one of the same file, and the worker waits with all its connections.",
    fix="Remove directio, or add aio threads;",
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
