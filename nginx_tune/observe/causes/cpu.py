"""Causes on the CPU: long computing, all of a CPU, others on it, a quota, a hypervisor."""

from __future__ import annotations

from nginx_tune.documents.measured_server import ServerMeasurement, WorkerUse
from nginx_tune.documents.observation import Cause, CauseEvidence
from nginx_tune.documents.units import percent_text, seconds_text
from nginx_tune.measure.proof.blocked import mean
from nginx_tune.observe.causes.parts import (
    CauseWindow,
    figures,
    longest_text,
    turn_figures,
    what_ran,
)

_SATURATED = 0.9
_MOSTLY, _NEVER_IDLE = 0.5, 0.95
"""A loop that always has something to do is saturated, though others take some of its CPU."""
_CONTENDED = 0.2
_THROTTLED_PERIODS = 0.05
_STOLEN = 0.05


def held_by_cpu(window: CauseWindow) -> Cause | None:
    """Turns that compute for longer than is allowed."""
    turns = window.turns
    if turns is None or not window.is_held_by("computing") or _is_refuted(window):
        return None
    wait = window.arrival_wait_seconds
    ran, not_known = _ran(window.server)
    busiest = max(_shares(window))
    return Cause(
        id="loop-held-by-cpu",
        summary=f"turns compute for up to {longest_text(turns)} at a time, and everybody else on "
        f"the loop waits: {seconds_text(wait)} on average; the busiest main thread computed "
        f"{percent_text(busiest)} of the window{ran}",
        confidence="high" if window.exceeds(window.wait_by("computing")) else "medium",
        evidence=[
            *turn_figures(window),
            *_samples(window.server),
            *figures(("busiest main thread's share of a CPU", busiest, "ratio")),
        ],
        not_known=not_known,
    )


def saturated(window: CauseWindow) -> Cause | None:
    """No time left, though each turn is short."""
    shares = _shares(window)
    at_work = [_at_work(window, worker) for worker in window.server.workers]
    busy = [
        share
        for share, work in zip(shares, at_work, strict=True)
        if share >= _SATURATED or (share >= _MOSTLY and work >= _NEVER_IDLE)
    ]
    if not busy or held_by_cpu(window) is not None:
        return None
    ran, not_known = _ran(window.server)
    return Cause(
        id="cpu-saturated",
        summary=f"{len(busy)} of {len(shares)} workers computed {percent_text(max(busy))} of the "
        f"window: their loops are busy, not blocked{ran}",
        confidence="high",
        evidence=[
            *figures(("busiest main thread's share of a CPU", max(busy), "ratio")),
            *_samples(window.server),
        ],
        not_known=not_known,
    )


def throttled(window: CauseWindow) -> Cause | None:
    """The quota of a control group was used up."""
    quota = window.server.quota
    if quota is None or not quota.periods or not quota.throttled_periods:
        return None
    share = quota.throttled_periods / quota.periods
    if share < _THROTTLED_PERIODS:
        return None
    return Cause(
        id="cpu-throttled",
        summary=f"the control group's CPU quota was used up in {percent_text(share)} of its "
        f"periods ({quota.throttled_periods:,} of {quota.periods:,}), and all of nginx stood still "
        "for the rest of each: raise the quota (cpu.max, CPUQuota=, limits.cpu), or have fewer "
        "workers",
        confidence="high",
        evidence=figures(
            ("throttled periods", quota.throttled_periods, ""),
            ("periods", quota.periods, ""),
            ("time throttled, of all CPUs", quota.throttled_seconds, "seconds"),
            ("server.run_queue_seconds", window.server.run_queue_seconds, "seconds"),
        ),
        not_known=["how much it needs without a limit"],
    )


