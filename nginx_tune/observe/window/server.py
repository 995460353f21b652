"""The measurement of a server from a window: totals, by worker, by second; pure."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from nginx_tune.documents.facts_machine import ListenSocket
from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measured_server import (
    LOGGED,
    HeldCall,
    ListenerUse,
    LoopTurn,
    RoundTrips,
    ServerMeasurement,
    ServerSecond,
    StubStatus,
    Waiting,
)
from nginx_tune.host.door import Gaps, Missing
from nginx_tune.measure.proof.histogram import rank_of
from nginx_tune.measure.proof.latency import QUANTILES, latency_of
from nginx_tune.observe.accounting import delay_between
from nginx_tune.observe.connections import WaitingLook
from nginx_tune.observe.parse_counters import ErrorLogCounts, logged_messages
from nginx_tune.observe.parse_turns import WAITS, TurnCounts
from nginx_tune.observe.tracing import QueueWaits
from nginx_tune.observe.window.moment import Moment
from nginx_tune.observe.window.window import (
    Window,
    difference,
    plan_disks,
    plan_host_load,
    plan_iowait,
    plan_names,
    plan_quota,
    plan_samples,
    plan_steal,
    plan_worker,
    read_bytes,
    sum_known,
    written_bytes,
)

_FEWEST_LOOKS = 3


def plan_server(window: Window) -> tuple[ServerMeasurement, Gaps]:
    """The measurement of the server, and the reasons for its nulls."""
    gaps: Gaps = {}
    first, last = window.moments[0], window.moments[-1]
    turns = _plan_turns(window, gaps)
    names = plan_names(window, gaps)
    delay, method = _block_delay(window, turns, gaps)
    workers = [plan_worker(window, pid) for pid in window.subjects.workers]
    counts = _log_counts(window, gaps)
    logs = ErrorLogCounts() if isinstance(window.logs, Missing) else _logs(window.logs, window)
    status = _status(window, gaps)
    refaults = difference(first.refaults, last.refaults)
    if refaults is None:
        gaps["/refaults"] = "the kernel has no workingset_refault counters"
    for name in ("listen_overflows", "listen_drops"):
        if getattr(last, name) is None:
            gaps[f"/{name}"] = "the kernel's netstat has no such counter"
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
        held_calls=_plan_held_calls(window),
        waiting=_plan_waiting(window, gaps),
        round_trips=plan_round_trips(moment.waiting for moment in window.moments),
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
    """Lines of error logs by counter; null if a log is unreadable or hides them.

    If one log hides such lines, a count above zero from another log is kept as a lower bound.
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
    """The counts of error logs.

    On a host without an IPv6 address, the messages for a missing port and for a missing address
    are the same; they are counted as a missing address.
    """
    if window.subjects.has_ipv6:
        return logs
    return logs._replace(
        messages={
            ("no-ipv6-address" if id_ == "ports-used-up-ipv6" else id_, name): n
            for (id_, name), n in logs.messages.items()
        }
    )


def _block_delay(window: Window, turns: LoopTurn | None, gaps: Gaps) -> tuple[float | None, str]:
    """The block-I/O delay of all main threads, else their traced time in D; and the method."""
    if window.delay_missing is None:
        per_worker = [window.delay_of(pid) for pid in window.subjects.workers]
        return sum_known(per_worker), window.delay_method
    if turns is not None and turns.blocked_seconds is not None and turns.traced_ratio:
        return turns.blocked_seconds / turns.traced_ratio, "sched_switch"
    gaps["/block_io_delay_seconds"] = window.delay_missing.reason
    return None, ""


def _cpu_seconds(window: Window, gaps: Gaps) -> float | None:
    """CPU time of master and workers; null after a reload, when new workers do the work."""
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
    missing = next((status for status in (first, last) if isinstance(status, Missing)), None)
    if missing is not None:
        gaps["/stub_status"] = missing.reason
    if isinstance(first, Missing) or isinstance(last, Missing):
        return None
    # Each sample is a request on a connection of its own; the last one counts itself.
    looks = len(window.moments) - 1
    writing = [
        moment.status.writing
        for moment in window.moments
        if not isinstance(moment.status, Missing) and moment.status.writing is not None
    ]
    requests = max(0, last.requests - first.requests - looks)
    return StubStatus(
        requests=requests,
        requests_per_second=requests / window.seconds if window.seconds else 0.0,
        accepts=max(0, last.accepts - first.accepts - looks),
        dropped=max(0, (last.accepts - last.handled) - (first.accepts - first.handled)),
        active=max(0, last.active - 1),
        # Our own sample is one of them.
        writing=sum(max(0, n - 1) for n in writing) / len(writing) if writing else None,
    )


