"""A rehearsal: the phases of its load, its gates, and its exit status.

reload.failed == 0                  failed requests of the load
reload.failed.reset == 0            those of one kind
reload.retried == 0                 retried requests of the load and of long connections
reload.lost == 0                    lost long connections; also reload.lost.websocket
reload.first_answer <= 500ms        until the new generation has answered at every listener
reload.drain <= 30s                 until the last old worker has exited
reload.memory_peak <= 512MiB        both generations together
reload.listen_overflows == 0        also listen_drops
reload.during.p99 <= 50ms           also before, after; p50, max, failed
reload_back.failed == 0             the change back; upgrade, restart as reload
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.rehearsal import (
    HeldKind,
    Phase,
    PhaseName,
    Rehearsal,
    RehearsedReload,
    ReloadOutcome,
)
from nginx_tune.documents.verdict import GateResult
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.measure.proof.expression import COMPARE, Dimension, Expression, parse_expression
from nginx_tune.measure.proof.histogram import Histogram, decode_histogram, merge_histograms

_COUNTERS = {"listen_overflows": "ListenOverflows", "listen_drops": "ListenDrops"}
_DIMENSIONS: dict[str, Dimension] = {
    "first_answer": "time",
    "drain": "time",
    "memory_peak": "bytes",
    "p50": "time",
    "p99": "time",
    "max": "time",
}
_PLAIN = ("failed", "retried", "lost", *_COUNTERS, "first_answer", "drain", "memory_peak")
_OF_PHASE = ("p50", "p99", "max", "failed")
_KIND = re.compile(r"[a-z_]{1,40}")
_LEAST_LASTING = 3
_CALM_SECONDS = 1.0
_BUSY_RATIO = 0.5
"""The largest share of the host's CPU time that other processes may use in a valid rehearsal."""
_BEHIND_RATIO = 0.1
"""The share of the due requests that a server which carries the rate may leave unanswered."""
_STANDARD_ERRORS = 3.0
_LASTING_RATIO = 2.0
"""A change causes failures if their share afterwards exceeds this multiple of the share before."""


def reload_name(one: RehearsedReload) -> str:
    """The name of a change in gates and tables."""
    return f"{one.manner}_back" if one.is_back else one.manner


_Outcome = ReloadOutcome | Literal["inconclusive"]


def worst_outcome(rehearsal: Rehearsal) -> _Outcome:
    """The worst outcome of a rehearsal's changes; ``refused`` if there was no change."""
    order: list[_Outcome] = ["down", "refused", "inconclusive", "taken"]
    found: set[_Outcome] = {
        "inconclusive" if is_unsettled(reload) or is_unsure(reload) else reload.outcome
        for reload in rehearsal.reloads
    }
    if rehearsal.refused_here:
        found.add("refused")
    return next((one for one in order if one in found), "refused")


def check_rehearsal_gates(requires: Iterable[str], names: Sequence[str]) -> None:
    """Check that each gate can be read and names a metric of these changes.

    Errors: UsageError.
    """
    for text in requires:
        _check(parse_expression(text), names)


def _check(gate: Expression, names: Sequence[str]) -> None:
    head, _, metric = gate.name.partition(".")
    hint = f"for example '{names[0]}.failed == 0' or '{names[0]}.during.p99 <= 50ms'"
    if gate.source != "candidate":
        raise UsageError(f"'{gate.text}': a rehearsal has no {gate.source}", hint=hint)
    if head not in names:
        raise UsageError(f"'{gate.text}': no '{head}'; one of {', '.join(names)}", hint=hint)
    if not _is_known(metric):
        raise UsageError(f"'{gate.text}': no metric '{metric}'", hint=hint)
    dimension = _DIMENSIONS.get(metric.rpartition(".")[2])
    fits = gate.dimension == dimension or (gate.dimension == "count" and dimension is None)
    if not fits and not (gate.dimension is None and gate.limit == 0):
        unit = {"time": "ms", "bytes": "MiB"}.get(dimension or "", "")
        fault = f"needs a unit such as {unit}" if unit else "has no unit"
        raise UsageError(f"'{gate.text}': {metric} {fault}", hint=hint)


def _is_known(metric: str) -> bool:
    head, _, rest = metric.partition(".")
    if not rest:
        return metric in _PLAIN
    if head == "lost":
        return rest in get_args(HeldKind)
    if head == "failed":
        return _KIND.fullmatch(rest) is not None
    return head in get_args(PhaseName) and rest in _OF_PHASE


def judge_rehearsal(
    requires: Iterable[str], reloads: Sequence[RehearsedReload]
) -> list[GateResult]:
    """The result of each gate; a quantity that was not measured never passes."""
    found = {reload_name(reload): reload for reload in reloads}
    return [_judge(parse_expression(text), found) for text in requires]


