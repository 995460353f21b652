"""File reads and writes off the event loop: ``thread-pools``, ``aio-write``."""

import math
from dataclasses import replace

from nginx_tune.decide.answer import (
    BUILD_COMMAND,
    FACTS_COMMAND,
    VERSION_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
    validate_command,
    version_evidence,
)
from nginx_tune.decide.model.blocking import OFFLOAD_SECONDS, Prediction, find_ceiling, predict
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.sending import asked_of_way
from nginx_tune.decide.model.volumes import volume_name
from nginx_tune.decide.pool_forecast import (
    find_break_evens,
    flip_text,
    forecast_blocking,
    forecast_cost,
    forecast_gain,
    is_overrun,
    measured,
    pace_flip,
    prediction_of,
)
from nginx_tune.decide.pool_judgement import (
    corners,
    disks_decide,
    flips_on_assumptions,
    measure_disks,
    pace_decides,
    pools_lose_less,
)
from nginx_tune.decide.pool_plan import SINGLE_POOL, PoolPlan, share_one_pool
from nginx_tune.decide.sensitivity import find_flip
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import (
    Confidence,
    Decision,
    Evidence,
    HostSetting,
    Predicted,
    Setting,
)
from nginx_tune.documents.units import bytes_text, percent_text

LEAST_GAIN = 1.5
"""Smallest gain, as a factor, that a summary states as a number."""
MOST_SAID = 100
"""Largest gain, as a factor, that a summary states as a number."""
_NO_FLIP = (
    "no change of a single fact, not even by a factor of a million: the requested data must "
    "outgrow memory"
)


def decide_thread_pools(s: Situation, plan: PoolPlan) -> Decision:
    """``thread-pools``: file reads outside the event loop.

    A worker is one event loop: a read that misses the page cache delays every other request of that
    worker until the disk has answered. With ``aio threads`` threads read instead. That costs some
    CPU for every read, even from memory, because nginx does not know beforehand which reads miss.
    So it pays where the popular data exceeds the page cache, and costs where it fits.

    The model compares the wait behind cold reads with the price of offloading. The wait depends on
    how many requests miss (Che's approximation), how long a miss blocks the loop (latency of the
    disk and size of a read) and who waits (a queue). Where ``observe`` measured the time that loops
    block in disk reads, that replaces the model. open(), stat(), TLS, gzip and log writes stay in
    the loop, with or without a pool.

    Unmeasured disks are tried at both ends of their class: latency, bandwidth and limits together.
    Where that flips the verdict, ten seconds of ``inspect --disks`` decide it. Until then the
    choice with the smaller expected regret over those disks is taken, if the data is near the size
    of memory or above it: off costs little on fast disks, and everything on slow ones. Clients of
    unknown speed are tried slow and fast: behind a large response to a fast one, others wait.

    Objectives of the workload count. With a limit on time (``hot.p999 <= 5ms``), pools are on where
    longer reads block a loop for a larger share of time than responses may be late. Where only
    bytes or requests per second are required, the wait of others does not count. Network file
    systems (NFS, CIFS, Ceph, Lustre) are read by threads however fast they are, since a stalled
    server would stop every worker that reads. FreeBSD reads files with ``aio on`` only.
    """
    judgement = plan.judgement
    if judgement.verdict == "not_applicable" and _takes_own_aio(s):
        return _own_aio(s, judgement.reason)
    if judgement.verdict == "not_applicable":
        return Decision(
            id="thread-pools",
            verdict="not_applicable",
            summary=f"No thread pools: {judgement.reason}.",
            evidence=_build_evidence(s),
            confidence="high",
            flips_when=[judgement.flips] if judgement.flips else [],
        )
    if s.prediction is None or s.blocking_inputs is None:
        return _undecided(s, judgement.reason)
    if judgement.needs_measurement:
        return _measure_first(s, plan)
    if judgement.verdict == "not_enough_evidence":
        return _undecided(s, judgement.reason)
    break_evens = find_break_evens(s, s.blocking_inputs)
    inputs, prediction = s.blocking_inputs, prediction_of(s, s.blocking_inputs)
    effect = forecast_gain(s, inputs, plan) if plan.on else forecast_cost(s, inputs, prediction)
    predicted = [*effect, *forecast_blocking(s, inputs, prediction)]
    return Decision(
        id="thread-pools",
        verdict=judgement.verdict,
        summary=_summary(plan, predicted),
        settings=_settings(s, plan),
        host_settings=_tasks(s, plan),
        evidence=_evidence(s, prediction),
        predicted=predicted,
        confidence=_confidence(s, s.blocking_inputs),
        flips_when=[
            *map(flip_text, break_evens),
            *_flip_of_disks(s),
            *pace_flip(s, s.blocking_inputs),
        ]
        or [_NO_FLIP],
        break_evens=break_evens,
        risks=[*_risks(s, plan), *_overrun(s, inputs)],
        next_command=measure_disks(s) if _rests_on_disks(s) else validate_command(s.facts),
    )