def contention(window: CauseWindow) -> Cause | None:
    """Ready to run, and somebody else runs."""
    server = window.server
    shares = [(w.run_queue_seconds or 0.0) / window.seconds for w in server.workers]
    quota = server.quota
    if throttled(window) is not None and quota is not None:
        # A throttled thread waits for a CPU in the scheduler's own books.
        by_quota = quota.throttled_seconds / window.seconds
        shares = [max(0.0, share - by_quota) for share in shares]
        held = False
    else:
        held = window.is_held_by("queued")
    if max(shares) < _CONTENDED and not held:
        return None
    return Cause(
        id="cpu-contention",
        summary=f"main threads were ready to run and had no CPU {percent_text(mean(shares))} of "
        f"the window (worst: {percent_text(max(shares))})",
        confidence="high" if max(shares) >= _CONTENDED else "medium",
        evidence=[
            *figures(("server.run_queue_seconds", server.run_queue_seconds, "seconds")),
            *(turn_figures(window) if held else []),
        ],
        not_known=["whose threads took the CPU: other workers', pools' or other programs'"],
    )


def stolen(window: CauseWindow) -> Cause | None:
    """The hypervisor had the CPUs."""
    ratio = window.server.steal_ratio
    if ratio is None or ratio < _STOLEN:
        return None
    return Cause(
        id="cpu-steal",
        summary=f"the hypervisor gave {percent_text(ratio)} of this machine's CPU time to others: "
        "turns last longer for it, and nothing in nginx changes that",
        confidence="high",
        evidence=figures(("server.steal_ratio", ratio, "ratio")),
        not_known=["whether it falls on nginx's CPUs more than on others"],
    )


def _is_refuted(window: CauseWindow) -> bool:
    """Whether the threads' own clocks rule out that turns computed for so long.

    An arrival waits half a turn's length, at most half of the longest, in the share of time that
    is spent in computing. Twice that is allowed for, as the figures come from different clocks;
    what a hypervisor takes runs on in the turn and not in the thread's clock.
    """
    known = [worker.main_thread_cpu_seconds for worker in window.server.workers]
    seconds = [one for one in known if one is not None]
    if len(seconds) < len(known) or window.turns is None:
        return False
    ran = mean(seconds) / window.seconds / max(0.1, 1.0 - (window.server.steal_ratio or 0.0))
    return window.wait_by("computing") > 2 * ran * (window.turns.max or 0.0) / 2


def _shares(window: CauseWindow) -> list[float]:
    return [(w.main_thread_cpu_seconds or 0.0) / window.seconds for w in window.server.workers]


def _at_work(window: CauseWindow, worker: WorkerUse) -> float:
    """Share of the window that a loop was in its turns, or its thread was ready to run."""
    runs = (worker.main_thread_cpu_seconds or 0.0) + (worker.run_queue_seconds or 0.0)
    traced = window.turns.traced_ratio or 0.0 if window.turns else 0.0
    waits = worker.loop_blocked_seconds or 0.0
    turns = ((worker.loop_busy_seconds or 0.0) - waits) / traced if traced else 0.0
    return max(runs, turns) / window.seconds


def _ran(server: ServerMeasurement) -> tuple[str, list[str]]:
    """What the time was spent on, as the end of a sentence, and what of it is not known."""
    ran = what_ran(server.cpu_samples)
    if ran:
        return f": {ran}", ["which requests: the access log with $request_time shows them"]
    lacking = "what it was spent on: TLS, compression, scripts, copying"
    known = [
        (worker.user_ratio, worker.main_thread_cpu_seconds or 0.0)
        for worker in server.workers
        if worker.user_ratio is not None
    ]
    if not known:
        return "", [lacking]
    user = max(known, key=lambda one: one[1])[0]
    return f", {percent_text(user)} of that outside the kernel", [lacking]


def _samples(server: ServerMeasurement) -> list[CauseEvidence]:
    total = sum(server.cpu_samples.values())
    shown = list(server.cpu_samples.items())[:4] if total else []
    return figures(
        *((f"looks that found {name} computing", n / total, "ratio") for name, n in shown)
    )