def _judge(gate: Expression, found: dict[str, RehearsedReload]) -> GateResult:
    head, _, metric = gate.name.partition(".")
    one = found.get(head)
    value = None if one is None else _value(one, metric)
    reason = "" if value is not None else _why(one, metric)
    passed = value is not None and COMPARE[gate.operator](value, gate.limit)
    depends = not metric.startswith("before.") and metric != "memory_peak"
    if value is not None and not passed and one and depends and was_overloaded(one):
        reason = f"not settled: {value:g}, under an overload that began before the change"
        value = None
    return GateResult(expression=gate.text, measured=value, passed=passed, reason=reason)


def _why(one: RehearsedReload | None, metric: str) -> str:
    if one is None:
        return "not rehearsed"
    head, _, kind = metric.partition(".")
    if head == "lost":
        return f"not measured: no {f'{kind} connection' if kind else 'connection'} was held"
    return f"not measured: the {one.manner} was {one.outcome}, {one.workers_left} old workers stay"


def _value(one: RehearsedReload, metric: str) -> float | None:
    head, _, rest = metric.partition(".")
    if head == "failed":
        return one.failed.get(rest, 0) if rest else sum(one.failed.values())
    if head == "lost":
        held = [item for item in one.held if item.held and (not rest or item.kind == rest)]
        return sum(item.lost for item in held) if held else None
    if head in _COUNTERS:
        return one.counters.get(_COUNTERS[head])
    if head == "first_answer":
        return last_answer(one)
    if head == "drain":
        return one.drain_seconds
    if head == "memory_peak":
        return one.memory_peak_bytes
    if head == "retried":
        return sent_again(one)
    phase = next((item for item in one.phases if item.name == head), None)
    return None if phase is None else _of_phase(phase, rest)


def _of_phase(phase: Phase, name: str) -> float | None:
    values = {
        "p50": phase.p50_seconds,
        "p99": phase.p99_seconds,
        "max": phase.max_seconds,
        "failed": phase.failed,
    }
    return values[name]


def sent_again(one: RehearsedReload) -> int:
    """Requests retried because their kept connection was closed."""
    return one.retried + sum(item.retried for item in one.held)


def last_answer(one: RehearsedReload) -> float | None:
    """Seconds until the new generation has answered at every listener; None if any has not."""
    seconds = [item.seconds for item in one.first_answers if not _was_silent(item.reason)]
    known = [value for value in seconds if value is not None]
    return max(known) if known and len(known) == len(seconds) else None


def _was_silent(reason: str) -> bool:
    return reason.endswith("as before")


class Lasting(NamedTuple):
    """Requests that keep failing after a change is over."""

    failed: int
    requests: int
    """Requests, including failed ones."""
    failed_before: int
    requests_before: int


def lasting_failures(one: RehearsedReload) -> Lasting | None:
    """The failures that the change left behind; None if there are none.

    A few failures may still belong to the change, as phases are whole seconds. Failures that were
    as frequent before are not due to the change. If requests waited long even before, the machine
    is too busy for timeouts to count.
    """
    after, before = _phase_named(one, "after"), _phase_named(one, "before")
    if one.outcome != "taken" or after.failed < _LEAST_LASTING or was_overloaded(one):
        return None
    found = Lasting(
        after.failed, after.requests + after.failed, before.failed, before.requests + before.failed
    )
    share_before = found.failed_before / max(1, found.requests_before)
    return found if found.failed / found.requests > _LASTING_RATIO * share_before else None


class Losses(NamedTuple):
    """The losses of a change, without failures that were there before it or that go on after it."""

    failed: int
    """Failed requests, from the start of the change."""
    beyond: int
    """Failed requests beyond the share that failed before the change."""
    requests: int
    """Requests from the start of the change, including failed ones."""
    held: int
    """Held connections that were lost."""


def losses(one: RehearsedReload) -> Losses:
    """The losses of a change; a steady share of failing requests is not among them.

    A share that differs by less than three standard errors of two binomial shares is steady.
    """
    before, lasting = _phase_named(one, "before"), lasting_failures(one)
    failed = sum(one.failed.values()) - before.failed
    requests = one.requests + failed - (before.requests if before.failed else 0)
    if lasting is not None:
        failed, requests = failed - lasting.failed, requests - lasting.requests
    seen = max(1, before.requests + before.failed)
    share = before.failed / seen
    beyond = round(failed - share * requests)
    error = math.sqrt(share * (1.0 - share) * max(0, requests) * (1.0 + requests / seen))
    beyond = beyond if beyond > _STANDARD_ERRORS * error else 0
    return Losses(failed, beyond, requests, sum(item.lost for item in one.held))