def _rests_on_disks(s: Situation) -> bool:
    """True if the verdict depends on unmeasured disks, or on disks of unknown class."""
    if measured(s) or s.blocking_inputs is None or s.blocking_inputs.miss_ratio <= 0:
        return False
    is_known = s.disk.provenance != "assumed" or s.network_filesystem is not None
    return not is_known and (not s.disks_are_typed or disks_decide(s))


def _undecided(s: Situation, reason: str) -> Decision:
    return Decision(
        id="thread-pools",
        verdict="not_enough_evidence",
        summary=f"Left off: {reason}. Off is nginx's default and cannot fail; on takes CPU for "
        "every hit, and a pool can overflow.",
        evidence=known(s.page_cache, s.dataset_bytes, s.concurrency, s.rate) + _build_evidence(s),
        confidence="low",
        flips_when=["the frequently requested data is known to exceed the page cache"],
        next_command=FACTS_COMMAND,
    )


def _flip_of_disks(s: Situation) -> list[str]:
    """The speed of unmeasured disks at which the verdict flips; empty if it does not flip."""
    i = s.blocking_inputs
    if i is None or s.network_filesystem is not None or not disks_decide(s):
        return []
    factor = find_flip(lambda by: predict(replace(i, disk=i.disk.scaled(by))).pools_pay, 1.0)
    if factor is None:
        return []
    disk = i.disk.scaled(factor)
    latency = Quantity("", disk.latency_seconds, "s").text
    side = "more" if factor > 1 else "less"
    return [
        (
            f"a read takes {latency} or {side} and sequential reads reach "
            f"{bytes_text(disk.bytes_per_second)}/s or {'less' if factor > 1 else 'more'}: the "
            "disks were not measured and are assumed typical of their class"
        )
    ]


def _measure_first(s: Situation, plan: PoolPlan) -> Decision:
    """A proposal of pools, if they would pay but an assumed input could flip the verdict."""
    inputs = s.blocking_inputs
    break_evens = [] if inputs is None else find_break_evens(s, inputs)
    predicted = [] if inputs is None else forecast_blocking(s, inputs, prediction_of(s, inputs))
    return Decision(
        id="thread-pools",
        verdict="not_enough_evidence",
        summary=f"Left off: {plan.judgement.reason}.",
        proposed=_settings(s, plan.proposed) if plan.proposed else [],
        evidence=[*(_evidence(s, s.prediction) if s.prediction else []), *_build_evidence(s)],
        predicted=predicted,
        confidence="low",
        flips_when=[flip_text(b) for b in break_evens] or [_NO_FLIP],
        break_evens=break_evens,
        risks=_overrun(s, inputs),
        next_command=plan.judgement.next_command,
    )


