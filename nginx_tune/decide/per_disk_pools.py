"""``per-disk-pools``: a queue of its own for each independent disk.

A pool is one queue, first in, first out. When one of several disks is slow, its reads come to
occupy every thread, and requests for the healthy disks wait for a thread though their disk is
idle. With a pool for each disk a slow one holds up nobody else. That needs directories that share
no disk; on a RAID all files share all disks and there is nothing to keep apart.

Static files get a location for each root, a cache a pool by the variable that spreads its keys over
the disks (``cache-layout``).
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import FACTS_COMMAND, not_applicable, setting, validate_command
from nginx_tune.decide.model.isolation import DiskReaders, responses_apart, responses_shared
from nginx_tune.decide.model.pool import (
    DEFAULT_QUEUE,
    DEFAULT_THREADS,
    MAX_THREADS_ALL_WORKERS,
    SMALLEST_DISK_POOL,
)
from nginx_tune.decide.pool_plan import PoolPlan, most_workers
from nginx_tune.decide.quantity import known
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.thread_pool_size import IGNORED_KNEE, cold_text, exceeds_knee
from nginx_tune.documents.decisions import Decision, Evidence, Predicted
from nginx_tune.documents.site import root_locations

ID: Final = "per-disk-pools"
ALL_THREADS: Final = "threads over all workers"
"""What follows the number of them in a risk."""
SLOW_FACTOR = 10.0
"""A disk that fails or rebuilds: the lab's slow one was 13 times slower."""


def decide_per_disk_pools(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind == "proxy":
        return not_applicable(ID, "A proxy without a cache reads no files.")
    if len(s.data_paths) < 2:  # noqa: PLR2004  # nothing to tell apart
        one, several = (
            ("cache directory", "cache directories") if s.kind == "cache" else ("root", "roots")
        )
        flips = f"there are two or more {several} on disks of their own"
        return not_applicable(ID, f"One {one}.", flips=flips)
    evidence = _evidence(s, plan)
    if plan.mode == "per_disk":
        return _pools(s, plan, evidence)
    if plan.proposed is not None and plan.proposed.mode == "per_disk":
        return Decision(
            id=ID,
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
        id=ID,
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
            ID,
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
        aio = [setting(ID, "location", "aio", "threads=pool_$disk", reason=reason)]
    else:
        aio = [
            setting(ID, "location", "aio", f"threads=pool_{n}", reason=reason, block=name)
            for n, name in enumerate(root_locations(s.site), start=1)
        ]
    return Decision(
        id=ID,
        verdict="enable",
        summary=f"One pool of {threads} threads for each of {len(s.data_paths)} disks: with one "
        "queue a slow disk occupies all threads.",
        settings=[*pools, *aio],
        evidence=evidence,
        predicted=_isolation(s, plan),
        confidence="medium" if plan.independence.provenance == "measured" else "low",
        flips_when=["two of the directories turn out to share a disk", plan.judgement.flips]
        if plan.judgement.flips
        else ["two of the directories turn out to share a disk"],
        risks=[f"{threads * s.workers * len(s.data_paths)} {ALL_THREADS}"],
        next_command=validate_command(s),
    )


def _isolation(s: Situation, plan: PoolPlan) -> list[Predicted]:
    """What readers of the healthy disks wait with a pool for each over one for all.

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


def _evidence(s: Situation, plan: PoolPlan) -> list[Evidence]:
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
