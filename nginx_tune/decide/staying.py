"""What of a configuration stays as it is, whatever is decided: the numbers are made for that.

A decision that is not written (a line speaks against it, it has no place, ``--except``) leaves what
others rest on as it was: one worker where there would have been 24, no pool where one was reckoned
with. Nothing is sized for what is not there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Staying:
    """What stays; null, empty or false where it becomes what is decided."""

    workers: int | None = None
    """Worker processes."""
    no_pools: str = ""
    """What is left out of what would have files read by thread pools, and why."""
    connections: int | None = None
    """``worker_connections``."""
    descriptors: int | None = None
    """What a worker may open."""
    open_files: int | None = None
    """Files that the caches of a worker keep open."""
    no_sendfile: bool = False
    """Whether files are copied through nginx's memory everywhere."""


ALL_AS_DECIDED = Staying()
"""Nothing stays."""
