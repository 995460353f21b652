"""Predictions held against what was measured: inside, outside, or not to be told."""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from rows import each_row

from nginx_tune.documents.decisions import Decision, Decisions, Predicted
from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measured_server import LoopTurn, ServerMeasurement, WorkerUse
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Claim, PredictionResult
from nginx_tune.measure.proof.gates import judge_predictions

MakeRuns = Callable[..., list[Measurement]]
RATE = "ratio(hot.requests_per_second)"


def predicted(metric: str, low: float, high: float, decision: str = "thread-pools") -> Decisions:
    number = Predicted(metric=metric, low=low, expected=(low + high) / 2, high=high)
    return Decisions(
        decisions=[
            Decision(id=decision, verdict="enable", summary="s", predicted=[number])  # type: ignore[arg-type]
        ]
    )


def judged(decisions: Decisions, runs: list[Measurement], **more: object) -> PredictionResult:
    options: dict[str, object] = {"variant": "candidate", "tried": {"thread-pools"}, **more}
    found = judge_predictions(decisions, runs, **options)  # type: ignore[arg-type]
    assert len(found) == 1
    return found[0]


@each_row(("low", "high", "inside"), [(6.0, 12.0, True), (32.5, 65.8, False), (1.0, 7.9, False)])
def test_a_measurement_lies_inside_the_stated_range_or_it_does_not(
    make_runs: MakeRuns, low: float, high: float, *, inside: bool
) -> None:
    runs = make_runs([(4.0, 34.0 + i) for i in range(6)])
    found = judged(predicted(RATE, low, high), runs)
    assert found.inside is inside
    assert found.measured == pytest.approx(9.1, abs=0.1)
    assert (found.measured_low or 0) < (found.measured or 0) < (found.measured_high or 0)


@each_row("metric", [RATE, "ratio(total.bytes_per_second)", "ratio(hot.mean)"])
@each_row(("requests", "tells"), [(7, False), (8, True)])
def test_clients_that_wait_have_two_answers_each_or_nothing_is_told(
    make_runs: MakeRuns, metric: str, requests: int, *, tells: bool
) -> None:
    """Four clients that wait; a run that is too short for them says no rate."""

    def with_users(run: Measurement) -> Measurement:
        few = requests if run.variant == "baseline" else 400
        hot = msgspec.structs.replace(run.classes["hot"], users=4, requests=few)
        return msgspec.structs.replace(run, classes=run.classes | {"hot": hot})

    runs = [with_users(run) for run in make_runs([(4.0, 36.0)] * 6)]
    found = judged(predicted(metric, 6.0, 12.0), runs)
    assert ("fewer than two answers" in found.reason) is not tells
    if not tells:
        assert (found.measured, found.inside) == (None, None)


def test_a_claim_that_holds_says_nothing_of_the_prediction(make_runs: MakeRuns) -> None:
    claim = Claim(name="c", source_row="A7", expression=f"{RATE} >= 3", source_figure="31x")
    runs = make_runs([(4.0, 36.0)] * 2)
    found = judged(predicted(RATE, 32.5, 65.8), runs, claims=[claim])
    assert (found.source_figure, found.inside) == ("31x", False)
    assert found.measured_low is None  # two pairs have no interval


def test_the_blocked_share_is_that_of_all_time_of_the_baseline(make_runs: MakeRuns) -> None:
    """Not of the time inside turns: a loop that sleeps most of the time is seldom in one."""
    decisions = predicted("server.loop_blocked_ratio without pools", 0.06, 0.11)
    runs = [
        msgspec.structs.replace(
            run,
            duration_seconds=10.0,
            server=ServerMeasurement(
                loop_turn_seconds=LoopTurn(
                    blocked_ratio=0.93, blocked_seconds=1.6, traced_ratio=1.0
                ),
                workers=[WorkerUse(pid=n, loop_blocked_seconds=0.8) for n in (1, 2)]
                if run.variant == "baseline"
                else [WorkerUse(pid=3, loop_blocked_seconds=9.0)],
            ),
        )
        for run in make_runs([(4.0, 36.0)] * 2)
    ]
    found = judged(decisions, runs, without_pools=True, tried=set())
    assert (found.inside, found.measured) == (True, pytest.approx(0.08))
    assert judge_predictions(decisions, runs, variant="candidate", tried={"thread-pools"}) == []
    untold = judged(decisions, make_runs([(4.0, 36.0)] * 2), without_pools=True, tried=set())
    assert (untold.inside, untold.measured) == (None, None)
    assert untold.reason


def test_a_chunk_is_judged_by_the_turns_of_the_loop_that_sends_it(
    make_runs: MakeRuns, latency: Callable[[Sequence[float]], Latency]
) -> None:
    decisions = predicted("seconds of one cold chunk", 0.005, 0.045, "sendfile-max-chunk")
    turns = {
        variant: LoopTurn(**msgspec.structs.asdict(latency([longest] * 40 + [0.0001] * 1960)))
        for variant, longest in (("baseline", 0.16), ("candidate", 0.02))
    }
    runs = [
        msgspec.structs.replace(run, server=ServerMeasurement(loop_turn_seconds=turns[run.variant]))
        for run in make_runs([(4.0, 4.0)] * 2)
    ]
    found = judged(decisions, runs, chunk_in_loop=True, tried=set())
    assert (found.inside, found.measured) == (True, pytest.approx(0.02, rel=0.01))
    assert judge_predictions(decisions, runs, variant="candidate", tried=set()) == []


@each_row(
    ("metric", "decision"),
    [
        (RATE, "read-ahead"),  # decided, and not what the variants differ in
        ("wait behind cold reads without pools", "thread-pools"),  # no metric measures it
        ("ratio(healthy.mean), one disk 3 times slower", "thread-pools"),
        ("ratio(memory.p99)", "thread-pools"),  # no such class in this run
    ],
)
def test_what_was_not_tried_or_cannot_be_measured_is_left_out(
    make_runs: MakeRuns, metric: str, decision: str
) -> None:
    runs = make_runs([(4.0, 36.0)] * 2)
    decisions = predicted(metric, 1.0, 2.0, decision)
    assert judge_predictions(decisions, runs, variant="candidate", tried={"thread-pools"}) == []


def test_a_prediction_that_was_not_measured_is_neither(make_runs: MakeRuns) -> None:
    runs = make_runs([(Latency(), Latency())] * 2, "response_seconds")
    found = judged(predicted("ratio(hot.mean)", 0.1, 0.2), runs)
    assert found.inside is None
    assert "no samples" in found.reason
