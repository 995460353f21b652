"""What came of the bodies that a class sent, in words."""

from __future__ import annotations

from nginx_tune.documents.measured_class import Uploads
from nginx_tune.prove.latency import read_statistic
from nginx_tune.prove.uploads import sample_of
from nginx_tune.report.columns import align
from nginx_tune.report.text import bytes_text, seconds_text

_STATISTICS = ("p50", "p99", "max")


def render_uploads(classes: dict[str, Uploads]) -> str:
    """How long bodies took to be handed over, how much was sent, what became of them."""
    rows = [
        (name, "last byte of the body sent", *(_statistic(one, it) for it in _STATISTICS))
        for name, one in classes.items()
        if one.upload_seconds.count
    ]
    header = ("class", "time to the", *_STATISTICS)
    table = align([header, *rows], right=range(2, len(header))) if rows else ""
    return table + "".join(f"{name}: {_counts(one)}\n" for name, one in classes.items())


def _counts(one: Uploads) -> str:
    said = [f"{one.bodies:,} bodies sent whole", f"{bytes_text(one.bytes_per_second)}/s sent"]
    if one.confirmed:
        said.append(f"{one.confirmed:,} counted whole by the far side")
    if one.early_answers:
        said.append(f"{one.early_answers:,} answered before the body was sent")
    if one.cut_off:
        said.append(f"{one.cut_off:,} cut off inside the body")
    return "; ".join(said)


def _statistic(one: Uploads, statistic: str) -> str:
    reading = read_statistic([sample_of(one)], statistic)
    if reading.seen is None:
        return "–"
    return f"{'≥ ' if reading.is_bound else ''}{seconds_text(reading.seen)}"
