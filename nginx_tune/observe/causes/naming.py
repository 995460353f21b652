"""The causes in a window over a server, each with its figures and what remains unknown.

Load average, iowait and the size of processes are no evidence: all three rise when thread pools
help. Only the main threads count: a worker's loop serves nobody while it waits for a disk,
computes, sleeps or is stopped. Causes outside the loops are found too: slow upstreams, name
servers, disks behind pools, uneven workers.
"""

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from nginx_tune.documents.base import Unknown
from nginx_tune.documents.decisions import Confidence
from nginx_tune.documents.measured_server import HARMS, ServerMeasurement, Waiting, WorkerUse
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import FEWEST_CPU_SECONDS, FEWEST_REQUESTS, Cause
from nginx_tune.documents.scenario import VariantCause
from nginx_tune.documents.units import number_text, percent_text, plural, seconds_text
from nginx_tune.measure.proof.workers import measure_blocked
from nginx_tune.observe.causes.loop import (
    asleep_in_call,
    blocked_on_disk,
    blocking_evidence,
    contention,
    held_by_cpu,
    saturated,
    stolen,
    stopped,
    throttled,
)
from nginx_tune.observe.causes.lost import accept_overflow, find_by_design, find_lost, queue_wait
from nginx_tune.observe.causes.parts import (
    ALLOWED_SECONDS,
    CauseWindow,
    figures,
    longest_text,
    percent,
    turn_figures,
)

_LEAST_SECONDS = 1.0


def find_causes(
    server: ServerMeasurement,
    *,
    duration_seconds: float,
    unknown: Sequence[Unknown] = (),
    allowed_seconds: float = ALLOWED_SECONDS,
    has_ended: bool = False,
) -> list[Cause]:
    """The causes that the figures show, lost requests first. Without any, one entry says so.

    ``allowed_seconds`` is the allowed time of a request: longer turns, and waits of a tenth of it,
    always get a cause. ``has_ended``: nginx ended before the window did.
    Errors: UsageError for a malformed histogram.
    """
    if duration_seconds < _LEAST_SECONDS or not server.workers:
        short = f"{number_text(duration_seconds)} s" if server.workers else "no worker was seen"
        return [_not_enough([f"the window: {short}"])]
    window = CauseWindow(server, duration_seconds, allowed_seconds)
    causes = [
        *find_lost(window),
        *_found(_MEASURED_FIRST, window),
        *find_by_design(window),
        *_found(_LOOKS, window),
    ]
    if causes:
        return causes
    if has_ended:
        lacking = _not_enough(["why it ended: see its error log", "the rest of the window"])
        return [replace(lacking, summary="nginx ended in this window")]
    blocked = measure_blocked(server, duration_seconds)
    if blocked is None:
        reasons = [gap.reason for gap in unknown if gap.path.endswith("/loop_turn_seconds")]
        return [_not_enough(reasons or ["how long the main threads waited for disks"])]
    behind = slow_disk_in_pools(window) or not_known(window)
    if behind is not None:
        return [behind]
    replaced = [gap.reason for gap in unknown if gap.path.endswith("/server/cpu_seconds")]
    if replaced:
        lacking = _not_enough([f"the work of the other workers: {gap}" for gap in replaced])
        summary = "workers were replaced in this window, and their successors were not watched"
        return [replace(lacking, summary=summary, next_command="nginx-tune observe")]
    if idle := _idle(server):
        lacking = _not_enough([f"the server under traffic: {idle[1]} in this window"])
        return [
            replace(lacking, summary=idle[0], next_command="nginx-tune observe --duration 5min")
        ]
    summary = f"main threads waited for disks {percent(blocked)} of the time"
    if window.turns is not None:
        wait = seconds_text(window.arrival_wait_seconds)
        summary += f", an arrival waits {wait} for its loop, the longest turn took "
        summary += longest_text(window.turns)
    unseen, uncounted = unseen_waits(window), _uncounted(unknown)
    confidence: Confidence = "high"
    if blocked.method == "samples" or uncounted:
        confidence = "medium"
    return [
        Cause(
            id="nothing-found",
            summary=f"{summary}: nothing in this window holds the loops up",
            confidence="low" if unseen else confidence,
            evidence=blocking_evidence(window, blocked),
            not_known=[
                *([unseen] if unseen else []),
                *uncounted,
                "a busier hour",
                *(["how long single turns were"] if window.turns is None else []),
            ],
        )
    ]


