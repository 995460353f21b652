"""Causes that lose requests, or keep them in a queue: they come first."""

from __future__ import annotations

from nginx_tune.documents.observation import Cause
from nginx_tune.documents.units import percent_text, seconds_text
from nginx_tune.observe.causes.parts import CauseWindow, figures

_LONG_WAIT_SECONDS = 0.01
_MOSTLY = 0.5
_FEWEST_LOOKS = 3
_FULL = 15 / 16
"""Source: ngx_drain_connections: with a sixteenth left, idle connections are closed."""


def pool_overflow(window: CauseWindow) -> Cause | None:
    """A pool's queue was full."""
    server = window.server
    if not server.pool_overflow:
        return None
    pools = ", ".join(f'"{name}" {n:,}' for name, n in server.pool_overflow_by_pool.items())
    return Cause(
        id="pool-queue-overflow",
        summary=f"{server.pool_overflow:,} tasks were refused by full pool queues ({pools}): each "
        "is a body cut short behind a status of 200, or an empty reply",
        confidence="high",
        evidence=figures(("server.pool_overflow", server.pool_overflow, "lines")),
        not_known=["whether the log was complete: some builds drop lines past 1,000 a second"],
        next_command="nginx-tune recommend --observation FILE",
    )


def exhausted(window: CauseWindow) -> Cause | None:
    """No connection left of worker_connections: new ones, or idle ones, are closed."""
    server = window.server
    lines = server.connections_exhausted or 0
    status = server.stub_status
    dropped = status.dropped if status else 0
    reused = server.connections_reused or 0
    most = max((worker.connections_max or 0 for worker in server.workers), default=0)
    # Listeners take one each, and so does the master's pipe.
    held = most + len(server.listeners) + 1
    full = bool(server.worker_connections) and held >= _FULL * (server.worker_connections or 0)
    if lines or dropped:
        said = (
            f"{max(lines, dropped):,} connections were accepted and closed at once: a worker "
            "had none of its worker_connections left"
        )
    elif reused or full:
        limit = f" of {server.worker_connections:,}" if server.worker_connections else ""
        said = (
            f"a worker had {held:,}{limit} worker_connections in use, and closes idle "
            "ones to make room: their clients find them closed and open others"
        )
    else:
        return None
    return Cause(
        id="connections-exhausted",
        summary=said,
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
    """A listener's queue was full."""
    server = window.server
    dropping = [one for one in server.listeners if one.drops]
    # A listener also counts what comes late for connections that are gone.
    if not dropping or server.listen_overflows == 0:
        return None
    drops = sum(one.drops or 0 for one in dropping)
    where = ", ".join(f"{one.address}:{one.port}" for one in dropping)
    return Cause(
        id="accept-queue-overflow",
        summary=f"the kernel dropped {drops:,} connection attempts at {where}: the accept queue "
        "was full, and those clients try again a second later",
        confidence="high" if server.listen_overflows else "medium",
        evidence=figures(
            ("server.listen_overflows", server.listen_overflows, "events"),
            ("server.listen_drops", server.listen_drops, "events"),
            *((f"longest queue at {one.port}", one.accept_queue_max, "") for one in dropping),
            *((f"backlog at {one.port}", one.backlog, "") for one in dropping),
        ),
        not_known=["how many clients it was: one that tries again is counted again"],
        next_command="nginx-tune recommend --observation FILE",
    )


def queue_wait(window: CauseWindow) -> Cause | None:
    """Tasks wait in a pool's queue, as timed; else as its threads had no rest."""
    wait = window.server.pool_queue_wait_seconds
    if wait is not None and wait.p99 is not None:
        if wait.p99 < _LONG_WAIT_SECONDS:
            return None
        return Cause(
            id="pool-queue-wait",
            summary=f"tasks wait for a pool thread: p50 {seconds_text(wait.p50)}, p99 "
            f"{seconds_text(wait.p99)}; hot reads queue behind cold ones there",
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
        f"{percent_text(waiting.pool_full_ratio, 2)} of {waiting.looks} looks: tasks queue behind "
        "them, hot reads behind cold ones",
        confidence="medium",
        evidence=figures(
            ("share of looks that found every pool thread at work", waiting.pool_full_ratio,
             "ratio"),
            ("requests without an answer so far, mean", waiting.clients_waiting, ""),
            ("how long these had waited so far, mean", waiting.client_seconds, "seconds"),
        ),
        not_known=["how long tasks wait: observe --queue-wait times them"],
        next_command="nginx-tune observe --queue-wait",
    )  # fmt: skip
