"""The sentence of a verdict: what the candidate does, to be quoted as it stands."""

from __future__ import annotations

from nginx_tune.documents.verdict import GateResult, MetricVerdict, Verdict
from nginx_tune.prove.cost import COST
from nginx_tune.prove.interim import FEWEST_FIRST
from nginx_tune.prove.statistics import fewest_pairs
from nginx_tune.report.quantities import interval_text, metric_words, one_line, value_text


def verdict_sentence(verdict: Verdict) -> str:
    """One sentence that can be quoted: what the candidate does to the metrics that decide."""
    return f"{_claim(verdict)}{_gate_words(verdict.gates)}."


def settles_text(metric: MetricVerdict) -> str:
    """How many pairs would settle a metric; empty where that is not known."""
    needed = metric.pairs_needed
    if not needed:
        return ""
    if needed <= metric.pairs:  # it is an estimate, and so many were run
        return "a few more pairs may settle it"
    return f"about {needed} pairs would settle it"


def pairs_text(count: int) -> str:
    """``1 pair``, ``6 pairs``."""
    return f"{count} pair{'' if count == 1 else 's'}"


def _claim(verdict: Verdict) -> str:
    if verdict.lost:
        return f"The candidate no longer serves what the baseline does ({_lost(verdict)}): worse"
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    if verdict.outcome == "invalid" or primary is None:
        return f"No verdict: {one_line(verdict.reason) or 'nothing was measured'}"
    cost = next((m for m in verdict.metrics if m.name == COST and m is not primary), None)
    basis = f"({_basis(primary)})"
    said = f"{_against(primary)} {basis}"
    if verdict.outcome == "inconclusive":
        return f"Not settled: {said}{_unsettled(verdict, primary, cost)}"
    if verdict.outcome == "no_difference":
        if primary.ratio is None:
            return f"With the candidate, {said}: no difference"
        return (
            f"With the candidate, {metric_words(primary.name)} does not differ from the "
            f"baseline's: {interval_text(primary)} {basis}"
        )
    claim = f"With the candidate, {said}"
    if verdict.outcome == "worse" and primary.outcome != "worse":
        return f"{claim}, but it is worse: {_worse(verdict) or one_line(verdict.reason)}"
    if verdict.outcome == "better" and primary.outcome != "better" and cost is not None:
        return f"{claim}, and {_against(cost)}: better"
    return f"{claim}: {verdict.outcome}"


def _lost(verdict: Verdict) -> str:
    more = len(verdict.lost) - 1
    return one_line(verdict.lost[0]) + (f", and {more} more" if more else "")


def _against(metric: MetricVerdict) -> str:
    """``hot requests/s is 231× [228–240] the baseline's``; both values where they have no ratio."""
    words = metric_words(metric.name)
    if metric.ratio is not None:
        return f"{words} is {interval_text(metric)} the baseline's"
    values = [value_text(metric.name, value) for value in (metric.candidate, metric.baseline)]
    return f"{words} is {values[0]} against the baseline's {values[1]}"


def _unsettled(verdict: Verdict, primary: MetricVerdict, cost: MetricVerdict | None) -> str:
    """Which of the two is open, and why."""
    # A look that may be followed by others claims by itself a part of the 5 % only.
    fewest = fewest_pairs() if verdict.stopped == "pairs" else FEWEST_FIRST
    if primary.outcome == "inconclusive" and 0 < primary.pairs < fewest:
        return f": too few for an outcome, {fewest} are needed"
    if primary.outcome == "inconclusive":
        parts = [one_line(primary.reason), settles_text(primary)]
        return "".join(f"; {part}" if i else f", {part}" for i, part in enumerate(parts) if part)
    if cost is None:
        return f", {one_line(verdict.reason)}" if verdict.reason else ""
    parts = [_against(cost), one_line(cost.reason), settles_text(cost)]
    return ", but " + "; ".join(part for part in parts if part)


def _worse(verdict: Verdict) -> str:
    """The metrics that make it worse; empty where it is something else, such as failures."""
    names = [one.name for one in verdict.metrics if one.name in _named(verdict.reason)]
    return "; ".join(_against(one) for one in verdict.metrics if one.name in names)


def _named(reason: str) -> set[str]:
    return {part.partition(": ")[0] for part in reason.split("; ")}


def _basis(metric: MetricVerdict) -> str:
    pairs = pairs_text(metric.pairs)
    return pairs if metric.level is None else f"{pairs}, {metric.level * 100:.0f} % interval"


def _gate_words(gates: list[GateResult]) -> str:
    passed = sum(gate.passed for gate in gates)
    if not gates:
        return ""
    if passed == len(gates):
        return "; the gate holds" if passed == 1 else f"; all {passed} gates hold"
    return f"; {len(gates) - passed} of {len(gates)} gates failed"
