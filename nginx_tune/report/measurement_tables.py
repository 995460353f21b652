"""``measurement`` for other programs: Prometheus' text format, and the seconds as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.latency import (
    QUANTILES,
    LatencySample,
    own_sample,
    read_statistic,
    sample_of,
)
from nginx_tune.report.prometheus import Family, MetricSample, render_exposition
from nginx_tune.report.quantities import one_line

_PREFIX = "nginx_tune_probe_"

_COLUMNS = (
    "second", "class", "requests", "body_bytes", "errors", "p50_seconds", "p99_seconds",
    "max_seconds",
)  # fmt: skip


def render_measurement_csv(measurement: Measurement) -> bytes:
    """A line for each class and second of the measured time; what has no sample is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for point in measurement.series:
        for name, item in point.classes.items():
            times = ("" if t is None else f"{t:.9f}" for t in (item.p50, item.p99, item.max))
            counts = (item.requests, item.bytes, item.errors)
            writer.writerow([point.second, one_line(name), *counts, *times])
    return text.getvalue().encode()


def render_measurement_prometheus(measurement: Measurement) -> bytes:
    """A run's figures, all of them gauges and summaries of one run."""
    classes = measurement.classes
    kinds = {name: sorted(item.errors.items()) for name, item in classes.items()}
    errors = tuple(
        MetricSample(count, {"class": name, "kind": kind})
        for name, counted in kinds.items()
        for kind, count in counted
    )
    agreed = tuple(
        MetricSample(one.connections, {"class": name, "version": one.version, "cipher": one.cipher})
        for name, item in classes.items()
        for one in item.tls_sessions
    )
    return render_exposition(
        [
            _gauge("run_seconds", "Measured time of the run.", measurement.duration_seconds),
            _gauge("degraded", "Flags that make the run doubtful.", len(measurement.flags)),
            _of_classes("requests", "Complete, correct responses.", classes, _requests),
            _of_classes("intended", "Requests that were due.", classes, _intended),
            _of_classes("unfinished", "Requests unanswered at the end.", classes, _unfinished),
            _of_classes("body_bytes", "Body bytes received.", classes, _bytes),
            Family(f"{_PREFIX}failures", "gauge", "Failed requests by kind.", errors),
            Family(
                f"{_PREFIX}tls_connections", "gauge", "Connections by what TLS agreed on.", agreed
            ),
            _summary("response_seconds", "From when a request was due to its last byte.", classes),
            _summary("ttfb_seconds", "From when a request was due to its first byte.", classes),
            _summary("service_seconds", "From the send of a request to its last byte.", classes),
            *_watched(classes),
            *_sent(classes),
        ]
    )


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(_PREFIX + name, "gauge", text, (MetricSample(value),))


def _of_classes(
    name: str,
    text: str,
    classes: dict[str, ClassMeasurement],
    value: Callable[[ClassMeasurement], float],
) -> Family:
    samples = tuple(MetricSample(value(item), {"class": one}) for one, item in classes.items())
    return Family(_PREFIX + name, "gauge", text, samples)


_WATCHED = {
    "first_body_seconds": "From when a request was due to the first byte of its body.",
    "gap_seconds": "Between the pieces of one body.",
    "event_delay_seconds": "From when an event says it was sent until it was read.",
}


def _watched(classes: dict[str, ClassMeasurement]) -> list[Family]:
    """Of answers that were watched while they came; none where none were."""
    parts = {name: item.event_stream for name, item in classes.items() if item.event_stream}
    if not parts:
        return []
    counts = tuple(
        MetricSample(count, {"class": name, "end": end})
        for name, one in parts.items()
        for end, count in (("whole", one.whole), ("early", one.early_ends), ("cut", one.cut))
    )
    return [
        Family(f"{_PREFIX}bodies", "gauge", "Watched bodies by their end.", counts),
        *(
            _summary_of(
                field, text, {name: own_sample(getattr(one, field)) for name, one in parts.items()}
            )
            for field, text in _WATCHED.items()
        ),
    ]


def _sent(classes: dict[str, ClassMeasurement]) -> list[Family]:
    """Of bodies that were sent; none where none were."""
    parts = {name: item.upload for name, item in classes.items() if item.upload}
    if not parts:
        return []
    sent = tuple(MetricSample(one.bytes, {"class": name}) for name, one in parts.items())
    ends = tuple(
        MetricSample(count, {"class": name, "end": end})
        for name, one in parts.items()
        for end, count in (
            ("confirmed", one.confirmed),
            ("unconfirmed", one.unconfirmed),
            ("early_answer", one.early_answers),
            ("cut_off", one.cut_off),
        )
    )
    return [
        Family(f"{_PREFIX}sent_body_bytes", "gauge", "Bytes of bodies sent.", sent),
        Family(f"{_PREFIX}uploads", "gauge", "Bodies sent by their end.", ends),
        _summary_of(
            "upload_seconds",
            "From when a request was due until its body was handed over.",
            {name: own_sample(one.upload_seconds) for name, one in parts.items()},
        ),
    ]


def _summary(field: str, text: str, classes: dict[str, ClassMeasurement]) -> Family:
    """Of all classes."""
    return _summary_of(field, text, {n: sample_of(item, field) for n, item in classes.items()})


def _summary_of(field: str, text: str, measured: dict[str, LatencySample]) -> Family:
    """Quantiles that are not measured are left out; ``_sum`` and ``_count`` have all samples."""
    samples: list[MetricSample] = []
    for name, sample in measured.items():
        latency: Latency = sample.latency
        for statistic, quantile in QUANTILES.items():
            value = read_statistic([sample], statistic).value
            if value is not None:
                samples.append(MetricSample(value, {"class": name, "quantile": f"{quantile:g}"}))
        if latency.mean is not None:
            samples.append(MetricSample(latency.mean * latency.count, {"class": name}, "_sum"))
            samples.append(MetricSample(latency.count, {"class": name}, "_count"))
    return Family(_PREFIX + field, "summary", text, tuple(samples))


def _requests(item: ClassMeasurement) -> float:
    return item.requests


def _intended(item: ClassMeasurement) -> float:
    return item.intended


def _unfinished(item: ClassMeasurement) -> float:
    return item.censored


def _bytes(item: ClassMeasurement) -> float:
    return item.bytes
