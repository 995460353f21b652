from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import events_directive
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.edits import Edit, remove
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``accept_mutex on`` where the kernel already wakes a single worker."""
    place = events_directive(context, "accept_mutex")
    if place is None or place.value.lower() != "on" or context.is_linux is False:
        return
    own_queues = [line for address in context.listeners if (line := address.reuseport) is not None]
    exclusive = context.facts.kernel.features.get("epollexclusive")
    if own_queues:
        yield Hit(
            place,
            "accept_mutex does not apply to the listeners with reuseport",
            [written(place), written(own_queues[0])],
        )
    elif exclusive is None:
        yield MissingFacts(("kernel.features[epollexclusive]",))
    elif exclusive:
        yield Hit(
            place,
            "accept_mutex lets one worker accept at a time, but the kernel already wakes only one",
            [written(place), Evidence(fact="kernel.features[epollexclusive]", value=True)],
        )


def fixes(_context: Context, hit: Hit) -> Iterator[Edit]:
    """Remove the line; off is the default."""
    yield remove(hit.place)


_CONF = "worker_processes 4; events { %s } http { server { listen 80; return 204; } }"

RULE = Rule(
    id="ls-accept-mutex-redundant",
    severity="info",
    title="accept_mutex is on without a benefit",
    why="The mutex was introduced to avoid waking all workers for one connection. With "
    "EPOLLEXCLUSIVE (Linux 4.5, nginx 1.11.3) the kernel wakes only one; the mutex then just gives "
    "most connections to whoever holds it. Listeners with reuseport ignore it.",
    fix="Remove accept_mutex on; (the default is off since nginx 1.11.3).",
    sources=(
        "https://nginx.org/en/docs/ngx_core_module.html#accept_mutex",
        "nginx: src/event/ngx_event.c, ngx_event_process_init",
    ),
    proof="proven",
    proven_on=("1.22", "1.26", "1.30"),
    since="1.11.3",
    seen="With four workers under light load, the busiest accepted every connection with the mutex "
    "on (1.22, 1.31), and a quarter of them without it.",
    bad=Example(_CONF % "accept_mutex on;", linux()),
    good=Example(_CONF % "", linux()),
    check=check,
    fixes=fixes,
)
