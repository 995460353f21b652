"""Causes that lines of the error logs name, each with its messages and what to change."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.documents.log_messages import MESSAGES_BY_ID
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.observation import Cause, CauseId
from nginx_tune.observe.causes import lost
from nginx_tune.observe.causes.parts import CauseWindow, figures

_SHARE = 0.01
"""Of requests; a kept connection that an upstream had just closed fails now and then."""
_FEWEST = 5
"""Where the number of requests is not known."""
_SHOWN = 3


class _Logged(NamedTuple):
    """A cause that a counter of lines names."""

    id: CauseId
    field: str
    """Of ``ServerMeasurement``."""
    summary: str
    """After the number."""
    not_known: str = ""
    next_command: str = ""
    is_seldom: bool = True
    """A single line is one too many; else a share of the requests must be."""


_LOST = (
    _Logged(
        "disk-read-errors", "read_errors",
        "calls failed with an input/output error (EIO): a disk does not give what it holds, and "
        "clients get bodies cut short or no reply",
        "which disk: the error log names files, the kernel's log the device",
        "dmesg --level=err"),
    _Logged(
        "no-space-left", "space_exhausted",
        "writes found no space left: answers that go through a file are cut short or fail, and "
        "caches and logs lose what they were to keep",
        "which file system: the lines name the files", "df -h; df -i"),
    _Logged(
        "shared-zone-full", "zones_exhausted",
        "entries found no room in a shared memory zone",
        "how large it would have to be: it grows with the number of keys, clients or sessions"),
    _Logged(
        "local-ports-exhausted", "ports_exhausted",
        "connections to an upstream got no local port, and the requests failed: each closed "
        "connection keeps its port for 60 s (TIME_WAIT), so there may be no more new ones a "
        "second than a sixtieth of net.ipv4.ip_local_port_range",
        "whether other programs take ports to the same address",
        "nginx-tune audit --select up-keepalive-missing"),
    _Logged(
        "descriptors-exhausted", "descriptors_exhausted",
        "calls got no file descriptor (Too many open files): clients stay in the accept queue, or "
        "get an error for a file or an upstream that could not be opened; raise "
        "worker_rlimit_nofile",
        "how many clients it was: a worker tries to accept again twice a second",
        "nginx-tune recommend --observation FILE"),
    _Logged(
        "memory-exhausted", "memory_exhausted",
        "calls got no memory: their requests fail, or their connections are closed",
        "who took it: the control group's memory.events and the kernel's log tell",
        "dmesg --level=err"),
    _Logged(
        "worker-crashed", "workers_crashed",
        "processes of nginx ended on a signal or an error: all of their connections are lost",
        "which request it was: a core dump tells (worker_rlimit_core, working_directory)"),
    _Logged(
        "failing-upstream", "upstream_failures",
        "attempts at upstreams failed: each is a 502 or 504, unless another upstream took the "
        "request",
        "which requests: the lines of the error log name them", is_seldom=False),
)  # fmt: skip
_BY_DESIGN = (
    _Logged(
        "refused-by-limit", "refused_by_limit",
        "requests or connections were refused by limit_req or limit_conn: each is a 503 "
        "(limit_req_status, limit_conn_status) that no loop, upstream or disk is the reason for",
        "whether the limit is meant to: the lines of the error log name the client and the request",
        is_seldom=False),
    _Logged(
        "spilled-to-disk", "spilled_to_disk",
        "answers or request bodies went to temporary files, since their buffers were smaller: "
        "they are written and read again, on the loop as a rule",
        "whether the clients are slow, or the answers large", is_seldom=False),
)  # fmt: skip


def find_lost(window: CauseWindow) -> list[Cause]:
    """Causes that lose requests, the one with the most lines first."""
    found = [
        (_lines(window.server, "pool_overflow"), lost.pool_overflow(window)),
        (_lines(window.server, "connections_exhausted"), lost.exhausted(window)),
        *((_lines(window.server, one.field), _named(window, one)) for one in _LOST),
    ]
    found.sort(key=lambda item: -item[0])
    return [cause for _, cause in found if cause is not None]


def find_by_design(window: CauseWindow) -> list[Cause]:
    """What the configuration does to requests by design, where it does much of it."""
    return [cause for one in _BY_DESIGN if (cause := _named(window, one)) is not None]


def _lines(server: ServerMeasurement, field: str) -> int:
    count: int | None = getattr(server, field)
    return count or 0


def _named(window: CauseWindow, logged: _Logged) -> Cause | None:
    server, status = window.server, window.server.stub_status
    count = _lines(server, logged.field)
    fewest = 1.0
    if not logged.is_seldom:
        fewest = _FEWEST if status is None else _SHARE * status.requests
    if not count or count < fewest:
        return None
    is_share_known = logged.is_seldom or status is not None
    kinds, changes = _messages(server, logged.field)
    said = [f"{count:,} {logged.summary}", *([", ".join(kinds)] if kinds else [])]
    if changes:
        said.append(f"to change: {'; '.join(changes)}")
    return Cause(
        id=logged.id,
        summary="; ".join(said),
        confidence="high" if is_share_known else "medium",
        evidence=figures(
            (f"server.{logged.field}", count, "lines"),
            ("server.stub_status.requests", status.requests if status else None, "requests"),
        ),
        not_known=[logged.not_known] if logged.not_known else [],
        next_command=logged.next_command,
    )


def _messages(server: ServerMeasurement, field: str) -> tuple[list[str], list[str]]:
    """What the most frequent lines tell, and what is to be changed for each."""
    seen = [
        (one, row)
        for one in server.log_messages
        if (row := MESSAGES_BY_ID.get(one.id)) is not None and field in row.counts
    ][:_SHOWN]
    kinds = [
        (f"{one.lines:,} " if len(seen) > 1 else "all of them ")
        + row.tells
        + (f' "{one.name}"' if one.name else "")
        for one, row in seen
    ]
    return kinds, list(dict.fromkeys(row.change for _, row in seen))
