"""Watched answers: their metrics, their sum, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from nginx_tune.documents.measured_class import ClassMeasurement, EventStreams, Latency
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.metrics import default_metrics, find_metric
from nginx_tune.measure.proof.numbers import add_event_streams
from nginx_tune.measure.proof.power_of_two import histograms_of
from nginx_tune.report.measurement import render_measurement, unanswered_classes
from nginx_tune.report.prometheus import render_measurement_prometheus

MakeLatency = Callable[[Sequence[float]], Latency]


def watched(latency: MakeLatency, *, gap: float, pieces: int = 100) -> EventStreams:
    return EventStreams(
        begun=4, whole=1, early_ends=1, cut=2, most_open=4, pieces=pieces, events=1600,
        first_body_seconds=latency([0.01] * 4),
        gap_seconds=latency([gap] * 1000),
        event_delay_seconds=latency([gap / 2] * 1000),
    )  # fmt: skip


def block(part: EventStreams | None) -> Measurement:
    return Measurement(classes={"hot": ClassMeasurement(event_stream=part)})


def test_blocks_add_before_they_are_divided(latency: MakeLatency) -> None:
    blocks = [
        block(watched(latency, gap=0.1)),
        block(watched(latency, gap=0.3, pieces=1500)),
    ]
    for name, value in {
        "hot.events": 3200.0,
        "hot.pieces": 1600.0,
        "hot.events_per_piece": 2.0,
        "hot.early_ends": 2.0,
        "hot.bodies_cut": 4.0,
        "hot.gap.p99": 0.3,
        "hot.event_delay.mean": 0.1,
        "hot.first_body.max": 0.01,
    }.items():
        assert find_metric(name, ["hot"]).read(blocks).value == pytest.approx(value, rel=2e-3)
    assert "hot.event_delay.p50" in default_metrics(blocks)


def test_what_was_not_watched_is_not_measured(latency: MakeLatency) -> None:
    both = [block(watched(latency, gap=0.1)), block(None)]
    for name in ("hot.events", "hot.gap.p99"):
        assert "were not watched" in find_metric(name).read(both).reason
        assert "no class 'cold'" in find_metric(name.replace("hot", "cold")).read(both).reason
    assert find_metric("hot.events_per_piece").read([block(EventStreams())]).value is None
    assert "hot.gap.p99" not in default_metrics([block(None)])


def test_a_silence_that_was_cut_off_makes_a_gap_a_lower_bound(latency: MakeLatency) -> None:
    whole = watched(latency, gap=0.1)
    gap = msgspec.structs.replace(
        latency([0.1] * 980 + [5.0] * 20), censored=20, censored_from_seconds=5.0
    )
    part = msgspec.structs.replace(whole, gap_seconds=gap)
    reading = find_metric("hot.gap.p99").read([block(part)])
    assert reading.value is None
    assert reading.at_least == pytest.approx(5.0, rel=2e-3)
    assert "≥ 5.00 s" in render_measurement(block(part))


def test_load_hosts_add(latency: MakeLatency) -> None:
    one = watched(latency, gap=0.1)
    both = add_event_streams([one, watched(latency, gap=0.2)])
    assert both is not None
    assert (both.begun, both.events, both.most_open) == (8, 3200, 8)
    assert both.gap_seconds.count == 2000
    assert add_event_streams([]) is None


def test_streams_that_all_were_cut_off_are_an_answer(latency: MakeLatency) -> None:
    assert unanswered_classes(block(watched(latency, gap=0.1))) == []
    assert unanswered_classes(block(EventStreams())) == ["hot"]


def test_the_report_and_other_programs_are_told(latency: MakeLatency) -> None:
    measured = block(watched(latency, gap=0.1))
    text = render_measurement(measured)
    assert "4 bodies began, at most 4 at once; 1 ended whole, 2 were cut off" in text
    assert "1 ended early; 1,600 events in 100 pieces (16 in each)" in text
    told = render_measurement_prometheus(measured).decode()
    assert 'nginx_tune_probe_bodies{class="hot",end="cut"} 2' in told
    assert 'nginx_tune_probe_gap_seconds{class="hot",quantile="0.99"}' in told
    assert "nginx_tune_probe_bodies" not in render_measurement_prometheus(block(None)).decode()
    found = histograms_of([measured], ["hot.gap", "hot.event_delay"]).histograms
    assert [one.count for one in found] == [1000, 1000]
