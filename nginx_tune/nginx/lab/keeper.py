"""The keeper, a small process that cleans up after a lab however it ended, and what dead labs left.

The keeper is started before anything that outlives a process is made, in a session of its own so
that Ctrl-C does not reach it, and reads what there is to clean from a pipe that only the command
holds. When the pipe closes (a normal end, an error, or kill -9 of the command) it kills the
lab's first process (whose namespaces take every other process and mount along), detaches loop
devices, removes the cgroups and the directory, and goes.

Something is left only where the keeper was killed too. It is found by the mark in the lab's
directory, or else by the directory's name, and cleaned by the next run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nginx_tune.errors import UndecidedError
from nginx_tune.host.programs import own_module, start_text_program
from nginx_tune.nginx.lab.cgroups import CGROUP_ROOT, PREFIX, disable_controller, remove_group
from nginx_tune.nginx.lab.disks import lift_dirty_limit, release_loops


class Keeper:
    """The command's end of the pipe."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []
        self._process = start_text_program(
            own_module("nginx_tune.nginx.lab.keeper"),
            is_checked=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        _spare(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def note(self, kind: str, value: str | int) -> None:
        """Tell the keeper of something to clean, by its kind.

        Kinds: ``process``, ``cgroup``, ``controller`` (a cgroup controller that was enabled),
        ``dirty-limit`` (of a device, ``MAJOR:MINOR``) and ``directory``.
        """
        record: dict[str, Any] = {"kind": kind, "value": value}
        if kind == "process":
            record["started"] = start_time(int(value))
        self._records.append(record)
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.write(json.dumps(record) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise UndecidedError(
                "the process that cleans up after the lab ended",
                hint="something killed it (short of memory?): see dmesg",
            ) from None

    def finish(self, *, patience_seconds: float = 20.0) -> None:
        """Close the pipe and wait until all is clean.

        What a keeper that was killed has left to do is done here; one that needs longer than the
        patience goes on by itself.
        """
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            status = self._process.wait(timeout=patience_seconds)
        except subprocess.TimeoutExpired:
            return
        if status != 0:
            clean(self._records)


def _spare(pid: int) -> None:
    """Have the kernel, when memory is short, end all else before this process (root alone may).

    Not -1000, which would never end it: alone in a cgroup that is too small it would hang
    (Documentation/filesystems/proc.rst, oom_score_adj).
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("-999")


def clean(records: list[dict[str, Any]]) -> None:
    """Undo what is on record: processes first, then loop devices, cgroups and directories.

    Before all others the limits of devices, while these are surely the lab's.
    """
    kinds = ("dirty-limit", "process", "cgroup", "controller", "directory")
    by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for record in records:
        by_kind[record["kind"]].append(record)
    for record in by_kind["dirty-limit"]:
        lift_dirty_limit(record["value"])
    for record in by_kind["process"]:
        kill(int(record["value"]), record["started"])
    for record in by_kind["cgroup"]:
        remove_group(Path(record["value"]), patience_seconds=10.0)
    for record in by_kind["controller"]:
        disable_controller(record["value"])
    for record in by_kind["directory"]:
        release_loops(Path(record["value"]))
        shutil.rmtree(record["value"], ignore_errors=True)


def start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; with the pid it names one process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="surrogateescape")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def new_mark() -> str:
    """The mark of what this process starts: its user, id and start, and a random number.

    Anybody can write one; the probe has the kernel confirm it (``probes/src/own_processes.rs``).
    """
    pid = os.getpid()
    return f"{os.geteuid()}-{pid}-{start_time(pid) or 0}-{secrets.token_hex(4)}"


def is_running(pid: int, started: str | None) -> bool:
    """True while that very process is there (a pid alone may have been given anew)."""
    return started is not None and start_time(pid) == started


def kill(pid: int, started: str | None) -> None:
    """SIGKILL that very process, if it is still there."""
    if is_running(pid, started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


_MARK = "mark.json"
_PLACES = ("/var/tmp", "/tmp")  # noqa: S108  # only directories with our own mark are touched
_NAME = re.compile(r"nginx-tune-lab-([0-9]+)-([0-9]+)-([0-9a-f]+)(?:-([0-9]+))?")
"""The name of a lab's directory: the command's pid, its start time, a random number, and the
process namespace of the pid."""


def make_directory(base: str, mark: str, *, before_making: Callable[[str], None]) -> Path:
    """A lab's directory with its mark; ``before_making`` is told of it first.

    Its name says whose it is: on a full disk a directory can often still be made, but no file
    in it, and then nobody would know whose it is.
    Errors: UndecidedError with the path when it cannot be made or marked; then nothing is left.
    """
    owner = f"{os.getpid()}-{start_time(os.getpid()) or 0}-{secrets.token_hex(4)}"
    inside = re.sub("[^0-9]", "", _process_namespace())
    directory = Path(base, f"nginx-tune-lab-{owner}" + (f"-{inside}" if inside else ""))
    before_making(str(directory))
    try:
        directory.mkdir(mode=0o700)
        write_mark(directory, mark)
    except OSError as error:
        raise UndecidedError(
            f"{error.filename or directory}: cannot be written: {error.strerror}",
            hint=_hint(error),
        ) from None
    return directory


def _hint(error: OSError) -> str:
    if error.errno != errno.EROFS:
        return "make room there, or name another directory with TMPDIR"
    return (
        "name another directory with TMPDIR; in a systemd unit with ProtectSystem=strict "
        "PrivateTmp=yes gives one"
    )


def write_mark(directory: Path, mark: str, *, cgroup: Path | None = None) -> None:
    """Say whose the directory is: the command's pid with its start time, and its cgroups."""
    path = directory / _MARK
    record: dict[str, Any] = (
        json.loads(path.read_text())
        if path.exists()
        else {"mark": mark, "pid": os.getpid(), "started": start_time(os.getpid()), "cgroups": []}
    )
    record.setdefault("processes", _process_namespace())
    if cgroup is not None:
        record["cgroups"].append(str(cgroup))
    # Never half a record: the disk may be full, or the command killed in the middle.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record))
    new.replace(path)


class Leftover(NamedTuple):
    """A lab's directory, and whether its command still runs."""

    directory: Path
    mark: str
    pid: int
    running: bool
    cgroups: list[str]


def find_labs() -> list[Leftover]:
    """The labs of this user, running or dead, by directory."""
    places = {Path(p) for p in (*_PLACES, os.environ.get("TMPDIR", "/var/tmp"))}  # noqa: S108
    found = []
    own = _process_namespace()
    for directory in (d for place in sorted(places) for d in place.glob("nginx-tune-lab-*")):
        try:
            record = _read_mark(directory)
            pid = int(record["pid"])
            # What runs in another process namespace cannot be seen from here: it is left alone.
            elsewhere = record.get("processes", own) != own
            running = elsewhere or is_running(pid, str(record["started"]))
            groups = [str(group) for group in record["cgroups"]]
            found.append(Leftover(directory, str(record["mark"]), pid, running, groups))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _process_namespace() -> str:
    """The kernel's name of the process namespace that ids are of; empty where it tells none."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _read_mark(directory: Path) -> dict[str, Any]:
    """The record in a directory of this user's, else what its name says.

    What is opened without following a link and is this user's stays there: nobody else can move it
    away in a sticky directory, or exchange it for something else.
    Errors: OSError for what is no directory of this user's alone; ValueError where neither tells.
    """
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "another user's", str(directory))
        return _record_of(directory, number)
    finally:
        os.close(number)


def _record_of(directory: Path, number: int) -> dict[str, Any]:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(_MARK, flags, dir_fd=number)) as file:
            record: dict[str, Any] = json.loads(file.read())
    except (OSError, ValueError):
        named = _NAME.fullmatch(directory.name)
        if named is None:
            raise
        pid, started, drawn, inside = named.groups()
        record = {"mark": f"{pid}-{drawn}", "pid": pid, "started": started, "cgroups": []}
        if inside is not None:
            record["processes"] = f"pid:[{inside}]"
    return record


def clean_dead(labs: list[Leftover]) -> list[Path]:
    """Clean what dead labs left; the directories that went."""
    gone = []
    for left in labs:
        if left.running:
            continue
        groups = [{"kind": "cgroup", "value": group} for group in left.cgroups if _is_ours(group)]
        clean([*groups, {"kind": "directory", "value": str(left.directory)}])
        if not left.directory.exists():
            gone.append(left.directory)
    return gone


def sweep() -> list[Path]:
    """Clean what dead runs of this user left; the directories that went."""
    return clean_dead(find_labs())


def _is_ours(group: str) -> bool:
    """True where a path that was read from a file is a group that a lab made."""
    path = Path(group)
    return path.name.startswith(PREFIX) and CGROUP_ROOT in path.parents and ".." not in path.parts


def _main() -> None:
    records = []
    for line in sys.stdin:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:  # the command died in the middle of a line
            break
    clean(records)


if __name__ == "__main__":
    _main()
