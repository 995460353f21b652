"""What a dead run left: only with its keeper killed too. Found by its mark and cleaned."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

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


def sweep() -> list[Path]:
    """Clean what dead runs of this user left; the directories that went."""
    places = {Path(p) for p in (*_PLACES, os.environ.get("TMPDIR", "/var/tmp"))}  # noqa: S108
    gone = []
    for directory in (d for place in sorted(places) for d in place.glob("nginx-tune-lab-*")):
        try:
            if directory.stat().st_uid != os.geteuid():
                continue
            record = json.loads((directory / _MARK).read_text())
            if is_running(int(record["pid"]), str(record["started"])):
                continue
            groups = [{"kind": "cgroup", "value": group} for group in record["cgroups"]]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        clean([*groups, {"kind": "directory", "value": str(directory)}])
        gone.append(directory)
    return gone
