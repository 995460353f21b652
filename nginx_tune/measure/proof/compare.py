"""The comparison of a window before a change with one after it, with an optional control.

The difference contains everything that changed in between, above all traffic. So the request rate
is compared first. Without a control, an outcome is given only where traffic cannot explain it:
traffic stayed the same, or moved against the outcome (better under more requests, worse under
fewer). A control is an unchanged server watched at the same times; every ratio is divided by the
control's (difference in differences).

Counters of harm are too rare to resample. A counter that must stay at zero is worse once it is
above zero. Other counters are worse if they at least double per request (per second if requests
are unknown) and clearly exceed chance, since failures come in clumps. With more traffic, or the
same rise in the control, that is left undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.run import RunComparison
from nginx_tune.documents.units import percent_text
from nginx_tune.documents.verdict import ComparedMetric, Comparison, Outcome
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.measure.proof.by_seconds import (
    SERVER,
    TRAFFIC,
    ComparedWindow,
    read_window,
    unit_and_side,
    weight_of,
)
from nginx_tune.measure.proof.comparison import CUT_OFF, MARGIN, stands
from nginx_tune.measure.proof.statistics import (
    ALPHA,
    FEWEST_SECONDS,
    Series,
    percentile_interval,
    resample,
)

SAME_TRAFFIC = 1.25
"""The factor within which the interval of a rate ratio counts as the same traffic."""
_PRIMARIES = (
    "server.loop_turn_seconds.blocked_seconds",
    "server.block_io_delay_seconds",
    "server.state_d_ratio",
)
_NO_CONTROL = "without a control, the ratios include everything else that changed in between"
Comparable = Observation | Measurement


class Windows(NamedTuple):
    """The windows of one comparison."""

    before: ComparedWindow
    after: ComparedWindow
    control: tuple[ComparedWindow, ComparedWindow] | None = None


def compare(
    before: Comparable,
    after: Comparable,
    control: tuple[Comparable, Comparable] | None = None,
    *,
    primary_metric: str | None = None,
) -> Comparison:
    """The comparison of two documents of one kind.

    Errors: UsageError for a primary metric that one of them lacks.
    """
    windows = Windows(
        read_window(before),
        read_window(after),
        (read_window(control[0]), read_window(control[1])) if control else None,
    )
    names = _common(windows)
    primary = _primary(primary_metric, names, windows)
    flags = [flag for window in _all(windows) for flag in window.flags]
    traffic = _compare_series(TRAFFIC, windows, tests=1) if TRAFFIC in names else None
    judged = []
    for name in [primary, *(name for name in names if name != primary)]:
        tests = 1 if name == primary else max(1, len(names) - 1)
        metric = _compare_series(name, windows, tests=tests)
        judged.append(metric if name == TRAFFIC else _with_traffic(metric, traffic, windows))
    more_traffic = _is_more(traffic, windows)
    counts = [
        judge_count(name, *windows, more_traffic=more_traffic)
        for name in windows.before.totals
        if name in windows.after.totals
    ]
    totals = [count.metric for count in counts]
    outcome, reason = judged[0].outcome, judged[0].reason
    worse = next((total for total in totals if total.outcome == "worse"), None)
    doubt = _doubt(counts, windows)
    if flags:
        outcome, reason = "invalid", flags[0]
    elif worse is not None:
        outcome, reason = "worse", f"{worse.name}: {worse.reason}"
    elif doubt and outcome in ("better", "no_difference"):
        outcome, reason = "inconclusive", doubt
    return Comparison(
        outcome=outcome,
        primary_metric=primary,
        reason=reason,
        controlled=control is not None,
        traffic_ratio=traffic.ratio if traffic else None,
        metrics=[*judged, *totals],
        warnings=_warnings(windows, traffic),
    )


def comparison_status(
    comparison: Comparison | RunComparison, *, accept_inconclusive: bool = False
) -> ExitStatus:
    """The exit status of a comparison of windows or of kept runs, by the rules for verdicts."""
    if comparison.outcome == "worse":
        return ExitStatus.FOUND
    if comparison.outcome == "invalid":
        return ExitStatus.UNDECIDED
    if comparison.outcome == "inconclusive" and not accept_inconclusive:
        return ExitStatus.UNDECIDED
    return ExitStatus.OK


def _all(windows: Windows) -> list[ComparedWindow]:
    return [windows.before, windows.after, *(windows.control or ())]


def _common(windows: Windows) -> list[str]:
    """Metrics that every window has, in the order of the first."""
    others = _all(windows)[1:]
    return [name for name in windows.before.series if all(name in w.series for w in others)]


def _doubt(counts: Sequence[JudgedCount], windows: Windows) -> str:
    """The reason not to call the overall result better or the same; empty if there is none."""
    doubts = [f"{count.metric.name}: {count.metric.reason}" for count in counts if count.is_doubt]
    if new := new_causes(*windows):
        doubts.append(f"found only after the change: {', '.join(new)}")
    return "; ".join(doubts)


def _is_more(traffic: ComparedMetric | None, windows: Windows) -> bool:
    """True if the request rate clearly rose, and the probe did not make the load."""
    if windows.before.is_loaded or traffic is None or traffic.ratio is None:
        return False
    return (traffic.high or traffic.ratio) > SAME_TRAFFIC and (traffic.low or traffic.ratio) > 1


def _primary(requested: str | None, names: list[str], windows: Windows) -> str:
    if requested is not None:
        if requested in names:
            return requested
        raise UsageError(
            f"'{requested[:80]}' is not in all files",
            hint=f"all of them have {', '.join(names) or 'no series in common'}",
        )
    classes = [name for name in names if name.endswith(".p99") and name not in SERVER]
    preferred = [*classes, *_PRIMARIES] if windows.before.is_loaded else [*_PRIMARIES, *names]
    primary = next((name for name in preferred if name in names), None)
    if primary is None:
        raise UsageError(
            "the files have no series of seconds in common",
            hint="observe both times the same way, for at least 20 s",
        )
    return primary


def _warnings(windows: Windows, traffic: ComparedMetric | None) -> list[str]:
    warnings = []
    if lacking := only_in_one(windows.before, windows.after):
        warnings.append(
            f"counted in only one of the windows, so not compared: {', '.join(lacking)}"
        )
    if windows.control is None and not windows.before.is_loaded:
        warnings.append(_NO_CONTROL)
        if traffic is None:
            warnings.append(
                "the request rate is unknown (no stub_status), so the effects of traffic and of "
                "the configuration cannot be distinguished"
            )
        elif traffic.low is None or traffic.high is None:
            warnings.append(f"the request rate cannot be compared: {traffic.reason}")
        elif not _is_same(traffic):
            change = f"{traffic.ratio or 0:.3g}× [{traffic.low:.3g}–{traffic.high:.3g}]"
            changed = "changed" if traffic.low > 1 or traffic.high < 1 else "may have changed"
            warnings.append(f"traffic {changed}: {change} the requests per second")
    return warnings


def _is_same(traffic: ComparedMetric) -> bool:
    low, high = traffic.low, traffic.high
    return low is not None and high is not None and low >= 1 / SAME_TRAFFIC and high <= SAME_TRAFFIC


def _with_traffic(
    metric: ComparedMetric, traffic: ComparedMetric | None, windows: Windows
) -> ComparedMetric:
    """The metric; it is undecided if a change of traffic may explain its outcome."""
    settled = metric.outcome in ("better", "worse", "no_difference")
    if not settled or windows.control is not None or windows.before.is_loaded:
        return metric
    if traffic is not None and _is_same(traffic):
        return metric
    if traffic is None or traffic.low is None or traffic.high is None:
        return _undecided(metric, "the request rate is unknown, and traffic may be the reason")
    against = (metric.outcome == "better" and traffic.low >= 1) or (
        metric.outcome == "worse" and traffic.high <= 1
    )
    if against:
        return metric
    return _undecided(metric, "traffic changed, and may be the reason; give a --control")


def _undecided(metric: ComparedMetric, reason: str) -> ComparedMetric:
    return replace(metric, outcome="inconclusive", reason=reason)


def _compare_series(name: str, windows: Windows, *, tests: int) -> ComparedMetric:
    """Judge one metric by the interval of its ratio, or of its difference if a value is 0."""
    unit, direction = unit_and_side(name)
    series = [window.series[name] for window in _all(windows)]
    values = [one.value for one in series]
    pairs = zip(series, _all(windows), strict=True)
    shortest = min(_whole_seconds(series, window) for series, window in pairs)
    draft = ComparedMetric(
        name=name,
        unit=unit,
        before=values[0],
        after=values[1],
        control_ratio=_quotient(values[3], values[2]) if windows.control else None,
        seconds=shortest,
        better_when=direction,
        outcome="inconclusive",
    )
    ratio = _quotient(values[1], values[0])
    if windows.control:
        ratio = _quotient(ratio, draft.control_ratio)
    draft = replace(draft, ratio=ratio)
    if shortest < FEWEST_SECONDS:
        return _undecided(draft, f"{shortest} seconds; at least {FEWEST_SECONDS} are needed")
    if all(value == 0 for value in values):
        return replace(draft, outcome="no_difference", reason="none in any window")
    samples = [resample(one, f"{name} {index}") for index, one in enumerate(series)]
    alpha = ALPHA / tests
    if ratio is None:
        return _judge_difference(draft, samples, alpha)
    ratios = [_ratio_of(*drawn) for drawn in zip(*samples, strict=True)]
    interval = percentile_interval(ratios, alpha)
    if interval is None:
        return _undecided(draft, "no ratio: zero in too many seconds")
    low, high = interval
    outcome, reason = _outcome(ratio, low, high, direction)
    bounded = [name in window.bounded for window in _all(windows)]
    # The control's ratio divides: its "after" shrinks the result, its "before" raises it.
    can_grow, can_shrink = any(bounded[1:3]), bounded[0] or any(bounded[3:])
    if not stands(outcome, direction, can_grow=can_grow, can_shrink=can_shrink):
        outcome, reason = "inconclusive", CUT_OFF
    return replace(
        draft, low=low, high=high, level=1 - alpha, method="block_bootstrap", outcome=outcome,
        reason=reason,
    )  # fmt: skip


def _judge_difference(
    draft: ComparedMetric, samples: list[list[float]], alpha: float
) -> ComparedMetric:
    """Judge a metric that is zero in one of the windows by its difference."""
    differences = [
        after - before - (drawn[1] - drawn[0] if drawn else 0.0)
        for before, after, *drawn in zip(*samples, strict=True)
    ]
    interval = percentile_interval(differences, alpha)
    if interval is None or interval[0] <= 0 <= interval[1]:
        return _undecided(draft, "no ratio: zero in a window; the difference may be chance")
    outcome = _direction(interval[0] > 0, draft.better_when)
    return replace(
        draft, outcome=outcome, method="block_bootstrap", level=1 - alpha,
        reason="no ratio: zero in a window",
    )  # fmt: skip


def _outcome(ratio: float, low: float, high: float, direction: str) -> tuple[Outcome, str]:
    edge = 1 + MARGIN
    if 1 / edge < low and high < edge:
        return "no_difference", ""
    if low <= 1 <= high:
        return "inconclusive", "the interval includes 1"
    if 1 / edge <= ratio <= edge:
        return "inconclusive", f"below the smallest effect that matters, {percent_text(MARGIN)}"
    return _direction(ratio > 1, direction), ""


def _direction(grew: bool, direction: str) -> Outcome:
    return "better" if grew is (direction == "higher") else "worse"


def _whole_seconds(series: Series, window: ComparedWindow) -> int:
    """The seconds of a series; an unfinished last second is a separate point."""
    points = len(series)
    return round(window.seconds) if points == math.ceil(window.seconds) else points


def _quotient(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below or above == 0 else above / below


def _ratio_of(before: float, after: float, *control: float) -> float:
    change = after / before if before > 0 else math.nan
    if not control:
        return change
    drift = control[1] / control[0] if control[0] > 0 else math.nan
    return change / drift if drift > 0 else math.nan


_FEWEST = 5
_TIMES = 2.0
_CHANCE = 0.01


class JudgedCount(NamedTuple):
    """A counter of harm with its outcome."""

    metric: ComparedMetric
    is_doubt: bool
    """True if the metric may be worse; the whole is then not called better or the same."""


def judge_count(
    name: str,
    before: ComparedWindow,
    after: ComparedWindow,
    control: tuple[ComparedWindow, ComparedWindow] | None,
    *,
    more_traffic: bool,
) -> JudgedCount:
    """Judge a counter of harm that both windows have."""
    outcome, reason, is_doubt = _outcome_of_count(name, before, after)
    if outcome == "worse" and control is not None and _grew(name, *control):
        outcome, reason, is_doubt = "inconclusive", f"{reason}; it rose in the control too", True
    elif outcome == "worse" and more_traffic and weight_of(name) != "never":
        reason += ", under more traffic, which may be the reason"
        outcome, is_doubt = "inconclusive", True
    old, new = before.totals[name], after.totals[name]
    metric = ComparedMetric(
        name=name,
        unit="count",
        before=old,
        after=new,
        ratio=new / old if old and new else None,
        method="counts",
        seconds=math.floor(min(before.seconds, after.seconds)),
        outcome=outcome,
        reason=reason,
    )
    return JudgedCount(metric, is_doubt)


def _outcome_of_count(
    name: str, before: ComparedWindow, after: ComparedWindow
) -> tuple[Outcome, str, bool]:
    old, new = before.totals[name], after.totals[name]
    if old == new == 0:
        return "no_difference", "none in either window", False
    if new == 0:
        return "better", f"none after {old:,.0f} before", False
    counts = f"{new:,.0f} after {f'{old:,.0f}' if old else 'none'} before"
    weight = weight_of(name)
    if weight == "never" and not old:
        return "worse", counts, False
    if not _grew(name, before, after):
        return "inconclusive", "a single count has no interval", False
    return ("inconclusive", counts, True) if weight == "sign" else ("worse", counts, False)


def _grew(name: str, before: ComparedWindow, after: ComparedWindow) -> bool:
    """True if a count has at least doubled and clearly exceeds chance."""
    if name not in before.totals or name not in after.totals:
        return False
    old, new = round(before.totals[name]), round(after.totals[name])
    exposures = (before.seconds, after.seconds)
    if before.requests and after.requests:
        exposures = (float(before.requests), float(after.requests))
    if new < _FEWEST or not all(exposures):
        return False
    expected = old * exposures[1] / exposures[0]
    share = exposures[1] / sum(exposures)
    return new >= _TIMES * expected and _beyond(new, old + new, share) < _CHANCE


def _beyond(count: int, of: int, share: float) -> float:
    """A bound on the probability of ``count`` or more successes in ``of`` trials of ``share``.

    Chernoff and Hoeffding: exp(-n D(k/n, p)), never below the exact probability.
    """
    part = count / of
    if part <= share:
        return 1.0
    divergence = part * math.log(part / share)
    if part < 1:
        divergence += (1 - part) * math.log((1 - part) / (1 - share))
    return math.exp(-of * divergence)


def new_causes(
    before: ComparedWindow,
    after: ComparedWindow,
    control: tuple[ComparedWindow, ComparedWindow] | None,
) -> list[str]:
    """Ids of causes that only the later window names, without those new in the control too."""
    also = set(control[1].causes) - set(control[0].causes) if control else set()
    return [cause for cause in after.causes if cause not in before.causes and cause not in also]


def only_in_one(before: ComparedWindow, after: ComparedWindow) -> list[str]:
    """The counts that only one of the windows has."""
    return sorted(before.totals.keys() ^ after.totals.keys())
