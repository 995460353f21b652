"""What nginx gets to see and may do inside its sandbox."""

from __future__ import annotations

from typing import Literal

import msgspec

Wall = Literal["memory", "processes", "seccomp", "sockets"]
"""What may be given up by name where a host cannot have it."""


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What nginx may use up."""

    processes: int = 2048
    """Of it and all its children, threads too."""
    data_bytes: int = 2 << 30
    """Of memory that one process has for itself alone."""
    file_bytes: int = 4 << 30
    """Of one file that it writes."""
    cover_bytes: int = 1 << 30
    """Of everything it writes to memory in places of its own."""
    cover_files: int = 200_000


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox, as paths of the mount namespace that it is made in."""

    shown: list[str]
    """Files and directories that are seen, read-only; links on the way are seen too."""
    writable: list[str] = []
    """Those that take writes: in places that are already no file system of the host."""
    hidden: list[str] = []
    """Directories in those that are shown and that are not: seen empty."""
    instead: dict[str, str] = {}
    """Sockets of ours, by the path that they are seen at: the host's own is not there."""
    own: list[str] = []
    """Mount points of ours, which hold no socket and no pipe of the host."""
    uses_unix_sockets: bool = False
    """Whether nginx opens sockets with a path: without need of them it cannot."""
    transparent: bool = False
    """Whether it sends from addresses that are not the host's (``proxy_bind … transparent``)."""
    threads: int = 0
    """Of one process, in the pools of its configuration: each has a stack, which counts as memory
    of its own though next to nothing of it is ever used."""
    limits: ResourceLimits = ResourceLimits()
    weaker: list[Wall] = []
    """Walls that are given up where they cannot be had."""
