"""Rounds of several arms: the order they run in, and any two of them as pairs.

A round is one block of every arm. Block ``k`` of ``n`` arms belongs to round ``k // n``. Two
rounds in a row run one order forwards and backwards, so that a steady drift of the host cancels
between any two arms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from nginx_tune.documents.measurement import Measurement
from nginx_tune.prove.blocks import pair_blocks, schedule_blocks

_TWO = ("baseline", "candidate")


def schedule_rounds(arms: Sequence[str], rounds: int, seed: int) -> list[str]:
    """The arms of all blocks in the order to run them.

    Shape: ``len(arms) * rounds`` long; each round holds every arm once.
    """
    if tuple(arms) == _TWO:
        return [str(arm) for arm in schedule_blocks(rounds, seed)]
    order: list[str] = []
    for start in range(0, rounds, 2):
        forwards = sorted(arms, key=lambda arm: _rank(seed, start, arm))
        order += [*forwards, *reversed(forwards)]
    return order[: len(arms) * rounds]


def _rank(seed: int, start: int, arm: str) -> bytes:
    # A hash, so that a seed gives the same order with every version of Python.
    return hashlib.sha256(f"rounds {seed} {start} {arm}".encode()).digest()


def select_pairs(
    measurements: Sequence[Measurement], arms: int, *, against: str, arm: str
) -> list[Measurement]:
    """The blocks of two arms of each round as those of a baseline and a candidate."""
    selected = []
    for block in measurements:
        if block.arm in (against, arm):
            place = 0 if block.arm == against else 1
            selected.append(
                msgspec.structs.replace(
                    block, arm=_TWO[place], block=2 * (block.block // arms) + place
                )
            )
    return selected


def count_valid(measurements: Sequence[Measurement], arms: Sequence[str]) -> int:
    """Rounds in which no arm has a flag that discards, be it for one class."""
    first, *others = arms
    valid: set[int] | None = None
    for other in others:
        pairs = pair_blocks(select_pairs(measurements, len(arms), against=first, arm=other)).pairs
        indices = {pair.index for pair in pairs if not pair.spoilt}
        valid = indices if valid is None else valid & indices
    return len(valid or ())
