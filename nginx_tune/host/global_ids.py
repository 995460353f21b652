"""The ids that the kernel itself uses for processes: what its events name.

A process in a process namespace sees others by the ids of that namespace; trace events and BPF
programs name the initial ones. From inside the lab's walls they are looked up in the /proc that
was there outside, which comes in as an open directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nginx_tune.host.door import Missing

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
    wanted: dict[tuple[Path | None, tuple[int, ...]], int] = {}
    for pid in pids:
        own = Path("/proc") / str(pid)
        wanted[_namespace(own), _ids(own)] = pid
    depth = {len(ids) for _, ids in wanted}
    found = {}
    for entry in outer.iterdir():
        if not entry.name.isdecimal():
            continue
        ids, space = _ids(entry), None
        for count in depth:
            if any(one == ids[-count:] for _, one in wanted):
                space = space or _namespace(entry)
                if (space, ids[-count:]) in wanted:
                    found[wanted[space, ids[-count:]]] = int(entry.name)
    return found


def _ids(process: Path) -> tuple[int, ...]:
    """Its ids from the namespace of this /proc to its own, the innermost; NSpid of its status."""
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
        line = next(line for line in lines if line.startswith("NSpid:"))
        return tuple(int(word) for word in line.split()[1:])
    except (OSError, ValueError, StopIteration):
        return ()


def _namespace(process: Path) -> Path | None:
    try:
        return (process / "ns" / "pid").readlink()
    except OSError:
        return None
