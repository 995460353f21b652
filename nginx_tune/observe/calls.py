"""System calls that threads are in, as /proc tells them (needs the right to trace the process)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nginx_tune.observe.parse_calls import Call, parse_call

_MACHINE = os.uname().machine
_APPEND = os.O_APPEND


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


def threads_in_turns(threads: Mapping[int, int]) -> set[int]:
    """The kernel's ids of the threads that are in no epoll_wait now.

    ``threads`` has them by the ids that we see. One that cannot be told is left out.
    """
    return {
        kernel_id
        for seen, kernel_id in threads.items()
        if (call := read_call(seen)) is not None and call.kind != "loop"
    }


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
