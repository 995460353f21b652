"""Merged histogram logs for people: what each tag holds."""

from __future__ import annotations

from collections.abc import Mapping

from nginx_tune.measure.proof.histogram import Histogram
from nginx_tune.report.quantities import one_line
from nginx_tune.report.text import align, seconds_text

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
_NANOSECONDS = 1e9


def render_histogram_totals(totals: Mapping[str, Histogram]) -> str:
    """A line per tag: how many values and their quantiles, taken for nanoseconds."""
    header = ("tag", "count", *_QUANTILES)
    rows = [
        (
            one_line(tag) or "(none)",
            f"{total.total:,}",
            *(seconds_text((total.value_at(q) or 0) / _NANOSECONDS) for q in _QUANTILES.values()),
        )
        for tag, total in totals.items()
    ]
    return align([header, *rows], right=range(1, len(header)))
