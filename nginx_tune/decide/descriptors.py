"""Connections and descriptors of a worker as one plan, since each number limits the other."""

import math
from dataclasses import dataclass

from nginx_tune.decide.model.connections import (
    CONNECTION_BYTES,
    DEFAULT_CONNECTIONS,
    RESERVE,
    SLOTS_MEMORY_SHARE,
    held_at_start,
)
from nginx_tune.decide.model.pool import peak_per_worker
from nginx_tune.decide.protocols import slots_of_a_client
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.units import percent_text

USUAL_CONNECTIONS = 4096
"""Connection slots of a worker unless the peak needs more. A slot costs only 432 bytes, and without
a free slot a client is refused."""
_USUAL_QUIC = 4
"""Factor on ``USUAL_CONNECTIONS`` for HTTP/3, whose clients take several slots each."""
SMALLEST_CONNECTIONS = 64
USUAL_MOST = 65536
"""Upper bound of the slots if more than the peak are added for idle keepalive connections."""
_ROOM = 1.25
"""Ratio of slots to a high peak."""
MOST_OPEN_FILES = 20_000
USUAL_SOFT_LIMIT = 1024
USUAL_HARD_LIMIT = 524_288
"""The hard limit if the facts have none: systemd's DefaultLimitNOFILE (systemd-system.conf(5))."""
BOUND_BY_LIMIT = "the descriptor limit allows no more"
_MOST_DECLARED = 1_000_000
"""Upper bound of the site's declared numbers of logs and listeners."""


@dataclass(frozen=True)
class DescriptorPlan:
    """Connections and descriptors of one worker."""

    connections: int
    slots_per_client: int
    descriptors_per_connection: int
    """2 for a socket and a file; 1 with QUIC, whose streams have no socket."""
    at_start: int
    """Descriptors before the first client: logs, listeners, channels."""
    kept: int
    """``at_start`` and the descriptors of all connections."""
    ceiling: int
    """Descriptors that the limits allow."""
    ceiling_fact: str
    soft: int | None
    """The soft limit with which nginx starts; None if the facts only have their reader's limit."""
    bound_by: str
    """The reason why ``connections`` is not larger, for a comment."""
    needed: int
    """Connection slots in use at the peak in the busiest worker."""

    @property
    def spare(self) -> int:
        """Descriptors that the limits leave for open files."""
        return max(0, min(MOST_OPEN_FILES, self.ceiling - self.kept))


def plan_descriptors(s: Situation) -> DescriptorPlan:
    """The connections and descriptors of one worker.

    Source: ngx_get_connection() (slots: two for a proxied client, one for each HTTP/3 stream);
            ngx_open_cached_file(), ngx_create_temp_file() (descriptors: client and file, or
            client, upstream, temporary file and cache file).
    """
    proxied = s.kind in ("proxy", "cache")
    of_quic = slots_of_a_client(s)
    slots = (2 if proxied else 1) + of_quic
    limits = s.facts.limits
    ceilings = [
        (value, fact)
        for value, fact in (
            (limits.nofile_hard, "limits.nofile_hard"),
            (limits.nr_open, "limits.nr_open"),
        )
        if value is not None and value > 0
    ]
    ceiling, fact = min(ceilings) if ceilings else (USUAL_HARD_LIMIT, "systemd's default")
    if s.stays.descriptors is not None:
        ceiling, fact = s.stays.descriptors, "descriptors a worker has"
    at_start = max(RESERVE, _at_start(s))
    each = 1 if of_quic else 2
    connections, bound = _connections(s, slots, (ceiling - at_start) // each)
    return DescriptorPlan(
        connections=connections,
        slots_per_client=slots,
        descriptors_per_connection=each,
        at_start=at_start,
        kept=connections * each + at_start,
        ceiling=ceiling,
        ceiling_fact=fact,
        soft=None if limits.nofile_of == "reader" else limits.nofile_soft,
        bound_by=bound,
        needed=_needed(s, slots),
    )


def _at_start(s: Situation) -> int:
    site = s.site
    logs = 2 if site.log_files is None else _count(site.log_files)  # error and access log
    sockets = len(site.listen) * (2 if site.http3 else 1)
    if site.listening_sockets is not None:
        sockets = _count(site.listening_sockets)
    return held_at_start(logs, sockets, s.workers)


def _count(declared: int) -> int:
    return min(max(0, declared), _MOST_DECLARED)


def _needed(s: Situation, slots: int) -> int:
    return math.ceil(peak_per_worker(s.concurrency.value or 0.0, s.workers) * slots)


def _connections(s: Situation, slots: int, room: int) -> tuple[int, str]:
    if s.stays.connections is not None:
        return s.stays.connections, ""
    needed = _needed(s, slots)
    # Idle keepalive connections take slots too: four for each busy one, up to USUAL_MOST.
    usual = USUAL_CONNECTIONS * (_USUAL_QUIC if slots_of_a_client(s) else 1)
    with_idle = min(USUAL_MOST, _power_of_two(needed * 4))
    wanted = max(usual, with_idle, _power_of_two(needed * _ROOM))
    if s.seen.connections_refused.value:
        # Clients were refused: double the slots; the next observation shows whether that suffices.
        wanted = max(wanted, min(USUAL_MOST, 2 * wanted))
    bounds = [(room, BOUND_BY_LIMIT)]
    memory = s.facts.memory.cgroup_limit_bytes or s.facts.memory.total_bytes
    if memory:
        room = int(SLOTS_MEMORY_SHARE * memory / CONNECTION_BYTES / s.workers)
        bounds.append(
            (
                room,
                f"{percent_text(SLOTS_MEMORY_SHARE, 2)} of memory at {CONNECTION_BYTES} bytes each",
            )
        )
    most, reason = min(bounds)
    if wanted <= most:
        return wanted, ""
    if s.stays.descriptors is not None:  # below nginx's default there is no gain
        most = max(most, DEFAULT_CONNECTIONS)
    return max(SMALLEST_CONNECTIONS, most), reason


def _power_of_two(value: float) -> int:
    return 1 << max(0, math.ceil(value) - 1).bit_length()