def _summary(plan: PoolPlan, predicted: list[Predicted]) -> str:
    if plan.on:
        return f"Offload file reads: {plan.judgement.reason}; {_gain_text(plan, predicted)}."
    return f"Left off: {plan.judgement.reason}; offloading would only add CPU to every hit."


def _gain_text(plan: PoolPlan, predicted: list[Predicted]) -> str:
    """The gain in words, from the lower end of its range."""
    if not plan.hot_reads_proceed:
        cold = (p.low for p in predicted if p.metric == "ratio(cold.bytes_per_second)")
        if next(cold, 0.0) > 1:
            return "more concurrent disk reads; requests without a file gain; hot reads queue"
        return "only requests that read no file gain, since hot reads queue behind cold ones"
    slowest = next((p.high for p in predicted if p.metric == "ratio(hot.mean)"), math.inf)
    if slowest > 1 / LEAST_GAIN:
        return "requests that need no disk may be faster"
    sooner = 1 / slowest
    if sooner > MOST_SAID:
        return f"requests that need no disk should be more than {MOST_SAID} times faster"
    return f"requests that need no disk should be at least {sooner:.0f} times faster"


def _settings(s: Situation, plan: PoolPlan) -> list[Setting]:
    reason = plan.judgement.reason
    if plan.mode == "shared":
        if share_one_pool(s):  # suppresses the audit's finding
            reason = f"nginx-tune: ignore[{SINGLE_POOL}] {reason}"
        return [setting("thread-pools", "location", "aio", "threads", reason=reason)]
    if plan.mode == "hot_and_cold":
        hot = [
            setting(
                "thread-pools",
                "location",
                "aio",
                "threads=hot",
                block=prefix,
                reason="a separate pool: hot reads do not queue behind cold ones",
            )
            for prefix in s.site.hot_locations
        ]
        return [setting("thread-pools", "location", "aio", "threads=cold", reason=reason), *hot]
    return []


USUAL_TASKS = 4915
"""systemd's TasksMax of a unit: 15 % of the kernel's 32,768 threads (systemd-system.conf(5),
DefaultTasksMax; kernel.pid_max of proc(5))."""
_MORE_TASKS = 4 * 4096


def _tasks(s: Situation, plan: PoolPlan) -> list[HostSetting]:
    """A higher TasksMax, if the threads of two worker generations come near the default.

    A worker that cannot create its pool exits (ngx_thread_pool_init(), pthread_create()).
    """
    if not plan.on:
        return []
    pools = len(s.data_paths) if plan.mode == "per_disk" else 1
    threads = s.workers * (plan.threads * pools + plan.hot_threads)
    needed = 2 * (threads + s.workers)
    if needed <= USUAL_TASKS // 2:
        return []
    return [
        HostSetting(
            kind="unit",
            name="TasksMax",
            value=str(_MORE_TASKS),
            reason=f"{needed} workers and threads of both generations during a reload; systemd's "
            f"default may be {USUAL_TASKS}",
            decision="thread-pools",
        )
    ]


def _takes_own_aio(s: Situation) -> bool:
    """True on FreeBSD, for files that its asynchronous I/O can read, unless the build lacks it."""
    return s.is_freebsd and s.kind != "proxy" and not s.build.lacks("--with-file-aio")


def _own_aio(s: Situation, reason: str) -> Decision:
    """The decision for ``aio on``, which FreeBSD has instead of thread pools (source row A10)."""
    why = "FreeBSD's own asynchronous I/O; no thread pools needed"
    line = setting("thread-pools", "location", "aio", "on", reason=why)
    is_known = s.build.flags is not None
    return Decision(
        id="thread-pools",
        verdict="set" if is_known else "not_enough_evidence",
        summary=f"aio on, and no thread pools: {reason}."
        if is_known
        else f"Left off: {reason}, but it is not known whether this nginx is built "
        "--with-file-aio; without that it rejects the directive.",
        settings=[line] if is_known else [],
        proposed=[] if is_known else [line],
        evidence=_build_evidence(s),
        confidence="high" if is_known else "low",
        flips_when=["nginx is built without --with-file-aio"],
        next_command="" if is_known else (VERSION_COMMAND if s.facts.declared else BUILD_COMMAND),
    )


