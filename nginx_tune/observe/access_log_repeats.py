"""Logs that repeat the lines of another: compressed, under another name, or overlapping copies.

The first lines of a log are searched for in the logs that begin before it. If they are found, the
two logs are compared from there until one of them ends. Only if nothing differs is one a repeat of
the other. So logs of two hosts over the same time, or of two servers that got the same requests for
a while, are not repeats.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from io import BufferedIOBase, BytesIO
from typing import Any

from nginx_tune.errors import UsageError

_HEAD_BYTES = 4096
_LONGEST_HEAD_BYTES = 1 << 17
_LEAST_LINES = 8
"""The fewest lines that two logs must share, unless they are the same from end to end."""
_BLOCK_BYTES = 1 << 20
_MOST_TRIES = 100
"""The most places in a log to try as the beginning of another: lines without a time are alike."""
Opened = Callable[[str], AbstractContextManager[tuple[BufferedIOBase, Any]]]


class Repeat:
    """Searches for one log in another, which is read block by block."""

    def __init__(self, log: str, opened: Opened, broken: tuple[type[Exception], ...]) -> None:
        self.log = log
        self._opened = opened
        self._broken = broken
        self._head = self._first_lines()
        self._before = b"\n"
        """The end of what was read so far, in which the head may begin; at first a line end."""
        self._stack = ExitStack()
        self._rest: Iterator[bytes] | None = None
        """The rest of the log to compare, once its head was found."""
        self._ahead = b""
        self._lines = 0
        self._at_start = self._is_first = False
        self._tries = _MOST_TRIES
        self.found = False

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the other log."""
        text = block if self._head and not self.found else b""
        while text:
            if self._rest is not None:
                text = self._compare(text)
                continue
            text = self._before + text
            at = text.find(b"\n" + self._head) if self._tries else -1
            if at < 0:
                self._before = text[-len(self._head) :]
                self._is_first = False
                return
            self._tries -= 1
            self._at_start = self._is_first and at == 0
            self._rest = self._contents()
            self._ahead, self._lines, self._before = b"", 0, b""
            text = text[at + 1 :]

    def start(self) -> None:
        """Note that the next log to search in begins."""
        self._before, self._is_first, self._tries = b"\n", True, _MOST_TRIES

    def end(self) -> None:
        """Note that the other log has ended."""
        if self._rest is not None and not self.found:
            is_whole = self._at_start and not self._ahead and next(self._rest, b"") == b""
            self.found = is_whole or self._lines >= _LEAST_LINES
        self._stop()

    def _compare(self, text: bytes) -> bytes:
        """Continue to compare; returns the rest after a difference, to be searched again."""
        assert self._rest is not None  # noqa: S101  # its head was found
        while text:
            self._ahead = self._ahead or next(self._rest, b"")
            if not self._ahead:  # all of it was found, and the other log goes on
                self.found = self._lines >= _LEAST_LINES
                self._stop()
                return b"" if self.found else text
            size = min(len(text), len(self._ahead))
            if text[:size] != self._ahead[:size]:
                self._stop()
                return text
            self._lines += text.count(b"\n", 0, size)
            text, self._ahead = text[size:], self._ahead[size:]
        return b""

    def _stop(self) -> None:
        self._stack.close()
        self._rest = None
        self._is_first = False

    def _contents(self) -> Iterator[bytes]:
        file, _ = self._stack.enter_context(self._opened(self.log))
        with contextlib.suppress(*self._broken):  # a truncated log ends there
            while block := file.read1(_BLOCK_BYTES):
                yield block

    def _first_lines(self) -> bytes:
        """The first whole lines: as many as must be shared, or fewer if the log has no more."""
        head = b""
        with contextlib.suppress(*self._broken), self._opened(self.log) as (file, _):
            while len(head) < _LONGEST_HEAD_BYTES and head.count(b"\n") < _LEAST_LINES:
                if not (more := file.read1(_HEAD_BYTES)):
                    break
                head += more
        lines = BytesIO(head[: head.rfind(b"\n") + 1]).readlines()
        return b"".join(lines[:_LEAST_LINES])


def refuse_repeats(repeats: list[Repeat], log: str) -> None:
    """Raise UsageError for a log whose lines were found in another."""
    for repeat in repeats:
        if repeat.found:
            raise UsageError(
                f"{repeat.log}: its lines stand in {log} too, and would count twice",
                hint="name each log once; if several hosts wrote the same lines, pipe them to '-'",
            )
