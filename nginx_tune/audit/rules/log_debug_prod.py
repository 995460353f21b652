from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive

_FLAG = "--with-debug"

_WHY_OFF = (
    "error_log has no switch: it takes the word as the name of a file. Nobody sees there that "
    "thread pools overflow or connections run out."
)
_OFF = "Use error_log PATH crit; with a real path: error_log cannot be turned off."


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Error logs at level debug, and error logs that are meant to be off."""
    can_debug = context.flags is None or _FLAG in context.flags
    for line in _error_logs(context):
        if line.value in {"off", "none"}:
            yield Hit(
                line,
                f'errors are written to a file named "{line.value}" and to no other log',
                [written(line)],
                fix=_OFF,
                why=_WHY_OFF,
            )
        elif can_debug and _is_debug(line):
            is_known = context.flags is not None
            yield Hit(
                line,
                f"{'' if is_known else 'if nginx is built --with-debug, '}each request writes "
                "dozens of lines to this log",
                [written(line)],
                severity=None if is_known else "advice",
            )


def _error_logs(context: Context) -> Iterator[Directive]:
    """Every ``error_log`` of the tree, once."""
    if "error_log" not in context.names:
        return
    main = context.tree.main
    blocks: list[Block | None] = [main]
    blocks += [block.block for block in main.all("http")]
    blocks += [scope.own.block for scope in context.scopes_that_set("error_log")]
    seen: set[Directive] = set()
    for block in blocks:
        for line in block.all("error_log") if block is not None else ():
            if line not in seen:
                seen.add(line)
                yield line
    for name in ("stream", "mail"):
        for outer in main.all(name):
            yield from outer.block.within("error_log") if outer.block is not None else ()


def _is_debug(line: Directive) -> bool:
    """True for level debug, except in a ring buffer in memory, which costs no disk."""
    return not line.value.startswith("memory:") and any(
        level == "debug" or level.startswith("debug_") for level in line.args[1:]
    )


_CONF = "error_log %s; events {} http { server { return 204; } }"

RULE = Rule(
    id="log-debug-prod",
    severity="warning",
    title="an error log at level debug, or one that is meant to be off",
    why="At level debug the worker writes dozens to hundreds of lines per request, unbuffered.",
    fix="Use error_log PATH warn; for selected clients: debug_connection ADDRESS; in events, or a "
    "ring buffer in memory: error_log memory:32m debug;",
    sources=(
        "https://nginx.org/en/docs/ngx_core_module.html#error_log",
        "https://nginx.org/en/docs/debugging_log.html",
        "F5 blog: Avoiding the Top 10 NGINX Configuration Mistakes",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A build without --with-debug writes no debug lines: if that is known, the level is not "
    "reported; if the build is not known, the finding is advice.",
    bad=Example(_CONF % "/var/log/nginx/error.log debug"),
    good=Example(_CONF % "/var/log/nginx/error.log warn"),
    check=check,
)