def _build_evidence(s: Situation) -> list[Evidence]:
    flags = s.build.flags
    evidence = [Evidence(fact="kernel.system", value=s.facts.kernel.system)]
    if s.build.version is not None:
        evidence.append(version_evidence(s.build))
    if flags is not None:
        built = "--with-threads" in flags
        evidence.append(Evidence(fact="nginx built --with-threads", value=built))
    return evidence


def _evidence(s: Situation, p: Prediction) -> list[Evidence]:
    hold = Quantity("time a cold read blocks the loop (model)", p.hold_seconds, "s", _origin(s))
    disk = Quantity("disk read latency", s.disk.latency_seconds, "s", s.disk.provenance)
    source: Provenance = "declared" if s.disk.is_provisioned else s.disk.provenance
    bounds = [
        Quantity(f"limit of the disks{_volume_names(s)}", value, unit, source)
        for value, unit in (
            (s.disk.most_reads_per_second, "reads/s"),
            (s.disk.most_bytes_per_second, "bytes/s"),
        )
        if math.isfinite(value) and s.disk.provenance == "assumed"
    ]
    facts = known(
        s.page_cache,
        s.dataset_bytes,
        s.object_bytes,
        s.exponent,
        s.rate,
        s.concurrency,
        s.cold_concurrency,
        disk,
        *bounds,
        s.link_bytes_per_second,
        Quantity("workers", s.workers),
        s.seen.blocked,
    )
    path = Evidence(
        fact=f"a body is read by {s.read_path.name.replace('_', ' ')}, in pieces of",
        value=s.read_path.task_bytes,
        unit="bytes",
        provenance=s.workload.tls.provenance,
    )
    turns = Quantity(
        "wait behind large responses sent in one turn (model)",
        p.turn_wait_seconds or None,
        "s",
        _origin(s),
    )
    tail = Quantity(
        "99th percentile of waits behind such turns (model)",
        p.turn_p99_seconds or None,
        "s",
        _origin(s),
    )
    return [*facts, path, *_residency(s), *known(hold, turns, tail), *_ceiling(s, p)]


def _volume_names(s: Situation) -> str:
    names = [name for name in map(volume_name, s.disks) if name]
    return f" ({', '.join(dict.fromkeys(names))})" if names else ""


def _ceiling(s: Situation, p: Prediction) -> list[Evidence]:
    if s.blocking_inputs is None:
        return []
    ceiling = find_ceiling(s.blocking_inputs, p)
    fact = f"most bytes sent when loops do not block, limited by {ceiling.name} (model)"
    return known(Quantity(fact, ceiling.bytes_per_second, "bytes/s", _origin(s)))


def _residency(s: Situation) -> list[Evidence]:
    return [
        Evidence(fact=f"share of {d.path} in the page cache now", value=d.residency.ratio)
        for d in s.facts.datasets
        if d.residency.trusted and d.residency.ratio is not None
    ]


def _origin(s: Situation) -> Provenance:
    """The provenance of the least certain input, which applies to all of the model's numbers."""
    inputs = (s.dataset_bytes, s.page_cache, s.exponent, s.concurrency, s.disk)
    provenances = {i.provenance for i in inputs}
    order: tuple[Provenance, ...] = ("assumed", "declared", "learnt")
    return next((p for p in order if p in provenances), "measured")


def _confidence(s: Situation, i: BlockingInputs) -> Confidence:
    """The confidence: high with known inputs, medium if assumed inputs do not flip the verdict."""
    if measured(s):
        return "high"
    if s.network_filesystem is not None and i.miss_ratio > 0:
        return "medium"  # pools protect against stalls, which no measured speed predicts
    moved = corners(s, i)
    by_pace = pace_decides(s) and pools_lose_less(s)
    if flips_on_assumptions(s) or _rests_on_disks(s) or by_pace:
        return "low"
    if s.build.version is None or s.build.flags is None:
        return "medium"
    return "medium" if moved else "high"


