"""The metrics that gates, claims and tables name, and their values in runs.

``CLASS.p99`` is short for ``CLASS.response_seconds.p99``. A metric has one value per run, which
pairs compare, and one for all runs of a variant together: counts add, rates are averaged, quantiles
come from added histograms. A metric that was not measured has a reason instead of a value.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.errors import UsageError, near_names
from nginx_tune.measure.proof.latency import (
    STATISTICS,
    LatencySample,
    Reading,
    read_statistic,
    sample_of,
)
from nginx_tune.measure.proof.numbers import (
    CLASS_NUMBERS,
    DERIVED,
    PART_NUMBERS,
    QUIC_FIGURES,
    TOTALS,
    Combine,
    PlainNumber,
    read_loop_turn_per_ttfb,
    read_quic,
)


@dataclass(frozen=True)
class Metric:
    """A named quantity of a measurement."""

    name: str
    unit: Unit
    better_when: BetterWhen
    read: Callable[[Sequence[Measurement]], Reading]
    """A function that reads the value over some runs together."""


FAILURE_KINDS = (
    "refused", "connect_timeout", "unreachable", "tls", "reset", "empty", "truncated", "parse",
    "status", "length", "range", "hash", "timeout", "local_ports", "descriptors",
    "backlog", "other",
)  # fmt: skip
_LATENCY_FIELDS = {
    "": "response_seconds",
    "response": "response_seconds",
    "response_seconds": "response_seconds",
    "ttfb": "ttfb_seconds",
    "ttfb_seconds": "ttfb_seconds",
    "service": "service_seconds",
    "service_seconds": "service_seconds",
    "arrival": "arrival_seconds",
    "arrival_seconds": "arrival_seconds",
    "connect": "connect_seconds",
    "connect_seconds": "connect_seconds",
    "tls": "tls_seconds",
    "tls_seconds": "tls_seconds",
    "round_trip": "round_trip_seconds",
    "round_trip_seconds": "round_trip_seconds",
}
_KINDS = ("ttfb", "service", "arrival", "connect", "tls", "round_trip")
"""The kinds of latencies, as gates spell them."""
SERVER_LATENCIES = (
    "loop_turn_seconds",
    "open_seconds",
    "rename_seconds",
    "pool_queue_wait_seconds",
)
PARTS = ("total", *PART_NUMBERS)
"""The first words of metrics that belong to no class."""
_LOOP_TURN_PER_TTFB = "loop_turn_per_ttfb"
_DEFAULT_CLASS_METRICS = ("requests_per_second", "mean", "p99", "ttfb.p99", "truncated")
_DEFAULT_SERVER_METRICS = (
    "pool_overflow", "listen_overflows", "listen_drops", "loop_turn_seconds.p99",
    "block_io_delay_seconds", "cpu_seconds_per_request",
)  # fmt: skip


def find_metric(name: str, classes: Iterable[str] | None = None) -> Metric:
    """The metric with a name; if ``classes`` are given, its class must be one of them.

    Errors: UsageError that names the most similar metrics.
    """
    known = None if classes is None else list(classes)
    for position in (i for i, character in enumerate(name) if character == "."):
        head, tail = name[:position], name[position + 1 :]
        metric = _find(name, head, tail)
        if metric is None:
            continue
        if known is None or head in PARTS or head in known:
            return metric
    names = metric_names(known or ["CLASS"])
    near = nearest_metrics(name, names)
    hint = f"near it: {', '.join(near)}" if near else f"such as {', '.join(names[:3])}"
    if known:
        hint += f"; classes: {', '.join(known)}"
    raise UsageError(f"unknown metric '{name[:80]}'", hint=hint)


def metric_names(classes: Iterable[str]) -> list[str]:
    """Every metric that these classes, the totals, the server and the generator have."""
    tails = [
        *STATISTICS,
        *(f"{kind}.{statistic}" for kind in _KINDS for statistic in STATISTICS),
        *(f"{_LOOP_TURN_PER_TTFB}.{statistic}" for statistic in STATISTICS),
        *CLASS_NUMBERS,
        *QUIC_FIGURES,
        "errors",
        *(f"errors.{kind}" for kind in FAILURE_KINDS),
    ]
    return [
        *(f"{name}.{tail}" for name in classes for tail in tails),
        *(f"total.{tail}" for tail in (*TOTALS, "errors")),
        *(f"{part}.{tail}" for part, numbers in PART_NUMBERS.items() for tail in numbers),
        *(f"generator.lateness.{statistic}" for statistic in STATISTICS),
        *(f"server.{field}.{statistic}" for field in SERVER_LATENCIES for statistic in STATISTICS),
        *(f"total.errors.{kind}" for kind in FAILURE_KINDS),
        *DERIVED,
    ]


def default_metrics(runs: Sequence[Measurement]) -> list[str]:
    """The metrics that a verdict shows by default.

    Shape: the same few of each class, then those of the server that every run has.
    """
    classes = dict.fromkeys(name for run in runs for name in run.classes)
    server = [f"server.{tail}" for tail in _DEFAULT_SERVER_METRICS]
    return [
        *(f"{name}.{tail}" for name in classes for tail in _DEFAULT_CLASS_METRICS),
        *(name for name in server if find_metric(name).read(runs).value is not None),
    ]


def _find(name: str, head: str, tail: str) -> Metric | None:
    if derived := DERIVED.get(name):
        return Metric(name, derived.unit, derived.better_when, derived.read)
    if head == "total":
        if tail == "errors":
            return Metric(name, "count", "lower", _reader(_total_errors, math.fsum, name))
        if tail.startswith("errors.") and (kind := tail.removeprefix("errors.")) in FAILURE_KINDS:
            return Metric(name, "count", "lower", _reader(_errors_of(kind), math.fsum, name))
        return _total(name, CLASS_NUMBERS[tail]) if tail in TOTALS else None
    if head in PART_NUMBERS:
        if number := PART_NUMBERS[head].get(tail):
            return _part(name, head, number)
        field, _, statistic = tail.rpartition(".")
        if head == "generator" and field in ("lateness", "lateness_seconds"):
            return _lateness(name, statistic) if statistic in STATISTICS else None
        if head == "server" and field in SERVER_LATENCIES and statistic in STATISTICS:
            return _server_latency(name, field, statistic)
        return None
    return _class_metric(name, head, tail) if head else None


def _class_metric(name: str, head: str, tail: str) -> Metric | None:
    if number := CLASS_NUMBERS.get(tail):
        field = number.field
        return _of_class(name, head, number, lambda part: float(getattr(part, field)))
    if tail == "errors":
        number = PlainNumber("count", "lower", math.fsum, "errors")
        return _of_class(name, head, number, _all_errors)
    if tail.startswith("errors.") and (kind := tail.removeprefix("errors.")) in FAILURE_KINDS:
        number = PlainNumber("count", "lower", math.fsum, tail)
        return _of_class(name, head, number, lambda part: float(part.errors.get(kind, 0)))
    if beneath := QUIC_FIGURES.get(tail):
        read_connections = partial(read_quic, name=head, number=beneath)
        return Metric(name, beneath.unit, beneath.better_when, read_connections)
    kind, dot, statistic = tail.rpartition(".")
    if kind == _LOOP_TURN_PER_TTFB and statistic in STATISTICS:
        read = partial(read_loop_turn_per_ttfb, name=head, statistic=statistic)
        return Metric(name, "ratio", "lower", read)
    if statistic not in STATISTICS or kind not in _LATENCY_FIELDS or bool(kind) != bool(dot):
        return None
    return _latency(name, head, _LATENCY_FIELDS[kind], statistic)


def _of_class(
    name: str, head: str, number: PlainNumber, value: Callable[[ClassMeasurement], float]
) -> Metric:
    def read(run: Measurement) -> float | None:
        part = run.classes.get(head)
        return None if part is None else value(part)

    return Metric(name, number.unit, number.better_when, _reader(read, number.combine, name))


def _total(name: str, number: PlainNumber) -> Metric:
    def read(run: Measurement) -> float | None:
        parts = run.classes.values()
        return math.fsum(getattr(part, number.field) for part in parts) if parts else None

    return Metric(name, number.unit, number.better_when, _reader(read, number.combine, name))


def _part(name: str, head: str, number: PlainNumber) -> Metric:
    def read(run: Measurement) -> float | None:
        value = getattr(run, head)
        for step in number.field.split("."):
            value = getattr(value, step, None)
        return None if value is None else float(value)

    return Metric(name, number.unit, number.better_when, _reader(read, number.combine, name))


def _latency(name: str, head: str, field: str, statistic: str) -> Metric:
    def read(runs: Sequence[Measurement]) -> Reading:
        samples = []
        for run in runs:
            part = run.classes.get(head)
            if part is None:
                return Reading(None, f"run {run.number} has no class '{head}'")
            samples.append(sample_of(part, field))
        return read_statistic(samples, statistic)

    return Metric(name, "seconds", "lower", read)


def _lateness(name: str, statistic: str) -> Metric:
    def read(runs: Sequence[Measurement]) -> Reading:
        return read_statistic(
            [LatencySample(run.generator.lateness_seconds) for run in runs], statistic
        )

    return Metric(name, "seconds", "lower", read)


def _server_latency(name: str, field: str, statistic: str) -> Metric:
    def read(runs: Sequence[Measurement]) -> Reading:
        samples = []
        for run in runs:
            latency = getattr(run.server, field)
            if latency is None:
                return Reading(None, _why_missing(run, name))
            # Turns seen only in part matter only where they reach a statistic.
            cut = latency.censored if latency.at_least else 0
            samples.append(LatencySample(latency, cut, latency.censored_from_seconds))
        return read_statistic(samples, statistic)

    return Metric(name, "seconds", "lower", read)


def _all_errors(part: ClassMeasurement) -> float:
    return float(sum(part.errors.values()))


def _total_errors(run: Measurement) -> float | None:
    return math.fsum(map(_all_errors, run.classes.values())) if run.classes else None


def _errors_of(kind: str) -> Callable[[Measurement], float | None]:
    def read(run: Measurement) -> float | None:
        parts = run.classes.values()
        return float(sum(part.errors.get(kind, 0) for part in parts)) if parts else None

    return read


def _reader(
    read_run: Callable[[Measurement], float | None], combine: Combine, name: str
) -> Callable[[Sequence[Measurement]], Reading]:
    """The reader of a number over some runs; it counts as measured only if all runs have it."""

    def read(runs: Sequence[Measurement]) -> Reading:
        values = []
        for run in runs:
            value = read_run(run)
            if value is None or not math.isfinite(value):
                return Reading(None, _why_missing(run, name))
            values.append(value)
        return Reading(combine(values)) if values else Reading(None, "no valid run")

    return read


def _why_missing(run: Measurement, name: str) -> str:
    pointer = "/" + name.replace(".", "/")
    for unknown in run.unknown:
        if pointer == unknown.path or pointer.startswith(unknown.path + "/"):
            return unknown.reason
    return f"run {run.number} does not have it"


_MOST = 3


def nearest_metrics(name: str, names: Sequence[str]) -> list[str]:
    """Up to three of ``names`` that resemble a mistyped name.

    Those that end in it (``p99``), or differ in the first word alone (``total.p99``), come first.
    """
    low = name.lower()
    tail = low.partition(".")[2] or low
    ends = [name for name in names if name.endswith(f".{tail}")] if tail else []
    if ends:
        return sorted(ends, key=len)[:_MOST]
    if near := near_names(low, names):
        return near[:_MOST]
    tails: dict[str, str] = {}
    for one in names:
        tails.setdefault(one.partition(".")[2], one)
    near = near_names(low, tails) or [one for one in tails if low in one]
    return [tails[one] for one in near[:_MOST]]
