"""In how many rounds a claim held, beside whether it held of all blocks together.

A claim that all blocks together bear out may fail in a round, and one that fails may hold in most.
Where rounds do not agree that is part of the answer: "held, in 3 of 4 rounds".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Claim, ClaimResult
from nginx_tune.measure.proof.blocks import Blocks, pair_blocks, select_pairs
from nginx_tune.measure.proof.expression import Expression, parse_expression
from nginx_tune.measure.proof.gates import answer_expression

_MEASURED = ("candidate", "baseline", "ratio")
"""Sources of what a single round can answer."""


def with_rounds(
    results: Sequence[ClaimResult], claims: Sequence[Claim], measurements: Sequence[Measurement]
) -> list[ClaimResult]:
    """The results of these claims, each with the rounds that could answer it and that held it.

    Shape: no rounds for claims on decisions and outcomes, for one that is held against another,
    and for one whose arms did not run.
    """
    arms = list(dict.fromkeys(block.arm for block in measurements))
    classes = list(dict.fromkeys(name for block in measurements for name in block.classes))
    counted = []
    for result, claim in zip(results, claims, strict=True):
        expression = parse_expression(claim.expression)
        if result.left_out or claim.less_than or expression.source not in _MEASURED:
            counted.append(result)
            continue
        chosen = select_pairs(measurements, len(arms), against=claim.against, arm=claim.arm)
        held = _held_by_round(expression, pair_blocks(chosen), classes, expect=claim.expect)
        counted.append(msgspec.structs.replace(result, rounds=len(held), rounds_held=sum(held)))
    return counted


def _held_by_round(
    expression: Expression, blocks: Blocks, classes: Sequence[str], *, expect: str
) -> list[bool]:
    """Whether each round that measured it held it."""
    answers = [
        answer_expression(expression, Blocks((pair,)), None, classes) for pair in blocks.pairs
    ]
    return [
        answer.passed is (expect == "holds") for answer in answers if answer.measured is not None
    ]
