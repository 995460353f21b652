"""The causes that lose or queue requests, and the causes that error logs name."""

from typing import NamedTuple

from nginx_tune.documents.log_messages import MESSAGES_BY_ID
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.observation import Cause, CauseId
from nginx_tune.documents.units import percent_text, seconds_text
from nginx_tune.observe.causes.parts import CauseWindow, figures

_SHARE = 0.01
"""Minimum share of requests that matters: upstreams sometimes close a kept connection in use."""
_FEWEST = 5
"""Minimum number of lines that matter if the number of requests is unknown."""
_SHOWN = 3


class _Logged(NamedTuple):
    """A cause that a counter of error-log lines shows."""

    id: CauseId
    field: str
    """The counter in ``ServerMeasurement``."""
    summary: str
    """Text after the number of lines."""
    not_known: str = ""
    next_command: str = ""
    is_seldom: bool = True
    """True if a single line matters; False if only a share of the requests matters."""


_LOST = (
    _Logged(
        "disk-read-errors", "read_errors",
        "calls failed with an input/output error (EIO): a disk cannot return its data, and clients "
        "get truncated bodies or no reply",
        "the disk: the error log names the files, the kernel's log the device",
        "dmesg --level=err"),
    _Logged(
        "no-space-left", "space_exhausted",
        "writes found no space left: responses that pass through a file are truncated or fail, and "
        "caches and logs lose data",
        "the file system: the lines name the files", "df -h; df -i"),
    _Logged(
        "shared-zone-full", "zones_exhausted",
        "entries found no room in a shared memory zone",
        "the size that the zone needs: it grows with the number of keys, clients or sessions"),
    _Logged(
        "local-ports-exhausted", "ports_exhausted",
        "connections to an upstream got no local port, and the requests failed. A closed "
        "connection keeps its port for 60 s (TIME_WAIT), so each second only a sixtieth of "
        "net.ipv4.ip_local_port_range becomes free",
        "whether other programs take ports to the same address",
        "nginx-tune audit --select up-keepalive-missing"),
    _Logged(
        "descriptors-exhausted", "descriptors_exhausted",
        "calls got no file descriptor (Too many open files): clients wait in the accept queue, or "
        "get an error because a file or an upstream connection could not be opened; raise "
        "worker_rlimit_nofile",
        "the number of clients: a worker tries to accept again twice a second",
        "nginx-tune recommend --observation FILE"),
    _Logged(
        "memory-exhausted", "memory_exhausted",
        "calls got no memory: their requests fail, or their connections are closed",
        "the process that took it: see the control group's memory.events and the kernel's log",
        "dmesg --level=err"),
    _Logged(
        "worker-crashed", "workers_crashed",
        "processes of nginx ended on a signal or an error: all of their connections are lost",
        "the request: a core dump shows it (worker_rlimit_core, working_directory)"),
    _Logged(
        "failing-upstream", "upstream_failures",
        "attempts at upstreams failed: each is a 502 or 504, unless another upstream took the "
        "request",
        "the requests: the lines of the error log name them", is_seldom=False),
)  # fmt: skip
_BY_DESIGN = (
    _Logged(
        "refused-by-limit", "refused_by_limit",
        "requests or connections were refused by a limit of the configuration: each is a 503 "
        "(limit_req_status, limit_conn_status) or, for a large body, a 413. No loop, upstream or "
        "disk causes this",
        "whether the limit is intended for them: the lines of the error log name the client and "
        "the request",
        is_seldom=False),
    _Logged(
        "spilled-to-disk", "spilled_to_disk",
        "responses or request bodies did not fit their buffers and went to temporary files, "
        "usually written and read on the loop",
        "whether the clients are slow or the responses large", is_seldom=False),
)  # fmt: skip


def find_lost(window: CauseWindow) -> list[Cause]:
    """The causes that lose requests, the cause with the most lines first."""
    found = [
        (_lines(window.server, "pool_overflow"), pool_overflow(window)),
        (_lines(window.server, "connections_exhausted"), exhausted(window)),
        *((_lines(window.server, logged.field), _named(window, logged)) for logged in _LOST),
    ]
    found.sort(key=lambda item: -item[0])
    return [cause for _, cause in found if cause is not None]


def find_by_design(window: CauseWindow) -> list[Cause]:
    """The causes that the configuration intends, if they affect many requests."""
    return [cause for logged in _BY_DESIGN if (cause := _named(window, logged)) is not None]


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
    parts = [f"{count:,} {logged.summary}", *([", ".join(kinds)] if kinds else [])]
    if changes:
        parts.append(f"to change: {'; '.join(changes)}")
    return Cause(
        id=logged.id,
        summary="; ".join(parts),
        confidence="high" if is_share_known else "medium",
        evidence=figures(
            (f"server.{logged.field}", count, "lines"),
            ("server.stub_status.requests", status.requests if status else None, "requests"),
        ),
        not_known=[logged.not_known] if logged.not_known else [],
        next_command=logged.next_command,
    )


def _messages(server: ServerMeasurement, field: str) -> tuple[list[str], list[str]]:
    """The most frequent messages of a counter, and the change that each suggests."""
    seen = [
        (message, row)
        for message in server.log_messages
        if (row := MESSAGES_BY_ID.get(message.id)) is not None and field in row.counts
    ][:_SHOWN]
    kinds = [
        (f"{message.lines:,} " if len(seen) > 1 else "all: ")
        + row.tells
        + (f' "{message.name}"' if message.name else "")
        for message, row in seen
    ]
    return kinds, list(dict.fromkeys(row.change for _, row in seen))


