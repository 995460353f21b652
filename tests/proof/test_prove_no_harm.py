"""Load average, iowait and address space rise where thread pools help: nothing calls it harm (A6).

The source saw the load go from 50 to 173, iowait from 31.9 to 61.5 % and VIRT from 47 to 309 MB
while nine times as much was served.
"""

import random

from rows import each_row

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measured_server import ServerMeasurement, ServerSecond, WorkerUse
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Observation
from nginx_tune.errors import ExitStatus
from nginx_tune.measure.proof.compare import compare
from nginx_tune.measure.proof.comparison import NO_SIDE
from nginx_tune.measure.proof.metrics import default_metrics, find_metric
from nginx_tune.measure.proof.verdict import judge, verdict_status

NEUTRAL = (
    "server.host_load", "server.iowait_ratio", "server.virtual_bytes", "server.pool_threads",
)  # fmt: skip
MIB = 1 << 20


def server(*, pools: bool, seed: int = 1) -> ServerMeasurement:
    noise = random.Random(seed)
    worker = WorkerUse(
        pid=1,
        threads=33 if pools else 1,
        virtual_bytes=(309 if pools else 47) * MIB,
        main_thread_cpu_seconds=0.1,
        state_d_ratio=0.0,
        state_samples=1000,
        state_d_error=0.0,
    )
    seconds = [
        ServerSecond(
            second=second,
            requests=round(noise.gauss(100, 3)),
            loop_blocked_seconds=max(0.0, noise.gauss(0.1, 0.01)),
        )
        for second in range(40)
    ]
    return ServerMeasurement(
        pool_overflow=0,
        workers=[worker, worker],
        series=seconds,
        host_load=(173.0 if pools else 50.0) * noise.uniform(0.99, 1.01),
        iowait_ratio=(0.615 if pools else 0.319) * noise.uniform(0.99, 1.01),
    )


def runs(primary: float = 1.0) -> list[Measurement]:
    """Six pairs whose candidate has the pools, and a rate of ``primary`` times the baseline's."""
    noise = random.Random(7)
    return [
        Measurement(
            variant="candidate" if index % 2 else "baseline",
            number=index,
            duration_seconds=10.0,
            classes={
                "hot": ClassMeasurement(
                    requests_per_second=100.0
                    * (primary if index % 2 else 1.0)
                    * noise.uniform(0.99, 1.01)
                )
            },
            server=server(pools=bool(index % 2), seed=index),
        )
        for index in range(12)
    ]


@each_row("name", NEUTRAL)
def test_they_are_measured_and_have_no_side(name: str) -> None:
    assert find_metric(name).better_when == "neither"
    for primary in (name, "hot.requests_per_second"):
        judged = judge(runs(), primary_metric=primary, metrics=[name])
        metric = next(one for one in judged.metrics if one.name == name)
        assert metric.baseline is not None
        assert metric.candidate is not None
        assert metric.candidate > 1.5 * metric.baseline
        assert (metric.outcome, metric.reason) == ("inconclusive", NO_SIDE)


def test_a_gain_stays_one_whatever_they_do() -> None:
    found = judge(runs(9.0), primary_metric="hot.requests_per_second", metrics=list(NEUTRAL))
    assert found.outcome == "better"
    assert verdict_status(found) is ExitStatus.OK
    assert not set(NEUTRAL) & set(default_metrics(runs()))


def test_two_windows_that_differ_in_nothing_else_are_alike() -> None:
    before, after = (
        Observation(duration_seconds=40.0, server=server(pools=pools, seed=3))
        for pools in (False, True)
    )
    found = compare(before, after)
    assert found == compare(before, before)
    assert not {one.name for one in found.metrics} & set(NEUTRAL)
