from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import (
    and_at_start,
    descriptor_limit,
    descriptors_needed,
    lacking,
    main_place,
    raise_descriptors,
    worker_connections,
)
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.rules.io_open_cache_fd_budget import SMALL_PART
from nginx_tune.conf.workers import open_file_caches, open_files_share
from nginx_tune.decide.model.connections import suffices


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Workers that run out of descriptors before they run out of connections."""
    if context.tree.is_part:
        return
    connections, limit = worker_connections(context), descriptor_limit(context)
    if isinstance(connections, MissingFacts) or isinstance(limit, MissingFacts):
        yield from lacking(connections, limit)
        return
    files = sum(open_file_caches(context.tree).values())
    if files * SMALL_PART > limit.value:  # io-open-cache-fd-budget reports it
        files = 0
    needed = descriptors_needed(context, connections.value, files)
    place = limit.place or connections.place or main_place(context, "events")
    share = open_files_share(context.tree)
    is_exact = not share and not any(address.is_quic for address in context.listeners)
    is_enough = limit.value >= needed if is_exact else suffices(limit.value, needed)
    # lim-conn-exceeds-rlimit reports fewer descriptors than connections.
    if place is not None and connections.value <= limit.value and not is_enough:
        yield Hit(
            place,
            f"a worker may open {limit.value} descriptors, but its {connections.value} "
            f"connections{_WITH_FILES[share]}{and_at_start(context)} need about {needed}",
            [connections.evidence, limit.evidence],
            fix=raise_descriptors(context, connections.value),
        )


_WITH_FILES = {
    0: "",
    0.5: " (with a temporary file for each proxied request)",
    1: " (with a file for each)",
}

_CONF = "worker_rlimit_nofile %s; events { worker_connections 4096; } http { }"

RULE = Rule(
    id="lim-nofile-lt-2x",
    severity="warning",
    title="too few descriptors for the connections",
    why="Each connection, to a client or an upstream, holds a descriptor. So does each file that "
    "is sent, each temporary file, each log and each listener. When none is left, open() and "
    "accept4() fail (24: Too many open files): clients get 500, and new connections wait in the "
    "accept queue for half a second at a time.",
    fix="Set worker_rlimit_nofile well above worker_connections; to twice as much if files are "
    "sent.",
    sources=(
        "F5 blog 2022: Avoiding the Top 10 NGINX Configuration Mistakes (mistake 1)",
        "nginx: src/event/ngx_event_accept.c, ngx_event_accept",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    bad=Example(_CONF % 4096),
    good=Example(_CONF % 8192),
    check=check,
)
