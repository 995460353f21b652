"""Observations and measurements as series of seconds, by the name of the metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from nginx_tune.documents.harms import HARMS, Weight
from nginx_tune.documents.measured_server import ServerMeasurement, ServerSecond
from nginx_tune.documents.measurement import ClassSecond, Measurement
from nginx_tune.documents.observation import UNNAMED, Observation
from nginx_tune.documents.verdict import BetterWhen, Unit
from nginx_tune.measure.proof.bootstrap import Series

TRAFFIC = "server.requests_per_second"


class ComparedWindow(NamedTuple):
    """One document, as a comparison reads it."""

    series: dict[str, Series]
    totals: dict[str, float]
    """Harm that was counted over the whole window, by metric: too little for a series."""
    seconds: float
    requests: int | None
    causes: dict[str, str]
    """What an observation names: its sentence by its id."""
    flags: list[str]
    is_loaded: bool
    """Whether a load of ours made the traffic."""
    bounded: frozenset[str] = frozenset()
    """Metrics whose seconds are lower bounds: requests were cut off."""


class SecondsOf(NamedTuple):
    """How a metric is read from a second of the server."""

    unit: Unit
    better_when: BetterWhen
    numerator: Callable[[ServerSecond], float | None]
    denominator: Callable[[ServerSecond], float | None] = lambda second: second.seconds


def _turn_p99(second: ServerSecond) -> float | None:
    return second.loop_turn_p99_seconds


SERVER: dict[str, SecondsOf] = {
    TRAFFIC: SecondsOf("per_second", "higher", lambda s: s.requests),
    "server.loop_turn_seconds.blocked_seconds": SecondsOf(
        "seconds_per_second", "lower", lambda s: s.loop_blocked_seconds
    ),
    "server.block_io_delay_seconds": SecondsOf(
        "seconds_per_second", "lower", lambda s: s.block_io_delay_seconds
    ),
    "server.state_d_ratio": SecondsOf(
        "ratio", "lower", lambda s: None if s.state_d_ratio is None else s.state_d_ratio * s.seconds
    ),
    "server.loop_turn_seconds.p99": SecondsOf(
        "seconds", "lower", _turn_p99, lambda s: None if _turn_p99(s) is None else 1.0
    ),
    "server.cpu_seconds": SecondsOf("seconds_per_second", "lower", lambda s: s.cpu_seconds),
    "server.cpu_seconds_per_request": SecondsOf(
        "seconds", "lower", lambda s: s.cpu_seconds, lambda s: s.requests
    ),
    "server.disk_read_bytes": SecondsOf("bytes_per_second", "lower", lambda s: s.disk_read_bytes),
    "server.refaults": SecondsOf("per_second", "lower", lambda s: s.refaults),
    "server.listen_drops": SecondsOf("per_second", "lower", lambda s: s.listen_drops),
}
"""Everything counted is per second; ``p99`` is the mean of the seconds' p99."""

_CLASS: dict[str, tuple[Unit, BetterWhen, Callable[[ClassSecond], float | None]]] = {
    "requests_per_second": ("per_second", "higher", lambda s: s.requests),
    "bytes_per_second": ("bytes_per_second", "higher", lambda s: s.bytes),
    "errors_per_second": ("per_second", "lower", lambda s: s.errors),
    "p50": ("seconds", "lower", lambda s: s.p50),
    "p99": ("seconds", "lower", lambda s: s.p99),
}


_SERVER, _ERRORS = "server.", ".errors"
_WEIGHTS = {f"{_SERVER}{harm.name}": harm.weight for harm in HARMS}


def read_window(document: Observation | Measurement) -> ComparedWindow:
    """The series of a document; a metric that is null in any second but the odd one is left out."""
    server = document.server
    series = dict(_server_series(server))
    if isinstance(document, Measurement):
        series |= _class_series(document)
    totals = {
        f"{_SERVER}{harm.name}": float(value)
        for harm in HARMS
        if (value := harm.counted(server)) is not None
    }
    causes: dict[str, str] = {}
    if isinstance(document, Measurement):
        parts = document.classes.items()
        totals |= {f"{name}{_ERRORS}": float(sum(part.errors.values())) for name, part in parts}
    else:
        causes |= {one.id: one.summary for one in document.causes if one.id not in UNNAMED}
    return ComparedWindow(
        series=series,
        totals=totals,
        seconds=document.duration_seconds,
        requests=server.stub_status.requests if server.stub_status else None,
        causes=causes,
        flags=list(document.flags),
        is_loaded=isinstance(document, Measurement),
        bounded=frozenset(_bounded(document)) if isinstance(document, Measurement) else frozenset(),
    )


def _bounded(measurement: Measurement) -> Iterable[str]:
    """Quantiles among requests that were cut off, in the whole window or in a second of it.

    Those that were unfinished at the end stand in no second.
    """
    for name, part in measurement.classes.items():
        latency = part.response_seconds
        least = latency.censored_from_seconds
        if latency.censored and least is not None:
            seconds = [point.classes.get(name, ClassSecond()) for point in measurement.series]
            for tail in ("p50", "p99"):
                values = (getattr(second, tail) for second in seconds)
                if tail in latency.at_least or any(v is not None and v >= least for v in values):
                    yield f"{name}.{tail}"


def weight_of(name: str) -> Weight:
    """What more of a total says."""
    return _WEIGHTS.get(name, "seldom")


def unit_and_side(name: str) -> tuple[Unit, BetterWhen]:
    """In what a series of this name is, and which way it should go."""
    if name in SERVER:
        return SERVER[name].unit, SERVER[name].better_when
    unit, better_when, _ = _CLASS[name.rpartition(".")[2]]
    return unit, better_when


def _server_series(server: ServerMeasurement) -> Iterable[tuple[str, Series]]:
    for name, quantity in SERVER.items():
        found = [(quantity.numerator(s), quantity.denominator(s)) for s in server.series]
        series = _whole(found)
        if series is not None:
            yield name, series


def _class_series(measurement: Measurement) -> dict[str, Series]:
    found = {}
    for name in measurement.classes:
        seconds = [point.classes.get(name, ClassSecond()) for point in measurement.series]
        for tail, (_, _, read) in _CLASS.items():
            values = [read(second) for second in seconds]
            series = _whole([(v, None if v is None else 1.0) for v in values])
            if series is not None:
                found[f"{name}.{tail}"] = series
    return found


def _whole(pairs: list[tuple[float | None, float | None]]) -> Series | None:
    """The series of the seconds that have both; none when more than a tenth lack one."""
    known = [(float(top), float(below)) for top, below in pairs if None not in (top, below)
             and top is not None and below is not None]  # fmt: skip
    if not known or len(known) < 0.9 * len(pairs):  # a tenth
        return None
    return Series(tuple(top for top, _ in known), tuple(below for _, below in known))
