"""Numbers of which some requests were cut off: lower bounds, that decide upwards alone."""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from rows import each_row

from nginx_tune.documents.decisions import Decision, Decisions, Predicted
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.documents.run import KeptRun, RunSummary, Validation
from nginx_tune.documents.scenario import VariantText
from nginx_tune.documents.verdict import Verdict
from nginx_tune.measure.proof.compare import compare
from nginx_tune.measure.proof.gates import judge_gates, judge_predictions
from nginx_tune.measure.proof.run_comparison import compare_runs
from nginx_tune.measure.proof.runs import pair_runs
from nginx_tune.measure.proof.verdict import judge
from nginx_tune.report.runs import run_comparison_screen
from nginx_tune.report.screen import plain_text
from nginx_tune.report.verdict import verdict_screen

MakeRuns = Callable[..., list[Measurement]]
MakeLatency = Callable[[Sequence[float]], Latency]

CUT = 100
AGE = 1.0


@pytest.fixture
def cut(latency: MakeLatency) -> Callable[..., Latency]:
    """1,000 requests of so many seconds; with ``count`` of them cut off at a second."""

    def make(seconds: float, count: int = 0) -> Latency:
        made = latency([seconds] * (1000 - count) + [AGE] * count)
        known = {"p50", "p99", "max"} if count > 10 else {"max"}
        return msgspec.structs.replace(
            made,
            censored=count,
            censored_from_seconds=AGE if count else None,
            at_least=sorted(name for name in known if count and getattr(made, name) >= AGE),
        )

    return make


@each_row(
    ("expression", "measured", "passed"),
    [
        # 900 requests of 10 ms, 100 of at least 1 s: a mean of at least 109 ms, a p99 of 1 s.
        ("hot.mean <= 100ms", True, False),
        ("hot.mean <= 200ms", False, False),
        ("hot.mean > 100ms", True, True),
        ("hot.mean > 200ms", False, False),
        ("hot.max <= 900ms", True, False),
        ("hot.max <= 2s", False, False),
        ("hot.max >= 1s", True, True),
        ("hot.p99 <= 900ms", True, False),
        ("hot.p99 <= 2s", False, False),
        ("hot.p50 <= 20ms", True, True),
        ("hot.mean == 0", False, False),
    ],
)
def test_a_gate_on_a_bound(
    make_runs: MakeRuns, cut: Callable[..., Latency], expression: str, measured: bool, passed: bool
) -> None:
    whole, short = cut(0.01), cut(0.01, CUT)
    runs = make_runs([(whole, short)] * 6, "response_seconds")
    [gate] = judge_gates([expression], pair_runs(runs))
    assert (gate.measured is not None, gate.passed) == (measured, passed)
    # Where nothing was cut off it is a number like any other.
    [gate] = judge_gates([expression.replace("hot", "baseline(hot", 1).replace(" ", ") ", 1)],
                         pair_runs(runs))  # fmt: skip
    assert gate.measured is not None


@each_row(
    ("expression", "measured", "passed"),
    [
        ("ratio(hot.p99) >= 50", True, True),
        ("ratio(hot.p99) <= 50", True, False),
        ("ratio(hot.p99) >= 500", False, False),
        ("ratio(hot.p99) <= 500", False, False),
    ],
)
def test_a_ratio_to_a_bound(
    make_runs: MakeRuns, cut: Callable[..., Latency], expression: str, measured: bool, passed: bool
) -> None:
    """The candidate's p99 is at least 100 times the baseline's; turned round, at most 1/100."""
    pair = (cut(0.01), cut(0.01, CUT))
    [gate] = judge_gates([expression], pair_runs(make_runs([pair] * 6, "response_seconds")))
    assert (gate.measured is not None, gate.passed) == (measured, passed)
    metric, operator, limit = expression.split(" ")
    other = {">=": "<=", "<=": ">="}[operator]
    turned = pair_runs(make_runs([pair[::-1]] * 6, "response_seconds"))
    [gate] = judge_gates([f"{metric} {other} {1 / float(limit)}"], turned)
    assert (gate.measured is not None, gate.passed) == (measured, passed)


@each_row("metric", ["hot.p99", "hot.mean"])
def test_an_outcome_of_bounds_holds_upwards_alone(
    make_runs: MakeRuns, cut: Callable[..., Latency], metric: str
) -> None:
    whole, short, fast = cut(0.01), cut(0.01, CUT), cut(0.0001, 11)

    def judged(before: Latency, after: Latency) -> tuple[str, str, list[str]]:
        runs = make_runs([(before, after)] * 8, "response_seconds")
        verdict = judge(runs, primary_metric=metric, metrics=[metric])
        [one] = [one for one in verdict.metrics if one.name == metric]
        assert one.pairs == 8
        return one.outcome, one.reason, list(one.at_least)

    assert judged(whole, short) == ("worse", "", ["candidate"])
    assert judged(short, whole) == ("better", "", ["baseline"])
    assert judged(whole, whole)[::2] == ("no_difference", [])
    outcome, reason, variants = judged(short, short)
    assert (outcome, variants) == ("inconclusive", ["baseline", "candidate"])
    assert reason == "baseline and candidate: a lower bound, because requests were cut off"
    if metric == "hot.mean":
        slow = cut(0.5)
        assert judged(slow, fast) == (
            "inconclusive", "candidate: a lower bound, because requests were cut off", ["candidate"]
        )  # fmt: skip


