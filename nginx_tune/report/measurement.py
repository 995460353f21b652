"""Measurements as text: results of each class, delays, doubts; and every second as CSV."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Generator, Measurement
from nginx_tune.documents.units import plural
from nginx_tune.measure.proof.latency import (
    FEWEST_BEYOND,
    QUANTILES,
    LatencySample,
    hidden_stall,
    read_statistic,
    sample_of,
)
from nginx_tune.report.measurement_parts import (
    agents_block,
    sessions_text,
    shape_of,
    streams_text,
    table_of,
    workers_block,
)
from nginx_tune.report.screen import Line, Screen, ScreenBlock
from nginx_tune.report.text import bytes_text, number_text, one_line, percent_text, seconds_text

_NOT_MEASURED = "–"

_BY_TIME = ("timeout", "connect_timeout")
"""Failures that count in the latencies, with the time until they failed."""

_LABELS = {"p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9"}

_ERROR_WORDS = {
    "refused": "refused",
    "connect_timeout": "without a connection in time",
    "unreachable": "unreachable",
    "tls": "without a TLS session",
    "reset": "reset",
    "empty": "closed without a reply",
    "truncated": "cut short",
    "parse": "not HTTP",
    "status": "of another status",
    "length": "of another length",
    "range": "of another range",
    "hash": "with bytes that differ from the file",
    "timeout": "without an answer in time",
    "local_ports": "without a free local port",
    "descriptors": "without a free descriptor",
    "backlog": "refused by a full queue",
    "other": "of another kind",
}


def measured_screen(measurement: Measurement, asked: str = "", gates: ScreenBlock = ()) -> Screen:
    """One sentence for each class, gates, flags, counts, latencies, failures, and the load."""
    classes = {one_line(name): item for name, item in measurement.classes.items()}
    return [
        _answer(classes),
        gates,
        [Line(f"degraded: {one_line(flag)}", "warning") for flag in measurement.flags],
        _counts(classes),
        _latencies(classes),
        _shapes(classes),
        [Line(line) for line in _hidden(classes, measurement.duration_seconds)],
        [Line(line) for name, item in classes.items() for line in _failures(name, item)],
        workers_block(measurement),
        agents_block(measurement),
        [Line(line) for line in _apart(measurement.generator)],
        [Line(_generator(measurement.generator))],
        _asked(measurement, asked),
    ]


def _answer(classes: Mapping[str, ClassMeasurement]) -> ScreenBlock:
    lines = [Line(_sentence(name, item), "answer") for name, item in classes.items()]
    failed = [_verdict(name, item) for name, item in classes.items()]
    return [*lines, *(Line(line, "warning") for line in failed if line)]


def _sentence(name: str, item: ClassMeasurement) -> str:
    """A sentence on the results of a class, which can be quoted."""
    sample = sample_of(item, "response_seconds")
    times = [
        f"{word} {cell}"
        for word, cell in (("median", _quantile(sample, "p50")), ("p99", _quantile(sample, "p99")))
        if cell != _NOT_MEASURED
    ]
    failed = "" if sum(item.errors.values()) + item.censored else ", none failed"
    if not item.requests:
        failed = ""
    rate = f"{name}: {number_text(item.requests_per_second)} good responses/s"
    return ", ".join([rate, *times]) + failed


def _asked(measurement: Measurement, asked: str) -> ScreenBlock:
    """The duration and the description of the load; without a description, its seed."""
    seed = "" if asked else f", seed {measurement.seed}"
    lines = [Line(f"{number_text(measurement.duration_seconds)} s measured{seed}")]
    for line in asked.splitlines():
        text = line.lstrip(" ")
        lines.append(Line(text, "text", len(line) - len(text)))
    return lines


def unanswered_classes(measurement: Measurement) -> list[str]:
    """The classes that got no good response, so nothing was measured of them."""
    return [name for name, item in measurement.classes.items() if not item.requests]


def progress_text(
    line: Mapping[str, Any], *, warmup_seconds: float = 0.0, duration_seconds: float | None = None
) -> str:
    """One progress line of the probe as text; seconds of the warm-up are marked."""
    classes = [
        f"{one_line(str(name))} {item['requests']:,}/s"
        + (f", {item['errors']:,} failed" if item["errors"] else "")
        + (f", {item['pending']:,} waiting" if item["pending"] else "")
        + (f", p99 {seconds_text(item['p99'])}" if item.get("p99") is not None else "")
        for name, item in line["classes"].items()
    ]
    warmup = math.ceil(warmup_seconds)
    second = line["second"]
    if second <= warmup:
        when = f"warm-up, {second} of {warmup} s"
    else:
        of = "" if duration_seconds is None else f" of {number_text(duration_seconds)}"
        when = f"{second - warmup}{of} s"
        if duration_seconds is not None and second - warmup > math.ceil(duration_seconds):
            when = "waiting for the last answers"
    return f"{when}: {'; '.join(classes)}"


def _verdict(name: str, item: ClassMeasurement) -> str:
    """A note on failed or unfinished requests, and their effect on the latencies."""
    failed = sum(item.errors.values())
    missing = failed + item.censored
    if not missing:
        return ""
    parts = []
    bounds = sum(item.errors.get(kind, 0) for kind in _BY_TIME) + item.censored
    if bounds:
        parts.append(
            f"{bounds:,} without an answer in time count in the latencies with the time "
            "that they waited"
        )
    others = failed - bounds + item.censored
    if others:
        left = 1 - others / max(item.intended, missing)
        unsure = [label for quantile, label in _LABELS.items() if QUANTILES[quantile] > left]
        parts.append(
            (
                f"{others:,} others are not in the latencies"
                if bounds
                else "they are not in the latencies"
            )
            + (f" (counted as slowest they would make up {', '.join(unsure)})" if unsure else "")
        )
    percent = percent_text(missing / max(item.intended, missing), 2)
    of = f"{missing:,} of {max(item.intended, missing):,} requests ({percent})"
    return f"{name}: {of} failed or were not finished; {'; '.join(parts)}"


def _counts(classes: Mapping[str, ClassMeasurement]) -> ScreenBlock:
    header = ("class", "good", "per second", "body", "failed", "unfinished")
    rows = [
        (
            name,
            f"{item.requests:,}",
            f"{number_text(item.requests_per_second)}/s",
            f"{bytes_text(item.bytes_per_second)}/s",
            f"{sum(item.errors.values()):,}",
            f"{item.censored:,}",
        )
        for name, item in classes.items()
    ]
    return table_of(header, rows, right=range(1, len(header)))


def _latencies(classes: Mapping[str, ClassMeasurement]) -> ScreenBlock:
    header = ("class", "time to", "mean", "p50", "p90", "p99", "p99.9", "max")
    rows = []
    for name, item in classes.items():
        for label, field in (
            ("last byte", "response_seconds"),
            ("first byte", "ttfb_seconds"),
            ("last byte, from the send", "service_seconds"),
        ):
            sample = sample_of(item, field)
            cells = [_quantile(sample, quantile) for quantile in QUANTILES]
            rows.append((name, label, _mean(sample), *cells, _maximum(sample)))
            name = ""  # noqa: PLW2901  # only the first row has the name
    table = table_of(header, rows, right=range(2, len(header)))
    return [*table, *(Line(note) for note in _notes(header, rows))]


def _notes(header: Sequence[str], rows: list[tuple[str, ...]]) -> list[str]:
    """Notes on missing cells, on columns without any cell, and on lower bounds."""
    cells = [cell for row in rows for cell in row]
    columns = zip(header, *rows, strict=True)
    absent = [name for name, *column in columns if {*column} == {_NOT_MEASURED}]
    notes = []
    if _NOT_MEASURED in cells:
        names = ", ".join([_NOT_MEASURED, *absent])
        notes.append(f"{names}: fewer than {FEWEST_BEYOND} samples beyond the quantile")
    if any(cell.startswith("≥") for cell in cells):
        notes.append("≥: some requests never finished, or exceeded their time limit")
    return notes


def _quantile(sample: LatencySample, name: str) -> str:
    reading = read_statistic([sample], name)
    if reading.value is not None:
        return seconds_text(reading.value)
    return _at_least(sample, getattr(sample.latency, name)) or _NOT_MEASURED


def _mean(sample: LatencySample) -> str:
    mean = sample.latency.mean
    if mean is None:
        return _NOT_MEASURED
    return f"≥ {seconds_text(mean)}" if sample.censored else seconds_text(mean)


def _shapes(classes: Mapping[str, ClassMeasurement]) -> ScreenBlock:
    """The distributions of the time to the last byte, as rows of bars, if there are any."""
    shapes = {name: shape_of(item.response_seconds) for name, item in classes.items()}
    rows = [(name, shape) for name, shape in shapes.items() if shape]
    return table_of(("class", "from the shortest to the longest, in equal ratios"), rows)


def _hidden(classes: Mapping[str, ClassMeasurement], duration_seconds: float) -> list[str]:
    """Notes on stalls that the latencies of closed loops hide."""
    lines = []
    for name, item in classes.items():
        stall = hidden_stall(item, duration_seconds)
        if stall is not None:
            lines.append(
                f"{name}: a closed loop hides stalls (the longest response took "
                f"{seconds_text(stall.max_seconds)}): with requests sent at a constant rate, p99 "
                f"would be about {seconds_text(stall.scheduled_p99_seconds)}, not "
                f"{seconds_text(stall.p99_seconds)}; set a rate to measure tails"
            )
    return lines


def _maximum(sample: LatencySample) -> str:
    latency: Latency = sample.latency
    if latency.max is None:
        return _NOT_MEASURED
    return _at_least(sample, latency.max) or seconds_text(latency.max)


def _at_least(sample: LatencySample, value: float | None) -> str | None:
    """The value as a lower bound (``≥``) if unfinished requests lie at or below it, or None."""
    start = sample.censored_from_seconds
    if value is None or not sample.censored or start is None or value < start:
        return None
    return f"≥ {seconds_text(value)}"


def _failures(name: str, item: ClassMeasurement) -> list[str]:
    lines = [
        f"{name}: {count:,} {_ERROR_WORDS.get(kind, one_line(kind))}"
        for kind, count in sorted(item.errors.items(), key=lambda error: -error[1])
    ]
    if item.errors.get("status"):
        answers = ", ".join(f"{count:,} × {one_line(s)}" for s, count in item.statuses.items())
        lines.append(f"{name}: statuses {answers}")
    if item.at_cap:
        lines.append(
            f"{name}: {item.at_cap:,} of {item.intended:,} waited for a free connection, up to "
            f"{item.max_pending:,} at once"
        )
    if item.bodies is not None:
        bodies = item.bodies
        lines.append(
            f"{name}: {bodies.compared:,} bodies compared with their files, "
            f"{bodies.differing:,} differ"
            + (f", {bodies.unread:,} could not be compared" if bodies.unread else "")
        )
    if item.retried:
        lines.append(
            f"{name}: {item.retried:,} sent again because the server had closed the connection"
        )
    if item.stray:
        lines.append(f"{name}: {plural(item.stray, 'connection')} had bytes without a request")
    if item.syn_retries:
        lines.append(f"{name}: {item.syn_retries:,} TCP handshakes were repeated")
    if item.retransmits:
        lines.append(f"{name}: {item.retransmits:,} segments of requests were sent again")
    streams = item.http2 or item.http3
    if streams is not None:
        lines.append(f"{name}: {streams_text(streams, item.connections_opened)}")
    if item.tls_sessions or item.tls_seconds.count:
        lines.append(f"{name}: {_tls(item)}")
    return lines + _round_trips(name, item.round_trip_seconds)


def _round_trips(name: str, trips: Latency) -> list[str]:
    """The round-trip time to the server."""
    shown = [
        f"{seconds_text(value)} ({statistic})"
        for statistic, value in (("p50", trips.p50), ("p99", trips.p99))
    ]
    return [f"{name}: round trip of its connections {', '.join(shown)}"] if trips.count else []


def _tls(item: ClassMeasurement) -> str:
    """The negotiated TLS version and cipher, the handshake time, and the resumed sessions."""
    said = [sessions_text(item.tls_sessions)] if item.tls_sessions else ["TLS"]
    if item.tls_seconds.count:
        said.append(f"handshakes took {seconds_text(item.tls_seconds.p50)} (p50)")
    said.append(f"{item.tls_resumed:,} resumed a session")
    return ", ".join(said)


def _apart(generator: Generator) -> list[str]:
    """The source addresses, the idle connections, and the delay of the run's start."""
    lines = []
    if generator.source_addresses > 1:
        lines.append(f"connections came from {generator.source_addresses} local addresses")
    idle = generator.idle_connections
    if idle is not None:
        lines.append(
            f"idle connections: {idle.open:,} of {idle.wanted:,} open, {idle.lost:,} closed by "
            f"the server, {idle.failed:,} attempts failed"
        )
    if generator.start_skew_seconds is not None:
        lines.append(f"began {seconds_text(generator.start_skew_seconds)} after the agreed start")
    return lines


