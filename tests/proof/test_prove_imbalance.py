import math
import random
from collections import Counter

import pytest
from rows import each_row

from nginx_tune.documents.measured_class import ClassMeasurement, Latency, WorkerShare
from nginx_tune.documents.measurement import Generator, Measurement
from nginx_tune.measure.proof.runs import pair_runs
from nginx_tune.measure.proof.workers import (
    chi_square_tail,
    imbalance_of,
    with_imbalance,
    with_interference,
    with_late_watch,
)


@each_row(
    ("statistic", "degrees", "tail"),
    # Tables of the distribution: its 95 % and 99 % points.
    [
        (3.841, 1, 0.05), (5.991, 2, 0.05), (7.815, 3, 0.05), (11.345, 3, 0.01),
        (15.086, 5, 0.01), (24.996, 15, 0.05), (124.342, 100, 0.05), (0.0, 3, 1.0),
    ],
)  # fmt: skip
def test_the_tail_of_chi_square(statistic: float, degrees: int, tail: float) -> None:
    assert chi_square_tail(statistic, degrees) == pytest.approx(tail, rel=2e-3)


@each_row(
    ("connections", "idle", "is_open", "flagged"),
    [
        ([10, 10], [], True, False),
        ([9, 0], [], True, True),
        ([9, 1], [], True, False),
        ([12, 2, 1], [4], True, True),
        ([9, 0], [], False, False),
        ([1], [], True, False),
    ],
)
def test_an_open_loop_of_few_connections_is_flagged(
    connections: list[int], idle: list[int], *, is_open: bool, flagged: bool
) -> None:
    """Fewer than five for each worker, idle ones included; a closed loop has what was asked for."""
    shares = {str(pid): WorkerShare(requests=9, connections=n) for pid, n in enumerate(connections)}
    part = ClassMeasurement(
        workers=dict.fromkeys(shares, 9),
        worker_shares=shares,
        lateness_seconds=Latency(count=9 if is_open else 0),
    )
    told = with_imbalance(Measurement(classes={"c": part}, flags=["other: x"]), idle)
    said = f"workers: {sum(connections)} (fewer than"
    assert [flag.startswith("few_connections: c: ") and said in flag for flag in told.flags] == [
        False
    ] + [True] * flagged
    # Told once, however often it is looked at.
    assert with_imbalance(told, idle).flags == told.flags


def test_a_known_skew() -> None:
    skewed = imbalance_of([70, 10, 10, 10])
    assert skewed is not None
    assert skewed.max_to_mean == pytest.approx(2.8)
    assert skewed.variation == pytest.approx(math.sqrt((45**2 + 3 * 15**2) / 4) / 25)
    assert skewed.chi_square == pytest.approx((45**2 + 3 * 15**2) / 25)
    assert skewed.p_value < 1e-20


@each_row("workers", [2, 4, 16])
def test_equal_odds_are_called_uneven_as_often_as_the_p_value_says(workers: int) -> None:
    chance = random.Random(workers)
    runs, called = 1000, 0
    for _ in range(runs):
        dealt = Counter(chance.randrange(workers) for _ in range(200))
        found = imbalance_of([dealt[worker] for worker in range(workers)])
        assert found is not None
        called += found.p_value < 0.05
    # Five per cent, give or take three standard errors and the counts' coarseness.
    assert 0.02 * runs < called < 0.08 * runs


def test_idle_workers_count() -> None:
    shares = {"70": WorkerShare(requests=30, connections=3)}
    part = ClassMeasurement(workers={"70": 30}, worker_shares=shares)
    bare = Measurement(classes={"hot": part, "untold": ClassMeasurement(requests=5)})
    assert with_imbalance(bare).classes["hot"].worker_requests is None
    told = with_imbalance(bare, [70, 71, 72]).classes
    assert told["hot"].worker_requests is not None
    assert told["hot"].worker_requests.workers == 3
    assert told["hot"].worker_connections is not None
    assert told["hot"].worker_connections.max_to_mean == 3
    assert told["untold"].worker_requests is None


def test_others_work_is_what_neither_probe_nor_server_used() -> None:
    busy = Measurement(
        generator=Generator(cpu_seconds=2.0, host_busy_seconds=10.0, host_cpu_seconds=40.0)
    )
    told = with_interference(busy, 3.0)
    assert told.generator.foreign_cpu_ratio == pytest.approx(5 / 40)
    (flag,) = told.flags
    assert flag.startswith("foreign_cpu: ")
    assert "12 %" in flag
    assert with_interference(busy, 7.0).flags == []
    assert with_interference(busy, 20.0).generator.foreign_cpu_ratio == 0
    assert with_interference(busy, None) == busy
    assert with_interference(Measurement(), 1.0) == Measurement()


def test_a_run_whose_server_was_watched_for_a_part_of_it_does_not_count() -> None:
    whole = Measurement(variant="baseline", number=0, duration_seconds=1.5)
    assert with_late_watch(whole, 1.4) == whole
    late = with_late_watch(whole, 0.02)
    assert late.flags == ["late_watch: the server was watched for 0.02 s of 1.50 s"]
    other = Measurement(variant="candidate", number=1, duration_seconds=1.5)
    [discarded] = pair_runs([late, other]).discarded
    assert "late_watch" in discarded.reason
    assert not pair_runs([whole, other]).discarded
