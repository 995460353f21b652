"""The keeper: one small process that cleans up after a lab, however the lab ended.

It is started before anything that outlives a process is made, in a session of its own so that
Ctrl-C does not reach it, and reads what there is to clean from a pipe that only the command
holds. When the pipe closes (a normal end, an error, or kill -9 of the command) it kills the
lab's first process (whose namespaces take every other process and mount along), detaches loop
devices, removes the cgroups and the directory, and goes.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from nginx_tune.errors import UndecidedError
from nginx_tune.host.programs import own_module, start_text_program
from nginx_tune.nginx.lab.cgroups import disable_controller, remove_group
from nginx_tune.nginx.lab.dirty import lift_dirty_limit
from nginx_tune.nginx.lab.disks import release_loops
from nginx_tune.nginx.lab.lifetime import kill, start_time


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
