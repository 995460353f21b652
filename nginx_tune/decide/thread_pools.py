"""``thread-pools``: whether file reads leave the event loop (A1-A13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nginx_tune.decide.answer import setting, validate_command
from nginx_tune.decide.break_even import find_flip
from nginx_tune.decide.model_blocking import BlockingInputs, Prediction, cpu_ratio, predict
from nginx_tune.decide.model_cache import zipf_classes
from nginx_tune.decide.model_ceiling import find_ceiling
from nginx_tune.decide.model_disk import DiskModel
from nginx_tune.decide.plausible import MOST_COUNT
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import (
    BreakEven,
    Confidence,
    Decision,
    Evidence,
    Predicted,
    Setting,
)

LEAST_GAIN = 1.5
"""Below this a prediction is worth no number."""
_HOT_FACTOR = 4.0
"""The model's error in the time of a hot request: LAB-NOTES §1 came out within it."""
_TAIL_FACTOR = 16.0
"""The same for a tail, which is less sure: a paced load behind a stalled loop queues up."""
_NO_FLIP = "no single fact within a factor of a million: data must outgrow memory and be asked for"
_INSPECT = "nginx-tune inspect --dataset DIR -f json -o facts.json"


def decide_thread_pools(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    judgement = plan.judgement
    if judgement.verdict == "not_applicable":
        return Decision(
            id="thread-pools",
            verdict="not_applicable",
            summary=f"No thread pools: {judgement.reason}.",
            settings=_freebsd_settings(s),
            evidence=_build_evidence(s),
            confidence="high",
            flips_when=[judgement.flips] if judgement.flips else [],
        )
    if s.prediction is None or s.blocking_inputs is None:
        return _undecided(s, judgement.reason)
    if judgement.verdict == "not_enough_evidence":
        return _undecided(s, judgement.reason)
    break_evens = _break_evens(s, s.blocking_inputs)
    gain, cost = _gain(s, s.blocking_inputs, plan), _cost(s.blocking_inputs, s.prediction)
    predicted = gain if plan.on else cost
    return Decision(
        id="thread-pools",
        verdict=judgement.verdict,
        summary=_summary(plan, predicted),
        settings=_settings(s, plan),
        evidence=_evidence(s, s.prediction),
        predicted=predicted,
        confidence=_confidence(s, s.blocking_inputs),
        flips_when=[_flip_text(b) for b in break_evens] or [_NO_FLIP],
        break_evens=break_evens,
        risks=_risks(s, plan),
        next_command=validate_command(s),
    )


def _undecided(s: Situation, reason: str) -> Decision:
    return Decision(
        id="thread-pools",
        verdict="not_enough_evidence",
        summary=f"Left off: {reason}. Off is nginx's default and adds no way to fail; on costs CPU "
        "for every hit and can overflow.",
        evidence=known(s.page_cache, s.dataset_bytes, s.concurrency, s.rate) + _build_evidence(s),
        confidence="low",
        flips_when=["the frequently requested data is known to exceed the page cache"],
        next_command=_INSPECT,
    )


def _summary(plan: PoolPlan, predicted: list[Predicted]) -> str:
    if plan.on:
        return f"Offload file reads: {plan.judgement.reason}; {_gain_text(plan, predicted)}."
    return f"Leave them off: {plan.judgement.reason}; offloading would only add CPU to every hit."


def _gain_text(plan: PoolPlan, predicted: list[Predicted]) -> str:
    """The gain in words, by the careful end of its range."""
    if not plan.hot_reads_proceed:
        return "only requests that read no file gain, since hot reads queue behind cold ones"
    slowest = next(p.high for p in predicted if p.metric == "ratio(hot.mean)")
    if slowest > 1 / LEAST_GAIN:
        return "requests that need no disk may be answered sooner"
    return f"requests that need no disk should be answered at least {1 / slowest:.0f} times sooner"


def _settings(s: Situation, plan: PoolPlan) -> list[Setting]:
    reason = plan.judgement.reason
    if plan.mode == "shared":
        return [setting("thread-pools", "location", "aio", "threads", reason=reason)]
    if plan.mode == "hot_and_cold":
        hot = [
            setting(
                "thread-pools",
                "location",
                "aio",
                "threads=hot",
                block=prefix,
                reason="a pool apart: hot reads do not queue behind cold ones",
            )
            for prefix in s.site.hot_locations
        ]
        return [setting("thread-pools", "location", "aio", "threads=cold", reason=reason), *hot]
    return []


def _freebsd_settings(s: Situation) -> list[Setting]:
    if not s.is_freebsd or s.kind == "proxy" or s.build.lacks("--with-file-aio"):
        return []
    reason = "FreeBSD's own asynchronous I/O; no thread pools needed"
    return [setting("thread-pools", "location", "aio", "on", reason=reason)]


def _build_evidence(s: Situation) -> list[Evidence]:
    flags = s.build.flags
    evidence = [Evidence(fact="kernel.system", value=s.facts.kernel.system)]
    if s.build.version is not None:
        evidence.append(Evidence(fact="nginx.version", value=s.build.text))
    if flags is not None:
        built = "--with-threads" in flags
        evidence.append(Evidence(fact="nginx built --with-threads", value=built))
    return evidence


def _evidence(s: Situation, p: Prediction) -> list[Evidence]:
    model = [
        Quantity("page-cache hit ratio (model)", p.hit_ratio, "", _origin(s)),
        Quantity("time a cold read holds the loop (model)", p.hold_seconds, "s", _origin(s)),
        Quantity("share of time a loop is blocked (model)", p.blocked_ratio, "", _origin(s)),
        Quantity("wait behind cold reads (model)", p.wait_off_seconds, "s", _origin(s)),
    ]
    disk = Quantity("disk read latency", s.disk.latency_seconds, "s", s.disk.provenance)
    facts = known(
        s.page_cache,
        s.dataset_bytes,
        s.object_bytes,
        s.exponent,
        s.rate,
        s.concurrency,
        s.cold_concurrency,
        disk,
        s.link_bytes_per_second,
        Quantity("workers", s.workers),
    )
    return [*facts, *_residency(s), *known(*model), *_ceiling(s, p)]


def _ceiling(s: Situation, p: Prediction) -> list[Evidence]:
    if s.blocking_inputs is None:
        return []
    ceiling = find_ceiling(s.blocking_inputs, p)
    fact = f"most bytes to send when loops do not block, bound by {ceiling.name} (model)"
    return known(Quantity(fact, ceiling.bytes_per_second, "bytes/s", _origin(s)))


def _residency(s: Situation) -> list[Evidence]:
    return [
        Evidence(fact=f"share of {d.path} in the page cache now", value=d.residency.ratio)
        for d in s.facts.datasets
        if d.residency.trusted and d.residency.ratio is not None
    ]


def _origin(s: Situation) -> Provenance:
    """A number of the model is as sure as the least sure number that went in."""
    inputs = (s.dataset_bytes, s.page_cache, s.exponent, s.concurrency, s.disk)
    provenances = {i.provenance for i in inputs}
    order: tuple[Provenance, ...] = ("assumed", "declared", "learnt")
    return next((p for p in order if p in provenances), "measured")


def _gain(s: Situation, i: BlockingInputs, plan: PoolPlan) -> list[Predicted]:
    """Expected ratios; the range spans the assumed inputs and the model's own error."""
    cases = [predict(case) for case in (i, *_corners(s, i))]
    tail = [min(1.0, p.memory_p99_on_seconds / p.memory_p99_off_seconds) for p in cases]
    if plan.hot_reads_proceed:
        mean = [min(1.0, p.hot_on_seconds / p.hot_off_seconds) for p in cases]
        hot_mean = _span("ratio(hot.mean)", mean, _HOT_FACTOR)
        rate = _range(
            "ratio(hot.requests_per_second)",
            lambda p, on: (i.think_seconds + p.hot_off_seconds) / (i.think_seconds + on),
            cases,
        )
    else:
        # LAB-NOTES §1: with as many cold transfers as threads, 0.4 to 1.3 times as fast.
        hot_mean = Predicted(metric="ratio(hot.mean)", low=0.5, expected=1.0, high=3.0)
        rate = Predicted(metric="ratio(hot.requests_per_second)", low=0.3, expected=1.0, high=2.0)
    predicted = [rate] if cases[0].closed_loop else []
    predicted += [hot_mean, _span("ratio(memory.p99)", tail, _TAIL_FACTOR)]
    predicted.append(_span("ratio(cold.bytes_per_second)", [p.cold_ratio for p in cases], 1.5))
    hot = (i.concurrency or 0.0) - cases[0].cold_transfers
    if plan.hot_reads_proceed and cases[0].closed_loop and hot > 0:
        predicted.append(
            _range(
                "ratio(total.bytes_per_second)",
                lambda p, on: _total_ratio(i, p, hot * i.object_bytes, on),
                cases[:1],
            )
        )
    return predicted


def _total_ratio(i: BlockingInputs, p: Prediction, hot_bytes: float, on_seconds: float) -> float:
    """Bytes a second with pools over without, hot and cold together."""
    cold_off = i.workers * i.disk_read_bytes / p.hold_seconds
    off = cold_off + hot_bytes / (i.think_seconds + p.hot_off_seconds)
    return (cold_off * p.cold_ratio + hot_bytes / (i.think_seconds + on_seconds)) / off


def _range(
    metric: str, ratio: Callable[[Prediction, float], float], cases: list[Prediction]
) -> Predicted:
    """A ratio whose range spans the model's error in the time of a hot request with pools."""
    return Predicted(
        metric=metric,
        low=_rounded(min(ratio(p, p.hot_on_seconds * _HOT_FACTOR) for p in cases)),
        expected=_rounded(ratio(cases[0], cases[0].hot_on_seconds)),
        high=_rounded(max(ratio(p, p.hot_on_seconds / _HOT_FACTOR) for p in cases)),
    )


def _cost(i: BlockingInputs, p: Prediction) -> list[Predicted]:
    expected = cpu_ratio(p.tasks_per_request, i.object_bytes)
    added = expected - 1
    return [
        Predicted(
            metric="ratio(server.cpu_seconds_per_request)",
            # LAB-NOTES §2: +50..150 % on 1-KB requests where the model says +95 %.
            low=_rounded(1 + added / 2),
            expected=_rounded(expected),
            high=_rounded(1 + added * 1.6),
        )
    ]


def _span(metric: str, cases: list[float], factor: float) -> Predicted:
    return Predicted(
        metric=metric,
        low=_rounded(min(cases) / factor),
        expected=_rounded(cases[0]),
        high=_rounded(max(cases) * factor),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _break_evens(s: Situation, i: BlockingInputs) -> list[BreakEven]:
    pays = predict(i).pools_pay

    def at_dataset(value: float) -> bool:
        moved = s.inputs_with_dataset(value)
        return moved is not None and predict(moved).pools_pay

    def at(**changed: float) -> bool:
        return predict(replace(i, **changed)).pools_pay  # type: ignore[arg-type]

    candidates: list[tuple[Quantity, Callable[[float], bool]]] = [
        (s.dataset_bytes, at_dataset),
        (s.page_cache, lambda v: at(page_cache_bytes=v)),
    ]
    if i.rate_per_second is not None:
        candidates.append((s.rate, lambda v: at(rate_per_second=v)))
    if i.cold_concurrency is not None:
        candidates.append((s.cold_concurrency, lambda v: at(cold_concurrency=v)))
    elif i.concurrency is not None:
        candidates.append((s.concurrency, lambda v: at(concurrency=v)))
    found = []
    for quantity, decide in candidates:
        now = quantity.value or 0.0
        value = find_flip(decide, now)
        if value is None or value > MOST_COUNT:
            continue
        found.append(
            BreakEven(
                fact=quantity.fact,
                value=value,
                unit=quantity.unit,
                now=now,
                above="enable" if pays == (now > value) else "disable",
            )
        )
    return found


def _flip_text(b: BreakEven) -> str:
    side = "above" if b.above == "enable" else "below"
    at, now = Quantity(b.fact, b.value, b.unit).text, Quantity(b.fact, b.now, b.unit).text
    return f"{b.fact}: pools pay {side} {at}; you have {now}"


def _confidence(s: Situation, i: BlockingInputs) -> Confidence:
    """High with known inputs; medium when the assumed ones could be far off without harm."""
    corners = _corners(s, i)
    verdict = predict(i).pools_pay
    if any(predict(moved).pools_pay != verdict for moved in corners):
        return "low"
    if s.build.version is None or s.build.flags is None:
        return "medium"
    return "medium" if corners else "high"


def _corners(s: Situation, i: BlockingInputs) -> list[BlockingInputs]:
    """The inputs with all assumed ones moved together, the way blocking falls, then rises.

    Every one of them moves the verdict one way only, so nothing in between is further off.
    Shape: empty when nothing is assumed.
    """
    easier = harder = i
    if s.dataset_bytes.provenance == "assumed" and s.dataset_bytes.value:
        easier = s.inputs_with_dataset(s.dataset_bytes.value / 2) or i
        harder = s.inputs_with_dataset(s.dataset_bytes.value * 2) or i
    if s.exponent.provenance == "assumed" and s.exponent.value is not None:
        flat, steep = max(0.0, s.exponent.value - 0.3), s.exponent.value + 0.3
        easier = replace(easier, classes=zipf_classes(_objects(easier), steep))
        harder = replace(harder, classes=zipf_classes(_objects(harder), flat))
    if s.concurrency.provenance == "assumed" and i.concurrency is not None:
        easier = replace(easier, concurrency=i.concurrency / 4)
        harder = replace(harder, concurrency=i.concurrency * 4)
    if s.disk.provenance == "assumed":
        easier = replace(easier, disk=_scaled(i.disk, 1 / 3))
        harder = replace(harder, disk=_scaled(i.disk, 3))
    return [] if easier is i and harder is i else [easier, harder]


def _objects(i: BlockingInputs) -> float:
    return sum(c.objects for c in i.classes)


def _scaled(disk: DiskModel, factor: float) -> DiskModel:
    return replace(disk, latency_seconds=disk.latency_seconds * factor)


def _risks(s: Situation, plan: PoolPlan) -> list[str]:
    if not plan.on:
        return []
    risks = [
        "an overflowing pool answers 200 with a truncated body; watch the main error log",
        "open() and stat() stay on the loop (C7)",
        "load average, iowait and virtual size rise with the pools; none of that is harm (A6)",
    ]
    if s.disk.name != "hdd" and s.disk.latency_seconds < 0.5e-3:  # noqa: PLR2004  # flash
        risks.append("on flash the gain is in rare stalls; small files may gain nothing (C6)")
    if s.tls:
        risks.append("kernel TLS would send from the loop again (NGINX-FACTS 2.6): leave it off")
    if not plan.hot_reads_proceed:
        risks.append(
            "hot reads queue behind cold ones: name the hot locations in [site] hot_locations"
        )
    return risks
