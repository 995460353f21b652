"""SIGTERM and a closed terminal end a command as Ctrl-C does: what was measured is kept."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def as_interrupt() -> Iterator[None]:
    """Inside, these signals raise KeyboardInterrupt; one that was ignored stays so (nohup)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