def _listeners(window: Window, gaps: Gaps) -> list[ListenerUse]:
    """The listeners by address, each over all its sockets (one per worker with ``reuseport``)."""
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
    counted = [status.requests for status in statuses if not isinstance(status, Missing)]
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


_ALIKE = 1.05
"""The factor up to which a bound may move a quantile without making it inexact."""


def _plan_turns(window: Window, gaps: Gaps) -> LoopTurn | None:
    """The turns of all workers; null with the reason in ``gaps``."""
    spans = window.spans
    if isinstance(spans, Missing) or not spans:
        reason = spans.reason if isinstance(spans, Missing) else "the tracer gave no reading"
        gaps["/loop_turn_seconds"] = reason
        return None
    total = TurnCounts()
    for span in spans:
        total.add(span)
    workers = len(window.subjects.workers)
    return loop_turn_of(total, workers=workers, seconds=window.seconds, method=window.turn_method)


def loop_turn_of(counts: TurnCounts, *, workers: int, seconds: float, method: str) -> LoopTurn:
    """The measured turns of a window of ``seconds``."""
    latency = latency_of(counts.values)
    at_least = _at_least(latency, counts)
    busy, blocked = counts.busy.total() / 1e9, counts.blocked.total() / 1e9
    waits = _arrival_waits(counts, workers)
    kept = {name: getattr(latency, name) for name in latency.__struct_fields__}
    kept |= {
        "censored": counts.bounds.total(),
        "censored_from_seconds": _exact_up_to(latency, at_least),
        "at_least": at_least,
    }
    return LoopTurn(
        **kept,
        method=method,
        busy_seconds=busy,
        blocked_seconds=blocked,
        # A wait that ends in the window may have begun before it.
        blocked_ratio=min(1.0, blocked / busy) if busy else None,
        queued_seconds=counts.queued.total() / 1e9,
        asleep_seconds=counts.asleep.total() / 1e9,
        stopped_seconds=counts.stopped.total() / 1e9,
        arrival_wait_seconds=waits.pop("all", None),
        arrival_wait_by=waits,
        traced_ratio=min(1.0, counts.traced_seconds / seconds) if seconds else None,
    )


def _arrival_waits(counts: TurnCounts, workers: int) -> dict[str, float]:
    """The mean seconds that an arrival waits for its loop: ``all``, and the part of each wait.

    The arrivals during a turn of t seconds wait t / 2 on average.
    Source: mean residual life of a renewal process.
    """
    nanoseconds = counts.traced_seconds * 1e9 * workers
    if not nanoseconds:
        return {}
    waits = {part: counts.squares[part] / 2 / nanoseconds / 1e9 for part in ("all", *WAITS)}
    computing = waits["all"] - sum(waits[wait] for wait in WAITS)
    return {**waits, "computing": max(0.0, computing)}


def _at_least(latency: Latency, counts: TurnCounts) -> list[str]:
    """The statistics that are lower bounds, since some turns were traced only in part."""
    bounds = counts.bounds.total()
    if not bounds or latency.max is None:
        return []
    found = []
    for name, quantile in QUANTILES.items():
        value: float = getattr(latency, name)
        above = _value_at(rank_of(quantile, latency.count) + bounds, counts.values)
        if above is None or above / 1e9 > _ALIKE * value:
            found.append(name)
    if max(counts.bounds) / 1e9 * _ALIKE >= latency.max:
        found.append("max")
    return found


def _exact_up_to(latency: Latency, at_least: list[str]) -> float | None:
    """The largest quantile that is exact; null if all quantiles are exact."""
    known = [getattr(latency, name) for name in QUANTILES if name not in at_least]
    return max(known, default=0.0) if at_least else None


def _value_at(rank: int, values: Counter[int]) -> int | None:
    seen = 0
    for value in sorted(values):
        seen += values[value]
        if seen >= rank:
            return value
    return None


