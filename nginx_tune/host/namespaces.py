"""Namespaces of processes: calls in another network namespace, and the kernel's process ids.

A process sees other processes by their ids in its PID namespace. Trace events and BPF programs use
the ids of the initial namespace. In the sandbox those are read from the outer /proc, which is
passed in as an open directory.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from nginx_tune.host.door import Missing

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


def in_network_of(pid: int, ask: Callable[[], T]) -> T:
    """The result of a function in a process's network namespace.

    Errors: OSError when the namespace cannot be entered or the process is gone; also the function's
    own errors.
    """
    if is_our_network(pid):
        return ask()
    # A single thread can enter a namespace; this thread ends with the call.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_enter_and_ask, pid, ask).result()


def is_our_network(pid: int) -> bool:
    """True for a process in our network namespace.

    Errors: OSError when that is not readable or the process is gone.
    """
    theirs, ours = (os.stat(f"/proc/{who}/ns/net") for who in (pid, "self"))  # noqa: PTH116
    return theirs.st_ino == ours.st_ino


def _enter_and_ask(pid: int, ask: Callable[[], T]) -> T:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
    return ask()


OUTER_PROC_VARIABLE = "NGINX_TUNE_OUTER_PROC"
"""The environment variable with the descriptor of the initial PID namespace's /proc."""
INITIAL_NAMESPACE = "pid:[4026531836]"
"""The initial PID namespace, the same on every kernel (PROC_PID_INIT_INO)."""


def is_initial_namespace() -> bool:
    """True if this process is in the initial PID namespace."""
    try:
        return Path("/proc/self/ns/pid").readlink() == Path(INITIAL_NAMESPACE)
    except OSError:
        return False


def read_global_ids(pids: Sequence[int]) -> dict[int, int] | Missing:
    """The id in the initial PID namespace of each process that still exists."""
    if is_initial_namespace():
        return {pid: pid for pid in pids}
    descriptor = os.environ.get(OUTER_PROC_VARIABLE, "")
    outer = Path("/proc/self/fd") / descriptor
    if not descriptor.isdecimal() or not outer.is_dir():
        return Missing(
            "this process is in a process namespace (a container): "
            "the kernel's events have other process ids"
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
            if any(known == ids[-count:] for _, known in wanted):
                space = space or _namespace(entry)
                if (space, ids[-count:]) in wanted:
                    found[wanted[space, ids[-count:]]] = int(entry.name)
    return found


def _ids(process: Path) -> tuple[int, ...]:
    """A process's ids (NSpid), from the PID namespace of this /proc down to its own."""
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
