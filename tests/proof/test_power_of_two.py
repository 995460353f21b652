"""Latencies by powers of two, against counting each value by itself."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each_row
from tiers import draws

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measured_server import LoopTurn, ServerMeasurement
from nginx_tune.documents.measurement import Generator, LatencyHistogram, Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import Histogram, Layout
from nginx_tune.measure.proof.latency import latency_of
from nginx_tune.measure.proof.power_of_two import histograms_of, power_buckets
from nginx_tune.measure.proof.runs import counts_for
from nginx_tune.report.probing import render_histograms

VALUES = st.lists(
    st.one_of(
        st.integers(0, 3000),
        st.integers(1, 60_000_000_000),
        st.integers(0, 35).map(lambda k: 1 << k),
        st.integers(1, 35).map(lambda k: (1 << k) - 1),
    ),
    min_size=1,
    max_size=120,
)
LAYOUTS = st.builds(
    Layout, unit_bits=st.integers(0, 11), half_bits=st.sampled_from([3, 6, 7, 9, 10, 13])
)


def counted(values: Sequence[int], unit_bits: int) -> dict[int, int]:
    """Each value by the power of two (in nanoseconds) that it reaches; below the unit it is 0."""
    found: Counter[int] = Counter()
    for value in values:
        power = 0
        while value >= 1 << unit_bits and (1 << power) * 2 <= value:
            power += 1
        found[1 << power if value >= 1 << unit_bits else 0] += 1
    return dict(found)


@settings(max_examples=draws(80, 300), deadline=None)
@given(values=VALUES, layout=LAYOUTS)
def test_buckets_count_as_counting_each_value_does(values: list[int], layout: Layout) -> None:
    counts = Counter(layout.index_of(value) for value in values)
    buckets = power_buckets(Histogram(layout, dict(sorted(counts.items()))))
    starts = [round(one.from_seconds * 1e9) for one in buckets]
    ends = [round(one.below_seconds * 1e9) for one in buckets]
    found = {low: one.count for low, one in zip(starts, buckets, strict=True) if one.count}
    assert found == counted(values, layout.unit_bits)
    assert sum(one.count for one in buckets) == len(values)
    # They lie beside each other, each twice as wide as the one before, none empty at the ends.
    assert starts[1:] == ends[:-1]
    assert ends == [2 * low or 1 << layout.unit_bits for low in starts]
    assert buckets[0].count
    assert buckets[-1].count


def test_of_no_sample_there_is_no_bucket() -> None:
    assert power_buckets(Histogram(Layout(9, 10))) == []
    assert power_buckets(Histogram(Layout(9, 10), {5: 0})) == []


@settings(max_examples=draws(40, 150), deadline=None)
@given(parts=st.lists(VALUES, min_size=1, max_size=4))
def test_runs_of_a_variant_are_added(parts: list[list[int]]) -> None:
    (one,) = histograms_of([run(values) for values in parts])
    every = sorted(value for values in parts for value in values)
    mean = math.fsum(every) / len(every)
    stdev = math.sqrt(math.fsum((value - mean) ** 2 for value in every) / len(every))
    assert (one.latency, one.variant, one.runs, one.left_out) == ("hot", "candidate", len(parts), 0)
    assert one.count == len(every) == sum(bucket.count for bucket in one.buckets)
    assert one.mean_seconds == pytest.approx(mean / 1e9, rel=1e-9)
    assert one.stdev_seconds == pytest.approx(stdev / 1e9, rel=1e-6, abs=mean / 1e9 * 1e-6)
    assert one.max_seconds == every[-1] / 1e9
    assert one.min_seconds is not None
    # Two digits: a counter is at most 1/128 as wide as it is far from 0.
    assert every[0] / 1e9 * (1 - 1 / 128) <= one.min_seconds <= every[0] / 1e9
    middle = every[math.ceil(len(every) / 2) - 1] / 1e9
    assert one.median_seconds == pytest.approx(middle, rel=1 / 100)


def run(values: Sequence[int], *, variant: str = "candidate", **more: Any) -> Measurement:
    found = ClassMeasurement(response_seconds=latency_of(Counter(values)))
    return Measurement(variant=variant, classes={"hot": found}, **more)


def test_variants_and_latencies_are_kept_apart() -> None:
    turn = msgspec.convert(msgspec.to_builtins(latency_of({4_000_000: 3})), LoopTurn)
    first = run(
        [1_000_000] * 5, variant="baseline", server=ServerMeasurement(loop_turn_seconds=turn)
    )
    second = run([2_000_000] * 7, generator=Generator(lateness_seconds=latency_of({9: 2})))
    hot = msgspec.structs.replace(first.classes["hot"], ttfb_seconds=latency_of({70: 1}))
    first = msgspec.structs.replace(first, classes={"hot": hot, "b.c": ClassMeasurement()})
    found = histograms_of([first, second], ["hot.ttfb", "server.loop_turn_seconds"])
    assert [(one.latency, one.variant, one.count) for one in found] == [
        ("hot.ttfb", "baseline", 1),
        ("hot.ttfb", "candidate", 0),
        ("server.loop_turn_seconds", "baseline", 3),
        ("server.loop_turn_seconds", "candidate", 0),
    ]
    assert found[1].buckets == []
    assert found[3].min_seconds is None
    every = histograms_of([first, second], ["all"])
    assert [(one.latency, one.variant, one.count) for one in every] == [
        ("hot", "baseline", 5),
        ("hot", "candidate", 7),
        ("hot.ttfb", "baseline", 1),
        ("server.loop_turn_seconds", "baseline", 3),
        ("generator.lateness", "candidate", 2),
    ]
    names = [one.latency for one in histograms_of([first, second])]
    assert names == ["hot", "hot", "b.c", "b.c"]


@each_row("name", ["hto", "hot.p99", "hot.response.", "server.cpu", "", "cold"])
def test_what_is_no_latency_is_refused_before_anything_is_read(name: str) -> None:
    with pytest.raises(UsageError, match="no latency"):
        histograms_of([run([1])], [name])


def test_a_run_that_the_run_discarded_is_left_out() -> None:
    late = run([5], flags=["lateness: the probe was late"])
    slow = run([6], flags=["censored: hot: 1 of 9 arrivals were unanswered"])
    runs = [late, slow, run([7])]
    (one,) = histograms_of(runs, discard=True)
    assert (one.count, one.runs, one.left_out) == (2, 2, 1)
    assert "2 runs (1 more discarded and left out)" in render_histograms([one])
    # One load run by itself has no other to stand for it.
    (one,) = histograms_of(runs)
    assert (one.count, one.runs, one.left_out) == (3, 3, 0)
    other = Measurement(
        classes={"a": ClassMeasurement(), "b": ClassMeasurement()}, flags=["lateness: a: late"]
    )
    assert not counts_for(other, "a.ttfb")
    assert counts_for(other, "b")


def test_requests_that_never_finished_make_bounds() -> None:
    latency = latency_of(Counter({1_000_000: 90, 8_000_000_000: 30}))
    latency = msgspec.structs.replace(
        latency, censored=30, censored_from_seconds=8.0, at_least=["p99", "max"]
    )
    hot = ClassMeasurement(response_seconds=latency, censored=30, censored_from_seconds=8.0)
    (one,) = histograms_of([Measurement(classes={"hot": hot})])
    assert (one.censored, one.at_least) == (30, ["mean", "max"])
    text = render_histograms([one])
    assert "≥ 8.00 s" in text
    assert "30 never finished or failed by time" in text


@each_row(("at_least", "censored"), [([], 0), (["max"], 4)])
def test_turns_that_were_not_seen_whole_count_where_they_reach_a_statistic(
    at_least: list[str], censored: int
) -> None:
    whole = latency_of(Counter({1_000_000: 90, 3_000_000: 4}))
    values = {**msgspec.to_builtins(whole), "censored": 4, "at_least": at_least}
    server = ServerMeasurement(loop_turn_seconds=msgspec.convert(values, LoopTurn))
    name = "server.loop_turn_seconds"
    (one,) = histograms_of([Measurement(server=server)], [name])
    assert (one.count, one.censored) == (94, censored)
    assert ("max" in one.at_least) == bool(censored)


def test_the_look_is_bucket_bar_and_count() -> None:
    values = [600_000] * 3 + [1_100_000] * 1000 + [5_000_000] * 500
    text = render_histograms(histograms_of([run(values)]))
    lines = text.splitlines()
    assert lines[0] == "hot, candidate, 1 run"
    assert lines[1].split() == ["min", "mean", "median", "max", "stdev", "count"]
    assert lines[2].split()[-1] == "1,503"
    assert lines[3].split() == ["from", "below", "count"]
    rows = [line.split("|") for line in lines[4:]]
    assert [row[0].split() for row in rows] == [
        ["524", "µs", "1.05", "ms"],
        ["1.05", "ms", "2.1", "ms"],
        ["2.1", "ms", "4.19", "ms"],
        ["4.19", "ms", "8.39", "ms"],
    ]
    assert [row[1].rstrip() for row in rows] == ["▏", "█" * 50, "", "█" * 25]
    assert [row[2].split()[0] for row in rows] == ["3", "1,000", "0", "500"]
    assert len({len(line) for line in lines[4:]}) == 1
    assert max(map(len, lines)) <= 80


def test_a_name_from_outside_steers_no_terminal() -> None:
    evil = LatencyHistogram(latency="a\x1b[2J|<b>", variant="x\ny", count=1)
    assert "\x1b" not in render_histograms([evil])