def _found(
    looks: Sequence[Callable[[CauseWindow], Cause | None]], window: CauseWindow
) -> list[Cause]:
    return [cause for look in looks if (cause := look(window)) is not None]


def _uncounted(unknown: Sequence[Unknown]) -> list[str]:
    """The counts that error logs do not show, by reason."""
    kinds = {
        f"/server/{harm.name}": harm.words for harm in HARMS if harm.is_logged and harm.is_kind
    }
    by_reason: dict[str, list[str]] = {}
    for gap in unknown:
        if gap.path in kinds:
            by_reason.setdefault(gap.reason, []).append(kinds[gap.path])
    return [
        f"whether there were {', '.join(words)}: {reason}" for reason, words in by_reason.items()
    ]


def _idle(server: ServerMeasurement) -> tuple[str, str] | None:
    """The summary and figure for a server with hardly any traffic; None for a busier server."""
    turns, status = server.loop_turn_seconds, server.stub_status
    if turns is not None and not turns.count:
        return "no request reached the server in this window", "no loop had a turn"
    if status is not None:
        few, figure = status.requests < FEWEST_REQUESTS, plural(status.requests, "request")
    elif turns is not None:
        few, figure = turns.count < FEWEST_REQUESTS, plural(turns.count, "turn") + " of all loops"
    else:
        used = server.cpu_seconds
        few, figure = used is not None and used < FEWEST_CPU_SECONDS, f"{seconds_text(used)} of CPU"
    return ("almost no request reached the server in this window", figure) if few else None


def _not_enough(lacking: list[str]) -> Cause:
    return Cause(
        id="not-enough-evidence",
        summary="too little could be measured to name a cause",
        confidence="low",
        not_known=lacking,
        next_command="nginx-tune doctor",
    )


def find_variant_causes(measurements: Sequence[Measurement]) -> list[VariantCause]:
    """The causes that at least half of a variant's runs show, the baseline's first.

    A run without workers, such as one with a stand-in server, shows none. The figures come from the
    middle one of the runs that show the cause.

    Errors: UsageError for a malformed histogram.
    """
    by_variant: dict[str, list[list[Cause]]] = {}
    for run in measurements:
        found = find_causes(run.server, duration_seconds=run.duration_seconds, unknown=run.unknown)
        by_variant.setdefault(run.variant, []).append(found if run.server.workers else [])
    variants = sorted(by_variant, key=lambda variant: variant != "baseline")
    return [cause for variant in variants for cause in _often_seen(variant, by_variant[variant])]


