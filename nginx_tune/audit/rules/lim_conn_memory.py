from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import lacking, main_place, worker_connections, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.decide.model.connections import CONNECTION_BYTES, SLOTS_MEMORY_SHARE
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.units import percent_text

FATAL_SHARE = 0.8
"""Share of the memory above which little is left for requests and the page cache."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Preallocated connections that take much of the memory."""
    if context.tree.is_part:
        return
    workers, connections = worker_count(context), worker_connections(context)
    memory = context.facts.memory
    limits = {
        f"memory.{name}": value
        for name, value in (
            ("total_bytes", memory.total_bytes),
            ("cgroup_limit_bytes", memory.cgroup_limit_bytes),
        )
        if value is not None
    }
    if isinstance(workers, MissingFacts) or isinstance(connections, MissingFacts) or not limits:
        yield from lacking(
            workers, connections, *([] if limits else [MissingFacts(("memory.total_bytes",))])
        )
        return
    name, limit = min(limits.items(), key=lambda item: item[1])
    preallocated = workers.value * connections.value * CONNECTION_BYTES
    place = connections.place or workers.place or main_place(context, "events")
    if place is not None and preallocated > SLOTS_MEMORY_SHARE * limit:
        yield Hit(
            place,
            f"{workers.value} workers × {connections.value} connections take "
            f"{percent_text(preallocated / max(1, limit), 2)} of the memory at start",
            [
                workers.evidence,
                connections.evidence,
                Evidence(fact="preallocated", value=preallocated, unit="bytes"),
                Evidence(fact=name, value=limit, unit="bytes"),
            ],
            severity=None if preallocated > FATAL_SHARE * limit else "warning",
        )


_CONF = "worker_processes auto; events { worker_connections %s; } http { }"

RULE = Rule(
    id="lim-conn-memory",
    severity="error",
    title="preallocated connections take much of the memory",
    why="Every worker allocates and initialises all its connections at start, 432 bytes each, used "
    "or not. In a small container on a large host (worker_processes auto) that alone can exceed "
    "the limit: the workers are killed and restarted endlessly.",
    fix="Use fewer workers (an explicit worker_processes) or fewer worker_connections.",
    sources=(
        "nginx: src/event/ngx_event.c, ngx_event_process_init",
        "github.com/nginx/nginx-gateway-fabric issue 5374",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A warning above a tenth of the memory, an error above four fifths of it.",
    by_absence=True,
    bad=Example(_CONF % 65_536, linux(cpus=64, memory_limit_mib=1024)),
    good=Example(_CONF % 512, linux(cpus=64, memory_limit_mib=1024)),
    check=check,
)
