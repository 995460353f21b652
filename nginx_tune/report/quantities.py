"""Metric names and values as text, in units that people use."""

from collections.abc import Callable

from nginx_tune.documents.verdict import MetricVerdict, Unit
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.expression import Expression, parse_expression
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.report.text import (
    amount_text,
    bytes_text,
    number_text,
    one_line,
    percent_text,
    seconds_text,
)

_MANY = 10.0
"""Minimum ratio that is not shown as a percentage."""
_HUGE = 1e9

_TEXT: dict[Unit, Callable[[float], str]] = {
    "seconds": seconds_text,
    "bytes": bytes_text,
    "bytes_per_second": lambda value: f"{bytes_text(value)}/s",
    "per_second": lambda value: f"{number_text(value)}/s",
    "seconds_per_second": lambda value: f"{seconds_text(value)}/s",
    "count": number_text,
    "ratio": lambda value: ratio_text(value) if value >= _MANY else percent_text(value),
}

_LATENCIES = {
    "": "latency",
    "response": "latency",
    "response_seconds": "latency",
    "ttfb": "time to first byte",
    "ttfb_seconds": "time to first byte",
    "service": "service time",
    "service_seconds": "service time",
    "lateness": "lateness",
}
_STATISTICS = {
    "p50": "median",
    "p90": "p90",
    "p99": "p99",
    "p999": "p99.9",
    "mean": "mean",
    "max": "maximum",
    "stdev": "standard deviation of the",
}


def value_text(metric: str, value: float | None) -> str:
    """A value of a metric with its unit: ``1.25 s``, ``80.0 MiB/s``; ``–`` for None."""
    try:
        return unit_text(find_metric(metric).unit, value)
    except UsageError:
        return unit_text(None, value)


def unit_text(unit: Unit | None, value: float | None) -> str:
    """A value with its unit; a bare number if the unit is not known."""
    return "–" if value is None else _TEXT[unit or "count"](value)


def ratio_text(ratio: float | None) -> str:
    """``231×``, ``1.04×``, ``0.0043×``; ``–`` for None."""
    return "–" if ratio is None else f"{_ratio_number(ratio)}×"


def predicted_text(metric: str, value: float, unit: str = "") -> str:
    """A predicted quantity, formatted as a measured one; ``unit``: the unit in the document."""
    if unit:
        return amount_text(value, unit)
    if metric.startswith("ratio("):
        return ratio_text(value)
    name = metric.partition(" ")[0]
    if name.endswith("_ratio") or name == "share":
        return percent_text(value)
    return value_text(name, value)


def interval_text(verdict: MetricVerdict) -> str:
    """``231× [228–240]``, the ratio with its interval, if any."""
    # If both variants' values are bounds, there is no ratio.
    bound = {"candidate": "≥ ", "baseline": "≤ "}.get("".join(verdict.at_least), "")
    if verdict.low is None or verdict.high is None or verdict.ratio is None:
        return (bound if verdict.ratio is not None else "") + ratio_text(verdict.ratio)
    low, high = _ratio_number(verdict.low), _ratio_number(verdict.high)
    return f"{bound}{ratio_text(verdict.ratio)} [{low}–{high}]"


def metric_words(name: str) -> str:
    """A metric in words: ``hot p99 latency``, ``total bytes/s``."""
    head, _, tail = name.partition(".")
    kind, _, statistic = tail.rpartition(".")
    if statistic in _STATISTICS and kind in _LATENCIES:
        words = f"{_STATISTICS[statistic]} {_LATENCIES[kind]}"
    elif tail.endswith("_per_second"):
        words = f"{tail.removesuffix('_per_second')}/s"
    else:
        words = (
            tail.replace("loop_turn_seconds.blocked", "loop_blocked")
            .replace("_seconds", " time")
            .replace(".", " ")
            .replace("_", " ")
        )
    return one_line(f"{head} {words}")


def measured_text(expression: str, value: float | None) -> str:
    """The value of a gate's expression, in the unit of its quantity."""
    if value is None:
        return "not measured"
    try:
        parsed = parse_expression(expression)
    except UsageError:
        return number_text(value)
    if _is_ratio(parsed):
        return ratio_text(value)
    return value_text(parsed.name, value)


def _is_ratio(expression: Expression) -> bool:
    return expression.source in ("ratio", "outcome") or expression.name.startswith("ratio(")


def _ratio_number(ratio: float) -> str:
    if ratio >= _HUGE:
        return f"{ratio:.3g}"
    if ratio >= 100:  # noqa: PLR2004  # three digits say enough
        return f"{ratio:,.0f}"
    if ratio >= 10:  # noqa: PLR2004
        return f"{ratio:.1f}"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"  # noqa: PLR2004
