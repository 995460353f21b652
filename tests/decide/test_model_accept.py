from __future__ import annotations

import heapq
import random

import pytest

from nginx_tune.decide.model_accept import erlang_c, own_queue_wait, shared_queue_wait


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


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_both_queues_wait_as_simulated(utilisation: float) -> None:
    assert shared_queue_wait(4, utilisation, 1.0, 1.0) == pytest.approx(
        simulate(4, utilisation, shared=True), rel=0.15, abs=0.005
    )
    assert own_queue_wait(utilisation, 1.0, 1.0) == pytest.approx(
        simulate(4, utilisation, shared=False), rel=0.12
    )


def test_queues_of_their_own_always_wait_longer() -> None:
    """B4: one queue for all tills against one queue for each."""
    for utilisation in (0.1, 0.5, 0.9):
        shared = shared_queue_wait(4, utilisation, 1.0, 1.0)
        assert own_queue_wait(utilisation, 1.0, 1.0) > shared


def test_erlang_c_at_its_ends() -> None:
    assert erlang_c(1, 0.4) == pytest.approx(0.4)
    assert erlang_c(4, 4.0) == 1.0
    assert 0 < erlang_c(500, 400.0) < 1
