"""Threads and queues of the pools: ``thread-pool-size``, ``per-disk-pools``."""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import (
    FACTS_COMMAND,
    LEARN_COMMAND,
    OBSERVE_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
    validate_command,
)
from nginx_tune.decide.model.pool import (
    DEFAULT_QUEUE,
    DEFAULT_THREADS,
    MAX_THREADS_ALL_WORKERS,
    SMALLEST_DISK_POOL,
    THREADS_PER_KNEE,
    DiskReaders,
    PoolSize,
    responses_apart,
    responses_shared,
)
from nginx_tune.decide.pool_plan import SINGLE_POOL, PoolPlan, looks_through_disks, most_workers
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Confidence, Decision, Evidence, Predicted, Setting
from nginx_tune.documents.site import root_locations

_QUEUE = f"max_queue={DEFAULT_QUEUE}"
KNEE = "io-pool-threads-over-knee"
IGNORED_KNEE = f"nginx-tune: ignore[{KNEE}]"


def decide_thread_pool_size(s: Situation, plan: PoolPlan) -> Decision:
    """``thread-pool-size``: threads and queue of a worker's pool.

    Hot reads queue in the pool like cold ones. With as many cold transfers as threads every hot one
    waits for the disk again, and what the pool had gained is lost; so a worker needs more threads
    than it has cold transfers at once, at their peak: more in less than a thousandth of the time,
    with disks that stand still and heads that serve overlapping reads by turns. That the disks do
    only so many reads at once (the measured knee) is no reason for fewer threads: the rest waits in
    the disk instead of the pool, and hot reads pass. Against more stands the page cache, which the
    windows of running reads push hot files out of. Where no number of threads fits both, hot and
    cold locations get pools apart.

    The queue takes bursts: a task that finds it full is refused, and the client gets a cut body
    with status 200. A queue slot costs nothing, so it stays at nginx's 65536.
    """
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
        evidence=_size_evidence(s, plan),
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
        evidence=[*known(refused), *_size_evidence(s, plan)],
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
        evidence=_size_evidence(s, plan),
        confidence=_confidence(s) if size.fits else "low",
        flips_when=_flips(plan),
        risks=[
            f"every worker has its own pool: {plan.threads * s.workers} threads in all",
            "with worker_cpu_affinity they all run on the one CPU of their loop",
            *([] if size.fits else ["until the pools stand apart, hot reads wait for the disk"]),
        ],
        next_command="nginx-tune generate --site site.toml"
        if not size.fits
        else validate_command(s.facts),
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
        evidence=_size_evidence(s, plan),
        confidence=_confidence(s),
        flips_when=_flips(plan),
        risks=["a hot location whose files leave the page cache fills its own pool"],
        next_command=validate_command(s.facts),
    )


def _why_apart(size: PoolSize) -> str:
    if size.fits:
        return "a hot file that has left the page cache would wait for all the cold ones there"
    return f"{size.limit} is the most that helps ({size.limit_reason})"


def exceeds_knee(s: Situation, plan: PoolPlan, *, pools: int = 1) -> bool:
    """True if all threads are far more than the reads that the measured disks do at once."""
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


def _size_evidence(s: Situation, plan: PoolPlan) -> list[Evidence]:
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


ALL_THREADS: Final = "threads over all workers"
"""The words after the number of them in a risk."""
SLOW_FACTOR = 10.0
"""A disk that fails or rebuilds: the lab's slow one was 13 times slower."""


def decide_per_disk_pools(s: Situation, plan: PoolPlan) -> Decision:
    """``per-disk-pools``: a queue of its own for each independent disk.

    A pool is one queue, first in, first out. When one of several disks is slow, its reads come to
    occupy every thread, and requests for the healthy disks wait for a thread though their disk is
    idle. With a pool for each disk a slow one holds up nobody else. That needs directories that
    share no disk; on a RAID all files share all disks and there is nothing to keep apart.

    Static files get a location for each root, a cache a pool by the variable that spreads its keys
    over the disks (``cache-layout``).
    """
    if s.kind == "proxy":
        return not_applicable("per-disk-pools", "A proxy without a cache reads no files.")
    if len(s.data_paths) < 2:  # noqa: PLR2004  # nothing to tell apart
        one, several = (
            ("cache directory", "cache directories") if s.kind == "cache" else ("root", "roots")
        )
        flips = f"there are two or more {several} on disks of their own"
        return not_applicable("per-disk-pools", f"One {one}.", flips=flips)
    evidence = _disk_evidence(s, plan)
    if plan.mode == "per_disk":
        return _pools(s, plan, evidence)
    if plan.proposed is not None and plan.proposed.mode == "per_disk":
        return Decision(
            id="per-disk-pools",
            verdict="not_enough_evidence",
            summary=f"No pools yet: {plan.judgement.reason}.",
            proposed=_pools(s, plan.proposed, evidence).settings,
            evidence=evidence,
            confidence="low",
            flips_when=["thread-pools is enabled"],
            next_command=plan.judgement.next_command,
        )
    reason = plan.independence.reason if not plan.independence.independent else ""
    flips = "each directory is on a disk of its own and thread-pools is enabled"
    if plan.on and plan.independence.independent:
        disks, most = len(s.data_paths), most_workers(len(s.data_paths))
        reason = (
            f"{SMALLEST_DISK_POOL} threads for each of {disks} disks in {s.workers} workers are "
            f"more than {MAX_THREADS_ALL_WORKERS} in all; one slow disk holds up the others"
        )
        flips = f"worker_processes is at most {most}"
    return Decision(
        id="per-disk-pools",
        verdict="not_enough_evidence" if _unsure(plan) else "disable",
        summary=f"No pool per disk: {reason or plan.judgement.reason}.",
        evidence=evidence,
        confidence="low" if _unsure(plan) else "medium",
        flips_when=[flips],
        next_command=FACTS_COMMAND,
    )


