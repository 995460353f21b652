"""What came of a class's watched answers, in words."""

from __future__ import annotations

from nginx_tune.documents.measured_class import EventStreams
from nginx_tune.prove.event_streams import sample_of
from nginx_tune.prove.latency import read_statistic
from nginx_tune.report.columns import align
from nginx_tune.report.text import number_text, seconds_text

_STATISTICS = ("p50", "p99", "max")
_LABELS = {
    "first_body_seconds": "first byte of the body",
    "gap_seconds": "next piece of it",
    "event_delay_seconds": "event, from when it says it was sent",
}


def render_event_streams(classes: dict[str, EventStreams]) -> str:
    """When bodies began, how long they stood still, how long events were on their way."""
    rows = [
        (name if row == 0 else "", label, *(_statistic(one, field, s) for s in _STATISTICS))
        for name, one in classes.items()
        for row, (field, label) in enumerate(_LABELS.items())
        if getattr(one, field).count
    ]
    header = ("class", "time to the", *_STATISTICS)
    table = align([header, *rows], right=range(2, len(header))) if rows else ""
    return table + "".join(f"{name}: {_counts(one)}\n" for name, one in classes.items())


def _counts(one: EventStreams) -> str:
    said = [
        f"{one.begun:,} bodies began, at most {one.most_open:,} at once",
        f"{one.whole:,} ended whole, {one.cut:,} were cut off with the measured time",
    ]
    if one.early_ends:
        said.append(f"{one.early_ends:,} ended early")
    if one.events and one.pieces:
        each = number_text(one.events / one.pieces)
        said.append(f"{one.events:,} events in {one.pieces:,} pieces ({each} in each)")
    if one.events_ahead:
        said.append(f"{one.events_ahead:,} stamped by another clock")
    return "; ".join(said)


def _statistic(one: EventStreams, field: str, statistic: str) -> str:
    reading = read_statistic([sample_of(one, field)], statistic)
    if reading.seen is None:
        return "–"
    return f"{'≥ ' if reading.is_bound else ''}{seconds_text(reading.seen)}"
