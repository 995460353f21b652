"""The pages of the metrics that gates name, one file each beside the package's code.

A page is about the metrics of its patterns: ``CLASS`` stands for a class of requests,
``STATISTIC`` for p50, p90, … and ``KIND`` for a kind of failure. Units and directions are no part
of it: ``measure.proof.metrics`` has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.latency import STATISTICS
from nginx_tune.measure.proof.metrics import FAILURE_KINDS, find_metric
from nginx_tune.report.package_pages import read_pages

_STANDS_FOR = {
    "CLASS": r"[^.]+",
    "STATISTIC": "|".join(STATISTICS),
    "KIND": "|".join(FAILURE_KINDS),
}
_WILDCARD = re.compile(r"\b(CLASS|STATISTIC|KIND)\b")
_EXAMPLE = {"CLASS": "hot", "STATISTIC": "p99", "KIND": "reset"}


class MetricPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be known about a metric, or a family of them."""

    metrics: list[str]
    """Patterns."""
    also: list[str] = []
    """Other spellings of them."""
    title: str
    what: str
    measured: str
    """How."""
    traps: list[str]
    gates: list[str]
    """Expressions that use them, for people to copy."""
    sources: list[str]


@cache
def metric_pages() -> dict[str, MetricPage]:
    """Every page by the name of its file."""
    return read_pages("metrics", MetricPage)


def find_metric_page(name: str) -> MetricPage | None:
    """The page about a metric, a pattern of metrics, or what a statistic is taken of."""
    for pattern, page in _patterns():
        if name in {pattern, pattern.removesuffix(".STATISTIC").removesuffix(".KIND")}:
            return page
    try:
        find_metric(name)
    except UsageError:
        return None
    return next(
        (page for pattern, page in _patterns() if _expression(pattern).fullmatch(name)), None
    )


def example_of(pattern: str) -> str:
    """A metric that a pattern stands for."""
    return _WILDCARD.sub(lambda match: _EXAMPLE[match[1]], pattern)


def _patterns() -> Iterator[tuple[str, MetricPage]]:
    for page in metric_pages().values():
        for pattern in (*page.metrics, *page.also):
            yield pattern, page


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = _WILDCARD.split(pattern)
    text = [
        f"(?P<{part}>{_STANDS_FOR[part]})" if index % 2 else re.escape(part)
        for index, part in enumerate(parts)
    ]
    return re.compile("".join(text))