def _unsure(plan: PoolPlan) -> bool:
    return plan.judgement.verdict == "not_enough_evidence"


def _pools(s: Situation, plan: PoolPlan, evidence: list[Evidence]) -> Decision:
    threads = plan.threads
    why = f"peak of {cold_text(plan)} a disk and worker"
    if not plan.load_known:
        why = "the usual size for a disk; the peak of cold transfers is not known"
    # More than a disk does at once, on purpose; the audit would ask why.
    ignored = f"{IGNORED_KNEE} " if exceeds_knee(s, plan, pools=len(s.data_paths)) else ""
    pools = [
        setting(
            "per-disk-pools",
            "main",
            "thread_pool",
            f"pool_{number}",
            f"threads={threads}",
            f"max_queue={DEFAULT_QUEUE}",
            reason=f"{ignored}{_disk_of(s, number)}: {why}",
        )
        for number in range(1, len(s.data_paths) + 1)
    ]
    reason = "each disk has its own queue and threads: a slow one does not hold up the others"
    if s.kind == "cache":
        aio = [setting("per-disk-pools", "location", "aio", "threads=pool_$disk", reason=reason)]
    else:
        aio = [
            setting(
                "per-disk-pools", "location", "aio", f"threads=pool_{n}", reason=reason, block=name
            )
            for n, name in enumerate(root_locations(s.site), start=1)
        ]
    return Decision(
        id="per-disk-pools",
        verdict="enable",
        summary=f"One pool of {threads} threads for each of {len(s.data_paths)} disks: with one "
        "queue a slow disk occupies all threads.",
        settings=[*pools, *aio],
        evidence=evidence,
        predicted=_isolation(s, plan),
        confidence="medium"
        if plan.independence.provenance == "measured" and not plan.judgement.next_command
        else "low",
        flips_when=["two of the directories turn out to share a disk", plan.judgement.flips]
        if plan.judgement.flips
        else ["two of the directories turn out to share a disk"],
        risks=[f"{threads * s.workers * len(s.data_paths)} {ALL_THREADS}"],
        next_command=plan.judgement.next_command or validate_command(s.facts),
    )


def _isolation(s: Situation, plan: PoolPlan) -> list[Predicted]:
    """The wait of readers of the healthy disks with a pool for each, over one pool for all.

    Between a fault that leaves the others alone and one that takes every thread.
    """
    if plan.size is None or s.prediction is None or s.blocking_inputs is None:
        return []
    each = s.prediction.cold_transfers / len(s.data_paths)
    size = s.blocking_inputs.disk_read_bytes
    disks = [
        DiskReaders(max(1.0, each), disk.read_seconds(size), disk.reads_per_second(size))
        for disk in s.disks_by_path
    ]
    slow = disks[0]._replace(
        read_seconds=disks[0].read_seconds * SLOW_FACTOR,
        reads_per_second=disks[0].reads_per_second / SLOW_FACTOR,
    )
    ill = [slow, *disks[1:]]
    shared = responses_shared(ill, DEFAULT_THREADS * s.workers)
    apart = responses_apart(ill)
    worst = min(a / b for a, b in zip(apart[1:], shared[1:], strict=True))
    return [
        Predicted(
            metric=f"ratio(healthy.mean), one disk {SLOW_FACTOR:.0f} times slower",
            low=worst / 2,
            expected=worst,
            high=1.0,
        )
    ]


def _disk_of(s: Situation, number: int) -> str:
    leaves = s.data_paths[number - 1].leaf_disks
    return "+".join(leaves) if leaves else f"disk {number}"


def _disk_evidence(s: Situation, plan: PoolPlan) -> list[Evidence]:
    places = [
        Evidence(
            fact=f"disks under directory {number}",
            value="+".join(place.leaf_disks) or None,
            provenance="measured" if place.leaf_disks else "declared",
        )
        for number, place in enumerate(s.data_paths, start=1)
    ]
    judged = Evidence(
        fact=f"directories are independent ({plan.independence.reason})",
        value=plan.independence.independent,
        provenance=plan.independence.provenance,
    )
    return [*places, judged, *known(s.page_cache, s.dataset_bytes, s.concurrency)]
