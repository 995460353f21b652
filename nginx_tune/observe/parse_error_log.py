"""What an nginx error log says; pure, bytes in, counts out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_LEVEL = re.compile(rb"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\w{3,6})\] ")
_OVERFLOW = re.compile(rb'thread pool "([^"]{1,200})" queue overflow: -?\d+ tasks waiting')


class ErrorLogCounts(NamedTuple):
    """Lines by level, and overflow lines by thread pool."""

    levels: dict[str, int]
    pool_overflow: dict[str, int]

    @property
    def overflow_total(self) -> int:
        """Overflow lines of all pools: each is a refused task, that is a broken response."""
        return sum(self.pool_overflow.values())


def parse_error_log(lines: Iterable[bytes]) -> ErrorLogCounts:
    """Counts over the lines of an error log; what is no log line is passed over.

    Source: ngx_log_error_core (time and level), ngx_thread_task_post (the overflow line, which
    only the main context's error_log gets).
    """
    levels: Counter[str] = Counter()
    pools: Counter[str] = Counter()
    for line in lines:
        level = _LEVEL.match(line)
        if level is None:
            continue
        levels[level[1].decode("ascii", "replace")] += 1
        overflow = _OVERFLOW.search(line)
        if overflow is not None:
            pools[overflow[1].decode("utf-8", "replace")] += 1
    return ErrorLogCounts(dict(sorted(levels.items())), dict(sorted(pools.items())))
