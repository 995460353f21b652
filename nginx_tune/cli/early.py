"""Ctrl-C while modules are imported, when nothing has begun that would have to be ended.

An exception amid an import leaves half of a module behind, and other exceptions in its place; so
the process ends at once there, as it does later: a line, and 130. Imports next to nothing itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


def end_at_once(_number: int = 0, _frame: FrameType | None = None) -> None:
    """Say that it was interrupted, and end."""
    try:
        os.write(2, b"nginx-tune: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Inside, Ctrl-C ends the process; where it was ignored, or means something else, it stays."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, end_at_once)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
