"""System calls that threads are in, as /proc tells them (needs the right to trace the process)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nginx_tune.observe.parse_calls import Call, parse_call
from nginx_tune.observe.turn_counts import Wait

_MACHINE = os.uname().machine
_APPEND = os.O_APPEND
_WAITS: dict[str, Wait] = {"D": "blocked", "S": "asleep", "T": "stopped", "t": "stopped"}


def read_call(thread: int) -> Call | None:
    """The call that a main thread is in; None where it cannot be told."""
    try:
        descriptor = os.open(f"/proc/{thread}/task/{thread}/syscall", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 256)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return parse_call(text.decode("ascii", "replace"), _MACHINE)


def threads_in_turns(threads: Mapping[int, int]) -> dict[int, Wait | None]:
    """The threads that are in no epoll_wait now, by the kernel's ids, and what holds them.

    ``threads`` has them by the ids that we see. One that cannot be told is left out; nothing
    holds one that runs or could.
    """
    return {
        kernel_id: _WAITS.get(_state(seen))
        for seen, kernel_id in threads.items()
        if (call := read_call(seen)) is not None and call.kind != "loop"
    }


def _state(thread: int) -> str:
    """The letter of its state; empty when it is gone. Source: proc_pid_stat(5)."""
    try:
        with open(f"/proc/{thread}/task/{thread}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0].decode("ascii", "replace")
    except (OSError, IndexError):
        return ""


def file_of(thread: int, descriptor: int) -> str:
    """What a process has behind a descriptor: its path, with ``+`` before it when opened to append.

    Empty when it cannot be told.
    """
    try:
        path = os.readlink(f"/proc/{thread}/fd/{descriptor}")  # noqa: PTH115  # as stored
        with open(f"/proc/{thread}/fdinfo/{descriptor}", "rb") as file:  # noqa: PTH123
            flags = next((line for line in file if line.startswith(b"flags:")), b"flags: 0")
        return ("+" if int(flags.split()[1], 8) & _APPEND else "") + path
    except (OSError, ValueError, IndexError):
        return ""
