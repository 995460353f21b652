"""Windows against each other: what is told, and what is left open."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rows import each_row
from tiers import draws

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measured_server import (
    HARMS,
    Harm,
    ListenerUse,
    ServerMeasurement,
    ServerSecond,
    StubStatus,
)
from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.documents.observation import Cause, Observation
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.measure.proof.compare import compare, comparison_status
from nginx_tune.measure.proof.histogram import decode_histogram
from nginx_tune.measure.proof.latency import latency_of
from nginx_tune.measure.proof.statistics import Series, percentile_interval, resample
from nginx_tune.report.runs import comparison_screen, comparison_sentence
from nginx_tune.report.screen import plain_text

BLOCKED = "server.loop_turn_seconds.blocked_seconds"


def observation(
    blocked: float, *, rate: float | None = 100.0, seconds: int = 40, seed: int = 1, **server: int
) -> Observation:
    noise = random.Random(seed)
    series = [
        ServerSecond(
            second=index,
            requests=None if rate is None else round(noise.gauss(rate, rate / 20)),
            loop_blocked_seconds=max(0.0, noise.gauss(blocked, blocked / 10)),
            cpu_seconds=noise.gauss(0.2, 0.01),
        )
        for index in range(seconds)
    ]
    return Observation(
        duration_seconds=float(seconds), server=ServerMeasurement(series=series, **server)
    )


def test_a_clear_gain_under_the_same_traffic() -> None:
    found = compare(observation(0.6, seed=1), observation(0.1, seed=2))
    assert (found.outcome, found.primary_metric) == ("better", BLOCKED)
    metric = found.metrics[0]
    assert metric.low is not None
    assert metric.high is not None
    assert metric.low < 1 / 6 < metric.high
    assert comparison_status(found) is ExitStatus.OK
    assert "without a control" in comparison_sentence(found)
    assert any("everything else that changed" in warning for warning in found.warnings)
    assert {one.name: one.unit for one in found.metrics} == {
        BLOCKED: "seconds_per_second",
        "server.requests_per_second": "per_second",
        "server.cpu_seconds": "seconds_per_second",
        "server.cpu_seconds_per_request": "seconds",
    }
    shown = plain_text(comparison_screen(found))
    assert re.search(r"server.cpu_seconds +[\d.]+ ms/s ", shown)
    assert shown.splitlines()[0] == comparison_sentence(found)
    assert "loop blocked time" in shown


def test_a_loss_fails() -> None:
    found = compare(observation(0.1, seed=1), observation(0.6, seed=2))
    assert found.outcome == "worse"
    assert comparison_status(found) is ExitStatus.FOUND


def test_a_gain_that_less_traffic_explains_is_none() -> None:
    found = compare(observation(0.6), observation(0.1, rate=20.0, seed=2))
    assert found.outcome == "inconclusive"
    assert "traffic changed" in found.reason
    assert found.traffic_ratio == pytest.approx(0.2, rel=0.1)
    assert comparison_status(found) is ExitStatus.UNDECIDED
    assert comparison_status(found, accept_inconclusive=True) is ExitStatus.OK


def test_traffic_that_varies_is_not_called_another() -> None:
    few = compare(observation(0.6, rate=0.5), observation(0.6, rate=0.5, seed=2))
    assert any("traffic may have changed" in warning for warning in few.warnings)
    less = compare(observation(0.6), observation(0.6, rate=20.0, seed=2))
    assert any("traffic changed" in warning for warning in less.warnings)


def test_a_gain_under_more_traffic_is_one() -> None:
    assert compare(observation(0.6), observation(0.1, rate=300.0, seed=2)).outcome == "better"


def test_without_the_request_rate_nothing_is_told() -> None:
    found = compare(observation(0.6, rate=None), observation(0.1, rate=None, seed=2))
    assert found.outcome == "inconclusive"
    assert any("stub_status" in warning for warning in found.warnings)


def test_a_control_takes_the_drift_away() -> None:
    """All servers became three times better by night: the change itself did nothing."""
    day, night = observation(0.6, seed=1), observation(0.2, rate=30.0, seed=2)
    control = (observation(0.6, seed=3), observation(0.2, rate=30.0, seed=4))
    assert compare(day, night, control).outcome in ("no_difference", "inconclusive")
    changed = compare(day, observation(0.02, rate=30.0, seed=5), control)
    assert changed.outcome == "better"
    assert changed.metrics[0].ratio == pytest.approx(0.1, rel=0.15)
    assert changed.controlled
    assert "against the control" in plain_text(comparison_screen(changed))


def test_the_same_server_twice_shows_no_difference() -> None:
    found = compare(observation(0.6, seconds=200), observation(0.6, seconds=200, seed=2))
    assert found.outcome == "no_difference"


def test_short_and_unfit_windows() -> None:
    assert "at least 20" in compare(observation(0.6, seconds=5), observation(0.1)).reason
    unfit = replace(observation(0.1), flags=["reloaded: 2 workers are new"])
    assert compare(observation(0.6), unfit).outcome == "invalid"


def measurement(p99: float, seed: int) -> Measurement:
    noise = random.Random(seed)
    series = [
        SeriesPoint(
            second=index,
            classes={"hot": ClassSecond(requests=100, p50=p99 / 2, p99=noise.gauss(p99, p99 / 9))},
        )
        for index in range(30)
    ]
    return Measurement(duration_seconds=30.0, classes={"hot": ClassMeasurement()}, series=series)


def test_measurements_are_under_a_load_of_ours() -> None:
    found = compare(measurement(0.3, 1), measurement(0.02, 2))
    assert (found.outcome, found.primary_metric) == ("better", "hot.p99")
    assert not found.warnings
    with pytest.raises(UsageError, match="not in all"):
        compare(measurement(0.3, 1), measurement(0.3, 1), primary_metric="cold.p99")
    with pytest.raises(UsageError, match="no series"):
        compare(Observation(), Observation())


def correlated(noise: random.Random, size: int) -> Series:
    """Seconds that resemble the one before: an autoregressive walk around 10."""
    level, values = 0.0, []
    for _ in range(size):
        level = 0.5 * level + noise.gauss(0, 1)
        values.append(10 + level)
    return Series(tuple(values), (1.0,) * size)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    noise = random.Random(7)
    held, trials = 0, draws(40, 200)
    for trial in range(trials):
        found = percentile_interval(resample(correlated(noise, 100), f"{trial}"), 0.05)
        assert found is not None
        held += found[0] <= 10 <= found[1]
    assert held >= 0.8 * trials  # nominal 95; runs of ten of a hundred come a little short


@given(st.dictionaries(st.integers(0, 1 << 40), st.integers(1, 50), min_size=1, max_size=60))
def test_a_tally_keeps_its_values(values: dict[int, int]) -> None:
    found = latency_of(Counter(values))
    histogram = decode_histogram(found.histogram)
    assert found.count == histogram.total == sum(values.values())
    assert found.max == max(values) / 1e9
    for name, quantile in (("p50", 0.5), ("p99", 0.99)):
        read = histogram.value_at(quantile)
        exact = getattr(found, name) * 1e9
        assert read is not None
        assert exact <= read + 1
        assert read <= exact * 1.01 + 1


@each_row(("points", "seconds", "told"), [(4, 3.05, 3), (4, 3.97, 4), (4, 4.0, 4), (20, 19.3, 19)])
def test_the_rest_of_a_second_is_no_second(points: int, seconds: float, told: int) -> None:
    window = replace(observation(0.1, seconds=points), duration_seconds=seconds)
    found = compare(window, window)
    assert found.metrics[0].seconds == told
    assert f"{told} seconds; at least" in found.reason or told >= 20


def asked(requests: int, **server: int) -> Observation:
    status = StubStatus(
        requests=requests, requests_per_second=requests / 40, accepts=9, dropped=0, active=1
    )
    made = observation(0.1, seed=requests, rate=requests / 40, **server)
    return replace(made, server=replace(made.server, stub_status=status))


PLAIN = {harm.name for harm in HARMS} - {
    "stub_status.dropped", "listeners.drops", "error_lines",
}  # fmt: skip
"""Counters that are a number of the server."""


@pytest.mark.long
@each_row("harm", HARMS, ids=lambda harm: str(harm.name))
def test_harm_that_is_new_is_never_no_difference(harm: Harm) -> None:
    """Every counter of harm, those of tomorrow too: a row of the table is all it takes."""
    before, after = asked(4000), asked(4000)
    if harm.name == "stub_status.dropped":
        status = after.server.stub_status
        assert status is not None
        server = replace(after.server, stub_status=replace(status, dropped=300))
    elif harm.name == "listeners.drops":
        one = ListenerUse(address="::", port=80, drops=0)
        before = replace(before, server=replace(before.server, listeners=[one]))
        server = replace(after.server, listeners=[replace(one, drops=300)])
    elif harm.name == "error_lines":
        before = replace(before, server=replace(before.server, error_lines={"warn": 300}))
        server = replace(after.server, error_lines={"error": 300})
    else:
        before = replace(before, server=replace(before.server, **{harm.name: 0}))
        server = replace(after.server, **{harm.name: 300})
    found = compare(before, replace(after, server=server))
    assert found.outcome == ("inconclusive" if harm.weight == "sign" else "worse")
    assert comparison_status(found) is not ExitStatus.OK


@pytest.mark.long
def test_requests_that_fail_now_and_then_are_judged_by_their_number() -> None:
    for before, after, outcome in (
        ((4000, 0), (4000, 2236), "worse"),
        ((4000, 0), (4000, 3), "no_difference"),
        ((4000, 100), (4000, 2236), "worse"),
        ((4000, 100), (4000, 130), "no_difference"),
        ((4000, 2236), (4000, 0), "no_difference"),
        # Twice the traffic may be why an upstream fails, and makes twice as many.
        ((4000, 0), (8000, 2236), "inconclusive"),
        ((4000, 100), (8000, 210), "inconclusive"),
        ((8000, 0), (4000, 2236), "worse"),
    ):
        one, other = (asked(n, upstream_failures=failures) for n, failures in (before, after))
        assert compare(one, other).outcome == outcome, (before, after)


def test_the_same_counts_of_harm_are_no_difference() -> None:
    one = ListenerUse(address="::", port=80, drops=0)
    whole = asked(4000, **{harm.name: 0 for harm in HARMS if harm.name in PLAIN})
    whole = replace(whole, server=replace(whole.server, listeners=[one], error_lines={"warn": 9}))
    assert compare(whole, whole).outcome == "no_difference"


def test_harm_that_a_control_shows_too_is_not_the_changes() -> None:
    fine, broken = asked(4000, upstream_failures=0), asked(4000, upstream_failures=900)
    assert compare(fine, broken, (fine, fine)).outcome == "worse"
    found = compare(fine, broken, (fine, broken))
    assert found.outcome == "inconclusive"
    assert "in the control" in found.reason


def test_a_cause_that_is_new_takes_no_difference_back() -> None:
    def seen(*ids: str) -> Observation:
        causes = [Cause(id=one, summary=one, confidence="high") for one in ids]  # type: ignore[arg-type]
        return replace(asked(4000), causes=causes)

    fine = seen("nothing-found")
    assert compare(fine, fine).outcome == "no_difference"
    found = compare(fine, seen("slow-upstream", "uneven-workers"))
    assert found.outcome == "inconclusive"
    assert "slow-upstream, uneven-workers" in found.reason
    assert compare(seen("slow-upstream"), seen("slow-upstream")).outcome == "no_difference"
    assert compare(seen("slow-upstream"), fine).outcome == "no_difference"
    both = (fine, seen("slow-upstream", "uneven-workers"))
    assert "slow-upstream" not in compare(*both, both).reason


def test_what_only_one_window_counted_is_told() -> None:
    found = compare(asked(4000, upstream_failures=0), asked(4000))
    assert any("server.upstream_failures" in one for one in found.warnings)
    assert not any("alone" in one for one in compare(asked(4000), asked(4000)).warnings)


def test_answers_that_became_errors_are_worse_though_they_are_quick() -> None:
    fine, broken = measurement(0.3, 1), measurement(0.02, 2)
    failed = replace(broken, classes={"hot": ClassMeasurement(errors={"status": 2000})})
    assert compare(fine, broken).outcome == "better"
    assert compare(fine, failed).outcome == "worse"


def test_zero_twice_is_said_as_it_is() -> None:
    none = replace(observation(0.0), causes=[])
    said = comparison_sentence(compare(none, none))
    assert said.startswith("No difference: server loop blocked time was zero before")
    assert "cannot be compared with" not in said
    some = comparison_sentence(compare(none, observation(0.4, seed=2)))
    assert "ms/s after 0 " in some
