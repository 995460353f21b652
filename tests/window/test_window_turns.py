"""Turns that were not seen whole: where they make a statistic a lower bound, and where not."""

import pytest
from tiers import REPEAT, dice, draws

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.observe.causes.parts import arrival_wait_seconds
from nginx_tune.observe.parse_turns import Turn, TurnCounts
from nginx_tune.observe.window.server import loop_turn_of

MILLISECOND = 1_000_000


def counted(turns: int, bounds: list[int]) -> TurnCounts:
    counts = TurnCounts(traced_seconds=10.0)
    for _ in range(turns):
        counts.count(7, Turn(MILLISECOND))
    for nanoseconds in bounds:
        counts.count(7, Turn(nanoseconds), is_bound=True)
    return counts


def test_statistics_that_are_lower_bounds() -> None:
    table: list[tuple[int, list[int], list[str]]] = [
        (5000, [], []),
        (5000, [5_000], []),  # a short turn under way moves nothing
        (5000, [3000 * MILLISECOND], ["max"]),
        (1000, [3000 * MILLISECOND] * 20, ["p99", "p999", "max"]),
        (0, [3000 * MILLISECOND] * 2, ["p50", "p90", "p99", "p999", "max"]),
    ]
    for turns, bounds, at_least in table:
        turn = loop_turn_of(counted(turns, bounds), workers=1, seconds=10.0, method="bpftrace")
        assert turn.at_least == at_least, (turns, bounds)
        assert turn.censored == len(bounds), (turns, bounds)
        server = ServerMeasurement(loop_turn_seconds=turn)
        block = Measurement(classes={"hot": ClassMeasurement()}, server=server)
        reading = find_metric("server.loop_turn_seconds.p99").read([block])
        # A gate never passes on a bound from below.
        assert (reading.value is None) == ("p99" in at_least or turns < 1000), reading


def test_the_wait_of_an_arrival_is_that_of_the_histogram_and_its_parts_add_up() -> None:
    deal = dice("turns")
    for _ in range(draws(30, 300)):
        counts = TurnCounts(traced_seconds=deal.uniform(1, 60))
        for _ in range(deal.randrange(1, 200)):
            whole = deal.randrange(1000, 10**9)
            disk = deal.randrange(whole)
            queue = deal.randrange(whole - disk)
            counts.count(deal.randrange(4), Turn(whole, {"blocked": disk, "queued": queue}))
        turn = loop_turn_of(counts, workers=4, seconds=counts.traced_seconds, method="tracefs")
        told = turn.arrival_wait_seconds
        assert told is not None
        assert sum(turn.arrival_wait_by.values()) == pytest.approx(told), REPEAT
        again = arrival_wait_seconds(turn, workers=4, duration_seconds=counts.traced_seconds)
        assert again == pytest.approx(told, rel=0.02), REPEAT
