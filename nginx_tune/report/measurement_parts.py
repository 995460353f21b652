"""The parts of a ``measurement`` by server worker and by load host, as text."""

from __future__ import annotations

from nginx_tune.documents.measured_class import ClassMeasurement, Imbalance
from nginx_tune.documents.measurement import Measurement
from nginx_tune.prove.latency import LatencySample, read_statistic
from nginx_tune.report.columns import align
from nginx_tune.report.quantities import one_line
from nginx_tune.report.text import number_text, seconds_text

_NOT_MEASURED = "–"

_MOST_WORKERS = 32
"""Rows of one class; of more workers the busiest are shown."""


def render_workers(measurement: Measurement) -> str:
    """Requests, connections and latency by class and worker, and how uneven they are."""
    header = ("class", "worker", "good", "share", "connections", "p50", "p99")
    rows, notes = [], []
    for name, part in measurement.classes.items():
        rows += _worker_rows(one_line(name), part)
        for what, imbalance in (
            ("requests", part.worker_requests),
            ("connections", part.worker_connections),
        ):
            if imbalance is not None:
                notes.append(f"{one_line(name)}: {what} {_imbalance(imbalance)}\n")
    if not rows:
        return ""
    return align([header, *rows], right=range(1, len(header))) + "".join(notes)


def _worker_rows(name: str, part: ClassMeasurement) -> list[tuple[str, ...]]:
    total = sum(part.workers.values()) or 1
    busiest = sorted(part.worker_shares.items(), key=lambda item: -item[1].requests)
    rows = [
        (
            "" if row else name,
            one_line(worker),
            f"{share.requests:,}",
            f"{share.requests / total * 100:.0f} %",
            f"{share.connections:,}",
            *(_quantile(LatencySample(share.response_seconds), q) for q in ("p50", "p99")),
        )
        for row, (worker, share) in enumerate(busiest[:_MOST_WORKERS])
    ]
    left = len(busiest) - len(rows)
    rows += [("", f"{left} more", "", "", "", "", "")] if left else []
    there = part.worker_requests.workers if part.worker_requests else len(busiest)
    idle = there - len(busiest)
    return [*rows, ("", f"{idle} idle", "0", "0 %", "0", "", "")] if idle > 0 and rows else rows


def _quantile(sample: LatencySample, name: str) -> str:
    value = read_statistic([sample], name).value
    return _NOT_MEASURED if value is None else seconds_text(value)


def _imbalance(imbalance: Imbalance) -> str:
    return (
        f"over {imbalance.workers} workers: busiest {imbalance.max_to_mean:.2f}× the mean, "
        f"variation {imbalance.variation * 100:.0f} %, chance of as much by equal odds "
        f"{_chance(imbalance.p_value)}"
    )


def _chance(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.3f}"  # noqa: PLR2004


def render_agents(measurement: Measurement) -> str:
    """The load hosts of a merged measurement."""
    if not measurement.agents:
        return ""
    header = ("load host", "stripe", "good", "per second", "CPU", "late p99", "flags")
    rows = [
        (
            one_line(agent.name),
            f"{agent.stripe.index} of {agent.stripe.count}",
            f"{agent.requests:,}",
            f"{number_text(agent.requests_per_second)}/s",
            f"{agent.cpu_ratio * 100:.0f} %",
            _NOT_MEASURED
            if agent.lateness_p99_seconds is None
            else seconds_text(agent.lateness_p99_seconds),
            str(len(agent.flags)),
        )
        for agent in measurement.agents
    ]
    text = align([header, *rows], right=range(1, len(header)))
    if measurement.start_skew_seconds is not None:
        text += f"began within {seconds_text(measurement.start_skew_seconds)} of each other\n"
    return text
