from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import (
    descriptor_limit,
    lacking,
    main_place,
    raise_descriptors,
    worker_connections,
)
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Workers with more connections than descriptors."""
    if context.tree.is_part:
        return
    connections, limit = worker_connections(context), descriptor_limit(context)
    if isinstance(connections, MissingFacts) or isinstance(limit, MissingFacts):
        yield from lacking(connections, limit)
        return
    place = connections.place or limit.place or main_place(context, "events")
    if place is not None and connections.value > limit.value:
        yield Hit(
            place,
            f"{connections.value} connections per worker do not fit into {limit.value} descriptors",
            [connections.evidence, limit.evidence],
            fix=raise_descriptors(context, connections.value) + " Or lower worker_connections.",
        )


_CONF = "worker_rlimit_nofile %s; events { worker_connections 4096; } http { }"

RULE = Rule(
    id="lim-conn-exceeds-rlimit",
    severity="warning",
    title="worker_connections exceeds the descriptor limit of a worker",
    why="The connections beyond the limit cannot exist: accept4() fails (24: Too many open files) "
    "and clients wait. nginx itself only warns, at a level that the default error_log hides.",
    fix="Set worker_rlimit_nofile to at least twice worker_connections.",
    sources=("nginx: src/event/ngx_event.c, ngx_event_module_init",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    seen="nginx does not warn at all if worker_rlimit_nofile itself lowers the limit, because it "
    "also compares with the limit of the master.",
    whole_tree=True,
    bad=Example(_CONF % 1024),
    good=Example(_CONF % 8192),
    check=check,
)
