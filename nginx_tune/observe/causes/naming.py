"""What a window over a server shows: named, with the figures it stands on and what is not known.

Load average, iowait and the size of processes are no evidence: all three rise when thread pools
help. What counts is the main threads: a worker's loop serves nobody while it waits for a disk,
computes, sleeps or is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from nginx_tune.documents.base import Unknown
from nginx_tune.documents.harms import HARMS
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.observation import FEWEST_CPU_SECONDS, FEWEST_REQUESTS, Cause, Confidence
from nginx_tune.documents.units import number_text, plural, seconds_text
from nginx_tune.measure.proof.blocked import measure_blocked
from nginx_tune.observe.causes import cpu, elsewhere, logged, loop, lost
from nginx_tune.observe.causes.parts import (
    ALLOWED_SECONDS,
    CauseWindow,
    longest_text,
    percent,
)

_LEAST_SECONDS = 1.0

_MEASURED_FIRST: tuple[Callable[[CauseWindow], Cause | None], ...] = (
    loop.stopped,
    lost.accept_overflow,
    loop.blocked_on_disk,
)
_LOOKS: tuple[Callable[[CauseWindow], Cause | None], ...] = (
    cpu.throttled,
    cpu.held_by_cpu,
    loop.asleep_in_call,
    lost.queue_wait,
    cpu.saturated,
    cpu.contention,
    elsewhere.slow_upstream,
    elsewhere.slow_resolver,
    elsewhere.uneven,
    cpu.stolen,
)
"""After what error logs name: what holds all of a loop, then what holds some requests."""


def find_causes(
    server: ServerMeasurement,
    *,
    duration_seconds: float,
    unknown: Sequence[Unknown] = (),
    allowed_seconds: float = ALLOWED_SECONDS,
    has_ended: bool = False,
) -> list[Cause]:
    """The causes that the figures show, lost requests first; one entry when they show none.

    With ``has_ended`` nginx did not last for the whole window.

    ``allowed_seconds`` is what a request may take: longer turns, and waits of a tenth of it, are
    never passed over.
    Errors: UsageError for a malformed histogram.
    """
    if duration_seconds < _LEAST_SECONDS or not server.workers:
        short = f"{number_text(duration_seconds)} s" if server.workers else "no worker was seen"
        return [_not_enough([f"the window: {short}"])]
    window = CauseWindow(server, duration_seconds, allowed_seconds)
    causes = [
        *logged.find_lost(window),
        *_found(_MEASURED_FIRST, window),
        *logged.find_by_design(window),
        *_found(_LOOKS, window),
    ]
    if causes:
        return causes
    if has_ended:
        lacking = _not_enough(["why it ended: see its error log", "what it would have done"])
        return [replace(lacking, summary="nginx ended in this window")]
    blocked = measure_blocked(server, duration_seconds)
    if blocked is None:
        reasons = [one.reason for one in unknown if one.path.endswith("/loop_turn_seconds")]
        return [_not_enough(reasons or ["how long the main threads waited for disks"])]
    behind = elsewhere.slow_disk_in_pools(window) or elsewhere.not_known(window)
    if behind is not None:
        return [behind]
    replaced = [one.reason for one in unknown if one.path.endswith("/server/cpu_seconds")]
    if replaced:
        lacking = _not_enough([f"what the others did: {one}" for one in replaced])
        said = "workers were replaced in this window, and what took their place was not watched"
        return [replace(lacking, summary=said, next_command="nginx-tune observe")]
    if idle := _idle(server):
        lacking = _not_enough([f"what traffic would show: {idle[1]} in this window"])
        return [
            replace(lacking, summary=idle[0], next_command="nginx-tune observe --duration 5min")
        ]
    said = f"main threads waited for disks {percent(blocked)} of the time"
    if window.turns is not None:
        wait = seconds_text(window.arrival_wait_seconds)
        said += f", an arrival waits {wait} for its loop, the longest turn took "
        said += longest_text(window.turns)
    unseen, uncounted = elsewhere.unseen_waits(window), _uncounted(unknown)
    confidence: Confidence = "high"
    if blocked.method == "samples" or uncounted:
        confidence = "medium"
    return [
        Cause(
            id="nothing-found",
            summary=f"{said}: nothing in this window holds the loops up",
            confidence="low" if unseen else confidence,
            evidence=loop.blocking_evidence(window, blocked),
            not_known=[
                *([unseen] if unseen else []),
                *uncounted,
                "what a busier hour would show",
                *(["how long single turns were"] if window.turns is None else []),
            ],
        )
    ]


def _found(
    looks: Sequence[Callable[[CauseWindow], Cause | None]], window: CauseWindow
) -> list[Cause]:
    return [cause for look in looks if (cause := look(window)) is not None]


def _uncounted(unknown: Sequence[Unknown]) -> list[str]:
    """What error logs do not tell, by the reason."""
    kinds = {
        f"/server/{harm.name}": harm.words for harm in HARMS if harm.is_logged and harm.is_kind
    }
    by_reason: dict[str, list[str]] = {}
    for one in unknown:
        if one.path in kinds:
            by_reason.setdefault(one.reason, []).append(kinds[one.path])
    return [
        f"whether there were {', '.join(words)}: {reason}" for reason, words in by_reason.items()
    ]


def _idle(server: ServerMeasurement) -> tuple[str, str] | None:
    """What is said of a server that had next to nothing to do, and by which figure."""
    turns, status = server.loop_turn_seconds, server.stub_status
    if turns is not None and not turns.count:
        return "nothing was asked of the server in this window", "no loop had a turn"
    if status is not None:
        few, figure = status.requests < FEWEST_REQUESTS, plural(status.requests, "request")
    elif turns is not None:
        few, figure = turns.count < FEWEST_REQUESTS, plural(turns.count, "turn") + " of all loops"
    else:
        used = server.cpu_seconds
        few, figure = used is not None and used < FEWEST_CPU_SECONDS, f"{seconds_text(used)} of CPU"
    return ("next to nothing was asked of the server in this window", figure) if few else None


def _not_enough(lacking: list[str]) -> Cause:
    return Cause(
        id="not-enough-evidence",
        summary="too little could be measured to name a cause",
        confidence="low",
        not_known=lacking,
        next_command="nginx-tune doctor",
    )
