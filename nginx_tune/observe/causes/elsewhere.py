"""Causes outside of the loops: slow upstreams, name servers, disks behind pools, uneven workers."""

from __future__ import annotations

import math

from nginx_tune.documents.measured_server import Waiting, WorkerUse
from nginx_tune.documents.observation import Cause
from nginx_tune.documents.units import number_text, percent_text, seconds_text
from nginx_tune.observe.causes.parts import CauseWindow, figures, longest_text, turn_figures

_FEWEST_WAITING = 1.0
"""Requests without an answer at a time, on average, from which their wait is named."""
_UNEVEN = 2.0
_FEWEST_CONNECTIONS = 20
_FEWEST_LOOKS = 3
_OFTEN = 0.5
"""Of looks: one stall that one look hits shows every client waiting, and is not the rule."""
_AT_WORK = 0.25
_STANDING = 8
"""Connections at a median look: a loop that is free takes them at once, but a few always come."""
_MUCH = 0.5
"""Of a CPU: an arrival in two finds such a loop at work, for a moment or for seconds."""


def slow_upstream(window: CauseWindow) -> Cause | None:
    """Upstreams that were asked and did not answer, or do not take connections."""
    waiting = _looked(window)
    if waiting is None or waiting.upstreams_waiting_ratio < _OFTEN:
        return None if waiting is None else _likely_upstream(window, waiting)
    asked, connecting = waiting.upstreams_waiting, waiting.upstreams_connecting
    slow = asked >= _FEWEST_WAITING and _lasts(waiting.upstream_seconds, window)
    unreached = connecting >= _FEWEST_WAITING
    if not slow and not unreached:
        return _likely_upstream(window, waiting)
    said = []
    if slow:
        said.append(
            f"{number_text(asked)} upstream connections at a time had been asked and had not "
            f"answered, for {seconds_text(waiting.upstream_seconds)} so far on average (longest: "
            f"{seconds_text(waiting.upstream_longest_seconds)})"
        )
    if unreached:
        said.append(f"{number_text(connecting)} at a time were still trying to connect")
    return Cause(
        id="slow-upstream",
        summary=f"{_loops(window)}; requests wait for upstreams: {', and '.join(said)}; log "
        "$upstream_connect_time, $upstream_header_time and $upstream_response_time to see which",
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
    """Clients wait, nothing else holds them, and kept connections may be asked ones."""
    left = _unexplained(window)
    if left is None or waiting.upstreams_unclear < max(_FEWEST_WAITING, 0.5 * left):
        return None
    return Cause(
        id="slow-upstream",
        summary=f"{_loops(window)}; {number_text(left)} requests at a time wait, for "
        f"{seconds_text(waiting.client_seconds)} so far on average (longest: "
        f"{seconds_text(waiting.client_longest_seconds)}), and of "
        f"{number_text(waiting.upstreams_unclear)} kept upstream connections nothing told whether "
        "they had been asked; log $upstream_header_time and $upstream_response_time to see",
        confidence="medium",
        evidence=figures(
            ("client connections that wait for an answer, mean", waiting.clients_waiting, ""),
            ("how long these had waited so far, mean", waiting.client_seconds, "seconds"),
            ("upstream connections that wait for an answer, mean", waiting.upstreams_waiting, ""),
            ("upstream connections that wait or are idle, mean", waiting.upstreams_unclear, ""),
        ),
        not_known=[
            (
                "whether the upstreams have them: limit_req delays, auth_request or scripts hold "
                "requests too"
            )
        ],
    )


def unseen_waits(window: CauseWindow) -> str:
    """What requests may wait that no connection was seen to wait for; empty for none.

    By the mean number of requests under way and Little's law (L = λW), where stub_status tells,
    else by connections of which nothing told who spoke last.
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
            f"what {number_text(status.writing)} requests at a time wait for that stub_status "
            f"counts, {seconds_text(took)} each on average, while {number_text(seen)} connections "
            "were seen to wait or to take an answer"
        )
    if waiting.clients_unclear < _FEWEST_WAITING:
        return ""
    if not _lasts(waiting.clients_unclear_seconds, window):
        return ""
    return (
        f"whether {number_text(waiting.clients_unclear)} clients wait or are idle, silent for "
        f"{seconds_text(waiting.clients_unclear_seconds)} on average: they ask and are answered "
        "in one moment, and there is no stub_status that tells"
    )


def slow_resolver(window: CauseWindow) -> Cause | None:
    """Requests that wait, and for no upstream, where nginx asks a name server."""
    waiting, failures = _looked(window), window.server.resolver_failures or 0
    left = _unexplained(window)
    if not window.server.has_resolver or waiting is None or (left is None and not failures):
        return None
    said = f"{failures:,} names could not be resolved" if failures else ""
    if left is not None:
        said += f"{'; ' if said else ''}{number_text(left)} requests at a time wait, for "
        said += f"{seconds_text(waiting.client_seconds)} so far on average (longest: "
        said += f"{seconds_text(waiting.client_longest_seconds)}), and no upstream was asked"
    return Cause(
        id="slow-resolver",
        summary=f"{_loops(window)}; {said}: nginx resolves names while it serves (resolver), and "
        "a name server that is slow holds requests before any upstream: a name server on this "
        "host that caches, valid= for names that change seldom, or names resolved at the start",
        confidence="high" if failures else "medium",
        evidence=figures(
            ("client connections that wait for an answer, mean", waiting.clients_waiting, ""),
            ("upstream connections that wait for an answer, mean", waiting.upstreams_waiting, ""),
            ("how long clients had waited so far, mean", waiting.client_seconds, "seconds"),
            ("server.resolver_failures", failures, "lines"),
        ),
        not_known=["whether limit_req delays, auth_request or scripts hold some of them"],
    )


def slow_disk_in_pools(window: CauseWindow) -> Cause | None:
    """Loops are free and clients wait, for reads that pool threads do."""
    waiting = _looked(window)
    if waiting is None or (waiting.pool_busy_ratio or 0.0) < _AT_WORK:
        return None
    if waiting.clients_waiting < _FEWEST_WAITING or not _lasts(waiting.client_seconds, window):
        return None
    busy = (waiting.pool_busy_ratio or 0.0) * waiting.pool_threads
    return Cause(
        id="slow-disk-in-pools",
        summary=f"{_loops(window)}; {number_text(waiting.clients_waiting)} requests at a time "
        f"wait, and {number_text(busy)} of {waiting.pool_threads:.0f} pool threads are at work: "
        "the time goes to the disks behind the pools, which no setting of the loops changes",
        confidence="medium",
        evidence=figures(
            ("pool threads at work, mean", busy, ""),
            ("how long clients had waited so far, mean", waiting.client_seconds, "seconds"),
            *((f"{disk.name} read await", disk.read_await_seconds, "seconds")
              for disk in window.server.disks),
        ),
    )  # fmt: skip


def uneven(window: CauseWindow) -> Cause | None:
    """One worker has most of the connections."""
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
        summary=f"one worker holds {percent_text(share, 2)} of {held:,.0f} connections, "
        f"an even share is {percent_text(1 / len(workers), 2)}",
        confidence="medium",
        evidence=figures(("busiest worker's share of connections", share, "ratio")),
        not_known=["whether its connections are also the busier ones"],
    )


def not_known(window: CauseWindow) -> Cause | None:
    """Something holds requests up, and none of the causes does."""
    turns, waiting, left = window.turns, window.server.waiting, _unexplained(window)
    said = []
    if turns is not None and window.is_beyond:
        said.append(
            f"an arrival waits {seconds_text(window.arrival_wait_seconds)} for its loop on "
            f"average, and the longest turn took {longest_text(turns)}"
        )
    if left is not None and waiting is not None:
        said.append(
            f"{number_text(left)} requests at a time wait, for "
            f"{seconds_text(waiting.client_seconds)} so far on average, and neither loops, "
            "upstreams nor pools hold them"
        )
    busiest = max((w.main_thread_cpu_seconds or 0.0) for w in window.server.workers)
    said += [
        f"{number_text(one.accept_queue_median)} connections stood in the accept queue at "
        f"{one.address}:{one.port} (median of the looks)"
        for one in window.server.listeners
        if (one.accept_queue_median or 0.0) >= _STANDING
    ]
    if turns is None and busiest >= _MUCH * window.seconds:
        said.append(
            f"a main thread computed {percent_text(busiest / window.seconds, 2)} of the window, "
            "and nothing told how long its turns were"
        )
    if not said:
        return None
    return Cause(
        id="cause-not-known",
        summary=f"{'; '.join(said)}: no cause that could be told apart explains it",
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
            *(["how long single turns were: nothing traced them"] if turns is None else []),
            "what holds them: limit_req delays, auth_request, scripts, or idle HTTP/2 clients",
            "whether it happens seldom: a longer window tells more",
        ],
        next_command="nginx-tune observe --duration 5m",
    )  # fmt: skip


def _looked(window: CauseWindow) -> Waiting | None:
    waiting = window.server.waiting
    return waiting if waiting is not None and waiting.looks >= _FEWEST_LOOKS else None


def _lasts(so_far_seconds: float | None, window: CauseWindow) -> bool:
    """A wait is seen at a random moment, so on average half of it is over."""
    return so_far_seconds is not None and 2 * so_far_seconds >= window.allowed_seconds


def _unexplained(window: CauseWindow) -> float | None:
    """Requests at a time that neither upstreams nor pools hold, where they wait for long."""
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


def _loops(window: CauseWindow) -> str:
    """What the loops do meanwhile."""
    wait = window.arrival_wait_seconds
    if wait is None:
        return "nothing traced the loops"
    if window.exceeds(wait):
        return f"an arrival waits {seconds_text(wait)} for its loop"
    return f"the loops are free (an arrival waits {seconds_text(wait)} for its own)"
