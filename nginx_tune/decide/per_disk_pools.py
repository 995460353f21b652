"""``per-disk-pools``: a queue of its own for each independent disk (A16)."""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import not_applicable, setting, validate_command
from nginx_tune.decide.cache_layout import cache_settings
from nginx_tune.decide.model_pool import DEFAULT_QUEUE
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence, Setting

ID: Final = "per-disk-pools"
FOREIGN_FILES = "a cache directory must hold nothing else: nginx deletes files it does not know"


def decide_per_disk_pools(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind == "proxy":
        return not_applicable(ID, "A proxy without a cache reads no files.")
    count = len(s.data_paths)
    if count < 2:  # noqa: PLR2004  # nothing to tell apart
        return _single(s)
    evidence = _evidence(s, plan)
    layout = cache_settings(s) if s.kind == "cache" else []
    if plan.mode == "per_disk":
        return _pools(s, plan, layout, evidence)
    reason = plan.independence.reason if not plan.independence.independent else ""
    reason = reason or plan.judgement.reason
    verdict = "not_enough_evidence" if _unsure(plan) else "disable"
    return Decision(
        id=ID,
        verdict="not_enough_evidence" if verdict == "not_enough_evidence" else "disable",
        summary=f"No pool per disk: {reason}."
        + (" The keys are spread over the directories all the same." if layout else ""),
        settings=layout,
        evidence=evidence,
        confidence="low" if _unsure(plan) else "medium",
        flips_when=["each directory is on a disk of its own and thread-pools is enabled"],
        risks=[FOREIGN_FILES] if layout else [],
        next_command="nginx-tune inspect --dataset DIR",
    )


def _single(s: Situation) -> Decision:
    what = "cache directory" if s.kind == "cache" else "root"
    flips = f"there are two or more {what.replace('ory', 'orie')}s on disks of their own"
    if s.kind != "cache":
        return not_applicable(ID, f"One {what}.", flips=flips)
    return Decision(
        id=ID,
        verdict="keep",
        summary=f"One {what}, so one cache and one pool.",
        settings=cache_settings(s),
        evidence=known(s.page_cache, s.dataset_bytes),
        confidence="medium",
        flips_when=[flips],
        risks=[FOREIGN_FILES],
    )


def _unsure(plan: PoolPlan) -> bool:
    return plan.judgement.verdict == "not_enough_evidence"


def _pools(
    s: Situation, plan: PoolPlan, layout: list[Setting], evidence: list[Evidence]
) -> Decision:
    threads = plan.threads
    peak = plan.size.cold_per_worker if plan.size else 0.0
    why = f"peak of {peak:.0f} cold transfers a disk and worker"
    if not plan.load_known:
        why = "the usual size for a disk; the peak of cold transfers is not known"
    pools = [
        setting(
            ID,
            "main",
            "thread_pool",
            f"pool_{number}",
            f"threads={threads}",
            f"max_queue={DEFAULT_QUEUE}",
            reason=f"{_disk_of(s, number)}: {why}",
        )
        for number in range(1, len(s.data_paths) + 1)
    ]
    reason = "each disk has its own queue and threads: a slow one does not hold up the others"
    if s.kind == "cache":
        aio = [setting(ID, "location", "aio", "threads=pool_$disk", reason=reason)]
    else:
        aio = [
            setting(ID, "location", "aio", f"threads=pool_{n}", reason=reason, block=name)
            for n, name in enumerate(root_locations(len(s.data_paths)), start=1)
        ]
    return Decision(
        id=ID,
        verdict="enable",
        summary=f"One pool of {threads} threads for each of {len(s.data_paths)} disks: with one "
        "queue a slow disk occupies all threads.",
        settings=[*pools, *layout, *aio],
        evidence=evidence,
        confidence="medium" if plan.independence.provenance == "measured" else "low",
        flips_when=["two of the directories turn out to share a disk", plan.judgement.flips]
        if plan.judgement.flips
        else ["two of the directories turn out to share a disk"],
        risks=[
            f"{threads * s.workers * len(s.data_paths)} threads over all workers",
            *(["adding a disk remaps most keys (A16)", FOREIGN_FILES] if s.kind == "cache" else []),
        ],
        next_command=validate_command(s),
    )


def root_locations(count: int) -> list[str]:
    """Names of the locations that serve the roots: ``/``, then ``@root_2`` and so on."""
    return ["/", *(f"@root_{number}" for number in range(2, count + 1))]


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
