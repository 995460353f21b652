"""What a dead run left: only with its keeper killed too. Found by its mark and cleaned."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from nginx_tune.lab.cgroups import CGROUP_ROOT, PREFIX
from nginx_tune.lab.keeper import clean
from nginx_tune.lab.lifetime import is_running, start_time

_MARK = "mark.json"
_PLACES = ("/var/tmp", "/tmp")  # noqa: S108  # only directories with our own mark are touched


def write_mark(directory: Path, mark: str, *, cgroup: Path | None = None) -> None:
    """Say whose the directory is: the command's pid with its start time, and its cgroups."""
    path = directory / _MARK
    record: dict[str, Any] = (
        json.loads(path.read_text())
        if path.exists()
        else {"mark": mark, "pid": os.getpid(), "started": start_time(os.getpid()), "cgroups": []}
    )
    if cgroup is not None:
        record["cgroups"].append(str(cgroup))
    path.write_text(json.dumps(record))


class Left(NamedTuple):
    """A lab's directory, and whether its command still runs."""

    directory: Path
    mark: str
    pid: int
    running: bool
    cgroups: list[str]


def find_labs() -> list[Left]:
    """The labs of this user, running or dead, by directory."""
    places = {Path(p) for p in (*_PLACES, os.environ.get("TMPDIR", "/var/tmp"))}  # noqa: S108
    found = []
    for directory in (d for place in sorted(places) for d in place.glob("nginx-tune-lab-*")):
        try:
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            record = json.loads((directory / _MARK).read_text())
            pid = int(record["pid"])
            running = is_running(pid, str(record["started"]))
            groups = [str(group) for group in record["cgroups"]]
            found.append(Left(directory, str(record["mark"]), pid, running, groups))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def clean_dead(labs: list[Left]) -> list[Path]:
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
