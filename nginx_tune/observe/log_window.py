"""What error logs got while somebody watched, in files that may be rotated meanwhile.

A log is held open from the start: a file that was renamed or removed goes on telling what the
old workers write to it, and a new file under the same name is read from its beginning.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Sequence

from nginx_tune.host.door import Missing
from nginx_tune.observe.parse_error_log import ErrorLogCounts, parse_error_log

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
MOST_BYTES = 64 << 20
"""Of one log in one window; an overflowing pool writes about 3 MB a second."""


class LogWindow:
    """One log from now on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor, self._start = _open_at_end(path)

    def finish(self) -> ErrorLogCounts | Missing:
        """What it got since, of this file and of one that took its name."""
        lines: list[bytes] = []
        if self._descriptor is not None:
            lines += _read_from(self._descriptor, self._start)
            held = os.fstat(self._descriptor)
            os.close(self._descriptor)
            with contextlib.suppress(OSError):
                now = os.stat(self.path)  # noqa: PTH116
                if (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino):
                    return parse_error_log(lines)
        try:
            descriptor = os.open(self.path, _FLAGS)
        except FileNotFoundError as error:
            # nginx has every log open from its start: one that never was here is another file.
            unseen = self._descriptor is None
            return Missing(f"{self.path}: {error.strerror}") if unseen else parse_error_log(lines)
        except (OSError, ValueError) as error:
            return Missing(f"{self.path}: {getattr(error, 'strerror', None) or error}")
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Missing(f"{self.path}: not a regular file")
            lines += _read_from(descriptor, 0)
        finally:
            os.close(descriptor)
        return parse_error_log(lines)


def _open_at_end(path: str) -> tuple[int | None, int]:
    """The open log and its size; none when it is not there yet or is no file."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None, 0
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        return None, 0
    return descriptor, found.st_size


def _read_from(descriptor: int, start: int) -> list[bytes]:
    """Whole lines from there on; from the beginning when the file was cut short meanwhile."""
    size = os.fstat(descriptor).st_size
    position = start if size >= start else 0
    end = min(size, position + MOST_BYTES)
    parts = []
    with contextlib.suppress(OSError):
        while position < end and (
            part := os.pread(descriptor, min(1 << 20, end - position), position)
        ):
            parts.append(part)
            position += len(part)
    return b"".join(parts).splitlines()


def add_counts(counts: Sequence[ErrorLogCounts]) -> ErrorLogCounts:
    """Several logs together."""
    levels: Counter[str] = Counter()
    messages: Counter[tuple[str, str]] = Counter()
    for one in counts:
        levels.update(one.levels)
        messages.update(one.messages)
    return ErrorLogCounts(dict(levels), dict(messages))
