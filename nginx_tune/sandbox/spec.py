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
    """A sandbox, by paths as nginx will see them."""

    shown: list[str]
    """Files and directories of the host that are seen, read-only; links on the way are too."""
    covers: dict[str, str] = {}
    """Directories that take writes, by path: each is a directory of ``Covers``."""
    disks: dict[str, str] = {}
    """Directories of ``Covers`` that are seen, read-only, in the host's place."""
    laid: dict[str, str] = {}
    """Files and sockets of ours that are seen, read-only, in the host's place."""
    hidden: list[str] = []
    """Directories that are seen empty, though what is around them is shown."""
    uses_unix_sockets: bool = False
    """Whether nginx opens sockets with a path: without need of them it cannot."""
    uses_file_aio: bool = False
    """Whether the build sets up contexts of file AIO, which the host has only so many of."""
    transparent: bool = False
    """Whether it sends from addresses that are not the host's (``proxy_bind … transparent``)."""
    threads: int = 0
    """Of one process, in the pools of its configuration: each has a stack, which counts as memory
    of its own though next to nothing of it is ever used."""
    workers: int = 0
    """Processes that its configuration asks for, where they are more than the CPUs."""
    limits: ResourceLimits = ResourceLimits()
    weaker: list[Wall] = []
    """Walls that are given up where they cannot be had."""
