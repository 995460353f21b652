"""What was read of a server over a window, put together: totals, per worker, per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from nginx_tune.documents.harms import LOGGED
from nginx_tune.documents.listening import ListenSocket
from nginx_tune.documents.measured_server import (
    ListenerUse,
    LoopTurn,
    ServerMeasurement,
    ServerSecond,
    StubStatus,
)
from nginx_tune.host.door import Gaps, Missing
from nginx_tune.measure.proof.tally import latency_of
from nginx_tune.observe.block_delay import delay_between
from nginx_tune.observe.parse_error_log import ErrorLogCounts, logged_messages
from nginx_tune.observe.queue_wait import QueueWaits
from nginx_tune.observe.window.cpu import (
    plan_host_load,
    plan_iowait,
    plan_quota,
    plan_samples,
    plan_steal,
)
from nginx_tune.observe.window.disk_use import plan_disks, read_bytes, written_bytes
from nginx_tune.observe.window.moment import Moment
from nginx_tune.observe.window.names import plan_names
from nginx_tune.observe.window.turns import plan_turns
from nginx_tune.observe.window.waiting import plan_held_calls, plan_round_trips, plan_waiting
from nginx_tune.observe.window.window import Window, difference, sum_known
from nginx_tune.observe.window.worker import plan_worker

_FEWEST_LOOKS = 3
N = TypeVar("N", int, float)


def plan_server(window: Window) -> tuple[ServerMeasurement, Gaps]:
    """The server's part of a measurement, and why some of it is null."""
    gaps: Gaps = {}
    first, last = window.moments[0], window.moments[-1]
    turns = plan_turns(window, gaps)
    names = plan_names(window, gaps)
    delay, method = _block_delay(window, turns, gaps)
    workers = [plan_worker(window, pid) for pid in window.subjects.workers]
    counts = _log_counts(window, gaps)
    logs = ErrorLogCounts() if isinstance(window.logs, Missing) else _logs(window.logs, window)
    status = _status(window, gaps)
    refaults = difference(first.refaults, last.refaults)
    if refaults is None:
        gaps["/refaults"] = "the kernel tells no workingset_refault counters"
    for name in ("listen_overflows", "listen_drops"):
        if getattr(last, name) is None:
            gaps[f"/{name}"] = "the kernel's netstat does not tell"
    wait = window.queue_waits
    if not isinstance(wait, QueueWaits):
        gaps["/pool_queue_wait_seconds"] = (
            wait.reason if isinstance(wait, Missing) else "not asked for (observe --queue-wait)"
        )
    server = ServerMeasurement(
        **counts,
        pool_overflow_by_pool=logs.by_name("pool_overflow"),
        error_lines=dict(logs.levels),
        log_messages=logged_messages(logs),
        worker_connections=window.subjects.worker_connections,
        has_resolver=window.subjects.has_resolver,
        listen_overflows=difference(first.listen_overflows, last.listen_overflows),
        listen_drops=difference(first.listen_drops, last.listen_drops),
        listeners=_listeners(window, gaps),
        loop_turn_seconds=turns,
        block_io_delay_seconds=delay,
        block_io_delay_method=method,
        state_d_ratio=_mean([w.state_d_ratio for w in workers], gaps),
        open_seconds=names.opens,
        rename_seconds=names.renames,
        open_disk_reads=names.open_reads,
        pool_queue_wait_seconds=latency_of(wait.values) if isinstance(wait, QueueWaits) else None,
        cpu_seconds=_cpu_seconds(window, gaps),
        run_queue_seconds=sum_known([worker.run_queue_seconds for worker in workers]),
        cpu_samples=plan_samples(window, gaps),
        quota=plan_quota(window),
        steal_ratio=plan_steal(window),
        host_load=plan_host_load(window),
        iowait_ratio=plan_iowait(window),
        swapped_in_pages=difference(first.swapped_in, last.swapped_in),
        held_calls=plan_held_calls(window),
        waiting=plan_waiting(window, gaps),
        round_trips=plan_round_trips(one.waiting for one in window.moments),
        disk_read_bytes=read_bytes(first, last, window.subjects),
        disk_written_bytes=written_bytes(first, last, window.subjects),
        disks=plan_disks(window),
        refaults=refaults,
        refault_source=window.refault_source if refaults is not None else "",
        stub_status=status,
        workers=workers,
        series=[
            _second(window, index, *pair) for index, pair in enumerate(pairwise(window.moments))
        ],
        observer_cpu_seconds=window.observer_cpu_seconds,
        observer_late_seconds=window.observer_late_seconds,
    )
    return server, gaps


