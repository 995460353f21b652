"""``thread-pool-size``: threads and queue of a worker's pool.

Hot reads queue in the pool like cold ones. With as many cold transfers as threads every hot one
waits for the disk again, and what the pool had gained is lost; so a worker needs more threads
than it has cold transfers at once, at their peak: more in less than a thousandth of the time, with
disks that stand still and heads that serve overlapping reads by turns. That the disks do only so
many reads at once (the measured knee) is no reason for fewer threads: the rest waits in the disk
instead of the pool, and hot reads pass. Against more stands the page cache, which the windows of
running reads push hot files out of. Where no number of threads fits both, hot and cold locations
get pools apart.

The queue takes bursts: a task that finds it full is refused, and the client gets a cut body with
status 200. A queue slot costs nothing, so it stays at nginx's 65536.
"""

from __future__ import annotations

from nginx_tune.decide.answer import (
    LEARN_COMMAND,
    OBSERVE_COMMAND,
    not_applicable,
    setting,
    validate_command,
)
from nginx_tune.decide.model.pool import DEFAULT_QUEUE, DEFAULT_THREADS, THREADS_PER_KNEE, PoolSize
from nginx_tune.decide.pool_plan import SINGLE_POOL, PoolPlan, looks_through_disks
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Confidence, Decision, Evidence, Setting

_QUEUE = f"max_queue={DEFAULT_QUEUE}"
KNEE = "io-pool-threads-over-knee"
IGNORED_KNEE = f"nginx-tune: ignore[{KNEE}]"


