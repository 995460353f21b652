"""Gates on one run of the probe: ``p99 <= 50ms``, ``hot.errors == 0``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import GateResult
from nginx_tune.measure.proof.blocks import Blocks, Pair
from nginx_tune.measure.proof.gates import answer_expression
from nginx_tune.measure.proof.objective import parse_objective


def check_run_gates(requires: Sequence[str], classes: Iterable[str]) -> None:
    """Nothing, when each can be read; to be called before a run.

    Errors: UsageError.
    """
    if requires:
        parse_objective(requires, classes)


def judge_run_gates(requires: Sequence[str], run: Measurement) -> list[GateResult]:
    """The result of each gate; one that is short of a class is of each class.

    What was not measured has no value and did not pass.
    Errors: UsageError.
    """
    if not requires:
        return []
    classes = list(run.classes)
    alone = Blocks((Pair(0, run, run),))
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
