"""SIGTERM and a closed terminal end a command as Ctrl-C does: what was measured is kept."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def as_interrupt(*, once: bool = False) -> Iterator[None]:
    """Inside, these signals raise KeyboardInterrupt; one that was ignored stays so (nohup).

    With ``once`` those after the first, and further Ctrl-C, change nothing: it is being ended.
    """
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