def _generator(generator: Generator) -> str:
    text = f"probe: {percent_text(generator.cpu_ratio, 2)} of a CPU"
    if generator.threads > 1:
        text += f" on {generator.threads} threads"
    late = generator.lateness_seconds
    if late.count:
        text += f", late by {seconds_text(late.p50)} (p50), {seconds_text(late.p99)} (p99)"
    lag = generator.receive_lag_seconds
    if lag.count:
        text += f", reads {seconds_text(lag.p50)} (p50) after the kernel"
    if generator.foreign_cpu_ratio is not None:
        text += f", others {percent_text(generator.foreign_cpu_ratio, 2)} of the host's CPUs"
    return text + f", {bytes_text(generator.max_rss_bytes)} of memory"


_CSV_COLUMNS = (
    "second", "class", "requests", "body_bytes", "errors", "p50_seconds", "p99_seconds",
    "max_seconds",
)  # fmt: skip


def render_measurement_csv(measurement: Measurement) -> bytes:
    """A line for each class and second of the measured time; a missing value is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for point in measurement.series:
        for name, item in point.classes.items():
            times = ("" if t is None else f"{t:.9f}" for t in (item.p50, item.p99, item.max))
            counts = (item.requests, item.bytes, item.errors)
            writer.writerow([point.second, one_line(name), *counts, *times])
    return text.getvalue().encode()
