"""Latencies by powers of two, for people: a bar and a count for each bucket."""

from __future__ import annotations

from nginx_tune.documents.histogram import Histograms, LatencyHistogram
from nginx_tune.report.markup import markdown_table, markdown_text
from nginx_tune.report.quantities import one_line
from nginx_tune.report.text import align, seconds_text

_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
_CELLS = 50
"""Of the longest bar: as long as the source's."""
_HEAD = ("from", "below", "", "count")


def render_histograms(histograms: Histograms) -> str:
    """Each with its figures and buckets; the longest bar is the fullest bucket's."""
    return "\n".join(_text(one) for one in histograms.histograms)


def render_histograms_markdown(histograms: Histograms) -> str:
    """The same as tables in Markdown."""
    return "\n".join(_markdown(one) for one in histograms.histograms)


def _text(one: LatencyHistogram) -> str:
    head = f"{_title(one)}\n"
    if not one.count:
        return head + "  no samples\n"
    most = max((bucket.count for bucket in one.buckets), default=0)
    rows = [
        (
            seconds_text(bucket.from_seconds) if bucket.from_seconds else "0",
            seconds_text(bucket.below_seconds),
            f"|{bar(bucket.count, most).ljust(_CELLS)}|",
            f"{bucket.count:,}",
        )
        for bucket in one.buckets
    ]
    table = align([_HEAD, *rows], right=(0, 1, 3), indent=2) if rows else ""
    return head + align([_NAMES, _figures(one)], right=range(6), indent=2) + table + _notes(one)


def _markdown(one: LatencyHistogram) -> str:
    parts = [f"### {markdown_text(_title(one))}\n"]
    if not one.count:
        return f"{parts[0]}\nno samples\n"
    most = max((bucket.count for bucket in one.buckets), default=0)
    rows = [
        (
            seconds_text(bucket.from_seconds) if bucket.from_seconds else "0",
            seconds_text(bucket.below_seconds),
            bar(bucket.count, most),
            f"{bucket.count:,}",
        )
        for bucket in one.buckets
    ]
    parts.append(markdown_table([_NAMES, _figures(one)], right=range(6)))
    if rows:
        parts.append(markdown_table([_HEAD, *rows], right=(0, 1, 3)))
    if notes := _notes(one):
        parts.append(notes.strip() + "\n")
    return "\n".join(parts)


def bar(count: int, most: int, cells: int = _CELLS) -> str:
    """A bar as long as its share of ``most``, to an eighth of a cell; any count at all shows."""
    if not count or not most:
        return ""
    whole, eighths = divmod(max(count * cells * 8 // most, 1), 8)
    return _FULL * whole + (_EIGHTHS[eighths] if eighths else "")


_NAMES = ("min", "mean", "median", "max", "stdev", "count")


def _figures(one: LatencyHistogram) -> tuple[str, ...]:
    values = {
        "min": one.min_seconds,
        "mean": one.mean_seconds,
        "median": one.median_seconds,
        "max": one.max_seconds,
        "stdev": one.stdev_seconds,
    }
    cells = [
        "–"
        if value is None
        else ("≥ " if name in one.at_least else "") + (seconds_text(value) if value else "0")
        for name, value in values.items()
    ]
    return (*cells, f"{one.count:,}")


def _title(one: LatencyHistogram) -> str:
    said = one_line(one.latency)
    if one.arm:
        said += f", {one_line(one.arm)}"
    if one.arm and one.blocks:
        said += f", {one.blocks} block" + ("" if one.blocks == 1 else "s")
    if one.left_out:
        said += f" ({one.left_out} more that the run discarded left out)"
    return said


def _notes(one: LatencyHistogram) -> str:
    if not one.censored:
        return ""
    return f"  {one.censored:,} never finished or failed by time: they stand here at their age\n"
