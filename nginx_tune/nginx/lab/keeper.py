"""The keeper, a process that cleans up after a lab however it ends, and the removal of dead labs.

The keeper starts before anything that outlives a process, in a session of its own, so that Ctrl-C
does not reach it. It reads its tasks from a pipe that only the command holds. The pipe closes at a
normal end, an error, or kill -9 of the command. The keeper then kills the lab's first process. The
namespaces end with that process, and so do all other processes and mounts. Then the keeper detaches
loop devices, and removes the cgroups and the directory.

Only a killed keeper leaves something behind. The next run finds it by the mark in the lab's
directory, or by the directory's name, and cleans it up.
"""

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
    """The command's side of the pipe to the keeper."""

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
        """The keeper's process id."""
        return self._process.pid

    def note(self, kind: str, value: str | int) -> None:
        """Give the keeper something to clean up.

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
                "the process that cleans up after the lab has died",
                hint="something killed it (short of memory?): see dmesg",
            ) from None

    def finish(self, *, patience_seconds: float = 20.0) -> None:
        """Close the pipe and wait until everything is cleaned up.

        If the keeper was killed, its work is done here. A keeper that needs longer than
        ``patience_seconds`` continues by itself.
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
    """Make the kernel end other processes first when memory is short (only root may).

    The value is not -1000, which exempts a process entirely: alone in a cgroup that is too small,
    it would hang (Documentation/filesystems/proc.rst, oom_score_adj).
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("-999")


def clean(records: list[dict[str, Any]]) -> None:
    """Clean up what the records list: processes, then loop devices, cgroups and directories.

    Limits of devices come first, while the devices certainly still belong to the lab.
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
    """The start of a process in clock ticks since boot; with the pid, it identifies the process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="surrogateescape")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def new_mark() -> str:
    """A mark for this process's children: its user, id and start, and a random number.

    Anyone can forge a mark; the probe has the kernel confirm it (``probes/src/own_processes.rs``).
    """
    pid = os.getpid()
    return f"{os.geteuid()}-{pid}-{start_time(pid) or 0}-{secrets.token_hex(4)}"


def is_running(pid: int, started: str | None) -> bool:
    """True while the process with this pid and start time exists; a pid alone may be reused."""
    return started is not None and start_time(pid) == started


def kill(pid: int, started: str | None) -> None:
    """Kill the process with this pid and start time (SIGKILL), if it still exists."""
    if is_running(pid, started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


_MARK = "mark.json"
_PLACES = ("/var/tmp", "/tmp")  # noqa: S108  # only directories with our own mark are touched
_NAME = re.compile(r"nginx-tune-lab-([0-9]+)-([0-9]+)-([0-9a-f]+)(?:-([0-9]+))?")
"""The name of a lab's directory: the command's pid and start time, a random number, and the PID
namespace of the command."""


def make_directory(base: str, mark: str, *, before_making: Callable[[str], None]) -> Path:
    """Make a lab's directory with its mark; first call ``before_making`` with its path.

    The name identifies the owner too: on a full disk a directory can often still be made, but not
    a file in it.
    Errors: UndecidedError with the path if the directory cannot be made or marked; nothing is left
            behind then.
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
            f"{error.filename or directory}: cannot be written: {error.strerror}", hint=_hint(error)
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
    """Write a directory's owner into it: the command's pid and start time, and its cgroups."""
    path = directory / _MARK
    record: dict[str, Any] = (
        json.loads(path.read_text())
        if path.exists()
        else {"mark": mark, "pid": os.getpid(), "started": start_time(os.getpid()), "cgroups": []}
    )
    record.setdefault("processes", _process_namespace())
    if cgroup is not None:
        record["cgroups"].append(str(cgroup))
    # Replaced as a whole: the disk may be full, or the command may be killed meanwhile.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record))
    new.replace(path)


class Leftover(NamedTuple):
    """The directory of a lab, and whether its command still runs."""

    directory: Path
    mark: str
    pid: int
    running: bool
    cgroups: list[str]


def find_labs() -> list[Leftover]:
    """This user's labs, running or dead."""
    places = {Path(p) for p in (*_PLACES, os.environ.get("TMPDIR", "/var/tmp"))}  # noqa: S108
    found = []
    own = _process_namespace()
    for directory in (d for place in sorted(places) for d in place.glob("nginx-tune-lab-*")):
        try:
            record = _read_mark(directory)
            pid = int(record["pid"])
            # A process in another PID namespace cannot be seen here, so its lab is left alone.
            elsewhere = record.get("processes", own) != own
            running = elsewhere or is_running(pid, str(record["started"]))
            groups = [str(group) for group in record["cgroups"]]
            found.append(Leftover(directory, str(record["mark"]), pid, running, groups))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _process_namespace() -> str:
    """The kernel's name of this PID namespace; empty if not known."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _read_mark(directory: Path) -> dict[str, Any]:
    """The record in a directory of this user, otherwise the record from its name.

    The directory is opened without following a link and belongs to this user, so in a sticky
    directory nobody else can move or replace it.
    Errors: OSError for anything but a directory that only this user may write; ValueError without
            a record.
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
    """Clean up after dead labs, and return the directories that were removed."""
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
    """Clean up after this user's dead runs, and return the directories that were removed."""
    return clean_dead(find_labs())


def _is_ours(group: str) -> bool:
    """True if a path that was read from a file is the cgroup of a lab."""
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
