"""Messages over WebSockets: their metrics, their sum, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from nginx_tune.documents.measured_class import ClassMeasurement, Latency, WebSockets
from nginx_tune.documents.measurement import Measurement
from nginx_tune.prove.metrics import default_metrics, find_metric
from nginx_tune.prove.power_of_two import histograms_of
from nginx_tune.prove.websockets import add_websockets
from nginx_tune.report.measurement import render_measurement
from nginx_tune.report.measurement_tables import render_measurement_prometheus

MakeLatency = Callable[[Sequence[float]], Latency]


def channels(latency: MakeLatency, *, gap: float) -> WebSockets:
    return WebSockets(
        opened=70, refused={"503": 2}, echoes=600, late=3, most_messages=4, early_ends=9,
        closes={"1001": 4, "1011": 1}, tcp_ends=3, resets=1,
        opening_seconds=latency([0.01] * 70),
        gap_seconds=latency([gap] * 500),
    )  # fmt: skip


def block(part: WebSockets | None) -> Measurement:
    found = ClassMeasurement(requests=600, websocket=part)
    return Measurement(classes={"chat": found}, duration_seconds=1.0)


def test_blocks_add(latency: MakeLatency) -> None:
    blocks = [block(channels(latency, gap=0.1)), block(channels(latency, gap=0.3))]
    for name, value in {
        "chat.websockets_opened": 140.0,
        "chat.websockets_refused": 4.0,
        "chat.echoes": 1200.0,
        "chat.late_echoes": 6.0,
        "chat.websocket_ends": 18.0,
        "chat.close_frames": 10.0,
        "chat.tcp_ends": 6.0,
        "chat.silent_ends": 0.0,
        "chat.echo_gap.max": 0.3,
        "chat.opening.p50": 0.01,
    }.items():
        assert find_metric(name, ["chat"]).read(blocks).value == pytest.approx(value, rel=2e-3)
    assert {"chat.echo_gap.max", "chat.websocket_ends"} <= set(default_metrics(blocks))


def test_what_sent_no_messages_has_none(latency: MakeLatency) -> None:
    both = [block(channels(latency, gap=0.1)), block(None)]
    for name in ("chat.echoes", "chat.echo_gap.p99"):
        assert "no WebSockets of 'chat'" in find_metric(name).read(both).reason
        assert "no class 'cold'" in find_metric(name.replace("chat", "cold")).read(both).reason
    assert "chat.websocket_ends" not in default_metrics([block(None)])


def test_load_hosts_add(latency: MakeLatency) -> None:
    one = channels(latency, gap=0.1)
    other = msgspec.structs.replace(channels(latency, gap=0.2), most_messages=9, refused={"404": 1})
    both = add_websockets([one, other])
    assert both is not None
    assert (both.opened, both.early_ends, both.most_messages) == (140, 18, 9)
    assert both.closes == {"1001": 8, "1011": 2}
    assert both.refused == {"404": 1, "503": 2}
    assert both.gap_seconds.count == 1000
    assert add_websockets([]) is None


def test_what_is_said_tells_ends_apart(latency: MakeLatency) -> None:
    measurement = block(channels(latency, gap=0.1))
    said = render_measurement(measurement)
    assert "70 WebSockets opened; 600 echoes; openings refused: 503 × 2; 3 echoes after" in said
    assert (
        "9 ended before the run: close 1001 × 4, close 1011 × 1, "
        "end of TCP without a close frame × 3, reset × 1" in said
    )
    text = render_measurement_prometheus(measurement).decode()
    assert 'websocket_ends{class="chat",end="close_frame"} 5' in text
    assert 'echo_gap_seconds{class="chat",quantile="0.5"}' in text
    found = histograms_of([measurement], ["chat.echo_gap", "chat.opening"]).histograms
    assert [one.count for one in found] == [500, 70]
