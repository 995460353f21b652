"""Objectives: what one run must show, and what was in the way when it does not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nginx_tune.documents.capacity import CapacityStep, LimitedBy
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.expression import COMPARE, Expression, parse_expression
from nginx_tune.measure.proof.gates import check_expressions
from nginx_tune.measure.proof.latency import FEWEST_BEYOND, QUANTILES
from nginx_tune.measure.proof.metrics import find_metric

_SLOW_PROBE_FLAGS = ("generator_cpu", "lateness", "throttled", "steal")
"""First words of the flags that say that a latency may be the probe's, or its host's, own."""

_EXHAUSTED_PROBE_FLAGS = ("local_ports", "descriptors")
"""First words of the flags that say that requests failed for want of something of the probe's."""

_NOT_OFFERED_FLAGS = ("not_sent", "stopped", "aborted", "interrupted")
"""First words of the flags that say that the rate was not offered to its end."""

_LEADING_NAME = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_]*\s*[<>=!]")
"""A metric that names no class."""
_ANY_CLASS = "request"


@dataclass(frozen=True)
class Objectives:
    """Expressions about one run that must all hold, without a failed request."""

    texts: tuple[str, ...]
    expressions: tuple[Expression, ...]

    @property
    def samples(self) -> int:
        """Requests that the rarest of its quantiles needs to be measured, with some to spare."""
        shares = [
            QUANTILES[statistic]
            for expression in self.expressions
            if (statistic := expression.name.rpartition(".")[2]) in QUANTILES
        ]
        return math.ceil(1.3 * FEWEST_BEYOND / (1 - max(shares))) if shares else 0


def parse_objective(texts: Sequence[str], classes: Iterable[str]) -> Objectives:
    """The objective in some expressions; ``p99 <= 50ms`` without a class is meant of each.

    Errors: UsageError for an expression that cannot be read, names an unknown metric, compares
            runs or asks for what is worse.
    """
    names = list(classes)
    full = [
        f"{name}.{text.strip()}" if _LEADING_NAME.match(text) else text
        for text in texts
        for name in (names if _LEADING_NAME.match(text) else names[:1])
    ]
    expressions = tuple(_check_objective(text, names) for text in full)
    return Objectives(tuple(text.strip() for text in texts), expressions)


def _check_objective(text: str, classes: Sequence[str] | None) -> Expression:
    check_expressions([text], classes)
    expression = parse_expression(text)
    if expression.source != "candidate":
        raise UsageError(
            f"'{expression.text}' is no objective of one run",
            hint="for example 'p99 <= 50ms' or 'hot.p99 <= 50ms'",
        )
    is_less_better = find_metric(expression.name, classes).better_when == "lower"
    if is_less_better and expression.operator in (">", ">="):
        turned = expression.operator.replace(">", "<")
        raise UsageError(
            f"'{expression.text.strip()}' is met by a server that is slow or fails",
            hint=f"an objective bounds it from above: {turned}",
        )
    return expression


def check_objectives(texts: Iterable[str]) -> None:
    """Nothing, when each can be an objective of some class of requests.

    Errors: UsageError, as ``parse_objective``.
    """
    for text in texts:
        if not _LEADING_NAME.match(text):
            _check_objective(text, None)
            continue
        try:
            _check_objective(f"{_ANY_CLASS}.{text.strip()}", None)
        except UsageError as error:  # in the words that were written
            message, hint = (
                one.replace(f"{_ANY_CLASS}.", "") for one in (error.message, error.hint or "")
            )
            raise UsageError(message, hint=hint) from None


def parse_allowed_seconds(text: str) -> float:
    """The time in an objective such as ``p99 <= 50ms``: what a request may take.

    Errors: UsageError for an expression that cannot be read or is no upper bound of a time.
    """
    full = f"{_ANY_CLASS}.{text.strip()}" if _LEADING_NAME.match(text) else text
    check_expressions([full], [_ANY_CLASS])
    expression = parse_expression(full)
    upper = expression.source == "candidate" and expression.operator in ("<", "<=")
    if not upper or find_metric(expression.name).unit != "seconds" or not expression.limit:
        raise UsageError(
            f"'{text.strip()}' does not say what a request may take",
            hint="for example 'p99 <= 50ms'",
        )
    return expression.limit


def judge_run(objective: Objectives, run: Measurement, rate_per_second: float) -> CapacityStep:
    """What a run at a rate says of it."""
    measured: dict[str, float | None] = {}
    limit: LimitedBy | None = None
    reasons = []
    for expression in objective.expressions:
        metric = find_metric(expression.name, list(run.classes))
        reading = metric.read([run])
        measured[expression.name] = reading.value
        if reading.value is None:
            # A quantile among requests that never finished is a miss, not a lack of samples.
            cut_off = any(part.censored for part in run.classes.values())
            few = reading.at_least is None and not cut_off
            limit = limit or ("samples" if few else "objective")
            reasons.append(reading.reason)
        elif not COMPARE[expression.operator](reading.value, expression.limit):
            limit = "connections" if _waits_alone(expression, run) else "objective"
            reasons.append(f"{expression.text.strip()} is not met: {reading.value:.4g}")
    failed = _failures(run)
    if limit in (None, "samples") and failed:
        limit = "failures"
    if failed:
        reasons.append(failed)
    flagged = [flag for flag in run.flags if flag.split(":")[0] in _NOT_OFFERED_FLAGS]
    if limit is None and flagged:
        limit = "probe"
        reasons.append(flagged[0])
    # Latency that may be the probe's own says nothing against the server; a reply of 503 does.
    words = _EXHAUSTED_PROBE_FLAGS + (() if limit == "failures" else _SLOW_PROBE_FLAGS)
    doubts = [flag for flag in run.flags if flag.split(":")[0] in words]
    if limit is not None and doubts:
        limit = "probe"
        reasons.insert(0, doubts[0])
    return CapacityStep(
        rate_per_second=rate_per_second,
        met=limit is None,
        limited_by=limit,
        measured=measured,
        reason="; ".join(reasons),
        flags=list(run.flags),
        good_requests=sum(part.requests for part in run.classes.values()),
    )


def _waits_alone(expression: Expression, run: Measurement) -> bool:
    """Whether a latency is missed only by waiting for one of the probe's connections.

    From the send the same statistic would hold.
    """
    name, _, statistic = expression.name.rpartition(".")
    name = name.removesuffix(".response_seconds").removesuffix(".response")
    part = run.classes.get(name)
    if part is None or not part.at_cap:
        return False
    try:
        reading = find_metric(f"{name}.service.{statistic}", list(run.classes)).read([run])
    except UsageError:
        return False
    if reading.value is None:
        return False
    return COMPARE[expression.operator](reading.value, expression.limit)


def _failures(run: Measurement) -> str:
    failed = {
        name: f"{name}: {sum(part.errors.values()):,} failed{_kinds(part)}, "
        f"{part.censored:,} unanswered"
        + (f", {part.limited:,} refused by a limit of the configuration" if part.limited else "")
        for name, part in run.classes.items()
        if part.errors or part.censored or part.limited
    }
    return "; ".join(failed.values())


def _kinds(part: ClassMeasurement) -> str:
    """How they failed, the most frequent first; by which status where none was right."""
    statuses = "" if part.requests else f" {' '.join(part.statuses)}"
    kinds = [
        f"status{statuses}".strip() if kind == "status" else kind.replace("_", " ")
        for kind, _ in sorted(part.errors.items(), key=lambda one: -one[1])
    ]
    return f" ({', '.join(kinds)})" if kinds else ""
