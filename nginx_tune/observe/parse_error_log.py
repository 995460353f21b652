"""What an nginx error log says; pure, bytes in, counts out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_LEVEL = re.compile(rb"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\w{3,6})\] ")
_OVERFLOW = re.compile(rb'thread pool "([^"]{1,200})" queue overflow: -?\d+ tasks waiting')
_EXHAUSTED = re.compile(rb"\[alert\] \S+ (?:\*\d+ )?(\d{1,10}) worker_connections are not enough$")
_REUSED = b" worker_connections are not enough, reusing connections"
_UPSTREAM_TIMEOUT = b"upstream timed out ("
_UNRESOLVED = b" could not be resolved ("
_OTHERS = (_REUSED, _UPSTREAM_TIMEOUT, _UNRESOLVED)
_SLOW = b" operation took too long"
_READ_ERROR = re.compile(rb"\bfailed \(5: ")
"""EIO, in whatever language the C library says it: a disk gave an error for bytes."""
"""Of threads, and of ``aio on``."""
_REFUSED = re.compile(
    rb"^\S+ \S+ \[\w+\] \S+ (?:\*\d+ )?limiting "
    rb"(?:requests, excess: \d+\.\d+ by zone|connections by zone) "
)
"""Not delayed, and not in a dry run."""
_FAILED = re.compile(rb"\bfailed \((\d{1,3}): ")
_NO_DESCRIPTOR = (b"23", b"24")
"""ENFILE and EMFILE, of accept4(), open(), socket() and what else takes a descriptor."""
_UPSTREAM_FAILED = re.compile(
    rb"(?:\bfailed \(|\bupstream timed out \(|\bupstream prematurely closed |\bno live upstreams )"
    rb".*\b(?:to|from|reading) upstream$"
)
"""Not of upgraded connections, which close and time out by design."""


class ErrorLogCounts(NamedTuple):
    """Lines by level and by what they tell."""

    levels: dict[str, int]
    pool_overflow: dict[str, int]
    connections_exhausted: dict[str, int]
    """By the ``worker_connections`` they name."""
    operations_too_slow: int
    read_errors: int = 0
    """Lines on a call that failed with EIO: a disk did not give what it holds."""
    connections_reused: int = 0
    """Lines on idle connections that were closed to make room."""
    upstream_timeouts: int = 0
    resolver_failures: int = 0
    descriptors_exhausted: int = 0
    """Lines on a call that failed with EMFILE or ENFILE."""
    upstream_failures: int = 0
    """Lines on an upstream that did not answer a request whole, with its timeouts."""
    refused_by_limit: int = 0
    """Lines on what ``limit_req`` or ``limit_conn`` refused."""

    @property
    def overflow_total(self) -> int:
        """Overflow lines of all pools: each is a refused task, that is a broken response."""
        return sum(self.pool_overflow.values())


def parse_error_log(lines: Iterable[bytes]) -> ErrorLogCounts:
    """Counts over the lines of an error log; what is no log line is passed over.

    Source: ngx_log_error_core (time and level), ngx_thread_task_post (the overflow line, which
            only the main context's error_log gets), ngx_get_connection, ngx_drain_connections
            (since 1.19.10), ngx_http_copy_thread_event_handler, ngx_http_upstream_next,
            ngx_http_upstream_resolve_handler, ngx_event_accept, ngx_http_upstream_process_header,
            ngx_http_limit_req_handler, ngx_http_limit_conn_handler.
    """
    levels: Counter[str] = Counter()
    pools: Counter[str] = Counter()
    exhausted: Counter[str] = Counter()
    slow = 0
    failed = 0
    descriptors = 0
    upstreams = 0
    refused = 0
    others: Counter[bytes] = Counter()
    for line in lines:
        level = _LEVEL.match(line)
        if level is None:
            continue
        levels[level[1].decode("ascii", "replace")] += 1
        overflow = _OVERFLOW.search(line)
        if overflow is not None:
            pools[overflow[1].decode("utf-8", "replace")] += 1
            continue
        connections = _EXHAUSTED.search(line)
        if connections is not None:
            exhausted[connections[1].decode("ascii")] += 1
        elif _SLOW in line:
            slow += 1
        elif _READ_ERROR.search(line) is not None:
            failed += 1
        elif _REFUSED.match(line) is not None:
            refused += 1
        elif _error_number(line) in _NO_DESCRIPTOR:
            descriptors += 1
        else:
            upstreams += _UPSTREAM_FAILED.search(_message(line)) is not None
            others.update(word for word in _OTHERS if word in line)
    return ErrorLogCounts(
        dict(sorted(levels.items())),
        dict(sorted(pools.items())),
        dict(sorted(exhausted.items())),
        slow,
        failed,
        connections_reused=others[_REUSED],
        upstream_timeouts=others[_UPSTREAM_TIMEOUT],
        resolver_failures=others[_UNRESOLVED],
        descriptors_exhausted=descriptors,
        upstream_failures=upstreams,
        refused_by_limit=refused,
    )


def _message(line: bytes) -> bytes:
    """Without what nginx adds on the request: that is the client's text."""
    return line.partition(b", client: ")[0].rstrip()


def _error_number(line: bytes) -> bytes | None:
    """Of the failed call; the last one, as a file's name stands before it."""
    numbers = _FAILED.findall(_message(line))
    return numbers[-1] if numbers else None
