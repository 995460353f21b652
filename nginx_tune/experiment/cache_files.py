"""What nginx's caches hold, seen from outside."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from nginx_tune.errors import UndecidedError

_NAME = re.compile(r"[0-9a-f]{32}")
"""The MD5 of a key; what is being written is named otherwise."""
_POLL_SECONDS = 0.05


def wait_for_cached(directories: Sequence[str], count: int, *, patience_seconds: float) -> None:
    """Wait until the caches hold so many responses.

    nginx takes a response into its cache after the client has all of it: with ``aio_write`` some
    are still being written when the last one was read.
    Errors: UndecidedError when they do not come.
    """
    deadline = time.monotonic() + patience_seconds
    while (held := _held(directories)) < count:
        if time.monotonic() > deadline:
            raise UndecidedError(
                f"of {count} responses that were asked for the caches took {held}",
                hint="they must be cacheable, and the disks have room for them (room_bytes)",
            )
        time.sleep(_POLL_SECONDS)


def _held(directories: Sequence[str]) -> int:
    return sum(
        1
        for directory in directories
        for path in Path(directory).rglob("*")
        if _NAME.fullmatch(path.name) is not None
    )
