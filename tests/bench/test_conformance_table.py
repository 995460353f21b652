"""The conformance benchmark: its table is whole, its statistics and its server are right."""

import argparse
import random

import conformance
import pytest
from conforming.arrivals import anderson_darling, dispersion, kolmogorov
from conforming.delays import distances
from conforming.elsewhere import ELSEWHERE, is_there
from conforming.rows import ground_truth, run

from nginx_tune.measure.proof.histogram import Histogram, Layout


def test_every_number_has_rows() -> None:
    assert list(conformance.CHECKS) == [str(number) for number in range(1, 30)]
    for number in ELSEWHERE:
        rows = list(conformance.CHECKS[number](argparse.Namespace()))
        assert [row.held for row in rows] == [None], rows


def test_a_test_that_is_gone_is_seen() -> None:
    assert is_there("tests/bench/test_conformance_table.py::test_every_number_has_rows")
    assert not is_there("tests/bench/test_conformance_table.py::test_every_number")
    assert not is_there("tests/bench/no_such_file.py")


def test_distances_from_evenly_spread_shares() -> None:
    even = [(rank + 0.5) / 100 for rank in range(100)]
    assert kolmogorov(even) == pytest.approx(0.005)
    assert anderson_darling(even) < 0.05
    squeezed = [share**1.3 for share in even]
    assert kolmogorov(squeezed) > 0.05
    # The value of the formula by hand: -1 - (ln ½ + ln ½).
    assert anderson_darling([0.5]) == pytest.approx(0.38629436)


def test_regular_and_random_arrivals_are_told_apart() -> None:
    even = [number / 1000 for number in range(10_000)]
    assert dispersion(even, 1_990) < 0.1
    dice = random.Random(1)
    at, poisson = 0.0, []
    while at < 20:
        at += dice.expovariate(1000)
        poisson.append(at)
    assert dispersion(poisson, 3_990) == pytest.approx(1, abs=0.1)
    # Each of them twice.
    assert dispersion(sorted(poisson * 2), 3_990) > 1.5


def test_a_distribution_beside_the_delays_and_the_way() -> None:
    layout = Layout(unit_bits=0, half_bits=10)
    delays = [number * 1e-3 for number in range(1, 101)]

    def told(added: float) -> Histogram:
        indices = (layout.index_of(round((delay + added) * 1e9)) for delay in delays)
        return Histogram(layout, {index: 1 for index in sorted(indices)})  # noqa: C420

    way = (0.0, 0.0002)
    assert distances(told(0.0001), delays, way) == (0.0, 0.0)
    assert distances(told(0.0), delays, (0.0001, 0.0002))[0] > 0
    early, late = distances(told(-0.0101), delays, way)
    assert (early, late) == (pytest.approx(0.11), 0.0)
    early, late = distances(told(0.0101), delays, way)
    assert (early, late) == (0.0, pytest.approx(0.1))


@pytest.mark.needs("probe")
def test_the_server_keeps_answers_back_and_tells_of_each() -> None:
    with ground_truth("--delay", "bimodal:0.01,0.05,0.2", "--log") as server:
        _, seen = run(server, rate=100.0, duration_seconds=1.0)
        told = server.end()
    own = told["each_own_seconds"]
    assert len(own) == told["requests"] == seen.requests == 100
    assert len(told["arrived_nanoseconds"]) + told["unstamped"] == 100
    assert min(own) >= 0.01
    assert sum(seconds >= 0.05 for seconds in own) >= 5
    assert (seen.service_seconds.p50 or 0) >= 0.0099
    assert (seen.response_seconds.max or 0) >= 0.0499