_MOST_CALLS = 8
_LEAST_BEYOND = 10
"""The number of samples that must lie beyond a quantile."""
_APPENDED = "+"


def _plan_waiting(window: Window, gaps: Gaps) -> Waiting | None:
    """Means over the samples; null with the reason in ``gaps``."""
    looks = [look.waiting for look in window.moments if not isinstance(look.waiting, Missing)]
    if not looks:
        missing = window.moments[-1].waiting
        gaps["/waiting"] = missing.reason if isinstance(missing, Missing) else "not asked"
        return None
    clients = [seconds for look in looks for seconds in look.client_seconds]
    upstreams = [seconds for look in looks for seconds in look.upstream_seconds]
    unclear = [seconds for look in looks for seconds in look.clients_unclear]
    pools = [look for look in looks if look.pool_threads]
    threads = sum(look.pool_threads for look in pools)
    return Waiting(
        looks=len(looks),
        clients=statistics.fmean([look.clients for look in looks]),
        clients_waiting=len(clients) / len(looks),
        client_seconds=statistics.fmean(clients) if clients else None,
        client_longest_seconds=max(clients, default=None),
        clients_waiting_ratio=statistics.fmean([bool(look.client_seconds) for look in looks]),
        clients_unclear=len(unclear) / len(looks),
        clients_unclear_seconds=statistics.fmean(unclear) if unclear else None,
        clients_sending=statistics.fmean([look.sending for look in looks]),
        upstreams=statistics.fmean([look.upstreams for look in looks]),
        upstreams_waiting=len(upstreams) / len(looks),
        upstream_seconds=statistics.fmean(upstreams) if upstreams else None,
        upstream_longest_seconds=max(upstreams, default=None),
        upstreams_unclear=statistics.fmean([len(look.upstreams_unclear) for look in looks]),
        upstreams_waiting_ratio=statistics.fmean(
            [bool(look.upstream_seconds or look.connecting) for look in looks]
        ),
        upstreams_connecting=statistics.fmean([look.connecting for look in looks]),
        pool_threads=statistics.fmean([look.pool_threads for look in looks]),
        pool_busy_ratio=sum(look.pool_busy for look in pools) / threads if threads else None,
        pool_full_ratio=(
            sum(look.pool_busy == look.pool_threads for look in pools) / len(pools)
            if pools
            else None
        ),
    )


def plan_round_trips(looks: Iterable[WaitingLook | Missing]) -> RoundTrips | None:
    """Quantiles over the last round trip of each client connection; null without any."""
    last: dict[int, float] = {}
    for look in looks:
        if not isinstance(look, Missing):
            last.update(look.round_trips)
    if not last:
        return None
    seconds = sorted(last.values())
    return RoundTrips(
        connections=len(seconds),
        p50_seconds=_quantile(seconds, 0.5),
        p90_seconds=_quantile(seconds, 0.9),
        p99_seconds=_quantile(seconds, 0.99),
    )


def _quantile(ascending: Sequence[float], q: float) -> float | None:
    """Smallest value with a share ``q`` at or below it; null if too few lie beyond it."""
    rank = math.ceil(q * len(ascending))
    return ascending[rank - 1] if len(ascending) - rank >= _LEAST_BEYOND else None


def _plan_held_calls(window: Window) -> list[HeldCall]:
    """The calls that main threads waited in; log files are named, other files only by kind."""
    samples = sum(shares.samples for shares in window.states.values())
    found: Counter[tuple[str, str, str, str]] = Counter()
    for blocked, looks in window.held.items():
        file = _shown(blocked.file, window.subjects.access_logs)
        found[blocked.state, blocked.call, blocked.kind, file] += looks
    return [
        HeldCall(state=state, call=call, kind=kind, file=file, ratio=looks / samples)
        for (state, call, kind, file), looks in found.most_common(_MOST_CALLS)
        if samples
    ]


def _shown(file: str, logs: frozenset[str]) -> str:
    """The path of a log, or only the kind of any other file: paths of served files are private."""
    path = file.removeprefix(_APPENDED)
    if path in logs:
        return path
    if not file.startswith((_APPENDED, "/")):
        return ""
    return "a log" if file.startswith(_APPENDED) else "a file"