_LONG_WAIT_SECONDS = 0.01
_MOSTLY = 0.5
_FEWEST_LOOKS = 3
_FULL = 15 / 16
"""The used share from which nginx closes idle connections. Source: ngx_drain_connections."""


def pool_overflow(window: CauseWindow) -> Cause | None:
    """The cause of a full pool queue."""
    server = window.server
    if not server.pool_overflow:
        return None
    pools = ", ".join(f'"{name}" {n:,}' for name, n in server.pool_overflow_by_pool.items())
    return Cause(
        id="pool-queue-overflow",
        summary=f"{server.pool_overflow:,} tasks were refused by full pool queues ({pools}): each "
        "one means a truncated body after status 200, or an empty reply",
        confidence="high",
        evidence=figures(("server.pool_overflow", server.pool_overflow, "lines")),
        not_known=["whether the log was complete: some builds drop lines past 1,000 a second"],
        next_command="nginx-tune recommend --observation FILE",
    )


def exhausted(window: CauseWindow) -> Cause | None:
    """The cause of exhausted worker_connections: new or idle connections are closed."""
    server = window.server
    lines = server.connections_exhausted or 0
    status = server.stub_status
    dropped = status.dropped if status else 0
    reused = server.connections_reused or 0
    most = max((worker.connections_max or 0 for worker in server.workers), default=0)
    # Each listener and the channel to the master take one.
    held = most + len(server.listeners) + 1
    full = bool(server.worker_connections) and held >= _FULL * (server.worker_connections or 0)
    if lines or dropped:
        summary = (
            f"{max(lines, dropped):,} connections were accepted and closed at once: all "
            "worker_connections of a worker were in use"
        )
    elif reused or full:
        limit = f" of {server.worker_connections:,}" if server.worker_connections else ""
        summary = (
            f"a worker had {held:,}{limit} worker_connections in use and closes idle ones to make "
            "room, and their clients have to connect again"
        )
    else:
        return None
    return Cause(
        id="connections-exhausted",
        summary=summary,
        confidence="high" if lines or dropped or reused else "medium",
        evidence=figures(
            ("server.connections_exhausted", lines, "lines"),
            ("server.stub_status.dropped", status.dropped if status else None, "connections"),
            ("server.connections_reused", server.connections_reused, "lines"),
            ("most connections of a worker", most, ""),
            ("worker_connections", server.worker_connections, ""),
            ("server.stub_status.accepts", status.accepts if status else None, "connections"),
            ("server.stub_status.requests", status.requests if status else None, "requests"),
        ),
        next_command="nginx-tune recommend --observation FILE",
    )


def accept_overflow(window: CauseWindow) -> Cause | None:
    """The cause of a full accept queue."""
    server = window.server
    dropping = [listener for listener in server.listeners if listener.drops]
    # Drops also count late packets of closed connections.
    if not dropping or server.listen_overflows == 0:
        return None
    drops = sum(listener.drops or 0 for listener in dropping)
    where = ", ".join(f"{listener.address}:{listener.port}" for listener in dropping)
    return Cause(
        id="accept-queue-overflow",
        summary=f"the kernel dropped {drops:,} connection attempts at {where}: the accept queue "
        "was full, and the clients try again after a second",
        confidence="high" if server.listen_overflows else "medium",
        evidence=figures(
            ("server.listen_overflows", server.listen_overflows, "events"),
            ("server.listen_drops", server.listen_drops, "events"),
            *(
                (f"longest queue at {listener.port}", listener.accept_queue_max, "")
                for listener in dropping
            ),
            *((f"backlog at {listener.port}", listener.backlog, "") for listener in dropping),
        ),
        not_known=["the number of clients: one that tries again is counted again"],
        next_command="nginx-tune recommend --observation FILE",
    )


def queue_wait(window: CauseWindow) -> Cause | None:
    """The cause of tasks that wait in a pool's queue: timed, or inferred from busy threads."""
    wait = window.server.pool_queue_wait_seconds
    if wait is not None and wait.p99 is not None:
        if wait.p99 < _LONG_WAIT_SECONDS:
            return None
        return Cause(
            id="pool-queue-wait",
            summary=f"tasks wait for a pool thread: p50 {seconds_text(wait.p50)}, p99 "
            f"{seconds_text(wait.p99)}; reads of cached data queue there behind reads from disk",
            confidence="high",
            evidence=figures(
                ("server.pool_queue_wait_seconds.p50", wait.p50, "seconds"),
                ("server.pool_queue_wait_seconds.p99", wait.p99, "seconds"),
            ),
            next_command="nginx-tune recommend --observation FILE",
        )
    waiting = window.server.waiting
    if waiting is None or waiting.pool_full_ratio is None or waiting.looks < _FEWEST_LOOKS:
        return None
    if waiting.pool_full_ratio < _MOSTLY:
        return None
    return Cause(
        id="pool-queue-wait",
        summary=f"all of the pools' {waiting.pool_threads:.0f} threads were at work in "
        f"{percent_text(waiting.pool_full_ratio, 2)} of {waiting.looks} samples: tasks queue "
        "behind them, and reads of cached data behind reads from disk",
        confidence="medium",
        evidence=figures(
            ("share of samples with every pool thread at work", waiting.pool_full_ratio,
             "ratio"),
            ("requests without an answer so far, mean", waiting.clients_waiting, ""),
            ("their wait so far, mean", waiting.client_seconds, "seconds"),
        ),
        not_known=["the time that tasks wait: observe --queue-wait measures it"],
        next_command="nginx-tune observe --queue-wait",
    )  # fmt: skip
