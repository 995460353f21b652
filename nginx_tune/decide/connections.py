"""``connections``: ``worker_connections``.

Slots are per worker and count clients, upstream connections and listeners; a proxied client
takes two. When none is free nginx closes idle keepalive connections, then new ones right after
accepting them: the client sees a reset and the access log nothing. Over HTTP/3 each stream takes
one, those of control too: six for an idle client. A slot costs 432 bytes, taken
at start, so the number has room for idle connections but stays below a tenth of the memory and
below what the descriptor limit carries.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import setting
from nginx_tune.decide.descriptors import (
    CONNECTION_BYTES,
    DEFAULT_CONNECTIONS,
    plan_descriptors,
)
from nginx_tune.decide.http3 import slots_of_a_client
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Decision

ID: Final = "connections"


def decide_connections(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    d = plan_descriptors(s)
    each = "client and upstream take a slot each" if d.slots_per_client > 1 else "a slot a client"
    if of_quic := slots_of_a_client(s):
        own = d.slots_per_client - of_quic
        each = f"a client of HTTP/3 takes {of_quic} slots when idle, and {own} for each request"
    reason = f"{each}; {d.bound_by}" if d.bound_by else each
    if d.needed > d.connections:
        carried = d.connections // d.slots_per_client * s.workers
        reason += f"; this host carries about {carried:,} of {s.concurrency.value:,.0f} clients"
    memory = s.facts.memory.cgroup_limit_bytes or s.facts.memory.total_bytes
    return Decision(
        id=ID,
        verdict="raise" if d.connections > DEFAULT_CONNECTIONS else "lower",
        summary=f"{d.connections} a worker ({d.connections * s.workers} in all); {reason}.",
        settings=[
            setting(ID, "events", "worker_connections", str(d.connections), reason=reason),
        ],
        evidence=known(
            s.concurrency,
            s.seen.connections_refused,
            Quantity("workers", s.workers),
            Quantity("memory limit", memory, "bytes"),
            Quantity(d.ceiling_fact, d.ceiling, "descriptors", _provenance(s)),
        ),
        confidence="medium" if s.concurrency.provenance != "assumed" else "low",
        flips_when=[
            (
                f"a worker has more than {d.connections // d.slots_per_client} clients at once, "
                "idle keepalive ones included"
            )
        ],
        risks=[f"{d.connections * CONNECTION_BYTES // 1024} KiB of memory in each worker"],
    )


def _provenance(s: Situation) -> Provenance:
    known_limit = s.facts.limits.nofile_hard is not None or s.facts.limits.nr_open is not None
    return "measured" if known_limit else "assumed"