def _log_counts(window: Window, gaps: Gaps) -> dict[str, Any]:
    """Lines of error logs by what they tell; null where a log cannot be read or hides them.

    What was seen although another log hides such lines is told: there were that many at least.
    """
    if isinstance(window.logs, Missing):
        gaps.update({f"/{name}": window.logs.reason for name in LOGGED})
        return dict.fromkeys(LOGGED)
    logs = _logs(window.logs, window)
    found: dict[str, Any] = {}
    for name in LOGGED:
        counted = logs.count(name)
        hidden = None if counted else window.subjects.hidden_counts.get(name)
        if hidden is not None:
            gaps[f"/{name}"] = hidden
        found[name] = counted if hidden is None else None
    return found


def _logs(logs: ErrorLogCounts, window: Window) -> ErrorLogCounts:
    """The lines of error logs; without an IPv6 address no port is what a connection lacked."""
    if window.subjects.has_ipv6:
        return logs
    return logs._replace(
        messages={
            ("no-ipv6-address" if id_ == "ports-used-up-ipv6" else id_, name): n
            for (id_, name), n in logs.messages.items()
        }
    )


def _block_delay(window: Window, turns: LoopTurn | None, gaps: Gaps) -> tuple[float | None, str]:
    """Of all main threads; where delays are not counted, their time in state D as traced."""
    if window.delay_missing is None:
        per_worker = [window.delay_of(pid) for pid in window.subjects.workers]
        return sum_known(per_worker), window.delay_method
    if turns is not None and turns.blocked_seconds is not None and turns.traced_ratio:
        return turns.blocked_seconds / turns.traced_ratio, "sched_switch"
    gaps["/block_io_delay_seconds"] = window.delay_missing.reason
    return None, ""


def _cpu_seconds(window: Window, gaps: Gaps) -> float | None:
    """Null where nginx started others in place of the workers that are watched: a reload.

    They would do the work, and those that are watched next to nothing of it.
    """
    first, last = window.moments[0], window.moments[-1]
    if first.children is not None and last.children is not None:
        fresh = len(last.children - first.children)
        if fresh:
            gaps["/cpu_seconds"] = (
                f"new processes of nginx in the window, as after a reload: {fresh}"
            )
            return None
    gone = sum(pid not in last.cpu_seconds for pid in window.subjects.workers)
    if gone:
        gaps["/cpu_seconds"] = f"workers that ended before the window did: {gone}"
    pids = (window.subjects.master, *window.subjects.workers)
    return sum_known([difference(first.cpu_seconds.get(p), last.cpu_seconds.get(p)) for p in pids])


def _status(window: Window, gaps: Gaps) -> StubStatus | None:
    first, last = window.moments[0].status, window.moments[-1].status
    for one in (first, last):
        if isinstance(one, Missing):
            gaps["/stub_status"] = one.reason
            return None
    if isinstance(first, Missing) or isinstance(last, Missing):
        return None
    # Each look is a request on a connection of its own; the last one is counted in itself.
    looks = len(window.moments) - 1
    looked = [one.status for one in window.moments]
    writing = [
        one.writing for one in looked if not isinstance(one, Missing) and one.writing is not None
    ]
    requests = max(0, last.requests - first.requests - looks)
    return StubStatus(
        requests=requests,
        requests_per_second=requests / window.seconds if window.seconds else 0.0,
        accepts=max(0, last.accepts - first.accepts - looks),
        dropped=max(0, (last.accepts - last.handled) - (first.accepts - first.handled)),
        active=max(0, last.active - 1),
        # Our own look is one of them.
        writing=sum(max(0, n - 1) for n in writing) / len(writing) if writing else None,
    )


