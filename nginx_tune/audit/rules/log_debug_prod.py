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
    replaced = _replaced(context.tree.main) if context.flags is None else ()
    for line in _error_logs(context):
        if line.value in {"off", "none"}:
            if _is_unused(context, line):
                continue
            yield Hit(
                line,
                f'errors are written to a file named "{line.value}"{_where(context, line)}',
                [written(line)],
                fix=_OFF,
                why=_WHY_OFF,
            )
        elif can_debug and _is_debug(line) and line not in replaced:
            is_known = context.flags is not None
            yield Hit(
                line,
                f"{'' if is_known else 'if nginx is built --with-debug, '}each request writes "
                "dozens of lines to this log",
                [written(line)],
                severity=None if is_known else "advice",
            )


def _replaced(main: Block) -> list[Directive]:
    """The lines of the main context, if each block that serves clients has its own instead."""
    blocks = [line.block for name in ("http", "stream", "mail") for line in main.all(name)]
    is_replaced = blocks and all(block and block.first("error_log") for block in blocks)
    return main.all("error_log") if is_replaced else []


def _is_unused(context: Context, line: Directive) -> bool:
    """True for a line of http if each server has a log of its own."""
    if line.parent is None or line.parent.name != "http":
        return False
    return bool(context.scopes) and not any(
        line in scope.effective_all("error_log") for scope in context.scopes
    )


def _where(context: Context, line: Directive) -> str:
    """The rest of the message: blocks with another log are left out."""
    lines = line.parent.block.within("error_log") if line.parent and line.parent.block else ()
    has_inner = any(other.parent is not line.parent for other in lines)
    if has_inner or not context.tree.is_whole:
        return ", except in blocks with a log of their own"
    return " and to no other log"


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
    "reported; if the build is not known, the finding is advice, and a line of the main context is "
    "not reported where http has its own.",
    bad=Example(_CONF % "/var/log/nginx/error.log debug"),
    good=Example(_CONF % "/var/log/nginx/error.log warn"),
    check=check,
)
