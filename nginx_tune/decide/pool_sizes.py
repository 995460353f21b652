"""Threads and queues of the pools: ``thread-pool-size``, ``per-disk-pools``."""

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
from nginx_tune.decide.pool_judgement import pools_lose_less
from nginx_tune.decide.pool_plan import SINGLE_POOL, PoolPlan, most_workers, share_one_pool
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Confidence, Decision, Evidence, Predicted, Setting
from nginx_tune.documents.site import root_locations
from nginx_tune.documents.units import plural

_QUEUE = f"max_queue={DEFAULT_QUEUE}"
KNEE = "io-pool-threads-over-knee"
IGNORED_KNEE = f"nginx-tune: ignore[{KNEE}]"


def decide_thread_pool_size(s: Situation, plan: PoolPlan) -> Decision:
    """``thread-pool-size``: threads and queue of a worker's pool.

    Hot reads queue in the pool like cold ones. When every thread serves a cold transfer, hot reads
    wait for the disk again and the gain of the pool is lost. So a worker needs more threads than it
    has concurrent cold transfers at their peak, which is exceeded less than a thousandth of the
    time and includes stalled disks and heads that serve overlapping reads in turn.

    The number of reads that the disks serve at once (the measured knee) is no reason for fewer
    threads: the other reads wait in the disk instead of the pool, and hot reads pass. The page
    cache limits the threads, since the read-ahead windows of concurrent reads evict hot files.
    Where no number of threads satisfies both, hot and cold locations get separate pools.

    The queue takes bursts. A full queue refuses tasks, and the client gets a truncated body with
    status 200. A queue slot costs nothing, so the queue stays at nginx's 65536.
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
        summary=f"The default pool of {DEFAULT_THREADS} threads exceeds the peak of "
        f"{cold_text(plan)} per worker."
        if plan.load_known
        else f"The default pool of {DEFAULT_THREADS} threads: the peak of concurrent cold "
        "transfers is not known.",
        evidence=_size_evidence(s, plan),
        confidence=_confidence(s),
        flips_when=[f"a worker has {DEFAULT_THREADS * 4 // 5} or more concurrent cold transfers"],
        risks=[]
        if plan.load_known
        else ["once cold transfers occupy all threads, hot reads wait for the disk again"],
        next_command="nginx-tune scenario run thread-pools" if plan.load_known else LEARN_COMMAND,
    )


def _overflowing(s: Situation, plan: PoolPlan) -> Decision:
    """The decision if a pool's queue was full and tasks were refused (source row A14)."""
    refused = s.seen.pool_overflow
    reason = f"{refused.text} observed, each a truncated response with status 200"
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
        risks=["if a queue this long overflows too, the disks are too slow for the load"],
        next_command=OBSERVE_COMMAND,
    )


def _other_size(s: Situation, plan: PoolPlan) -> Decision:
    size = plan.size
    if size is None:
        raise AssertionError("a plan that is on has a size")
    reason = comment = (
        f"peak of {cold_text(plan)} per worker; hot reads queue behind them"
        if plan.load_known
        else f"the most that helps ({size.limit_reason}); the peak of cold transfers is not known"
    )
    if size.fits and plan.load_known and plan.threads < DEFAULT_THREADS:
        reason = comment = (
            f"above the peak of {cold_text(plan)} per worker, and the most that helps "
            f"({size.limit_reason})"
        )
    if exceeds_knee(s, plan):
        # Intentionally more threads than concurrent reads: suppress the audit's finding.
        comment = f"{IGNORED_KNEE} {reason}"
    if share_one_pool(s):
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
        f"{plural(plan.threads, 'thread')} per worker: {reason}."
        if size.fits or not plan.load_known
        else f"{cold_text(plan)} per worker need {size.needed} threads, but {size.limit} is the "
        f"most that helps ({size.limit_reason}): name the hot locations in [site] hot_locations to "
        "give them their own pool."
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
            "with worker_cpu_affinity all threads run on the single CPU of their worker",
            *([] if size.fits else ["until the pools are separate, hot reads wait for the disk"]),
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
            reason="for the hot locations, whose reads never wait for a disk",
        ),
    ]
    return Decision(
        id="thread-pool-size",
        verdict="set",
        summary=f"Two pools: hot and cold reads together would need {plan.size.needed} threads, "
        f"and {_why_apart(plan.size)}.",
        settings=lines,
        evidence=_size_evidence(s, plan),
        confidence=_confidence(s),
        flips_when=_flips(plan),
        risks=["a hot location whose files drop out of the page cache fills its own pool"],
        next_command=validate_command(s.facts),
    )


def _why_apart(size: PoolSize) -> str:
    if size.fits:
        return "a hot file that has left the page cache would wait behind all cold ones"
    return f"{size.limit} is the most that helps ({size.limit_reason})"


