"""Whether disks failed while arms were compared: then the disks were compared, not the arms."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.documents.measurement import Measurement


def find_read_errors(measurements: Sequence[Measurement]) -> str:
    """What disks failed in which arms, in some words; empty when none did.

    A failed read ends a response early or refuses it, and a retried one takes time, wherever the
    bad places of the disk happen to lie under what an arm asks for: better and worse then say
    nothing of the configuration. One failed read in one block is enough, in any block: none can
    be left out without choosing by the result.
    """
    arms = dict.fromkeys(block.arm for block in measurements)
    told = [_told([block for block in measurements if block.arm == arm]) for arm in arms]
    found = [f"{arm}: {text}" for arm, text in zip(arms, told, strict=True) if text]
    return f"disks failed reads (EIO): {'; '.join(found)}" if found else ""


def _told(blocks: Sequence[Measurement]) -> str:
    failing = [block for block in blocks if _failed(block)]
    if not failing:
        return ""
    by_disk: dict[str, int] = {}
    for block in failing:
        for disk, count in block.server.disk_read_errors.items():
            by_disk[disk] = by_disk.get(disk, 0) + count
    lines = sum(block.server.read_errors or 0 for block in failing)
    parts = [f"{count:,} of {disk}" for disk, count in sorted(by_disk.items())]
    parts += [f"{lines:,} in nginx's error log"] if lines else []
    return f"{', '.join(parts)}, in {len(failing)} of {len(blocks)} blocks"


def _failed(block: Measurement) -> bool:
    return bool(block.server.read_errors or sum(block.server.disk_read_errors.values()))
