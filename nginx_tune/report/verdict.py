"""``verdict`` for people: a table, the gates, and one sentence that can be quoted."""

from __future__ import annotations

from nginx_tune.documents.capacity import Capacity
from nginx_tune.documents.verdict import Environment, GateResult, MetricVerdict, Verdict
from nginx_tune.report.columns import align
from nginx_tune.report.quantities import (
    interval_text,
    measured_text,
    metric_words,
    one_line,
    ratio_text,
    value_text,
)
from nginx_tune.report.text import number_text

_STOPPED = {"settled": "it was settled", "time": "time was up", "interrupted": "interrupted"}


def render_verdict(verdict: Verdict) -> str:
    """The verdict as text; its last line is the sentence."""
    parts = [
        _environment(verdict.environment) + _looks(verdict),
        _metrics(verdict),
        "".join(f"warning: {one_line(warning)}\n" for warning in verdict.warnings),
        _gates(verdict.gates),
        _capacities(verdict),
        verdict_sentence(verdict) + "\n",
    ]
    return "\n".join(part for part in parts if part)


def _looks(verdict: Verdict) -> str:
    if verdict.stopped == "pairs":
        return ""
    if verdict.stopped == "interrupted" and verdict.looks == 1:
        return "  interrupted: judged by the pairs so far, as by the first of several looks\n"
    why = _STOPPED[verdict.stopped]
    times = "once" if verdict.looks == 1 else f"{verdict.looks} times"
    return f"  {why}; looked at {times}, and all looks together claim wrongly in at most 5 %\n"


def _capacities(verdict: Verdict) -> str:
    """``hot.p99 <= 50ms: 310/s → 2,900/s``, and where something else than nginx was the limit."""
    if not verdict.capacities:
        return ""
    found = verdict.capacities
    first = next(iter(found.values()))
    objective = " and ".join(one_line(text) for text in first.objectives)
    lines = [f"{objective}: " + " → ".join(map(_capacity_text, found.values())) + "\n"]
    lines += [
        f"  {one_line(arm)}: {one_line(capacity.reason)}\n"
        for arm, capacity in found.items()
        if capacity.reason
    ]
    return "".join(lines)


def _capacity_text(capacity: Capacity) -> str:
    if capacity.capacity_per_second is not None:
        return f"{number_text(capacity.capacity_per_second)}/s"
    if capacity.at_least_per_second is not None:
        limit = " (the probe was the limit)" if capacity.limited_by == "probe" else ""
        return f"at least {number_text(capacity.at_least_per_second)}/s{limit}"
    return "unknown"


def verdict_sentence(verdict: Verdict) -> str:
    """One sentence that can be quoted: what the candidate does to the primary metric."""
    return f"{_claim(verdict)}{_gate_words(verdict.gates)}."


def _claim(verdict: Verdict) -> str:
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    if verdict.outcome == "invalid" or primary is None:
        return f"No verdict: {one_line(verdict.reason) or 'nothing was measured'}"
    words = metric_words(primary.name)
    basis = f"({_basis(primary)})"
    if verdict.outcome == "inconclusive":
        more = f"; {_settles(primary)}" if primary.pairs_needed else ""
        reason = f", {one_line(primary.reason)}" if primary.reason else ""
        return (
            f"Not settled: {words} is {interval_text(primary)} the baseline's {basis}{reason}{more}"
        )
    if verdict.outcome == "no_difference":
        return (
            f"With the candidate, {words} does not differ from the baseline's: "
            f"{interval_text(primary)} {basis}"
        )
    claim = f"With the candidate, {words} is {interval_text(primary)} the baseline's {basis}"
    if primary.outcome != verdict.outcome:
        return f"{claim}, but it is worse: {one_line(verdict.reason)}"
    return f"{claim}: {verdict.outcome}"


def _basis(metric: MetricVerdict) -> str:
    pairs = _pairs(metric.pairs)
    return pairs if metric.level is None else f"{pairs}, {metric.level * 100:.0f} % interval"


def _pairs(count: int) -> str:
    return f"{count} pair{'' if count == 1 else 's'}"


def _gate_words(gates: list[GateResult]) -> str:
    passed = sum(gate.passed for gate in gates)
    if not gates:
        return ""
    if passed == len(gates):
        return "; the gate holds" if passed == 1 else f"; all {passed} gates hold"
    return f"; {len(gates) - passed} of {len(gates)} gates failed"


def _environment(environment: Environment) -> str:
    said = [
        f"nginx {environment.nginx_version}" if environment.nginx_version else "",
        f"kernel {environment.kernel_release}" if environment.kernel_release else "",
        f"lab {environment.lab}" if environment.lab != "none" else "",
        _pairs(environment.pairs),
        f"{environment.discarded_pairs} discarded" if environment.discarded_pairs else "",
        f"seed {environment.seed}",
    ]
    lines = [", ".join(one_line(part) for part in said if part) + "\n"]
    lines += [f"  not as configured: {one_line(one)}\n" for one in environment.differences]
    return "".join(lines)


def _metrics(verdict: Verdict) -> str:
    notes: dict[str, int] = {}
    rows = [("metric", "baseline", "candidate", "ratio", "outcome")]
    for metric in verdict.metrics:
        note = _note(metric)
        mark = f" [{notes.setdefault(note, len(notes) + 1)}]" if note else ""
        primary = " (primary)" if metric.name == verdict.primary_metric else ""
        rows.append(
            (
                one_line(metric.name) + primary,
                value_text(metric.name, metric.baseline),
                value_text(metric.name, metric.candidate),
                interval_text(metric),
                metric.outcome.replace("_", " ") + mark,
            )
        )
    table = align(rows, right=(1, 2)) if verdict.metrics else ""
    return table + align([(f"[{number}]", note) for note, number in notes.items()], indent=2)


def _note(metric: MetricVerdict) -> str:
    said = [_by_seconds(metric)]
    if metric.outcome != "no_difference":
        said = [one_line(metric.reason), _settles(metric), *said]
    return "; ".join(part for part in said if part)


def _by_seconds(metric: MetricVerdict) -> str:
    check = metric.by_seconds
    if check is None or check.agrees:
        return ""
    low, high = ratio_text(check.low), ratio_text(check.high)
    return f"the seconds inside the blocks do not bear that out: {low} to {high}"


def _settles(metric: MetricVerdict) -> str:
    needed = metric.pairs_needed
    return f"about {needed} pairs would settle it" if needed else ""


def _gates(gates: list[GateResult]) -> str:
    rows = [
        (
            "pass" if gate.passed else "FAIL",
            one_line(gate.expression),
            measured_text(gate.expression, gate.measured),
            one_line(gate.reason),
        )
        for gate in gates
    ]
    return "gates\n" + align(rows, indent=2) if rows else ""