def test_the_table_marks_bounds(make_runs: MakeRuns, cut: Callable[..., Latency]) -> None:
    runs = make_runs([(cut(0.01), cut(0.01, CUT))] * 8, "response_seconds")
    text = plain_text(verdict_screen(judge(runs, primary_metric="hot.p99", metrics=["hot.p99"])))
    [row] = [line for line in text.splitlines() if "(primary)" in line]
    assert "≥ 1.00 s" in row
    assert "≥ 100×" in row
    assert row.count("≥") == 2


@each_row(
    ("turned", "low", "high", "inside"),
    [
        # The candidate's p99 is at least 100 times the baseline's; turned, at most a hundredth.
        (False, 20.0, 50.0, False),
        (False, 50.0, 150.0, None),
        (False, 200.0, 300.0, None),
        (True, 0.02, 0.05, False),
        (True, 0.005, 0.05, None),
    ],
)
def test_a_bound_says_of_a_prediction_that_it_is_outside_or_nothing(
    make_runs: MakeRuns,
    cut: Callable[..., Latency],
    turned: bool,
    low: float,
    high: float,
    inside: bool | None,
) -> None:
    pair = (cut(0.01), cut(0.01, CUT))
    runs = make_runs([pair[::-1] if turned else pair] * 6, "response_seconds")
    number = Predicted(metric="ratio(hot.p99)", low=low, expected=low, high=high)
    decision = Decision(id="thread-pools", verdict="enable", summary="s", predicted=[number])
    [found] = judge_predictions(
        Decisions(decisions=[decision]), runs, variant="candidate", tried={"thread-pools"}
    )
    assert found.inside is inside
    assert (found.measured is None) is (inside is None)
    assert "cut off" in found.reason


@each_row("same", [True, False])
def test_runs_with_bounds_are_compared_upwards_alone(
    make_runs: MakeRuns, cut: Callable[..., Latency], same: bool
) -> None:
    whole, short, slow = cut(0.01), cut(0.01, CUT), cut(2.0)

    def run(name: str, before: Latency, after: Latency) -> KeptRun:
        runs = make_runs([(before, after)] * 6, "response_seconds")
        verdict = Verdict(outcome="better", primary_metric="hot.p99")
        text = "the same" if same else name
        return KeptRun(
            summary=RunSummary(id=name, kind="validate", name="n", started_at="2026-11-22T00:00",
                               outcome="better", primary_metric="hot.p99"),
            result=Validation(verdict=verdict, measurements=runs,
                              variants=[VariantText(variant="baseline", nginx_conf=text)]),
        )  # fmt: skip

    def compared(a: KeptRun, b: KeptRun) -> tuple[str, list[str], str]:
        found = compare_runs(a, b).metrics[0]
        assert found.unit == "seconds"
        return found.outcome, found.at_least, found.reason

    plain, bounded, twice = run("a", whole, whole), run("b", whole, short), run("c", whole, slow)
    if not same:
        assert compared(plain, bounded)[:2] == ("inconclusive", ["b"])
        return
    assert compared(plain, bounded) == ("worse", ["b"], "")
    assert compared(bounded, plain) == ("better", ["a"], "")
    cut_off = "a lower bound, because requests were cut off"
    # At least a second may be more than two.
    assert compared(twice, bounded) == ("inconclusive", ["b"], cut_off)
    assert compared(bounded, bounded) == ("inconclusive", ["a", "b"], cut_off)
    assert "≥ 1.00 s" in plain_text(run_comparison_screen(compare_runs(plain, bounded)))
    # A baseline that is a bound makes what is freed of it one too.
    moved = run("d", short, short)
    assert compared(plain, moved)[0] == "inconclusive"


def test_windows_of_a_load_with_bounds_are_compared_upwards_alone(
    cut: Callable[..., Latency],
) -> None:
    def window(latency: Latency, p99: float) -> Measurement:
        part = ClassMeasurement(requests=1000, response_seconds=latency)
        series = [
            SeriesPoint(
                second=k,
                classes={"hot": ClassSecond(requests=50, p50=0.01, p99=p99 * (1 + k / 1e4))},
            )
            for k in range(40)
        ]
        return Measurement(duration_seconds=40.0, classes={"hot": part}, series=series)

    def judged(before: Measurement, after: Measurement) -> tuple[str, str]:
        found = compare(before, after, primary_metric="hot.p99").metrics[0]
        return found.outcome, found.reason

    whole, short, slow = window(cut(0.01), 0.01), window(cut(0.01, CUT), AGE), window(cut(2.0), 2.0)
    cut_off = "a lower bound, because requests were cut off"
    assert judged(whole, short) == ("worse", "")
    assert judged(short, whole) == ("better", "")
    assert judged(slow, short) == ("inconclusive", cut_off)
    assert judged(short, short) == ("inconclusive", cut_off)
    assert judged(slow, slow)[0] == "no_difference"
