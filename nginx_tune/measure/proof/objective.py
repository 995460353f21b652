"""Objectives and gates of a single run, and the search for the highest rate that meets them.

Gates are written as ``p99 <= 50ms``, ``hot.errors == 0``.

The search: the rate doubles (or halves) until one rate holds and another does not; then the gap is
bisected geometrically down to the precision; then the rate that held is tried again. If no request
at all succeeded, the lowest rate comes next.

A run is a sample. So a rate fails only if two of at most three runs fail, and the answer must have
held twice. A rate that fails its confirmation becomes the new upper end.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import CapacityStep, LimitedBy, Measurement
from nginx_tune.documents.units import plural
from nginx_tune.documents.verdict import GateResult
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.expression import COMPARE, Expression, parse_expression
from nginx_tune.measure.proof.gates import answer_expression, check_expressions
from nginx_tune.measure.proof.latency import FEWEST_BEYOND, QUANTILES
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.measure.proof.runs import Pair, PairedRuns

_SLOW_PROBE_FLAGS = ("generator_cpu", "lateness", "throttled", "steal")
"""First words of the flags for latency that may come from the probe or its host."""

_EXHAUSTED_PROBE_FLAGS = ("local_ports", "descriptors")
"""First words of the flags for requests that failed because the probe lacked a resource."""

_NOT_OFFERED_FLAGS = ("not_sent", "stopped", "aborted", "interrupted")
"""First words of the flags of a run in which the probe did not offer the rate throughout."""

_LEADING_NAME = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_]*\s*[<>=!]")
"""A metric without a class."""
_ANY_CLASS = "request"
_EXAMPLE = "for example 'p99 <= 50ms' or 'hot.p99 <= 50ms'"


@dataclass(frozen=True)
class Objectives:
    """Expressions that a run must all meet, without a failed request."""

    texts: tuple[str, ...]
    expressions: tuple[Expression, ...]

    @property
    def samples(self) -> int:
        """The number of requests that the rarest quantile needs, with 30 % to spare."""
        shares = [
            QUANTILES[statistic]
            for expression in self.expressions
            if (statistic := expression.name.rpartition(".")[2]) in QUANTILES
        ]
        return math.ceil(1.3 * FEWEST_BEYOND / (1 - max(shares))) if shares else 0


def parse_objective(texts: Sequence[str], classes: Iterable[str]) -> Objectives:
    """The objective that the expressions state.

    An expression without a class, such as ``p99 <= 50ms``, applies to every class.
    Errors: UsageError for an expression that cannot be read, names an unknown metric, compares
            variants, or bounds a metric from its worse side.
    """
    names = list(classes)
    for text in texts:
        _read_objective(text)
    full = [
        f"{name}.{text.strip()}" if _LEADING_NAME.match(text) else text
        for text in texts
        for name in (names if _LEADING_NAME.match(text) else names[:1])
    ]
    expressions = tuple(_check_objective(text, names) for text in full)
    return Objectives(tuple(text.strip() for text in texts), expressions)


def _read_objective(text: str) -> Expression:
    """The expression as it was written, with or without a class.

    Errors: UsageError.
    """
    try:
        expression = parse_expression(text)
    except UsageError as error:
        raise UsageError(error.message, hint=_EXAMPLE) from None
    if expression.source != "candidate":
        raise UsageError(
            f"'{expression.text}' cannot be an objective of a single run", hint=_EXAMPLE
        )
    return expression


def _check_objective(text: str, classes: Sequence[str] | None) -> Expression:
    check_expressions([text], classes)
    expression = _read_objective(text)
    is_less_better = find_metric(expression.name, classes).better_when == "lower"
    if is_less_better and expression.operator in (">", ">="):
        turned = expression.operator.replace(">", "<")
        raise UsageError(
            f"'{expression.text.strip()}' is met by a slow or failing server",
            hint=f"give an upper bound: {turned}",
        )
    return expression


def check_objectives(texts: Iterable[str]) -> None:
    """Check that each text can be an objective of some class.

    Errors: UsageError, as for ``parse_objective``.
    """
    for text in texts:
        _read_objective(text)
        if not _LEADING_NAME.match(text):
            _check_objective(text, None)
            continue
        try:
            _check_objective(f"{_ANY_CLASS}.{text.strip()}", None)
        except UsageError as error:  # without the class that the user did not write
            message, hint = (
                text.replace(f"{_ANY_CLASS}.", "") for text in (error.message, error.hint or "")
            )
            raise UsageError(message, hint=hint) from None


def parse_allowed_seconds(text: str) -> float:
    """The time limit in an objective such as ``p99 <= 50ms``.

    Errors: UsageError for an expression that cannot be read or is not an upper bound on a time.
    """
    _read_objective(text)
    full = f"{_ANY_CLASS}.{text.strip()}" if _LEADING_NAME.match(text) else text
    check_expressions([full], [_ANY_CLASS])
    expression = parse_expression(full)
    upper = expression.source == "candidate" and expression.operator in ("<", "<=")
    if not upper or find_metric(expression.name).unit != "seconds" or not expression.limit:
        raise UsageError(f"'{text.strip()}' is not an upper bound on a time", hint=_EXAMPLE)
    return expression.limit


def judge_run(objective: Objectives, run: Measurement, rate_per_second: float) -> CapacityStep:
    """Judge a run at a rate, as a step of a search."""
    measured: dict[str, float | None] = {}
    limit: LimitedBy | None = None
    reasons = []
    for expression in objective.expressions:
        metric = find_metric(expression.name, list(run.classes))
        reading = metric.read([run])
        measured[expression.name] = reading.value
        if reading.value is None:
            # A quantile among unfinished requests is a miss, not a lack of samples.
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
    # Latency may come from a busy probe; a failed request, such as a 503, does not.
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
    """True if the objective is missed only because arrivals waited for a probe connection.

    The same statistic, measured from the moment of sending, would meet the objective.
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
    """The kinds of failures, the most frequent first, with the statuses if no answer was good."""
    statuses = "" if part.requests else f" {' '.join(part.statuses)}"
    kinds = [
        f"status{statuses}".strip() if kind == "status" else kind.replace("_", " ")
        for kind, _ in Counter(part.errors).most_common()
    ]
    return f" ({', '.join(kinds)})" if kinds else ""


