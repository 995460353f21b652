"""The cross-check of a verdict by the seconds inside its runs."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev

import pytest
from msgspec.structs import replace
from rows import each_row
from tiers import draws

from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.documents.verdict import Environment
from nginx_tune.measure.proof.by_seconds import ratio_by_seconds
from nginx_tune.measure.proof.statistics import Series
from nginx_tune.measure.proof.verdict import judge
from nginx_tune.report.screen import plain_text
from nginx_tune.report.verdict import verdict_screen

MakeRuns = Callable[..., list[Measurement]]
RATE = "hot.requests_per_second"
STUDENT_5 = 2.5706
"""Student's quantile of 97.5 % with five degrees of freedom."""


def seconds(values: Sequence[float]) -> Series:
    return Series(tuple(values), (1.0,) * len(values))


def drifting(chance: random.Random, level: float, count: int = 10) -> Series:
    """Seconds of a run that resemble their neighbours."""
    values, noise = [], chance.gauss(0, 0.1)
    for _ in range(count):
        noise = 0.7 * noise + chance.gauss(0, 0.07)
        values.append(level * math.exp(noise))
    return seconds(values)


def experiment(chance: random.Random, pairs: int, effect: float) -> list[tuple[Series, Series]]:
    """On a host whose runs differ by more than their seconds tell."""
    found = []
    for _ in range(pairs):
        levels = [100 * math.exp(chance.gauss(0, 0.06)) for _ in range(2)]
        found.append((drifting(chance, levels[0]), drifting(chance, effect * levels[1])))
    return found


def test_runs_of_even_seconds_give_the_interval_that_their_pairs_have() -> None:
    """Nothing to draw inside the runs: the mean of n drawn from n has a known spread."""
    ratios = [0.3, 0.1, 0.25, 0.05, 0.2, 0.18]
    pairs = [(seconds([100] * 10), seconds([100 * math.exp(r)] * 10)) for r in ratios]
    found = ratio_by_seconds(pairs, alpha=0.05, seed="even")
    assert found is not None
    spread = pstdev(ratios) / math.sqrt(len(ratios))
    reach = math.sqrt(6 / 5) * STUDENT_5 * spread
    low, high = (math.log(bound) for bound in found)
    # Sums of six numbers have shorter tails than the normal ones that the reach is of.
    assert fmean(ratios) - low == pytest.approx(reach, rel=0.15)
    assert high - fmean(ratios) == pytest.approx(reach, rel=0.15)


def test_two_equal_variants_are_rarely_told_apart_and_the_truth_is_held() -> None:
    chance, runs = random.Random(3), draws(30, 60)
    apart = missed = 0
    for number in range(runs):
        equal = ratio_by_seconds(experiment(chance, 6, 1.0), alpha=0.05, seed=f"equal {number}")
        assert equal is not None
        apart += not equal[0] <= 1 <= equal[1]
        other = ratio_by_seconds(experiment(chance, 6, 2.0), alpha=0.05, seed=f"other {number}")
        assert other is not None
        assert other[0] > 1, "twice as many is told apart each time"
        missed += not other[0] <= 2 <= other[1]
    assert apart <= runs / 12
    assert missed <= runs / 12


def test_a_second_without_anything_has_no_ratio() -> None:
    pairs = [(seconds([1] * 10), seconds([0] * 10))] * 6
    assert ratio_by_seconds(pairs, alpha=0.05, seed="zero") is None


def with_seconds(
    runs: list[Measurement], rates: Mapping[str, Sequence[float]], seconds: int = 10
) -> list[Measurement]:
    """The runs with seconds of their own; what comes after the end is no second of theirs."""
    return [
        replace(
            run,
            duration_seconds=float(seconds),
            series=[
                SeriesPoint(
                    second=index,
                    classes={"hot": ClassSecond(requests=round(rates[run.variant][index]))},
                )
                for index in range(seconds)
            ]
            + [SeriesPoint(second=seconds, classes={"hot": ClassSecond(requests=10**6)})],
        )
        for run in runs
    ]


PAIRS = [(100.0, 150.0 + number) for number in range(6)]


def test_seconds_that_say_the_same_are_no_note(make_runs: MakeRuns) -> None:
    rates = {"baseline": [100, 101] * 5, "candidate": [150, 155] * 5}
    verdict = judge(
        with_seconds(make_runs(PAIRS), rates),
        primary_metric=RATE,
        metrics=[],
        environment=Environment(seed=5),
    )
    check = verdict.metrics[0].by_seconds
    assert verdict.outcome == "better"
    assert check is not None
    assert check.agrees
    assert check.low < 152.5 / 100.5 < check.high, "the seconds after the end are left out"
    assert "do not confirm that" not in plain_text(verdict_screen(verdict))


def test_one_second_that_made_the_number_is_told_and_changes_nothing(make_runs: MakeRuns) -> None:
    """Each candidate's run owes its rate to one second of thirty."""
    rates = {"baseline": [100] * 30, "candidate": [90] * 29 + [990]}
    pairs = [(100.0, 120.0 + number) for number in range(6)]
    verdict = judge(with_seconds(make_runs(pairs), rates, 30), primary_metric=RATE, metrics=[])
    assert verdict.outcome == verdict.metrics[0].outcome == "better"
    check = verdict.metrics[0].by_seconds
    assert check is not None
    assert not check.agrees
    assert check.low < 1 < check.high
    text = plain_text(verdict_screen(verdict))
    assert "the seconds within the runs do not confirm that: 0.9" in text
    assert text.count("do not confirm that") == 1


def test_no_difference_is_doubted_by_seconds_clear_of_the_margin(make_runs: MakeRuns) -> None:
    same = [(100.0, 100.0 + number / 10) for number in range(6)]
    for candidate, agrees in (([100] * 10, True), ([120] * 10, False)):
        rates = {"baseline": [100] * 10, "candidate": candidate}
        verdict = judge(with_seconds(make_runs(same), rates), primary_metric=RATE, metrics=[])
        assert verdict.outcome == "no_difference"
        check = verdict.metrics[0].by_seconds
        assert check is not None
        assert check.agrees is agrees
        assert ("do not confirm that" in plain_text(verdict_screen(verdict))) is not agrees


@each_row("missing", ["pairs", "seconds", "outcome"])
def test_no_check_where_there_is_nothing_to_check(make_runs: MakeRuns, missing: str) -> None:
    pairs = PAIRS[:5] if missing == "pairs" else PAIRS
    if missing == "outcome":
        pairs = [(100.0, 100.0 * (2 if number % 2 else 0.5)) for number in range(6)]
    rates = {"baseline": [100] * 10, "candidate": [150] * 10}
    count = 4 if missing == "seconds" else 10
    runs = with_seconds(make_runs(pairs), rates, count)
    verdict = judge(runs, primary_metric=RATE, metrics=[])
    assert verdict.metrics[0].by_seconds is None
