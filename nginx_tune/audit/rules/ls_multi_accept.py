from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import KnownNumber, events_directive, worker_count
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.listeners import has_own_queues


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``multi_accept on`` with more than one worker."""
    place = events_directive(context, "multi_accept")
    if place is None or place.value.lower() != "on" or has_own_queues(context.listeners):
        return
    workers, known = context.tree.main.first("worker_processes"), worker_count(context)
    if isinstance(known, KnownNumber) and known.value == 1:
        return
    if workers is not None and workers.value != "1":
        yield Hit(
            place,
            "the worker that wakes up accepts all waiting connections",
            [written(place), written(workers)],
        )


_CONF = "worker_processes auto; events { %s } http { server { listen 80; return 204; } }"

RULE = Rule(
    id="ls-multi-accept",
    severity="advice",
    title="multi_accept gives most connections to one worker",
    why="A worker empties the whole queue at once and then has to serve it alone. It also skips "
    "the balancing between workers that nginx has had since 1.21.6.",
    fix="Remove multi_accept on.",
    sources=(
        "https://nginx.org/en/docs/ngx_core_module.html#multi_accept",
        "nginx: src/event/ngx_event_accept.c, ngx_event_accept, ngx_reorder_accept_events",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    seen="With four workers under light load, the busiest accepted every connection with "
    "multi_accept on, in every version from 1.18 to 1.31, and a quarter of them without it (1.22 "
    "and later).",
    bad=Example(_CONF % "multi_accept on;"),
    good=Example(_CONF % ""),
    check=check,
)