def _often_seen(variant: str, runs: list[list[Cause]]) -> list[VariantCause]:
    seen: dict[str, list[Cause]] = {}
    for causes in runs:
        for cause in causes:
            seen.setdefault(cause.id, []).append(cause)
    return [
        VariantCause(
            variant=variant, runs=len(found), of_runs=len(runs), cause=found[len(found) // 2]
        )
        for found in seen.values()
        if 2 * len(found) >= len(runs)
    ]


_FEWEST_WAITING = 1.0
"""Fewer waiting requests than this, on average, are not reported as a cause."""
_UNEVEN = 2.0
_FEWEST_CONNECTIONS = 20
_FEWEST_LOOKS = 3
_OFTEN = 0.5
"""Minimum share of samples with a wait: during a single stall, a sample shows every client
waiting."""
_AT_WORK = 0.25
_CURRENT = 8
"""Minimum median of an accept queue that matters, in connections: even with a free loop, a few
wait."""
_MUCH = 0.5
"""The share of a CPU at which half of the arrivals find the loop busy."""


def slow_upstream(window: CauseWindow) -> Cause | None:
    """The cause of upstreams that do not answer or do not accept connections."""
    waiting = _looked(window)
    if waiting is None or waiting.upstreams_waiting_ratio < _OFTEN:
        return None if waiting is None else _likely_upstream(window, waiting)
    asked, connecting = waiting.upstreams_waiting, waiting.upstreams_connecting
    slow = asked >= _FEWEST_WAITING and _lasts(waiting.upstream_seconds, window)
    unreached = connecting >= _FEWEST_WAITING
    if not slow and not unreached:
        return _likely_upstream(window, waiting)
    parts = []
    if slow:
        parts.append(
            f"on average {number_text(asked)} upstream connections were waiting for an answer, and "
            f"had waited {seconds_text(waiting.upstream_seconds)} so far on average (longest: "
            f"{seconds_text(waiting.upstream_longest_seconds)})"
        )
    if unreached:
        parts.append(f"on average {number_text(connecting)} were still connecting")
    return Cause(
        id="slow-upstream",
        summary=f"{_loops(window)}; requests wait for upstreams: {', and '.join(parts)}; to see "
        "the slow ones, log $upstream_connect_time, $upstream_header_time and "
        "$upstream_response_time",
        confidence="high" if (slow and asked >= 0.5 * waiting.clients_waiting) or unreached
        else "medium",
        evidence=figures(
            ("upstream connections that wait for an answer, mean", asked, ""),
            ("upstream connections that are not open yet, mean", connecting, ""),
            ("how long these had waited so far, mean", waiting.upstream_seconds, "seconds"),
            ("client connections that wait for an answer, mean", waiting.clients_waiting, ""),
            ("server.upstream_timeouts", window.server.upstream_timeouts, "lines"),
        ),
        not_known=["whether these are long polls or WebSockets, which wait by design"],
    )  # fmt: skip


def _likely_upstream(window: CauseWindow, waiting: Waiting) -> Cause | None:
    """The cause of unexplained waits, if unclear upstream connections may account for half of them.

    An unclear connection is either busy or idle.
    """
    left = _unexplained(window)
    if left is None or waiting.upstreams_unclear < max(_FEWEST_WAITING, 0.5 * left):
        return None
    return Cause(
        id="slow-upstream",
        summary=f"{_loops(window)}; {_waiting_text(left, waiting)}. They may be waiting on "
        f"{number_text(waiting.upstreams_unclear)} upstream connections that are either busy or "
        "idle; to find out, log $upstream_header_time and $upstream_response_time",
        confidence="medium",
        evidence=figures(
            ("client connections that wait for an answer, mean", waiting.clients_waiting, ""),
            ("how long these had waited so far, mean", waiting.client_seconds, "seconds"),
            ("upstream connections that wait for an answer, mean", waiting.upstreams_waiting, ""),
            ("upstream connections that wait or are idle, mean", waiting.upstreams_unclear, ""),
        ),
        not_known=[
            (
                "whether upstreams hold the requests: limit_req, auth_request and scripts can hold "
                "them too"
            )
        ],
    )


def unseen_waits(window: CauseWindow) -> str:
    """The requests that may wait although no connection shows it; empty if there are none.

    With stub_status, this follows from the mean number of requests in progress and Little's law
    (L = λW); otherwise from connections whose waiting side is unclear.
    """
    waiting, status = _looked(window), window.server.stub_status
    if waiting is None:
        return ""
    seen = waiting.clients_waiting + waiting.clients_sending
    if status is not None and status.writing is not None and status.requests_per_second:
        left = status.writing - seen
        took = status.writing / status.requests_per_second
        if left < max(_FEWEST_WAITING, 0.5 * seen) or not _lasts(took / 2, window):
            return ""
        return (
            f"the difference between the {number_text(status.writing)} concurrent requests of "
            f"stub_status, {seconds_text(took)} each on average, and the {number_text(seen)} "
            "connections that were seen to wait for or receive an answer"
        )
    if waiting.clients_unclear < _FEWEST_WAITING:
        return ""
    if not _lasts(waiting.clients_unclear_seconds, window):
        return ""
    return (
        f"whether {number_text(waiting.clients_unclear)} clients, silent for "
        f"{seconds_text(waiting.clients_unclear_seconds)} on average, wait or are idle: their last "
        "request and answer have the same time, and stub_status is missing"
    )


def slow_resolver(window: CauseWindow) -> Cause | None:
    """The cause of requests that wait although no upstream got any, if nginx uses a resolver."""
    waiting, failures = _looked(window), window.server.resolver_failures or 0
    left = _unexplained(window)
    if not window.server.has_resolver or waiting is None or (left is None and not failures):
        return None
    text = f"{failures:,} names could not be resolved" if failures else ""
    if left is not None:
        text += f"{'; ' if text else ''}{_waiting_text(left, waiting)}, and no upstream was asked"
    return Cause(
        id="slow-resolver",
        summary=f"{_loops(window)}; {text}: nginx resolves names per request (resolver), and a "
        "slow name server delays each request before it reaches an upstream. Use a caching name "
        "server on this host, valid= for names that seldom change, or names that are resolved at "
        "the start",
        confidence="high" if failures else "medium",
        evidence=figures(
            ("client connections that wait for an answer, mean", waiting.clients_waiting, ""),
            ("upstream connections that wait for an answer, mean", waiting.upstreams_waiting, ""),
            ("the clients' wait so far, mean", waiting.client_seconds, "seconds"),
            ("server.resolver_failures", failures, "lines"),
        ),
        not_known=["whether limit_req, auth_request or scripts hold some of the requests"],
    )


def slow_disk_in_pools(window: CauseWindow) -> Cause | None:
    """The cause of clients that wait for reads of pool threads, while the loops are free."""
    waiting = _looked(window)
    if waiting is None or (waiting.pool_busy_ratio or 0.0) < _AT_WORK:
        return None
    if waiting.clients_waiting < _FEWEST_WAITING or not _lasts(waiting.client_seconds, window):
        return None
    busy = (waiting.pool_busy_ratio or 0.0) * waiting.pool_threads
    return Cause(
        id="slow-disk-in-pools",
        summary=f"{_loops(window)}; on average {number_text(waiting.clients_waiting)} requests "
        f"wait and {number_text(busy)} of {waiting.pool_threads:.0f} pool threads are at work: "
        "requests wait for the disks behind the pools, and no setting of the loops changes that",
        confidence="medium",
        evidence=figures(
            ("pool threads at work, mean", busy, ""),
            ("the clients' wait so far, mean", waiting.client_seconds, "seconds"),
            *((f"{disk.name} read await", disk.read_await_seconds, "seconds")
              for disk in window.server.disks),
        ),
    )  # fmt: skip


def uneven(window: CauseWindow) -> Cause | None:
    """The cause of a worker that has most of the connections."""
    workers = [w for w in window.server.workers if w.connection_ratio is not None]
    held = sum(w.connections or 0.0 for w in workers)
    if len(workers) < 2 or held < _FEWEST_CONNECTIONS:  # noqa: PLR2004
        return None
    busiest: WorkerUse = max(workers, key=lambda w: w.connection_ratio or 0.0)
    share = busiest.connection_ratio or 0.0
    if share * len(workers) < _UNEVEN:
        return None
    return Cause(
        id="uneven-workers",
        summary=f"one worker holds {percent_text(share, 2)} of {held:,.0f} connections; an even "
        f"share is {percent_text(1 / len(workers), 2)}",
        confidence="medium",
        evidence=figures(("busiest worker's share of connections", share, "ratio")),
        not_known=["whether its connections are busier too"],
    )


def not_known(window: CauseWindow) -> Cause | None:
    """The cause of requests that wait for something unknown."""
    turns, waiting, left = window.turns, window.server.waiting, _unexplained(window)
    parts = []
    if turns is not None and window.is_beyond:
        parts.append(
            f"an arrival waits {seconds_text(window.arrival_wait_seconds)} for its loop on "
            f"average, and the longest turn took {longest_text(turns)}"
        )
    if left is not None and waiting is not None:
        parts.append(f"{_waiting_text(left, waiting)}, but not for loops, upstreams or pools")
    busiest = max((w.main_thread_cpu_seconds or 0.0) for w in window.server.workers)
    parts += [
        f"{number_text(listener.accept_queue_median)} connections were in the accept queue at "
        f"{listener.address}:{listener.port} (median of the samples)"
        for listener in window.server.listeners
        if (listener.accept_queue_median or 0.0) >= _CURRENT
    ]
    if turns is None and busiest >= _MUCH * window.seconds:
        parts.append(
            f"a main thread computed {percent_text(busiest / window.seconds, 2)} of the window, "
            "and its turns were not traced"
        )
    if not parts:
        return None
    return Cause(
        id="cause-not-known",
        summary=f"{'; '.join(parts)}: none of the known causes explains it",
        confidence="low",
        evidence=[
            *turn_figures(window),
            *figures(
                ("client connections that wait for an answer, mean",
                 waiting.clients_waiting if waiting else None, ""),
                ("how long these had waited so far, mean",
                 waiting.client_seconds if waiting else None, "seconds"),
            ),
        ],
        not_known=[
            *(["how long single turns were: they were not traced"] if turns is None else []),
            "what they wait for: limit_req, auth_request, scripts, or idle HTTP/2 clients",
            "whether it happens seldom: a longer window shows more",
        ],
        next_command="nginx-tune observe --duration 5m",
    )  # fmt: skip


def _looked(window: CauseWindow) -> Waiting | None:
    waiting = window.server.waiting
    return waiting if waiting is not None and waiting.looks >= _FEWEST_LOOKS else None


def _lasts(so_far_seconds: float | None, window: CauseWindow) -> bool:
    """True for a wait beyond the allowed time; on average, a sample sees half of the full wait."""
    return so_far_seconds is not None and 2 * so_far_seconds >= window.allowed_seconds


def _unexplained(window: CauseWindow) -> float | None:
    """The number of requests that wait long, but not for upstreams or pools; None if few."""
    waiting = _looked(window)
    if waiting is None or not _lasts(waiting.client_seconds, window):
        return None
    if waiting.clients_waiting_ratio < _OFTEN:
        return None
    pools = (waiting.pool_busy_ratio or 0.0) * waiting.pool_threads
    known = math.fsum((waiting.upstreams_waiting, waiting.upstreams_connecting, pools))
    left = waiting.clients_waiting - known
    loops = window.arrival_wait_seconds
    if left < max(_FEWEST_WAITING, 0.5 * waiting.clients_waiting):
        return None
    return None if loops is not None and window.exceeds(loops) else left


def _waiting_text(left: float, waiting: Waiting) -> str:
    """The number of unexplained waits, and the time for which all clients have waited."""
    return (
        f"on average {number_text(left)} requests wait without another known cause; waiting "
        f"clients have waited {seconds_text(waiting.client_seconds)} so far on average (longest: "
        f"{seconds_text(waiting.client_longest_seconds)})"
    )


def _loops(window: CauseWindow) -> str:
    """The state of the loops as the start of a sentence."""
    wait = window.arrival_wait_seconds
    if wait is None:
        return "the loops were not traced"
    if window.exceeds(wait):
        return f"an arrival waits {seconds_text(wait)} for its loop"
    return f"the loops are free (an arrival waits {seconds_text(wait)} for its own)"


_MEASURED_FIRST: tuple[Callable[[CauseWindow], Cause | None], ...] = (
    stopped,
    accept_overflow,
    blocked_on_disk,
)
_LOOKS: tuple[Callable[[CauseWindow], Cause | None], ...] = (
    throttled,
    held_by_cpu,
    asleep_in_call,
    queue_wait,
    saturated,
    contention,
    slow_upstream,
    slow_resolver,
    uneven,
    stolen,
)
"""Checks after the checks of error logs: causes of a whole loop, then of some requests."""
