"""``lim-conn-exceeds-rlimit``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import (
    descriptor_limit,
    descriptors_needed,
    lacking,
    main_place,
    raise_descriptors,
    worker_connections,
)
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """More connections of a worker than descriptors."""
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
            f"{connections.value} connections of a worker cannot have {limit.value} descriptors",
            [connections.evidence, limit.evidence],
            fix=raise_descriptors(context, descriptors_needed(context, connections.value))
            + " Or fewer worker_connections.",
        )


_CONF = "worker_rlimit_nofile %s; events { worker_connections 4096; } http { }"

RULE = Rule(
    id="lim-conn-exceeds-rlimit",
    severity="warning",
    title="worker_connections is more than the descriptors that a worker may open",
    why="The connections beyond the limit cannot exist: accept4() fails (24: Too many open "
    "files) and clients wait. nginx itself says so only in a warning, which the default error_log "
    "level hides.",
    fix="worker_rlimit_nofile of at least twice worker_connections.",
    sources=("nginx: src/event/ngx_event.c, ngx_event_module_init",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    seen="nginx does not warn at all when it is worker_rlimit_nofile that lowers the limit: it "
    "compares with the limit of the master as well.",
    whole_tree=True,
    bad=Example(_CONF % 1024),
    good=Example(_CONF % 8192),
    check=check,
)
