"""The law that every decision keeps before it is written.

Nothing is emitted whose own central prediction says harm; what rests on assumed inputs that could
flip it is proposed, not set; a range wider than a factor of ten is no prediction. The decisions
keep most of it by themselves; here it is held for all of them, those to come too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.decide.answer import FACTS_COMMAND, LEARN_COMMAND
from nginx_tune.decide.pool_plan import PoolPlan, plan_pools
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Predicted
from nginx_tune.documents.workload import Workload

Decide = Callable[[Situation, PoolPlan], Decision]

WIDEST = 10.0
"""High over low; beyond it a range says nothing that an operator could act on."""
NARROW_SHARE = 0.05
"""Shares that lie so close together are told apart by nobody, whatever their ratio."""
_MORE_IS_BETTER = ("requests_per_second", "bytes_per_second")
_LESS_IS_BETTER = ("mean", "p50", "p90", "p99", "p999", "cpu_seconds_per_request")
_CHANGES = ("enable", "raise", "lower", "set")
_FACTOR = 4.0
_EXPONENT_STEP = 0.3


class Elsewhere(NamedTuple):
    """The situation with one assumed input at an end of what is plausible."""

    name: str
    command: str
    """What brings the input."""
    situation: Situation
    plan: PoolPlan


def elsewhere(s: Situation) -> list[Elsewhere]:
    """Every assumed input of the workload, moved to both ends by itself."""
    return [
        Elsewhere(name, command, moved, plan_pools(moved))
        for name, command, workload in _moved(s.workload, s)
        for moved in (dataclasses.replace(s.with_workload(workload), is_moved=True),)
    ]


def keep_law(decide: Decide, decision: Decision, others: Sequence[Elsewhere]) -> Decision:
    """The decision as it may be written; ``others`` as ``elsewhere`` has them."""
    decision = replace(decision, predicted=[p for p in decision.predicted if is_prediction(p)])
    if not decision.settings or decision.verdict not in _CHANGES:
        return decision
    harm = next((p for p in decision.predicted if says_harm(p)), None)
    if harm is not None:
        return _held(decision, f"{harm.metric} is predicted at {harm.expected:.3g}")
    for other in others:
        if decide(other.situation, other.plan).verdict != decision.verdict:
            reason = f"it stands on {other.name}, which is only assumed"
            return _held(decision, reason, other.command)
    return decision


def unsure_of_kind(decision: Decision, *, assumed: bool) -> Decision:
    """The decision, not of high confidence where what is served is only assumed."""
    if not assumed or decision.confidence != "high":
        return decision
    return replace(decision, confidence="medium")


def is_prediction(p: Predicted) -> bool:
    """Whether a range is narrow enough to be one."""
    if p.unit == "" and p.high <= 1 and p.high - p.low <= NARROW_SHARE:
        return True
    return p.low > 0 and p.high <= WIDEST * p.low


def says_harm(p: Predicted) -> bool:
    """Whether the middle of a predicted ratio is on the wrong side of one."""
    if not p.metric.startswith("ratio("):
        return False
    name = p.metric.removeprefix("ratio(").partition(")")[0].rpartition(".")[2]
    if name in _MORE_IS_BETTER:
        return p.expected < 1
    return name in _LESS_IS_BETTER and p.expected > 1


def _held(decision: Decision, reason: str, command: str = "") -> Decision:
    return replace(
        decision,
        verdict="not_enough_evidence",
        summary=f"Left as it is: {reason}. Otherwise: {decision.summary}",
        settings=[],
        proposed=[*decision.settings, *decision.proposed],
        confidence="low",
        flips_when=[f"it is settled: {reason}"],
        break_evens=[],  # those are of the verdict that is held back
        next_command=command or decision.next_command,
    )


def _moved(w: Workload, s: Situation) -> Iterator[tuple[str, str, Workload]]:
    p, c, r = w.popularity, w.concurrency, w.rate
    if p.provenance == "assumed" and p.exponent is not None and not p.curve:
        for step in (-_EXPONENT_STEP, _EXPONENT_STEP):
            moved = replace(p, exponent=max(0.0, p.exponent + step))
            yield "the popularity of the files", LEARN_COMMAND, replace(w, popularity=moved)
    if c.provenance == "assumed" and s.concurrency.value is not None:
        for factor in (1 / _FACTOR, _FACTOR):
            moved_c = replace(c, peak=s.concurrency.value * factor)
            yield "the number of transfers at once", LEARN_COMMAND, replace(w, concurrency=moved_c)
    if r.provenance == "assumed" and s.rate.value is not None:
        for factor in (1 / _FACTOR, _FACTOR):
            moved_r = replace(r, peak_per_second=s.rate.value * factor)
            yield "the rate of requests", LEARN_COMMAND, replace(w, rate=moved_r)
    if w.dataset.provenance == "assumed" and w.dataset.bytes:
        for factor in (1 / 2, 2.0):
            moved_d = replace(w.dataset, bytes=round(w.dataset.bytes * factor))
            yield "the size of the data", FACTS_COMMAND, replace(w, dataset=moved_d)