def decide_thread_pool_size(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    if plan.mode == "per_disk" or (plan.proposed and plan.proposed.mode == "per_disk"):
        return not_applicable("thread-pool-size", "Each disk has its own pool: see per-disk-pools.")
    if plan.proposed is not None and plan.proposed.mode != "per_disk":
        would_be = decide_thread_pool_size(s, plan.proposed)
        return Decision(
            id="thread-pool-size",
            verdict="not_enough_evidence",
            summary=f"No pool to size yet: {plan.judgement.reason}.",
            proposed=would_be.settings,
            evidence=would_be.evidence,
            flips_when=["thread-pools is enabled"],
            next_command=plan.judgement.next_command,
        )
    if plan.size is None or not plan.on:
        return not_applicable(
            "thread-pool-size",
            f"No pool to size: {plan.judgement.reason}.",
            flips="thread-pools is enabled",
        )
    if plan.mode == "hot_and_cold":
        return _apart(s, plan)
    if s.seen.pool_overflow.value:
        return _overflowing(s, plan)
    if plan.threads == DEFAULT_THREADS and plan.size.fits:
        return _default_fits(s, plan)
    return _other_size(s, plan)


def _default_fits(s: Situation, plan: PoolPlan) -> Decision:
    return Decision(
        id="thread-pool-size",
        verdict="keep",
        summary=f"The default pool of {DEFAULT_THREADS} threads is above the peak of "
        f"{cold_text(plan)} of a worker."
        if plan.load_known
        else f"The default pool of {DEFAULT_THREADS} threads: the peak of concurrent cold "
        "transfers is not known.",
        evidence=_evidence(s, plan),
        confidence=_confidence(s),
        flips_when=[f"a worker has {DEFAULT_THREADS * 4 // 5} or more cold transfers at once"],
        risks=[]
        if plan.load_known
        else ["with as many cold transfers as threads hot reads wait for the disk again"],
        next_command="nginx-tune scenario run thread-pools" if plan.load_known else LEARN_COMMAND,
    )


def _overflowing(s: Situation, plan: PoolPlan) -> Decision:
    """A14: tasks were refused; a larger queue may help, or the disks cannot serve that many."""
    refused = s.seen.pool_overflow
    reason = f"{refused.text} while it was watched; 200 with a cut body for each"
    return Decision(
        id="thread-pool-size",
        verdict="raise",
        summary=f"{plan.threads} threads and a queue of {DEFAULT_QUEUE}: {reason}.",
        settings=[
            setting(
                "thread-pool-size",
                "main",
                "thread_pool",
                "default",
                f"threads={plan.threads}",
                _QUEUE,
                reason=reason,
            )
        ],
        evidence=[*known(refused), *_evidence(s, plan)],
        confidence="high",
        flips_when=["no task is refused over a busy hour"],
        risks=["where a queue this long overflows too, the disks cannot serve that many"],
        next_command=OBSERVE_COMMAND,
    )


def _other_size(s: Situation, plan: PoolPlan) -> Decision:
    size = plan.size
    if size is None:
        raise AssertionError("a plan that is on has a size")
    reason = comment = (
        f"peak of {cold_text(plan)} a worker; hot reads queue behind them"
        if plan.load_known
        else f"the most that helps ({size.limit_reason}); the peak of cold transfers is not known"
    )
    if size.fits and plan.load_known and plan.threads < DEFAULT_THREADS:
        reason = comment = (
            f"above the peak of {cold_text(plan)} a worker, and the most that helps "
            f"({size.limit_reason})"
        )
    if exceeds_knee(s, plan):
        # More than the disks do at once, on purpose; the audit would ask why.
        comment = f"{IGNORED_KNEE} {reason}"
    if looks_through_disks(s):
        known_rules = f"{KNEE}, {SINGLE_POOL}" if exceeds_knee(s, plan) else SINGLE_POOL
        comment = f"nginx-tune: ignore[{known_rules}] {reason}"
    line = setting(
        "thread-pool-size",
        "main",
        "thread_pool",
        "default",
        f"threads={plan.threads}",
        _QUEUE,
        reason=comment,
    )
    enough = (
        f"{plan.threads} threads a worker: {reason}."
        if size.fits or not plan.load_known
        else f"{size.needed} threads a worker would be needed for {cold_text(plan)}, "
        f"and {size.limit} is the most that helps ({size.limit_reason}): give the hot locations a "
        "pool of their own by naming them in [site] hot_locations."
    )
    return Decision(
        id="thread-pool-size",
        verdict="raise" if plan.threads >= DEFAULT_THREADS else "lower",
        summary=enough,
        settings=[line],
        evidence=_evidence(s, plan),
        confidence=_confidence(s) if size.fits else "low",
        flips_when=_flips(plan),
        risks=[
            f"every worker has its own pool: {plan.threads * s.workers} threads in all",
            "with worker_cpu_affinity they all run on the one CPU of their loop",
            *([] if size.fits else ["until the pools stand apart, hot reads wait for the disk"]),
        ],
        next_command="nginx-tune generate --site site.toml"
        if not size.fits
        else validate_command(s),
    )


def _apart(s: Situation, plan: PoolPlan) -> Decision:
    if plan.size is None:
        raise AssertionError("a plan that is on has a size")
    lines: list[Setting] = [
        setting(
            "thread-pool-size",
            "main",
            "thread_pool",
            "cold",
            f"threads={plan.threads}",
            _QUEUE,
            reason="enough to keep the disk busy; only cold reads wait in it",
        ),
        setting(
            "thread-pool-size",
            "main",
            "thread_pool",
            "hot",
            f"threads={plan.hot_threads}",
            _QUEUE,
            reason="for the hot locations, whose reads wait for no disk",
        ),
    ]
    return Decision(
        id="thread-pool-size",
        verdict="set",
        summary=f"Two pools: {plan.size.needed} threads would be needed for hot and cold reads "
        f"together, and {_why_apart(plan.size)}.",
        settings=lines,
        evidence=_evidence(s, plan),
        confidence=_confidence(s),
        flips_when=_flips(plan),
        risks=["a hot location whose files leave the page cache fills its own pool"],
        next_command=validate_command(s),
    )


def _why_apart(size: PoolSize) -> str:
    if size.fits:
        return "a hot file that has left the page cache would wait for all the cold ones there"
    return f"{size.limit} is the most that helps ({size.limit_reason})"


def exceeds_knee(s: Situation, plan: PoolPlan, *, pools: int = 1) -> bool:
    """Whether all threads are far more than the reads that the measured disks do at once."""
    if s.disk_knee is None:
        return False
    return plan.threads * s.workers * pools > THREADS_PER_KNEE * s.disk_knee


def cold_text(plan: PoolPlan) -> str:
    """``12 cold transfers``; a peak that is rounded to none is not said to be none."""
    peak = plan.size.cold_per_worker if plan.size else 0.0
    if peak < 1:
        return "less than one cold transfer"
    count = round(peak)
    return f"{count} cold transfer{'' if count == 1 else 's'}"


def _flips(plan: PoolPlan) -> list[str]:
    if plan.size is None:
        return []
    apart = plan.mode == "hot_and_cold"
    enough = int((DEFAULT_THREADS if apart else plan.size.limit) * 4 / 5)
    return [f"one pool is enough while a worker has fewer than {enough} cold transfers at once"]


def _evidence(s: Situation, plan: PoolPlan) -> list[Evidence]:
    if plan.size is None or s.prediction is None:
        return []
    where = s.cold_concurrency if s.cold_concurrency.value is not None else s.concurrency
    curves = [(d.name, d.curve) for d in s.facts.storage.disks if d.curve is not None]
    curves += [("+".join(part.disks), part.curve) for part in s.facts.storage.shared_curves]
    knees = [
        Evidence(fact=f"{name} knee depth", value=curve.knee_depth, unit="reads")
        for name, curve in curves
        if curve.knee_depth is not None
    ]
    return [
        *known(
            where,
            Quantity("workers", s.workers),
            Quantity(
                "cold transfers at once, peak (model)",
                s.prediction.cold_peak,
                "",
                where.provenance,
            ),
            *(_load(plan.size, where.provenance) if plan.load_known else ()),
        ),
        Evidence(
            fact=f"most threads that help: {plan.size.limit_reason}",
            value=plan.size.limit,
            unit="threads",
            provenance="assumed",
        ),
        *knees,
    ]


def _load(size: PoolSize, provenance: Provenance) -> tuple[Quantity, ...]:
    busiest = size.cold_per_worker
    return (
        Quantity("cold transfers of the busiest worker (model)", busiest, "", provenance),
        Quantity("threads needed (model)", size.needed, "threads", provenance),
    )


def _confidence(s: Situation) -> Confidence:
    sure = s.cold_concurrency.value is not None or s.concurrency.provenance != "assumed"
    return "medium" if sure else "low"
