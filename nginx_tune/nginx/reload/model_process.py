"""A process, told apart from a later one with its number; pure."""

from __future__ import annotations

import msgspec


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that cannot be taken for a later one with its number."""

    pid: int
    start_ticks: int
