"""What came of a class's WebSockets, in words."""

from __future__ import annotations

from collections.abc import Mapping

from nginx_tune.documents.measured_class import WebSockets
from nginx_tune.prove.latency import own_sample, read_statistic
from nginx_tune.report.measurement_parts import table_of
from nginx_tune.report.screen import Block, Line
from nginx_tune.report.text import seconds_text

_STATISTICS = ("p50", "p99", "max")
_LABELS = {"opening_seconds": "server's 101", "gap_seconds": "next message of a connection"}


def websockets_block(classes: Mapping[str, WebSockets]) -> Block:
    """How long openings took and connections were silent, and how they ended."""
    rows = [
        (name if row == 0 else "", label, *(_statistic(one, field, s) for s in _STATISTICS))
        for name, one in classes.items()
        for row, (field, label) in enumerate(_LABELS.items())
        if getattr(one, field).count
    ]
    header = ("class", "time to the", *_STATISTICS)
    return [
        *table_of(header, rows, right=range(2, len(header))),
        *(Line(f"{name}: {_counts(one)}") for name, one in classes.items()),
    ]


def _counts(one: WebSockets) -> str:
    said = [f"{one.opened:,} WebSockets opened", f"{one.echoes:,} echoes"]
    if one.refused:
        statuses = ", ".join(f"{status} × {count:,}" for status, count in one.refused.items())
        said.append(f"openings refused: {statuses}")
    if one.late:
        said.append(f"{one.late:,} echoes after their time was up")
    if one.unasked:
        said.append(f"{one.unasked:,} messages that nobody awaited")
    ends = [f"close {code} × {count:,}" for code, count in one.closes.items()]
    ends += [
        f"{word} × {count:,}"
        for word, count in (
            ("end of TCP without a close frame", one.tcp_ends),
            ("reset", one.resets),
            ("no WebSocket any more", one.faults),
            ("nothing answered", one.silent),
        )
        if count
    ]
    if ends:
        said.append(f"{one.early_ends:,} ended before the run: {', '.join(ends)}")
    return "; ".join(said)


def _statistic(one: WebSockets, field: str, statistic: str) -> str:
    reading = read_statistic([own_sample(getattr(one, field))], statistic)
    if reading.seen is None:
        return "–"
    return f"{'≥ ' if reading.is_bound else ''}{seconds_text(reading.seen)}"