def exceeds_knee(s: Situation, plan: PoolPlan, *, pools: int = 1) -> bool:
    """True if the threads far outnumber the concurrent reads of the measured disks."""
    if s.disk_knee is None:
        return False
    return plan.threads * s.workers * pools > THREADS_PER_KNEE * s.disk_knee


def cold_text(plan: PoolPlan) -> str:
    """The peak as text, such as ``12 cold transfers``; a peak below 1 has no number."""
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
    return [f"one pool is enough: a worker has fewer than {enough} concurrent cold transfers"]


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
                "peak of concurrent cold transfers (model)",
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
"""The words that follow the number of threads in the text of a risk."""
SLOW_FACTOR = 10.0
"""Assumed slowdown of a disk that fails or rebuilds; the lab's slow disk was 13 times slower."""


def decide_per_disk_pools(s: Situation, plan: PoolPlan) -> Decision:
    """``per-disk-pools``: a thread pool for each independent disk.

    A pool is one first-in, first-out queue. When one of several disks is slow, its reads eventually
    occupy every thread, and requests for the healthy disks wait for a thread while their disk is
    idle. With a pool for each disk a slow one delays only its own requests. That needs directories
    that share no disk; on a RAID all files share all disks and there is nothing to separate.

    Static files get a location for each root. A cache selects the pool by the variable that spreads
    its keys over the disks (``cache-layout``).
    """
    if s.kind == "proxy":
        return not_applicable("per-disk-pools", "A proxy without a cache reads no files.")
    if len(s.data_paths) < 2:  # noqa: PLR2004  # nothing to tell apart
        one, several = (
            ("cache directory", "cache directories") if s.kind == "cache" else ("root", "roots")
        )
        flips = f"there are two or more {several}, each on its own disk"
        disks = len({disk for place in s.data_paths for disk in place.leaf_disks})
        below = f" on {plural(disks, 'disk')}" if disks else ""
        summary = f"No pool per disk: 1 {one}{below} (it takes 2 on different disks)."
        return not_applicable("per-disk-pools", summary, flips=flips)
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
    apart = plan.independence
    enabled = "" if plan.on else " and thread-pools is enabled"
    flips = f"each directory is on its own disk{enabled}"
    by_prefix = share_one_pool(s) and (not s.site.roots_apart or apart.provenance == "measured")
    if by_prefix:
        how = ", in a configuration that generate writes" if s.site.roots_apart else ""
        flips = f"[site] root_prefixes assigns URLs to disks{how}{enabled}"
    if plan.on and plan.independence.independent:
        disks, most = len(s.data_paths), most_workers(len(s.data_paths))
        reason = (
            f"{SMALLEST_DISK_POOL} threads for each of {disks} disks in {s.workers} workers exceed "
            f"{MAX_THREADS_ALL_WORKERS} in all; one slow disk delays the others"
        )
        flips = f"worker_processes is at most {most}"
    unknown = plan.on and s.site.roots_apart and apart.provenance == "declared"
    # With a shared disk there is nothing to separate, whatever the verdict on pools.
    is_shared = not apart.independent and apart.provenance == "measured"
    is_open = unknown or (_unsure(plan) and not is_shared)
    return Decision(
        id="per-disk-pools",
        verdict="not_enough_evidence" if is_open else "disable",
        summary=f"No pool per disk: {reason or plan.judgement.reason}.",
        evidence=evidence,
        confidence="low" if is_open else "medium",
        flips_when=[flips],
        next_command="" if by_prefix else FACTS_COMMAND,
    )


def _unsure(plan: PoolPlan) -> bool:
    return plan.judgement.verdict == "not_enough_evidence"


def _pools(s: Situation, plan: PoolPlan, evidence: list[Evidence]) -> Decision:
    threads = plan.threads
    why = f"peak of {cold_text(plan)} per disk and worker"
    if not plan.load_known:
        why = "the usual size for a disk; the peak of cold transfers is not known"
    # Intentionally more threads than concurrent reads: suppress the audit's finding.
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
    reason = "each disk has its own queue and threads, so a slow one does not delay the others"
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
        summary=f"One pool of {threads} threads for each of {len(s.data_paths)} disks: in a shared "
        "pool a slow disk occupies all threads.",
        settings=[*pools, *aio],
        evidence=evidence,
        predicted=_isolation(s, plan),
        confidence="medium"
        if plan.independence.provenance == "measured" and not pools_lose_less(s)
        else "low",
        flips_when=[
            "two of the directories turn out to share a disk",
            *([plan.judgement.flips] if plan.judgement.flips else []),
        ],
        risks=[f"{threads * s.workers * len(s.data_paths)} {ALL_THREADS}"],
        next_command=plan.judgement.next_command or validate_command(s.facts),
    )


def _isolation(s: Situation, plan: PoolPlan) -> list[Predicted]:
    """Ratio of response times from healthy disks: a pool for each disk to one pool for all.

    The range goes from a fault that occupies every thread to one that does not delay other disks.
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
