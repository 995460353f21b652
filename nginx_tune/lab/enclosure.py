"""What every nginx of a lab is started in: one sandbox, planned anew when the mounts change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from nginx_tune.lab.view import program_paths, system_paths
from nginx_tune.sandbox.launch import Prepared, prepare
from nginx_tune.sandbox.places import read_mounts
from nginx_tune.sandbox.spec import Confinement, ResourceLimits, Wall


class HostNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration wants of its host."""

    shown: list[str] = []
    """Files and directories that it reads."""
    written: list[str] = []
    """Directories that nginx makes or opens files in when it starts, sorted."""
    files: list[str] = []
    """Files that nginx opens for writing, sorted."""
    uses_unix_sockets: bool = False
    transparent: bool = False
    """Whether it sends from other addresses than the host's."""
    threads: int = 0
    """In the pools of one worker."""


class Enclosure:
    """The sandbox of one lab; made before the lab mounts anything."""

    def __init__(self, view: HostNeeds | None = None) -> None:
        self._view = view or HostNeeds()
        self._outer = {mount.mount_id for mount in read_mounts()}
        self._shown: list[str] = []
        self._writable: list[str] = []
        self._hidden: list[str] = []
        self._limits = ResourceLimits()
        self._weaker: list[Wall] = []
        self._instead: dict[str, str] = {}
        self.join_files: list[Path] = []
        """The cgroups that what is only tried runs in."""
        self._planned: dict[str, tuple[bytes, Prepared]] = {}

    @property
    def view(self) -> HostNeeds:
        """What the configuration wants of its host."""
        return self._view

    @property
    def outer_mounts(self) -> frozenset[int]:
        """The mounts that were there before the lab: the host's."""
        return frozenset(self._outer)

    def look(self, view: HostNeeds) -> None:
        """Have a configuration's wants."""
        self._view = view
        self._planned.clear()

    def show(self, *paths: str) -> None:
        """Show these too."""
        self._shown += paths
        self._planned.clear()

    def unshow(self, path: str) -> None:
        """Take back that a path is shown: it is to be written."""
        self._shown = [one for one in self._shown if one != path]
        self._planned.clear()

    def open(self, *directories: str) -> None:
        """Let these take writes: mounts of the lab, in memory or on its own disks."""
        self._writable += directories
        self._planned.clear()

    def weaken(self, walls: Iterable[Wall]) -> None:
        """Do without these walls where they cannot be had."""
        self._weaker = list(walls)
        self._planned.clear()

    def show_instead(self, path: str, ours: str) -> None:
        """Show a socket of ours at a path where the host may have its own."""
        self._instead[path] = ours
        self._planned.clear()

    def hide(self, *directories: str) -> None:
        """Keep these out of sight, even where what is around them is shown."""
        self._hidden += directories
        self._planned.clear()

    def prepare(self, programs: Sequence[str]) -> Prepared:
        """The sandbox for some programs, as the mounts are now.

        Errors: UndecidedError for a wall that this host cannot have.
        """
        key = "\0".join(programs)
        mounts = Path("/proc/self/mountinfo").read_bytes()
        before = self._planned.get(key)
        if before is not None and before[0] == mounts:
            return before[1]
        found = prepare(self._confinement(programs))
        self._planned[key] = (mounts, found)
        return found

    def _confinement(self, programs: Iterable[str]) -> Confinement:
        own = [m.mount_point for m in read_mounts() if m.mount_id not in self._outer]
        named = [path for program in programs for path in program_paths(program)]
        return Confinement(
            shown=[*system_paths(), *named, *self._view.shown, *self._shown],
            writable=self._writable,
            hidden=self._hidden,
            own=own,
            uses_unix_sockets=self._view.uses_unix_sockets,
            transparent=self._view.transparent,
            threads=self._view.threads,
            limits=self._limits,
            weaker=self._weaker,
            instead=self._instead,
        )
