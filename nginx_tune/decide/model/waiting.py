"""Waits in queues: of events on a loop behind reads and stalls, of connections for a worker.

Reads block the loop one after the other, as in an M/G/1 queue. A stall (garbage collection of
flash, a controller that flushes its cache) begins independently of reads, and the disk serves
nothing until it ends. The first cold read in a stall blocks its loop until the stall ends. So even
a few reads a second block loops for much of the stalled time.

With one listen queue, a connection waits only while all workers are busy (M/M/k, with Allen and
Cunneen's correction for the spread of service times). With a queue for each worker (``reuseport``)
a connection waits for one particular worker (M/G/1; source rows B2 to B4).
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

_TAIL = 0.01
_BISECTIONS = 40
_SELDOM = 1e-3
"""Share of the time during which a peak may be exceeded."""


class Stalls(NamedTuple):
    """Periods in which a disk serves nothing."""

    ratio: float
    """Share of all time that is spent in stalls."""
    seconds: float
    """Length of one stall."""
    spread_between: float
    """Coefficient of variation of read times outside stalls."""
    share: float = 1.0
    """Share of the reads that go to the disk with the stalls."""

    @property
    def per_second(self) -> float:
        """Stalls a second."""
        return self.ratio / self.seconds


class LoopWait(NamedTuple):
    """The wait of other events on a loop behind its cold reads."""

    blocked_ratio: float
    mean_seconds: float


def loop_wait(
    utilisation: float,
    hold_seconds: float,
    spread: float,
    *,
    sizes_spread: float = 0.0,
    stalls: Stalls | None = None,
    reads_per_second: float = 0.0,
) -> LoopWait:
    """Waits behind reads that hold the loop for ``utilisation`` of the time, without stalls.

    ``reads_per_second`` are the reads of this loop. ``spread`` is the coefficient of variation of
    their times outside stalls for a fixed size, ``sizes_spread`` that due to different sizes.
    """
    spread = math.hypot(spread, sizes_spread)
    if stalls is None:
        return LoopWait(utilisation, waiting_seconds(utilisation, hold_seconds, spread))
    mean = waiting_seconds(utilisation, hold_seconds, spread)
    # Stalls do not depend on reads, and only reads of the stalled disk wait.
    met = reads_per_second * stalls.share
    stood, squared = _stall_moments(stalls.seconds, met, utilisation * stalls.share)
    return LoopWait(
        min(1.0, utilisation + stalls.per_second * stood), mean + stalls.per_second * squared / 2
    )


def waiting_seconds(utilisation: float, hold_seconds: float, spread: float) -> float:
    """Mean wait in an M/G/1 queue: of events behind cold reads, or of connections for one worker.

    Source: Pollaczek-Khinchine: W = rho * E[S] * (1 + cv^2) / (2 * (1 - rho)).
    """
    if utilisation >= 1:
        return math.inf
    return utilisation * hold_seconds * (1 + spread**2) / (2 * (1 - utilisation))


def _stall_moments(
    seconds: float, reads_per_second: float, utilisation: float
) -> tuple[float, float]:
    """Mean time for which one stall blocks a loop, and the mean of its square.

    With probability rho a read is in progress when the stall begins, and the loop is blocked for
    the whole stall. Otherwise it is blocked from the next read on, which comes after an
    exponential time X:
    E[(L - X)+] = L - (1 - e^(-kL)) / k and E[((L - X)+)^2] = L^2 - 2L/k + 2(1 - e^(-kL)) / k^2
    for k reads a second.
    Source: reads are a Poisson process (integrals of the exponential law). An arrival while the
            loop is blocked for B waits for the rest of B: E[B^2] / 2 for each stall.
    """
    met = reads_per_second * seconds
    if met < 1e-3:  # noqa: PLR2004  # the differences below would cancel out
        first, second = seconds * met / 2, seconds**2 * met / 3
    else:
        left = -math.expm1(-met)
        first = seconds * (1 - left / met)
        second = seconds**2 * (1 - 2 / met + 2 * left / met**2)
    whole = min(1.0, utilisation)
    return (whole * seconds + (1 - whole) * first, whole * seconds**2 + (1 - whole) * second)


def one_in_a_hundred(beyond: Callable[[float], float], about_seconds: float) -> float:
    """The 99th percentile of a wait; 0 if fewer than one in a hundred wait.

    ``beyond`` gives the share that waits longer than a time.
    """
    if beyond(0.0) <= _TAIL:
        return 0.0
    low, high = 0.0, about_seconds
    while beyond(high) > _TAIL and math.isfinite(high):
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if beyond(middle) > _TAIL:
            low = middle
        else:
            high = middle
    return high


def peak_under_way(
    arrivals_per_second: float, seconds: float, heads: float, stalls: Stalls | None = None
) -> float:
    """The number of concurrent transfers that is exceeded in less than a thousandth of the time.

    Each transfer takes a head for ``seconds``. Up to the number of heads, the count is a Poisson
    variable (M/G/infinity); above, the probability of a queue of length n falls off as rho^n
    (M/M/c). During a stall, transfers arrive and none is finished. The result is the greatest of
    the three.
    Source: Erlang C; the Poisson quantile by Cornish and Fisher's expansion (1938).
    """
    places = max(1, round(heads))
    offered = arrivals_per_second * seconds
    if offered >= places:
        return math.inf
    peak = _poisson_quantile(offered, _SELDOM)
    queued = erlang_c(places, offered)
    if queued > _SELDOM:
        peak = max(peak, places + math.log(queued / _SELDOM) / math.log(places / offered))
    if stalls is not None and stalls.ratio > _SELDOM:
        come = offered + arrivals_per_second * stalls.share * stalls.seconds
        peak = max(peak, _poisson_quantile(come, _SELDOM / stalls.ratio))
    return peak


def _poisson_quantile(mean: float, beyond: float) -> float:
    """The value that a Poisson variable exceeds with probability ``beyond``."""
    if mean <= 0:
        return 0.0
    z = NormalDist().inv_cdf(1 - min(0.5, beyond))
    return mean + z * math.sqrt(mean) + (z * z - 1) / 6


def erlang_c(servers: int, offered: float) -> float:
    """Probability that all ``servers`` are busy at ``offered`` erlangs (M/M/k).

    Source: Erlang 1917, by the recursion of Erlang B, which cannot overflow.
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


def stall_wait_own(stalled: float, stall_seconds: float, spread: float) -> float:
    """Mean wait in seconds of a new connection whose worker may be blocked in a disk read.

    No other worker takes the connection (net/core/sock_reuseport.c), so it waits for the rest of
    the read: E[S^2] / (2 E[S]), which is more than half a mean read (inspection paradox).
    Source: renewal theory, mean residual life.
    """
    return stalled * stall_seconds * (1 + spread**2) / 2


def stall_wait_shared(servers: int, stalled: float, stall_seconds: float, spread: float) -> float:
    """Mean wait in seconds of a new connection with one queue, while all workers are blocked."""
    return stall_wait_own(stalled**servers, stall_seconds, spread) / servers
