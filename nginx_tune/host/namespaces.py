"""Work done in another process's network namespace: what it reaches, not what we reach."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


def in_network_of(pid: int, ask: Callable[[], T]) -> T:
    """What a function gives back in the network namespace of a process.

    Errors: OSError when the namespace may not be entered or the process is gone; what the
            function raises.
    """
    if is_our_network(pid):
        return ask()
    # A thread has a namespace of its own choice and ends with it.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_enter_and_ask, pid, ask).result()


def is_our_network(pid: int) -> bool:
    """Whether a process has the network namespace of this one.

    Errors: OSError when that may not be asked or the process is gone.
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
