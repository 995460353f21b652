from collections.abc import Iterable, Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.edits import Edit, remove


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``timer_resolution`` of the main context."""
    line = context.tree.main.first("timer_resolution")
    if line is not None and line.value not in {"0", "0s", "0ms"}:
        yield Hit(line, f"nginx updates its clock only every {line.value}", [written(line)])


def fixes(_context: Context, hit: Hit) -> Iterable[Edit]:
    """Remove the line."""
    yield remove(hit.place)


_CONF = "%s events {} http { server { return 204; } }"

RULE = Rule(
    id="cn-timer-resolution",
    severity="warning",
    title="nginx runs with a coarse clock",
    why="All times in logs and all timers (limits, timeouts, $request_time) become as coarse as "
    "this interval. It saves one gettimeofday() per iteration of the event loop, which is no "
    "longer a system call. Before nginx 1.11.13 requests could hang with it.",
    fix="Remove the line.",
    sources=(
        "https://nginx.org/en/docs/ngx_core_module.html#timer_resolution",
        "nginx change log, 1.11.13",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    fixes=fixes,
    bad=Example(_CONF % "timer_resolution 100ms;"),
    good=Example(_CONF % ""),
    check=check,
)
