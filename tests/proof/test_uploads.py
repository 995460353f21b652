"""Bodies that were sent: their metrics, their sum, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target, Upload
from nginx_tune.documents.measured_class import ClassMeasurement, Latency, Uploads
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.metrics import default_metrics, find_metric
from nginx_tune.measure.proof.numbers import add_uploads
from nginx_tune.measure.proof.power_of_two import histograms_of
from nginx_tune.report.measurement import render_measurement
from nginx_tune.report.probing import describe_load
from nginx_tune.report.prometheus import render_measurement_prometheus

MakeLatency = Callable[[Sequence[float]], Latency]


def uploads(latency: MakeLatency, *, took: float, rate: float = 1e6) -> Uploads:
    return Uploads(
        bodies=90, bytes=9_000_000, bytes_per_second=rate, confirmed=80, unconfirmed=2,
        early_answers=5, cut_off=3, upload_seconds=latency([took] * 1000),
    )  # fmt: skip


def block(part: Uploads | None) -> Measurement:
    item = ClassMeasurement(upload=part, requests=82, errors={"status": 5, "reset": 3})
    return Measurement(classes={"up": item})


def test_counts_add_and_rates_are_averaged(latency: MakeLatency) -> None:
    blocks = [block(uploads(latency, took=0.1)), block(uploads(latency, took=0.3, rate=3e6))]
    for name, value in {
        "up.uploads": 180.0,
        "up.sent_bytes": 18e6,
        "up.sent_bytes_per_second": 2e6,
        "up.confirmed": 160.0,
        "up.unconfirmed": 4.0,
        "up.early_answers": 10.0,
        "up.cut_off": 6.0,
        "up.upload.p99": 0.3,
        "up.upload.mean": 0.2,
    }.items():
        assert find_metric(name, ["up"]).read(blocks).value == pytest.approx(value, rel=2e-3)
    assert {"up.upload.p50", "up.early_answers"} <= set(default_metrics(blocks))
    assert find_metric("up.errors.upload").read(blocks).value == 0.0


def test_where_nothing_was_sent_nothing_is_measured(latency: MakeLatency) -> None:
    both = [block(uploads(latency, took=0.1)), block(None)]
    for name in ("up.uploads", "up.upload.p99"):
        assert "no bodies of 'up'" in find_metric(name).read(both).reason
        assert "no class 'other'" in find_metric(name.replace("up.", "other.")).read(both).reason
    assert "up.upload.p50" not in default_metrics([block(None)])


def test_load_hosts_add(latency: MakeLatency) -> None:
    parts = [uploads(latency, took=0.1), uploads(latency, took=0.2)]
    whole = add_uploads(parts)
    assert whole is not None
    assert (whole.bodies, whole.confirmed, whole.bytes_per_second) == (180, 160, 2e6)
    assert whole.upload_seconds.count == 2000
    assert add_uploads([]) is None


def test_what_came_of_bodies_is_told_in_words_and_for_prometheus(latency: MakeLatency) -> None:
    measured = block(uploads(latency, took=0.25))
    said = render_measurement(measured)
    assert "last byte of the body sent" in said
    assert "90 bodies sent whole" in said
    assert "5 answered before the body was sent; 3 cut off inside the body" in said
    exposed = render_measurement_prometheus(measured).decode()
    assert 'nginx_tune_probe_uploads{class="up",end="early_answer"} 5' in exposed
    assert 'nginx_tune_probe_upload_seconds{class="up",quantile="0.5"} 0.25' in exposed
    assert b"nginx_tune_probe_sent_body_bytes" not in render_measurement_prometheus(block(None))
    found = histograms_of([measured], ["up.upload"]).histograms
    assert [one.latency for one in found] == ["up.upload"]


def test_a_plan_says_what_is_sent() -> None:
    item = LoadClass(
        name="up",
        arrivals=Arrivals(kind="closed", users=2),
        paths=Paths(kind="fixed", paths=["/"]),
        connections=2,
        method="POST",
        upload=Upload(bytes=[1024, 2048], bytes_per_second=512),
    )
    target = Target(address="127.0.0.1", port=80)
    said = describe_load(LoadPlan(target=target, classes=[item], duration_seconds=1.0), "it")
    assert "each sends a body of 1.0 KiB to 2.0 KiB at 512 B/s" in said
