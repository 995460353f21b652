"""Who waited for whom over a window, put together from looks; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from nginx_tune.documents.measured_server import HeldCall, RoundTrips, Waiting
from nginx_tune.host.door import Gaps, Missing
from nginx_tune.observe.waiting import WaitingLook
from nginx_tune.observe.window.window import Window

_MOST_CALLS = 8
_LEAST_BEYOND = 10
"""Samples beyond a quantile, without which it says nothing."""
_APPENDED = "+"


def plan_waiting(window: Window, gaps: Gaps) -> Waiting | None:
    """Means over the looks; null with its reason in ``gaps``."""
    looks = [one.waiting for one in window.moments if not isinstance(one.waiting, Missing)]
    if not looks:
        missing = window.moments[-1].waiting
        gaps["/waiting"] = missing.reason if isinstance(missing, Missing) else "not asked"
        return None
    clients = [seconds for one in looks for seconds in one.client_seconds]
    upstreams = [seconds for one in looks for seconds in one.upstream_seconds]
    unclear = [seconds for one in looks for seconds in one.clients_unclear]
    pools = [one for one in looks if one.pool_threads]
    threads = sum(one.pool_threads for one in pools)
    return Waiting(
        looks=len(looks),
        clients=_mean([one.clients for one in looks]),
        clients_waiting=len(clients) / len(looks),
        client_seconds=_mean(clients) if clients else None,
        client_longest_seconds=max(clients, default=None),
        clients_waiting_ratio=_mean([bool(one.client_seconds) for one in looks]),
        clients_unclear=len(unclear) / len(looks),
        clients_unclear_seconds=_mean(unclear) if unclear else None,
        clients_sending=_mean([one.sending for one in looks]),
        upstreams=_mean([one.upstreams for one in looks]),
        upstreams_waiting=len(upstreams) / len(looks),
        upstream_seconds=_mean(upstreams) if upstreams else None,
        upstream_longest_seconds=max(upstreams, default=None),
        upstreams_unclear=_mean([len(one.upstreams_unclear) for one in looks]),
        upstreams_waiting_ratio=_mean(
            [bool(one.upstream_seconds or one.connecting) for one in looks]
        ),
        upstreams_connecting=_mean([one.connecting for one in looks]),
        pool_threads=_mean([one.pool_threads for one in looks]),
        pool_busy_ratio=sum(one.pool_busy for one in pools) / threads if threads else None,
        pool_full_ratio=(
            sum(one.pool_busy == one.pool_threads for one in pools) / len(pools) if pools else None
        ),
    )


def plan_round_trips(looks: Iterable[WaitingLook | Missing]) -> RoundTrips | None:
    """Of each client connection once, as it was seen last; null without any."""
    last: dict[int, float] = {}
    for one in looks:
        if not isinstance(one, Missing):
            last.update(one.round_trips)
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
    """The least value with a share ``q`` at or below it; null with too few beyond it."""
    rank = math.ceil(q * len(ascending))
    return ascending[rank - 1] if len(ascending) - rank >= _LEAST_BEYOND else None


def plan_held_calls(window: Window) -> list[HeldCall]:
    """What main threads waited in; logs by their paths, other files by what they are."""
    samples = sum(shares.samples for shares in window.states.values())
    found: Counter[tuple[str, str, str, str]] = Counter()
    for one, looks in window.held.items():
        file = _shown(one.file, window.subjects.access_logs)
        found[one.state, one.call, one.kind, file] += looks
    return [
        HeldCall(state=state, call=call, kind=kind, file=file, ratio=looks / samples)
        for (state, call, kind, file), looks in found.most_common(_MOST_CALLS)
        if samples
    ]


def _shown(file: str, logs: frozenset[str]) -> str:
    """Paths of what is served are nobody's business."""
    path = file.removeprefix(_APPENDED)
    if path in logs:
        return path
    if not file.startswith((_APPENDED, "/")):
        return ""
    return "a log" if file.startswith(_APPENDED) else "a file"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
