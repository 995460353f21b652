"""What a dead run left: only with its keeper killed too. Found by its mark and cleaned."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.cgroups import CGROUP_ROOT, PREFIX
from nginx_tune.nginx.lab.keeper import clean
from nginx_tune.nginx.lab.lifetime import is_running, start_time

_MARK = "mark.json"
_PLACES = ("/var/tmp", "/tmp")  # noqa: S108  # only directories with our own mark are touched
_NAME = re.compile(r"nginx-tune-lab-([0-9]+)-([0-9]+)-([0-9a-f]+)(?:-([0-9]+))?")
"""Whose a directory is, by its name alone: the command's pid, its start time, a random number.

Behind them stands the process namespace of the pid.
"""


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
    """Whether a path that stands in a file is a group that a lab made."""
    path = Path(group)
    return path.name.startswith(PREFIX) and CGROUP_ROOT in path.parents and ".." not in path.parts
