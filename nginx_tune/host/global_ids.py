"""The ids that the kernel itself uses for processes: what its events name.

A process in a process namespace sees others by the ids of that namespace; trace events and BPF
programs name the initial ones. From inside the lab's walls they are looked up in the /proc that
was there outside, which comes in as an open directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nginx_tune.host.gaps import Missing

OUTER_PROC_VARIABLE = "NGINX_TUNE_OUTER_PROC"
"""Names the descriptor of the /proc of the initial process namespace."""
INITIAL_NAMESPACE = "pid:[4026531836]"
"""The initial namespace has this number on every kernel (PROC_PID_INIT_INO)."""


def is_initial_namespace() -> bool:
    """Whether the ids that this process sees are the kernel's own."""
    try:
        return Path("/proc/self/ns/pid").readlink() == Path(INITIAL_NAMESPACE)
    except OSError:
        return False


def read_global_ids(pids: Sequence[int]) -> dict[int, int] | Missing:
    """The kernel's own id of each process; those that are gone are left out."""
    if is_initial_namespace():
        return {pid: pid for pid in pids}
    descriptor = os.environ.get(OUTER_PROC_VARIABLE, "")
    outer = Path("/proc/self/fd") / descriptor
    if not descriptor.isdecimal() or not outer.is_dir():
        return Missing(
            "this process lives in a process namespace (a container): "
            "the kernel's events name others' ids"
        )
    own = Path("/proc/self/ns/pid").readlink()
    wanted = set(pids)
    found = {}
    for entry in outer.iterdir():
        if entry.name.isdecimal():
            inner = _inner_id(entry)
            if inner in wanted and _namespace(entry) == own:
                found[inner] = int(entry.name)
    return found


def _inner_id(process: Path) -> int | None:
    """The id in the innermost namespace of the process, from NSpid of its status."""
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
        return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))
    except (OSError, ValueError, StopIteration):
        return None


def _namespace(process: Path) -> Path | None:
    try:
        return (process / "ns" / "pid").readlink()
    except OSError:
        return None
