"""Handlers of Ctrl-C, SIGTERM and SIGHUP that end the process or raise KeyboardInterrupt.

During imports they end the process at once, with the usual line and status 130: there is nothing to
clean up, and an exception would leave a module half imported and cause other errors. This module
imports almost nothing itself.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def end_at_once(_number: int = 0, _frame: FrameType | None = None) -> None:
    """Print that the process was interrupted, and end it."""
    try:
        os.write(2, b"nginx-tune: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process, unless it is ignored or has another handler."""
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
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, unless they are ignored (nohup).

    They end a command as Ctrl-C does, so that measurements are kept. With ``once``, further signals
    and Ctrl-C have no effect while the command ends.
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
