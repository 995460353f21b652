"""Naming memory as the reason where the kernel ended nginx for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.kills import MemoryKills, count_memory_kills


def check_memory(
    arm: str, join_files: Sequence[str | Path], before: MemoryKills, *, has_limit: bool
) -> None:
    """Whatever else went wrong, or seems not to have: say when memory was the reason.

    ``has_limit``: the lab says how much there is.
    Errors: UndecidedError when the kernel ended processes of nginx since.
    """
    now = count_memory_kills(join_files)
    if now.processes <= before.processes:
        return
    of = "the lab's" if has_limit else "its limit of"
    limit = "" if now.limit_bytes is None else f" {now.limit_bytes >> 20} MiB"
    raise UndecidedError(
        f"{arm}: nginx ran out of {of}{limit} of memory, and the kernel ended "
        f"{now.processes - before.processes} of its processes",
        hint="give the lab more (memory_bytes), or nginx fewer workers, smaller zones and buffers",
    ) from None
