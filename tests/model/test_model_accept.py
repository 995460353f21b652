import heapq
import random
from bisect import bisect

import pytest
from rows import each_row
from simulation import gamma, mean

from nginx_tune.decide.model.waiting import (
    erlang_c,
    shared_queue_wait,
    stall_wait_own,
    stall_wait_shared,
    waiting_seconds,
)


def simulate(servers: int, utilisation: float, *, shared: bool, arrivals: int = 120_000) -> float:
    """Mean wait with exponential service, one queue for all or one for each."""
    rng = random.Random(11)
    free = [0.0] * servers
    clock = total = 0.0
    for _ in range(arrivals):
        clock += rng.expovariate(servers * utilisation)
        service = rng.expovariate(1.0)
        if shared:
            start = max(clock, heapq.heappop(free))
            heapq.heappush(free, start + service)
        else:
            number = rng.randrange(servers)
            start = max(clock, free[number])
            free[number] = start + service
        total += start - clock
    return total / arrivals


@each_row("utilisation", [0.3, 0.6, 0.8])
def test_both_queues_wait_as_simulated(utilisation: float) -> None:
    assert shared_queue_wait(4, utilisation, 1.0, 1.0) == pytest.approx(
        simulate(4, utilisation, shared=True), rel=0.15, abs=0.005
    )
    assert waiting_seconds(utilisation, 1.0, 1.0) == pytest.approx(
        simulate(4, utilisation, shared=False), rel=0.12
    )


def test_queues_of_their_own_always_wait_longer() -> None:
    """B4: one queue for all tills against one queue for each."""
    for utilisation in (0.1, 0.5, 0.9):
        shared = shared_queue_wait(4, utilisation, 1.0, 1.0)
        assert waiting_seconds(utilisation, 1.0, 1.0) > shared


def test_erlang_c_at_its_ends() -> None:
    assert erlang_c(1, 0.4) == pytest.approx(0.4)
    assert erlang_c(4, 4.0) == 1.0
    assert 0 < erlang_c(500, 400.0) < 1


def simulate_stalls(
    workers: int, stalled: float, stall: float, spread: float
) -> tuple[float, float]:
    """Mean waits of rare connections with own queues, and with one that any free worker takes."""
    rng = random.Random(29)
    up = stall * (1 - stalled) / stalled
    horizon, own, shared = 20_000 * stall, [], []
    spells: list[list[tuple[float, float]]] = []
    for _ in range(workers):
        clock, mine = 0.0, []
        while clock < horizon:
            clock += rng.expovariate(1 / up)
            length = gamma(rng, stall, spread)
            mine.append((clock, clock + length))
            clock += length
        spells.append(mine)
    starts = [[begin for begin, _ in mine] for mine in spells]
    for _ in range(60_000):
        at = rng.uniform(0, horizon)
        rests = []
        for begins, mine in zip(starts, spells, strict=True):
            place = bisect(begins, at) - 1
            rests.append(max(0.0, mine[place][1] - at) if place >= 0 else 0.0)
        own.append(rng.choice(rests))
        shared.append(min(rests))
    return mean(own), mean(shared)


@each_row(("stalled", "spread"), [(0.1, 0.5), (0.4, 1.0), (0.3, 2.0)])
def test_a_stalled_worker_keeps_its_share_waiting_as_simulated(
    stalled: float, spread: float
) -> None:
    """B4, net/core/sock_reuseport.c."""
    own, shared = simulate_stalls(2, stalled, 0.05, spread)
    assert stall_wait_own(stalled, 0.05, spread) == pytest.approx(own, rel=0.1)
    # Exact for exponential stalls; for others the first of several to end is bounded by it.
    assert stall_wait_shared(2, stalled, 0.05, spread) == pytest.approx(shared, rel=0.6, abs=1e-4)
    assert shared < own / 2
