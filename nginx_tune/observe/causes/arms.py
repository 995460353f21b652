"""What the server showed in the blocks of each arm: the cause beside the difference it makes."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Cause
from nginx_tune.documents.scenario import ArmCause
from nginx_tune.observe.causes.naming import find_causes


def find_arm_causes(measurements: Sequence[Measurement]) -> list[ArmCause]:
    """The causes that half of an arm's blocks or more show, arm by arm, the baseline first.

    A block without workers, such as one of a stand-in, shows none. The figures of a cause are
    those of one block, in the middle of those that show it.

    Errors: UsageError for a malformed histogram.
    """
    by_arm: dict[str, list[list[Cause]]] = {}
    for block in measurements:
        found = find_causes(
            block.server, duration_seconds=block.duration_seconds, unknown=block.unknown
        )
        by_arm.setdefault(block.arm, []).append(found if block.server.workers else [])
    arms = sorted(by_arm, key=lambda arm: arm != "baseline")
    return [cause for arm in arms for cause in _often_seen(arm, by_arm[arm])]


def _often_seen(arm: str, blocks: list[list[Cause]]) -> list[ArmCause]:
    seen: dict[str, list[Cause]] = {}
    for causes in blocks:
        for cause in causes:
            seen.setdefault(cause.id, []).append(cause)
    return [
        ArmCause(arm=arm, blocks=len(found), of_blocks=len(blocks), cause=found[len(found) // 2])
        for found in seen.values()
        if 2 * len(found) >= len(blocks)
    ]