def check_run_gates(requires: Sequence[str], classes: Iterable[str]) -> None:
    """Check before a run that each gate can be read.

    Errors: UsageError.
    """
    if requires:
        parse_objective(requires, classes)


def judge_run_gates(requires: Sequence[str], run: Measurement) -> list[GateResult]:
    """The result of each gate; a gate without a class applies to every class.

    A quantity that was not measured has no value and does not pass.
    Errors: UsageError.
    """
    if not requires:
        return []
    classes = list(run.classes)
    alone = PairedRuns((Pair(0, run, run),))
    degraded = ", ".join(flag.partition(":")[0] for flag in run.flags)
    results = []
    for expression in parse_objective(requires, classes).expressions:
        answer = answer_expression(expression, alone, None, classes)
        why = (answer.reason, degraded and f"degraded by {degraded}")
        results.append(
            GateResult(
                expression=expression.text.strip(),
                measured=answer.measured,
                passed=answer.passed,
                reason="; ".join(part for part in why if part),
            )
        )
    return results


MAJORITY = 2
"""The number of runs, out of at most three, that decide on a rate."""

INTERRUPTED: LimitedBy = "interrupted"

SERVER_LIMITS: tuple[LimitedBy, ...] = ("objective", "failures")
"""Limits that lie in the server, so that a missed rate is an upper bound of its capacity."""


class Bounds(NamedTuple):
    """The range of a search, in requests per second."""

    first: float
    lowest: float
    highest: float
    precision_ratio: float = 0.05
    """Distance at which the search ends, between the highest rate that held and the lowest that
    failed."""
    most_steps: int = 40


class SearchOutcome(NamedTuple):
    """The outcome of a search."""

    capacity_per_second: float | None
    at_least_per_second: float | None
    missed_per_second: float | None
    limited_by: LimitedBy | None
    reason: str


class _Bracket(NamedTuple):
    held: float | None
    """The highest rate below ``missed`` that held at least once."""
    missed: float | None
    """The lowest rate that failed twice."""
    open_rate: float | None
    """The lowest undecided rate, to be tried again."""


