from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import Edit, remove
from nginx_tune.conf.workers import asked_pool


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``aio_write on`` that no scope with a thread pool inherits."""
    if "aio_write" not in context.names:
        return
    lines: dict[Directive, Directive | None] = {}
    working: set[Directive] = set()
    for scope in context.scopes:
        line = scope.effective("aio_write")
        if line is None or line.value.lower() != "on":
            continue
        aio = scope.effective("aio")
        lines.setdefault(line, aio)
        if asked_pool(aio) is not None:
            working.add(line)
    for line, aio in lines.items():
        if line not in working:
            yield Hit(
                line,
                "aio_write on has no effect without aio threads",
                [written(line), default("aio", "off") if aio is None else written(aio)],
            )


def fixes(_context: Context, hit: Hit) -> Iterator[Edit]:
    """Remove the line, which had no effect."""
    yield remove(hit.place)


_CONF = """
events { }
http { server { location / { proxy_pass http://127.0.0.1:8080; aio_write on; %s } } }
"""

RULE = Rule(
    id="io-aio-write-noop",
    severity="warning",
    title="aio_write without aio threads",
    why="Only thread pools write files asynchronously. Without one nginx accepts the line and "
    "keeps writing in the event loop.",
    fix="Add aio threads; or remove the line.",
    sources=("https://nginx.org/en/docs/http/ngx_http_core_module.html#aio_write",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.9.13",
    whole_tree=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "aio threads;"),
    check=check,
    fixes=fixes,
)