def _risks(s: Situation, plan: PoolPlan) -> list[str]:
    if not plan.on:
        return []
    risks = [
        "an overflowing pool truncates responses that have status 200; watch the main error log",
        "open() and stat() stay in the event loop",
        "load average, iowait and virtual size rise with pools, which is harmless",
    ]
    if s.disk.name != "hdd" and s.disk.latency_seconds < 0.5e-3:  # noqa: PLR2004  # flash
        risks.append("on flash pools help in rare stalls; small files may gain nothing")
    if s.tls:
        risks.append("kernel TLS would read in the event loop again: leave it off")
    if s.prediction is not None and s.prediction.only_others:
        each = s.prediction.tasks_per_request * OFFLOAD_SECONDS
        took = Quantity("", each, "s").text
        risks.append(f"a large response takes {took} more CPU time on average, and longer in all")
    if not plan.hot_reads_proceed:
        risks.append(
            "hot reads queue behind cold ones: name the hot locations in [site] hot_locations"
        )
    return risks


def _overrun(s: Situation, i: BlockingInputs | None) -> list[str]:
    if i is None or not is_overrun(s, i):
        return []
    return [
        (
            f"the load is {percent_text(asked_of_way(i))} of the capacity towards the clients: "
            "transfers pile up, so neither the hit ratio nor the blocked time is predicted"
        )
    ]


HTTP2_SINCE = (1, 21, 4)
"""First version whose aio_write does not hang over HTTP/2. Source: nginx change log."""


def decide_aio_write(s: Situation, plan: PoolPlan) -> Decision:
    """``aio-write``: temporary files written by the pool.

    With ``aio threads`` alone nginx still writes upstream responses to temporary files in the event
    loop, including cache fills. When the kernel has too much dirty data it blocks the writer, and
    the whole worker with it. ``aio_write on`` moves those writes to the pool. It does nothing
    without ``aio threads``, for request bodies, or for creating, renaming and copying the file.
    Before 1.11.13 it could hang or leak.
    """
    if s.kind in ("static", "media"):
        return not_applicable(
            "aio-write", "Nothing is fetched from an upstream, so nothing is written."
        )
    if not plan.on:
        return not_applicable(
            "aio-write",
            f"aio_write works only with aio threads, which is off: {plan.judgement.reason}.",
            flips="thread-pools is enabled",
        )
    evidence = [version_evidence(s.build)]
    # Hangs and leaks with aio_write were fixed by 1.11.13 (nginx CHANGES).
    if not s.build.at_least(1, 11, 13):
        return not_applicable(
            "aio-write",
            f"nginx {s.build.text} lacks aio_write, or can hang and leak with it.",
            evidence=evidence,
            flips="nginx is 1.11.13 or newer",
        )
    offers_http2 = s.http_version == "2" or s.site.tls is not None
    if offers_http2 and not s.build.at_least(*HTTP2_SINCE):
        return not_applicable(
            "aio-write",
            f"nginx {s.build.text} can hang with HTTP/2 and aio_write.",
            evidence=evidence,
            flips="nginx is 1.21.4 or newer",
        )
    reason = "the pool, not the event loop, writes temporary files and new cache entries"
    return Decision(
        id="aio-write",
        verdict="enable",
        summary="The pool writes temporary files: too much dirty data would block the event loop.",
        settings=[setting("aio-write", "location", "aio_write", "on", reason=reason)],
        evidence=evidence,
        confidence="medium",
        flips_when=["thread-pools is disabled"],
        risks=["an overflowing pool truncates the response and drops the upstream connection"],
        next_command=validate_command(s.facts),
    )
