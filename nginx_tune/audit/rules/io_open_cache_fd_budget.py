from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import (
    and_at_start,
    descriptor_limit,
    descriptors_needed,
    lacking,
    raise_descriptors,
    worker_connections,
)
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.workers import open_file_caches
from nginx_tune.decide.model.connections import suffices

SMALL_PART = 4
"""Divisor of the limit. A cache smaller than the quotient is not the cause."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches of open files that can use up the connections' descriptors."""
    if "open_file_cache" not in context.names:
        return
    caches = open_file_caches(context.tree)
    cached = sum(caches.values())
    if not cached:
        return
    connections, limit = worker_connections(context), descriptor_limit(context)
    if isinstance(connections, MissingFacts) or isinstance(limit, MissingFacts):
        yield from lacking(connections, limit)
        return
    needed = descriptors_needed(context, connections.value, cached)
    if not suffices(limit.value, needed) and cached * SMALL_PART > limit.value:
        largest = max(caches, key=lambda cache: caches[cache])
        yield Hit(
            largest,
            f"{cached} cached files and {connections.value} connections{and_at_start(context)} "
            "need "
            f"about {needed} descriptors, but a worker may open {limit.value}",
            [written(largest), connections.evidence, limit.evidence],
            fix=raise_descriptors(context, connections.value) + " Or lower max=.",
        )


_CONF = """
worker_rlimit_nofile %s;
events { worker_connections 4096; }
http { server { location / { root /srv/www; open_file_cache max=20000 inactive=60s; } } }
"""

RULE = Rule(
    id="io-open-cache-fd-budget",
    severity="warning",
    title="open_file_cache can use up all descriptors",
    why="Each worker has its own cache, and every cached file holds a descriptor. At the limit "
    "open() and accept4() fail (24: Too many open files).",
    fix="Raise worker_rlimit_nofile above max= plus twice worker_connections, or lower max=.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#open_file_cache",
        "nginx: src/core/ngx_open_file_cache.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % 8192),
    good=Example(_CONF % 32_768),
    check=check,
)