def _phase_named(one: RehearsedReload, name: PhaseName) -> Phase:
    return next((phase for phase in one.phases if phase.name == name), Phase(name=name))


def was_overloaded(one: RehearsedReload) -> bool:
    """True if requests waited long even before the change, and failed or fell behind the rate.

    A location that is slow by itself (``limit_rate``, an application) is no overload.
    """
    before = _phase_named(one, "before")
    is_slow = (before.max_seconds or 0.0) >= _CALM_SECONDS
    return is_slow and (before.failed > 0 or not one.rate_per_second or fell_behind(one))


def fell_behind(one: RehearsedReload) -> bool:
    """True if fewer requests were answered before the change than were due, not by chance."""
    before = _phase_named(one, "before")
    due = one.rate_per_second * before.seconds
    return due - before.requests > max(_BEHIND_RATIO * due, _STANDARD_ERRORS * math.sqrt(due))


def is_unsettled(one: RehearsedReload) -> bool:
    """True if a change was taken under an overload that began before it, and something failed."""
    found = losses(one)
    return one.outcome == "taken" and was_overloaded(one) and (found.beyond + found.held) > 0


def is_busy(one: RehearsedReload) -> bool:
    """True if the machine was too busy to distinguish a server that is down from a slow one."""
    return (one.foreign_cpu_ratio or 0.0) > _BUSY_RATIO or was_overloaded(one)


def is_unsure(one: RehearsedReload) -> bool:
    """True if workers ran but none answered, on a machine that was too busy."""
    return one.outcome == "down" and one.workers_after > 0 and is_busy(one)


def rehearsal_status(rehearsal: Rehearsal) -> ExitStatus:
    """The exit status of a rehearsal.

    Found (1): a change did not take effect as written, would be refused by this host, left failing
    requests behind, or failed a gate. Undecided (4): a gate's quantity was not measured, nothing
    was rehearsed, the machine was too busy, or the load was too high even before the change.
    """
    reloads, gates = rehearsal.reloads, rehearsal.gates
    if rehearsal.refused_here:
        return ExitStatus.FOUND
    if not reloads:
        return ExitStatus.UNDECIDED
    is_taken = all(
        (reload.outcome == "taken" or is_unsure(reload))
        and not reload.faults
        and lasting_failures(reload) is None
        for reload in reloads
    )
    has_failed = any(gate.measured is not None and not gate.passed for gate in gates)
    if not is_taken or rehearsal.worse_answers or has_failed:
        return ExitStatus.FOUND
    if any(is_unsure(reload) or is_unsettled(reload) for reload in reloads):
        return ExitStatus.UNDECIDED
    return ExitStatus.OK if all(gate.passed for gate in gates) else ExitStatus.UNDECIDED


_LEAST_BEYOND = 10
"""Samples that must lie beyond a quantile for it to count as measured."""
_NANO = 1e-9
_NAMES: tuple[PhaseName, ...] = ("before", "during", "after")


def split_phases(
    measurement: Measurement, *, changed_unix: float, ended_unix: float
) -> list[Phase]:
    """The phases of a rehearsal's load, from the histograms of its seconds.

    Shape: the seconds in which the change begins or ends are ``during``.
    Errors: UsageError for a histogram that cannot be read.
    """
    began = measurement.started_unix_seconds or 0.0
    seconds: dict[PhaseName, list[int]] = {name: [] for name in _NAMES}
    for index, point in enumerate(measurement.series):
        start = began + point.second
        seconds[_phase_of(start, start + 1.0, changed_unix, ended_unix)].append(index)
    return [_phase(name, measurement, seconds[name]) for name in _NAMES]


def _phase_of(start: float, end: float, changed: float, ended: float) -> PhaseName:
    if end <= changed:
        return "before"
    return "after" if start >= ended else "during"


def _phase(name: PhaseName, measurement: Measurement, seconds: list[int]) -> Phase:
    points = [second for index in seconds for second in measurement.series[index].classes.values()]
    merged = merge_histograms(
        decode_histogram(second.histogram) for second in points if second.histogram
    )
    return Phase(
        name=name,
        seconds=len(seconds),
        requests=sum(second.requests for second in points),
        failed=sum(second.errors for second in points),
        p50_seconds=_quantile(merged, 0.5),
        p99_seconds=_quantile(merged, 0.99),
        max_seconds=None if merged is None else _seconds(merged.value_at(1.0)),
    )


def _quantile(found: Histogram | None, quantile: float) -> float | None:
    if found is None or found.total * (1.0 - quantile) < _LEAST_BEYOND:
        return None
    return _seconds(found.value_at(quantile))


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds * _NANO