def _listeners(window: Window, gaps: Gaps) -> list[ListenerUse]:
    """By address, over all its sockets: ``reuseport`` has one for each worker."""
    looks = [m.listening for m in window.moments if not isinstance(m.listening, Missing)]
    if not looks:
        missing = window.moments[-1].listening
        gaps["/listeners"] = missing.reason if isinstance(missing, Missing) else "not asked"
        return []
    found = []
    for address, port in sorted({(s.address, s.port) for s in looks[-1].sockets}):
        if port not in window.subjects.ports:
            continue
        by_look = [
            [s for s in look.sockets if (s.address, s.port) == (address, port)] for look in looks
        ]
        sockets = by_look[-1]
        queues = [s.accept_queue for look in by_look for s in look if s.accept_queue is not None]
        backlogs = [s.backlog for s in sockets if s.backlog is not None]
        found.append(
            ListenerUse(
                address=address,
                port=port,
                sockets=len(sockets),
                backlog=min(backlogs, default=None),
                accept_queue_max=max(queues, default=None),
                accept_queue_median=_median_queue(by_look),
                drops=difference(_drops(by_look[0]), _drops(sockets)),
            )
        )
    return found


def _median_queue(by_look: Sequence[Sequence[ListenSocket]]) -> float | None:
    looks = [[s.accept_queue for s in look if s.accept_queue is not None] for look in by_look]
    longest = [max(queues) for queues in looks if queues]
    return float(median(longest)) if len(longest) >= _FEWEST_LOOKS else None


def _drops(sockets: Sequence[ListenSocket]) -> int | None:
    known = [socket.drops for socket in sockets if socket.drops is not None]
    return sum(known) if known else None


def _second(window: Window, index: int, before: Moment, after: Moment) -> ServerSecond:
    spans = window.spans
    span = spans[index] if isinstance(spans, list) and index < len(spans) else None
    latency = None if span is None else latency_of(span.values)
    statuses = (before.status, after.status)
    counted = [one.requests for one in statuses if not isinstance(one, Missing)]
    waited = list(delay_between(before.delays, after.delays).values())
    pids = (window.subjects.master, *window.subjects.workers)
    return ServerSecond(
        second=index,
        seconds=after.at - before.at,
        requests=counted[1] - counted[0] - 1 if len(counted) == len(statuses) else None,
        cpu_seconds=sum_known(
            [difference(before.cpu_seconds.get(p), after.cpu_seconds.get(p)) for p in pids]
        ),
        block_io_delay_seconds=sum_known(waited) if window.delay_missing is None else None,
        state_d_ratio=window.d_ratios[index] if index < len(window.d_ratios) else None,
        loop_turns=None if span is None else span.turns.total(),
        loop_busy_seconds=None if span is None else span.busy.total() / 1e9,
        loop_blocked_seconds=None if span is None else span.blocked.total() / 1e9,
        loop_turn_p99_seconds=None if latency is None else latency.p99,
        loop_turn_max_seconds=None if latency is None else latency.max,
        disk_read_bytes=read_bytes(before, after, window.subjects),
        refaults=difference(before.refaults, after.refaults),
        listen_drops=difference(before.listen_drops, after.listen_drops),
    )


def _mean(values: Sequence[float | None], gaps: Gaps) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        gaps["/state_d_ratio"] = "no sample was taken"
        return None
    return math.fsum(known) / len(known)
