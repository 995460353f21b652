"""Cgroups around the scratch nginx, v1 or v2 for each controller: limits, and killed processes.

A hybrid host has some controllers on v1 and some on v2, so each is looked up separately. On v1 the
group is below our own, so that our limit cannot exceed an administrator's. On v2 a group with
processes cannot give controllers to children (cgroup-v2.rst, "No Internal Process Constraint"). So
the group is in a scope that systemd delegates. Without systemd it is below the root, which is
exempt.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from nginx_tune.errors import MissingPermissionError, UndecidedError

CGROUP_ROOT = Path("/sys/fs/cgroup")
PREFIX = "nginx-tune-"
PATIENCE_SECONDS = 3.0
"""The time to wait for ending processes to leave a group."""
_WALL_SHARE = 0.75
"""The share of the machine's memory that nginx may use if a lab sets no limit."""
_PAGE = 4096
_CPU_PERIOD = 100_000
"""The kernel's default period, in microseconds."""
_LEAST_QUOTA = 1000
"""The kernel's least quota, in microseconds per period."""


def sandbox_bytes() -> int:
    """Memory for all processes of a sandbox in bytes, including the page cache."""
    pages = os.sysconf("SC_PHYS_PAGES") * (os.sysconf("SC_PAGE_SIZE") // _PAGE)
    return int(pages * _WALL_SHARE) * _PAGE


class Controller(NamedTuple):
    """A controller, with the directory for new groups."""

    name: str
    version: int
    parent: Path


def find_controller(name: str, root: Path, own_groups: str) -> Controller | None:
    """The place for a new group of a controller; None if the host lacks the controller.

    ``own_groups`` is the text of ``/proc/self/cgroup``. ``blkio`` is the v1 name of ``io``.
    """
    for line in own_groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if name in controllers.split(","):
            parent = root / name / path.lstrip("/")
            return Controller(name, 1, parent if parent.is_dir() else root / name)
    unified_name = "io" if name == "blkio" else name
    for unified in (root, root / "unified"):
        available = unified / "cgroup.controllers"
        if available.is_file() and unified_name in available.read_text().split():
            return Controller(unified_name, 2, unified)
    return None


def why_no_disk_limits() -> str:
    """The reason why reads of disks cannot be limited; empty if they can."""
    own_groups = Path("/proc/self/cgroup").read_text()
    if find_controller("blkio", CGROUP_ROOT, own_groups) is None:
        return "the blkio cgroup controller is not on this host"
    return ""


class LabCgroups:
    """The cgroups of a lab.

    ``before_making`` gets each directory before it is made. ``before_enabling`` gets each
    controller before it is given to the root's children (``NAME FILE``). So both can be cleaned up
    even if the maker dies at once. ``delegate`` takes the root of a v2 tree and returns the
    directory for the lab's group. Without ``delegate``, that is the root itself.
    """

    def __init__(
        self,
        mark: str,
        *,
        before_making: Callable[[Path], None] | None = None,
        before_enabling: Callable[[str], None] | None = None,
        delegate: Callable[[Path], Path] | None = None,
        root: Path = CGROUP_ROOT,
        own_groups: str | None = None,
    ) -> None:
        text = Path("/proc/self/cgroup").read_text() if own_groups is None else own_groups
        self._name = PREFIX + mark
        self._root = root
        self._before_making = before_making or (lambda _: None)
        self._before_enabling = before_enabling or (lambda _: None)
        self._delegate = delegate
        self._delegated: dict[Path, Path] = {}
        self._own_groups = text
        self._controllers: dict[str, Controller] = {}

    @property
    def directories(self) -> list[Path]:
        """The directories of the group, one for each hierarchy in use."""
        places = {c.parent / self._name: None for c in self._controllers.values()}
        return list(places)

    def directory(self, controller: str) -> Path | None:
        """The directory of a controller, if the controller is in use."""
        found = self._controllers.get(controller)
        return found.parent / self._name if found else None

    def use(self, name: str) -> Controller:
        """Make the group in the hierarchy of a controller.

        Errors: UndecidedError if the host lacks the controller, MissingPermissionError if its
                directory is not writable.
        Side effects: makes a directory in the cgroup file system.
        """
        if name in self._controllers:
            return self._controllers[name]
        controller = find_controller(name, self._root, self._own_groups)
        if controller is None:
            raise UndecidedError(
                f"the {name} cgroup controller is not on this host",
                hint="enable it in the kernel or use a lab without that limit",
            )
        if controller.version == 2:  # noqa: PLR2004
            controller = controller._replace(parent=self._arrangeable(controller))
        try:
            if controller.version == 2:  # noqa: PLR2004
                self._enable(controller)
            directory = controller.parent / self._name
            if not directory.exists():
                self._before_making(directory)
                directory.mkdir()
        except OSError as error:
            raise MissingPermissionError(
                f"{controller.parent}: cannot make a {name} cgroup: {error.strerror}",
                hint="run as root on a host that lets you write cgroups",
            ) from None
        self._controllers[name] = controller
        return controller

    def _arrangeable(self, controller: Controller) -> Path:
        """The directory of a v2 tree in which the lab may make its group."""
        root = controller.parent
        if self._delegate is None:
            return root
        if root not in self._delegated:
            self._delegated[root] = self._delegate(root)
        scope = self._delegated[root]
        if controller.name not in (scope / "cgroup.controllers").read_text().split():
            raise UndecidedError(
                f"{scope}: systemd does not delegate the {controller.name} controller",
                hint="see DisableControllers= of the slice",
            )
        return scope

    def _enable(self, controller: Controller) -> None:
        control = controller.parent / "cgroup.subtree_control"
        if controller.name not in control.read_text().split():
            self._before_enabling(f"{controller.name} {control}")
            control.write_text(f"+{controller.name}")

    def limit_memory(self, limit_bytes: int) -> None:
        """Limit all memory of the group, including the page cache."""
        controller = self.use("memory")
        directory = controller.parent / self._name
        if controller.version == 1:
            (directory / "memory.limit_in_bytes").write_text(str(limit_bytes))
            return
        (directory / "memory.max").write_text(str(limit_bytes))
        with contextlib.suppress(OSError):  # without swap accounting
            (directory / "memory.swap.max").write_text("0")

    def limit_cpu(self, cpus: float) -> None:
        """Limit the group's CPU time to that of ``cpus`` CPUs.

        Source: CFS bandwidth control; v1 ``cpu.cfs_quota_us``, v2 ``cpu.max``.
        """
        controller = self.use("cpu")
        directory = controller.parent / self._name
        quota = max(_LEAST_QUOTA, round(cpus * _CPU_PERIOD))
        if controller.version == 1:
            (directory / "cpu.cfs_period_us").write_text(str(_CPU_PERIOD))
            (directory / "cpu.cfs_quota_us").write_text(str(quota))
            return
        (directory / "cpu.max").write_text(f"{quota} {_CPU_PERIOD}")

    def limit_processes(self, most: int) -> None:
        """Limit the group's processes and threads. Source: cgroup v1 and v2, ``pids.max``."""
        controller = self.use("pids")
        (controller.parent / self._name / "pids.max").write_text(str(most))

    def limit_reads(
        self, device: str, *, bytes_per_second: int | None, reads_per_second: int | None
    ) -> None:
        """Limit reads of a block device (``MAJOR:MINOR``).

        Source: blk-throttle; v1 ``blkio.throttle.read_*_device``, v2 ``io.max``.
        """
        controller = self.use("blkio")
        directory = controller.parent / self._name
        if controller.version == 1:
            for file, value in (("read_bps", bytes_per_second), ("read_iops", reads_per_second)):
                if value is not None:
                    (directory / f"blkio.throttle.{file}_device").write_text(f"{device} {value}")
            return
        limits = [f"rbps={bytes_per_second}"] if bytes_per_second is not None else []
        limits += [f"riops={reads_per_second}"] if reads_per_second is not None else []
        if limits:
            (directory / "io.max").write_text(f"{device} {' '.join(limits)}")

    def join_files(self) -> list[Path]:
        """Files to which a single-threaded process writes ``0`` to enter the group.

        On v1 they are the files for threads: a thread moves itself at once, while moving a process
        blocks every fork of the machine for some RCU grace periods, about 20 ms.
        Source: kernel/cgroup/cgroup.c, cgroup_procs_write_start (Linux 5.7).
        """
        found: dict[Path, None] = {}
        for controller in self._controllers.values():
            name = "tasks" if controller.version == 1 else "cgroup.procs"
            found[controller.parent / self._name / name] = None
        return list(found)

    def remove(self, *, patience_seconds: float = PATIENCE_SECONDS) -> list[Path]:
        """Remove the directories, and return those that remain."""
        return [
            directory
            for directory in self.directories
            if not remove_group(directory, patience_seconds=patience_seconds)
        ]


def _limit_of(directory: Path) -> str:
    with contextlib.suppress(OSError):
        return (directory / "memory.limit_in_bytes").read_text().strip()
    return ""


def disable_controller(enabled: str) -> None:
    """Disable a controller that was given to ``before_enabling``, unless others use it by now."""
    name, _, control = enabled.partition(" ")
    with contextlib.suppress(OSError):
        Path(control).write_text(f"-{name}")


def remove_group(directory: Path, *, patience_seconds: float = PATIENCE_SECONDS) -> bool:
    """Remove a cgroup once its processes are gone; False if it could not be removed.

    Its page cache is freed first (v1 ``memory.force_empty``), since otherwise the kernel keeps the
    removed group. In a sandbox without a lab, the pages belong to the operator's files and must
    stay in the cache, so they are not freed, and the kernel keeps the group.
    """
    deadline = time.monotonic() + patience_seconds
    keeps_pages = _limit_of(directory) == str(sandbox_bytes())
    while directory.is_dir():
        reclaim = directory / "memory.force_empty"
        if not keeps_pages and reclaim.exists():
            with contextlib.suppress(OSError):
                reclaim.write_text("0")
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True


_COUNTS = ("memory.events", "memory.oom_control")
"""The files of v2 and v1; each has a line ``oom_kill N`` (v1 since Linux 4.13)."""
_LIMITS = ("memory.max", "memory.limit_in_bytes")


class MemoryKills(NamedTuple):
    """The processes that the kernel killed for lack of memory, in a group and, on v2, below it."""

    processes: int
    limit_bytes: int | None


def count_memory_kills(join_files: Iterable[str | Path]) -> MemoryKills:
    """The kills so far in the groups of these ``cgroup.procs`` files; 0 if unreadable."""
    count, limit = 0, None
    for file in join_files:
        directory = Path(file).parent
        for name in _COUNTS:
            count += _count(directory / name)
        for name in _LIMITS:
            text = _read(directory / name).strip()
            limit = int(text) if text.isdigit() else limit
    return MemoryKills(count, limit)


def _count(file: Path) -> int:
    for line in _read(file).splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            return int(number)
    return 0


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
