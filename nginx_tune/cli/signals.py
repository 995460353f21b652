"""Ctrl-C, SIGTERM and a closed terminal: the process ends at once, or as an interrupt.

While modules are imported nothing has begun that would have to be ended. An exception amid an
import leaves half of a module behind, and other exceptions in its place; so the process ends at
once there, as it does later: a line, and 130. This module imports next to nothing itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def end_at_once(_number: int = 0, _frame: FrameType | None = None) -> None:
    """Say that it was interrupted, and end."""
    try:
        os.write(2, b"nginx-tune: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Inside, Ctrl-C ends the process; one that was ignored or means something else stays so."""
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


@contextmanager
def as_interrupt(*, once: bool = False) -> Iterator[None]:
    """Inside, these signals raise KeyboardInterrupt; one that was ignored stays so (nohup).

    So SIGTERM and a closed terminal end a command as Ctrl-C does: what was measured is kept.
    With ``once`` those after the first, and further Ctrl-C, change nothing: it is being ended.
    """
    import threading  # noqa: PLC0415  # not for Ctrl-C at the start

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    came = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if not (once and came):
            came = True
            raise KeyboardInterrupt

    for number in (*_SIGNALS, signal.SIGINT) if once else _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
