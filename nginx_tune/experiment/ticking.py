"""Seconds told while something waits, for who watches."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from nginx_tune.documents.progress import Progress, Step

if TYPE_CHECKING:
    from typing_extensions import Self

_TICK_SECONDS = 1.0


class Ticker:
    """Tells each second how far a work of known length is; use as a context manager.

    What ends before its time leaves a leap, and what takes longer stands at its end.
    """

    def __init__(
        self, say: Progress, text: str, *, begins: float, ends: float, total: float
    ) -> None:
        self._say, self._text = say, text
        self._begins, self._ends, self._total = begins, ends, total
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._tell(0.0, live=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._over.wait(_TICK_SECONDS):
            self._tell(time.monotonic() - started, live=True)

    def _tell(self, seconds: float, *, live: bool) -> None:
        done = min(self._begins + seconds, self._ends)
        self._say(Step(self._text, done=done, total=self._total, unit="s", live=live))