def next_rate(steps: Sequence[CapacityStep], bounds: Bounds) -> float | None:
    """The rate to try next; None when the search is over."""
    if len(steps) >= bounds.most_steps:
        return None
    if not steps:
        return min(max(bounds.first, bounds.lowest), bounds.highest)
    bracket = _bracket(steps)
    if bracket.open_rate is not None:
        return bracket.open_rate
    if bracket.held is None:
        assert bracket.missed is not None  # noqa: S101  # each step is one or the other
        lower = max(bracket.missed / 2, bounds.lowest)
        if not _any_good(steps):
            lower = bounds.lowest  # most likely nothing is served at any rate
        return lower if lower < bracket.missed else None
    if bracket.missed is None and bracket.held < bounds.highest:
        return min(bracket.held * 2, bounds.highest)
    if bracket.missed is not None and bracket.missed > bracket.held * (1 + bounds.precision_ratio):
        return math.sqrt(bracket.held * bracket.missed)
    return bracket.held if _held(steps, bracket.held) < MAJORITY else None


def settle(steps: Sequence[CapacityStep], bounds: Bounds) -> SearchOutcome:
    """The outcome of a search that is over.

    A capacity is known only if the server is the limit. If the probe, its connections or a bound
    was the limit, the outcome is a rate that held.
    """
    bracket = _bracket(steps)
    held = bracket.held
    if held is not None and _held(steps, held) < MAJORITY:
        return SearchOutcome(
            None,
            None,
            bracket.missed,
            "steps",
            f"no rate held twice in {plural(len(steps), 'run')}",
        )
    if bracket.missed is None:
        reason = f"it holds at {_rate(bounds.highest)}, the highest rate allowed"
        return SearchOutcome(None, held, None, "bound", reason)
    limit = _limit(steps, bracket.missed)
    why = next(
        step.reason for step in steps
        if step.rate_per_second == bracket.missed and step.limited_by == limit
    )  # fmt: skip
    if held is None:
        lowest = f"it does not hold even at {_rate(bracket.missed)}: {why}"
        return SearchOutcome(None, None, bracket.missed, limit, lowest)
    if limit not in SERVER_LIMITS:
        reason = f"the limit at {_rate(bracket.missed)} is not the server: {why}"
        return SearchOutcome(None, held, bracket.missed, limit, reason)
    if bracket.missed > held * (1 + bounds.precision_ratio):
        reason = f"not narrowed down further in {plural(len(steps), 'run')}: {why}"
        return SearchOutcome(None, held, bracket.missed, "steps", reason)
    return SearchOutcome(held, held, bracket.missed, limit, f"at {_rate(bracket.missed)}: {why}")


def so_far(steps: Sequence[CapacityStep]) -> SearchOutcome:
    """The outcome of an interrupted search: the rates that held and failed, but no capacity."""
    bracket = _bracket(steps) if steps else _Bracket(None, None, None)
    reason = f"interrupted after {plural(len(steps), 'run')}"
    return SearchOutcome(None, bracket.held, bracket.missed, INTERRUPTED, reason)


def _bracket(steps: Sequence[CapacityStep]) -> _Bracket:
    met = Counter(step.rate_per_second for step in steps if step.met)
    bad = Counter(step.rate_per_second for step in steps if not step.met)
    missed = min((rate for rate, count in bad.items() if count >= MAJORITY), default=None)
    below = {rate for rate in met.keys() | bad.keys() if missed is None or rate < missed}
    undecided = [
        rate for rate in below if bad[rate] and bad[rate] < MAJORITY and met[rate] < MAJORITY
    ]
    held = max((rate for rate in below if met[rate] and rate not in undecided), default=None)
    return _Bracket(held, missed, min(undecided, default=None))


def _any_good(steps: Sequence[CapacityStep]) -> bool:
    return any(step.good_requests != 0 for step in steps)


def _held(steps: Sequence[CapacityStep], rate: float) -> int:
    return sum(step.met for step in steps if step.rate_per_second == rate)


def _limit(steps: Sequence[CapacityStep], rate: float) -> LimitedBy:
    """The most frequent limit of the failed runs at a rate; in a tie, the later limit."""
    limits = [s.limited_by for s in steps if s.rate_per_second == rate and s.limited_by is not None]
    counts = Counter(limits)
    return max(reversed(limits), key=lambda limit: counts[limit])


def _rate(value: float) -> str:
    return f"{value:,.0f}/s" if value >= 10 else f"{value:.3g}/s"  # noqa: PLR2004
