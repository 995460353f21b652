"""One listen queue for all workers against one queue each (``reuseport``).

Source: rows B2-B4 of the sources. Mean waits follow from textbook queues: with one queue a
connection waits only while every worker is busy (M/M/k, corrected for the spread of service times
as Allen and Cunneen do), with one queue each it waits behind whatever its own worker is doing
(M/G/1).
"""

from __future__ import annotations


def erlang_c(servers: int, offered: float) -> float:
    """Chance that all ``servers`` are busy under ``offered`` erlangs (M/M/k).

    Source: Erlang 1917, computed through the recursion of Erlang B, which cannot overflow.
    """
    if offered >= servers:
        return 1.0
    blocking = 1.0
    for count in range(1, servers + 1):
        blocking = offered * blocking / (count + offered * blocking)
    return blocking / (1 - offered / servers * (1 - blocking))


def shared_queue_wait(servers: int, utilisation: float, service: float, spread: float) -> float:
    """Mean wait with one queue for all workers (M/G/k, Allen-Cunneen)."""
    if utilisation >= 1:
        return float("inf")
    busy = erlang_c(servers, servers * utilisation)
    return busy * service / (servers * (1 - utilisation)) * (1 + spread**2) / 2


def own_queue_wait(utilisation: float, service: float, spread: float) -> float:
    """Mean wait with one queue per worker (M/G/1, Pollaczek-Khinchine)."""
    if utilisation >= 1:
        return float("inf")
    return utilisation * service * (1 + spread**2) / (2 * (1 - utilisation))


def stall_wait_own(stalled: float, stall_seconds: float, spread: float) -> float:
    """Mean wait of a new connection whose own worker may stand in a disk read.

    Nobody else takes it (net/core/sock_reuseport.c), so it waits for the rest of the stall: by the
    inspection paradox E[S^2] / 2 E[S], which is more than half a mean stall.
    Source: renewal theory, mean residual life.
    """
    return stalled * stall_seconds * (1 + spread**2) / 2


def stall_wait_shared(servers: int, stalled: float, stall_seconds: float, spread: float) -> float:
    """The same with one queue: only while all workers stand does anybody wait, for the first."""
    return stall_wait_own(stalled**servers, stall_seconds, spread) / servers
