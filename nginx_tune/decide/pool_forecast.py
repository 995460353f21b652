"""Predicted effects of thread pools, as numbers with ranges, and their break-evens.

A range covers the assumed inputs from one extreme to the other, varied together, and the model's
own error as measured in experiments.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec.structs import replace as replace_struct

from nginx_tune.decide.answer import Quantity
from nginx_tune.decide.model.blocking import (
    BUSY_HOST_SECONDS,
    Prediction,
    cpu_ratio,
    lost_windows,
    predict,
    predict_measured,
)
from nginx_tune.decide.model.inputs import (
    BlockingInputs,
    hit_range,
    room_range,
    time_factors,
    turn_factors,
)
from nginx_tune.decide.model.names import least_name_reads, open_blocked_ratio
from nginx_tune.decide.model.open_reads import apart_ratio
from nginx_tune.decide.model.sending import asked_of_way
from nginx_tune.decide.pool_judgement import corners, judge_pools, pools_lose_less, turns_text
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.sensitivity import find_flip, moved_situation
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import MOST_COUNT
from nginx_tune.documents.decisions import BreakEven, DecisionVerdict, Predicted

_HOT_FACTOR = 3.0
"""The model's error in the time of a hot request, as a factor. Measurements by hand and in the
scenarios are within it (6 ms predicted: thread-pools 4 to 9 ms, cold-heavy up to 20 ms)."""
_BLOCKED_FACTOR = 1.4
"""The error, as a factor, in the time in reads and in waits for reads, since a disk's mean latency
differs under load. In the 16 cells of seeds 5309 and 7717 with blocked loops, the standard
deviation of the logarithm of measured to predicted time was 0.34, including chance."""
_COLD_FACTOR = 1.5
"""The error in the bytes of cold transfers, as a factor."""
_SHARED_DISK_FACTOR = 1.05
"""The error, as a factor, in a disk's bytes with threads divided by its bytes with loops. Measured:
0.97 for a disk of one head (drawn-7717-036)."""
_SURE_ROOM = 0.8
"""Share of the page cache's limit up to which all data certainly stays in memory."""
_OTHER_WAITS = 0.01
"""Share of time in which loops wait for logs, names and the kernel's own locks. Measured with all
data in memory: up to 0.002 on a quiet machine, 0.006 on a busy one (four cells of seed 5309)."""
_LEFT_MEMORY = 0.04
"""Share of time in reads of the few pages that leave memory although all data fits. Measured: 0.015
to 0.032 in three cells of seed 7717, some tens of kilobytes in one run of three; 0.045 in
drawn-6151-013."""


def forecast_blocking(s: Situation, i: BlockingInputs, p: Prediction) -> list[Predicted]:
    """The hit ratio of the page cache, and the blocked time of loops without pools.

    Shape: empty if the demand exceeds the capacity of the way to the clients.
    """
    if is_overrun(s, i):
        return []
    cases = [predict(case) for case in (i, *corners(s, i))]
    hits = [*hit_range(i), *(case.hit_ratio for case in cases)]
    # Read-ahead that is evicted before it is sent is read again: the disk sees fewer hits.
    read_again = (1 - min(hits)) * lost_windows(i, p.cold_transfers)
    cases += [predict(case) for case in room_range(i)]
    opens = 0.0 if measured(s) else open_blocked_ratio(i)
    # Names stay in memory longer than in the model, except after a start with an empty cache.
    sure = 0.0
    if i.asked.requests is not None and opens:
        sure = open_blocked_ratio(i, least_name_reads(i))
    expected = min(1.0, p.blocked_ratio + opens)
    if i.disk.stalls is not None:
        # A probe shows how long reads are delayed, but not whether the whole disk stalls each time.
        cases.append(predict(replace(i, disk=replace(i.disk, stalls=None))))
    blocked = [p.blocked_ratio, *([] if measured(s) else [c.blocked_ratio for c in cases])]
    if i.rate_per_second is not None and i.disk.stalls is None and not measured(s):
        blocked.append(min(p.blocked_ratio, apart_ratio(i, i.rate_per_second * i.miss_ratio)))
    wait = [p.wait_off_seconds, *([] if measured(s) else [c.wait_off_seconds for c in cases])]
    less, more = _blocked_factors(s, i)
    beside = _OTHER_WAITS + (_LEFT_MEMORY if i.miss_ratio <= 0 else 0.0)
    stood = Predicted(
        metric="server.loop_blocked_ratio without pools",
        low=_rounded(min(1.0, min(blocked) + sure) * less),
        expected=_rounded(expected),
        high=_rounded(min(1.0, (max(blocked) + opens) * more + beside)),
    )
    found = Predicted(
        metric="page_cache.hit_ratio",
        low=_rounded(max(0.0, min(hits) - read_again)),
        expected=_rounded(min(max(hits), max(min(hits), p.hit_ratio))),
        high=_rounded(max(hits)),
    )
    return [
        *([] if _falls_behind(i, p) else [found]),
        *([] if (_is_filling(s, i) or _nearly_fills(i)) and not measured(s) else [stood]),
        Predicted(
            metric="wait behind cold reads without pools",
            low=_rounded(min(wait) * less),
            expected=_rounded(p.wait_off_seconds),
            high=_rounded(max(wait) * more),
            unit="s",
        ),
    ]


def _blocked_factors(s: Situation, i: BlockingInputs) -> tuple[float, float]:
    """Bounds on the ratio of the time in reads to the predicted time.

    They combine the model's error and chance, which are independent. If clients wait for their
    answers, the loop is always in a read, and chance has no effect.
    """
    less, more = (1.0, 1.0) if measured(s) or i.rate_per_second is None else time_factors(i)
    return (
        math.exp(-math.hypot(math.log(less), math.log(_BLOCKED_FACTOR))) if less else 0.0,
        math.exp(math.hypot(math.log(more), math.log(_BLOCKED_FACTOR))),
    )


def _is_filling(s: Situation, i: BlockingInputs) -> bool:
    """True if a cache is being filled: its loops wait for writes, which the model does not cover.

    Source: scenario cache-fills, where reads alone would block loops for 0.09 to 0.15 of the time,
            but the loop spent all of its time in balance_dirty_pages(). drawn-5309-007: repeated
            requests were for new entries still in memory, so there was no gain.
    """
    empty = i.asked.requests is not None and not i.asked.began_full
    return s.kind == "cache" and (i.asked.once or empty)


def _falls_behind(i: BlockingInputs, p: Prediction) -> bool:
    """True if loops without pools read files more slowly than an open rate requests them.

    Then all requests are in progress, served one piece at a time in turn, and a file leaves memory
    before its next turn.
    Source: drawn-6151-016, a hit ratio of 0.12, predicted 0.47; drawn-4201-024, none, predicted
            0.24.
    """
    return i.rate_per_second is not None and p.closed_loop and i.miss_ratio > 0


def is_overrun(s: Situation, i: BlockingInputs) -> bool:
    """True if the demand exceeds the capacity of the way to the clients, without a steady state."""
    asked = asked_of_way(i)
    return asked is not None and asked > 1 and not measured(s)


def _nearly_fills(i: BlockingInputs) -> bool:
    """True if all data fits into memory, but so tightly that some pages may leave it.

    A few reads of a slow disk take much of the time, and their number cannot be predicted.
    Source: drawn-7717-001, data of 84 % of the memory: in two of eight runs 1 and 2 MB were read
            from a disk of 80 ms, and loops were blocked for 0.16 and 0.31 of the time.
    """
    return i.miss_ratio <= 0 and i.objects * i.footprint_bytes > _SURE_ROOM * i.page_cache_bytes


def measured(s: Situation) -> bool:
    """True if the blocked time was measured, so that it is not computed."""
    return s.seen.blocked_without_pools is not None


def prediction_of(s: Situation, i: BlockingInputs) -> Prediction:
    """The model's prediction, from the measured blocked time if there is one."""
    blocked = s.seen.blocked_without_pools
    return predict(i) if blocked is None else predict_measured(i, blocked)


def forecast_gain(s: Situation, i: BlockingInputs, plan: PoolPlan) -> list[Predicted]:
    """Expected ratios; the range spans the assumed inputs and the model's own error.

    Shape: empty for a cache that is being filled.
    """
    if _is_filling(s, i) and not measured(s):
        return []
    moved = [] if measured(s) else corners(s, i)
    cases = [prediction_of(s, i), *(predict(case) for case in moved)]
    if cases[0].only_others:  # a pool that slows a large answer does not slow small ones
        return [_of_others(cases, (1.0, 1.0) if measured(s) else turn_factors(i))]
    if plan.hot_reads_proceed:
        by_chance = [1.0] if measured(s) or i.rate_per_second is None else [1.0, *time_factors(i)]
        mean = [
            p.hot_on_seconds / (p.hot_on_seconds + waits * factor)
            for p in cases
            for waits in (max(0.0, p.hot_off_seconds - p.hot_on_seconds),)
            for factor in by_chance
        ]
        hot_mean = _span("ratio(hot.mean)", mean, _HOT_FACTOR)
        rate = _range(
            "ratio(hot.requests_per_second)",
            lambda _, off, on: (i.think_seconds + off) / (i.think_seconds + on),
            cases,
        )
    else:
        # Measured with as many cold transfers as threads: 0.4 to 1.3 times as fast.
        hot_mean = Predicted(metric="ratio(hot.mean)", low=0.5, expected=1.0, high=3.0)
        rate = Predicted(metric="ratio(hot.requests_per_second)", low=0.3, expected=1.0, high=2.0)
    predicted = [rate] if cases[0].closed_loop else []
    # High quantiles are not predicted: their error was a factor of up to sixteen.
    predicted.append(hot_mean)
    ratios = [p.cold_ratio for p in cases]
    cold = _span("ratio(cold.bytes_per_second)", ratios, _COLD_FACTOR)
    lost = min(1.0, *(p.cold_lost_ratio for p in cases))
    predicted.append(replace_struct(cold, low=_rounded(cold.low * lost)))
    hot = (i.concurrency or 0.0) - cases[0].cold_transfers
    # With files of several sizes, it is not known which are hot (drawn-7717-000: the smallest).
    if plan.hot_reads_proceed and cases[0].closed_loop and hot > 0 and not i.sizes:
        total = _total(i, cases[0], hot * i.object_bytes)
        if not measured(s) and _may_keep_up(i, cases):
            total = replace_struct(total, low=min(total.low, _rounded(1 / _SHARED_DISK_FACTOR)))
        predicted.append(total)
    return predicted


def _may_keep_up(i: BlockingInputs, cases: Sequence[Prediction]) -> bool:
    """True if loops without pools may keep up with an open rate, so that pools send no more bytes.

    Source: drawn-9157-003, where loops were blocked for 0.35 of the time (predicted 0.17 to 1) and
            answered all requests, although the prediction for pools was 1.05 to 1.63 times the
            bytes.
    """
    if i.rate_per_second is None:
        return False
    if not all(case.closed_loop for case in cases):
        return True
    busy_loops = i.workers * apart_ratio(i, i.rate_per_second * i.miss_ratio)
    return busy_loops < min(i.workers, i.disk.heads_for(i.hold_bytes))


def _of_others(cases: Sequence[Prediction], by_chance: tuple[float, float]) -> Predicted:
    """Ratio of the mean time of requests that read no file, with pools to without.

    Without pools they wait behind turns and reads. ``by_chance`` has the bounds by which chance
    changes the wait behind turns; the model's error is independent of it.
    """

    def ratio(p: Prediction, factor: float = 1.0) -> float:
        behind = p.turn_wait_seconds * factor + p.wait_off_seconds
        return BUSY_HOST_SECONDS / (BUSY_HOST_SECONDS + behind)

    less, more = by_chance
    ratios = [ratio(p) for p in cases]
    middle, low, high = ratios[0], min(ratios), max(ratios)
    return Predicted(
        metric="ratio(memory.mean)",
        low=_rounded(low * _further(middle, middle / _HOT_FACTOR, ratio(cases[0], more)) / middle),
        expected=_rounded(middle),
        high=_rounded(
            high * _further(middle, middle * _HOT_FACTOR, ratio(cases[0], less)) / middle
        ),
    )


def _total(i: BlockingInputs, p: Prediction, hot_bytes: float) -> Predicted:
    """Ratio of all bytes a second, with pools to without.

    Its range combines the errors of a hot request's time with and without pools, of the disk's
    speed, and of the disk's speed when threads share it.
    """

    def ratio(case: Prediction, off: float, on: float) -> float:
        return _total_ratio(i, case, hot_bytes, off, on)

    low, middle, high = _both_ways(ratio, p)
    slow, fast = (
        ratio(replace(p, hold_seconds=p.hold_seconds * factor), p.hot_off_seconds, p.hot_on_seconds)
        for factor in (_BLOCKED_FACTOR, 1 / _BLOCKED_FACTOR)
    )
    ends = sorted((slow, fast, middle))
    less, more = (
        ratio(replace(p, cold_ratio=p.cold_ratio * factor), p.hot_off_seconds, p.hot_on_seconds)
        for factor in (1 / _SHARED_DISK_FACTOR, _SHARED_DISK_FACTOR)
    )
    return Predicted(
        metric="ratio(total.bytes_per_second)",
        low=_rounded(_further(middle, low, ends[0], less)),
        expected=_rounded(middle),
        high=_rounded(_further(middle, high, ends[-1], more)),
    )


def _further(middle: float, one: float, *others: float) -> float:
    """The end of a range, from independent errors; an upper end if ``one`` is an upper end."""
    together = math.hypot(*(math.log(end / middle) for end in (one, *others)))
    return middle * math.exp(math.copysign(together, one - middle))


def _total_ratio(
    i: BlockingInputs, p: Prediction, hot_bytes: float, off_seconds: float, on_seconds: float
) -> float:
    """Ratio of all bytes a second, hot and cold, with pools to without.

    Cold clients that request by popularity also get hits from memory.
    """
    from_disk = max(0.01, 1 - p.hit_ratio) if i.cold_by_popularity else 1.0
    cold_off = i.workers * i.hold_bytes / p.hold_seconds / from_disk
    off = cold_off + hot_bytes / (i.think_seconds + off_seconds)
    return (cold_off * p.cold_ratio + hot_bytes / (i.think_seconds + on_seconds)) / off


def _range(
    metric: str, ratio: Callable[[Prediction, float, float], float], cases: list[Prediction]
) -> Predicted:
    """A ratio that depends on the times of a hot request without and with pools.

    Its range spans the model's errors in both times. They are independent, since only one time is a
    wait for reads, so their squares add up.
    """
    spans = [_both_ways(ratio, p) for p in cases]
    return Predicted(
        metric=metric,
        low=_rounded(min(low for low, _, _ in spans)),
        expected=_rounded(spans[0][1]),
        high=_rounded(max(high for _, _, high in spans)),
    )


def _both_ways(
    ratio: Callable[[Prediction, float, float], float], p: Prediction
) -> tuple[float, float, float]:
    """A ratio between its lower and upper bound, from the errors in both times."""
    off, on = p.hot_off_seconds, p.hot_on_seconds
    middle = ratio(p, off, on)

    def error(off_factor: float, on_factor: float) -> float:
        by_off = math.log(ratio(p, off * off_factor, on) / middle)
        return math.hypot(by_off, math.log(ratio(p, off, on * on_factor) / middle))

    less = error(1 / _BLOCKED_FACTOR, _HOT_FACTOR)
    more = error(_BLOCKED_FACTOR, 1 / _HOT_FACTOR)
    return middle * math.exp(-less), middle, middle * math.exp(more)


def forecast_cost(s: Situation, i: BlockingInputs, p: Prediction) -> list[Predicted]:
    """The CPU cost of pools, over all requests, for a host where reads do not block."""
    files, others = s.rate.value, s.workload.rate.without_file_per_second
    expected = cpu_ratio(
        p.tasks_per_request,
        i.object_bytes,
        of_files=files / (files + others) if files and others else 1.0,
        disk_reads=(1 - p.hit_ratio) * i.disk_reads_per_miss,
        encrypts=i.encrypts,
    )
    added = expected - 1
    return [
        Predicted(
            metric="ratio(server.cpu_seconds_per_request)",
            # Measured: +34..150 % on 1-KB requests, predicted +95 %; +34 % on a busy host.
            low=_rounded(1 + added / 3),
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


def find_break_evens(s: Situation, i: BlockingInputs) -> list[BreakEven]:
    """The facts that can change the verdict on pools, each with the value at which it changes."""
    blocked = s.seen.blocked_without_pools
    if blocked is not None:
        return _measured_break_even(s, i, blocked)
    if s.is_moved:  # only the verdict is needed
        return []
    verdict = judge_pools(s).verdict
    concurrency = s.concurrency if i.cold_concurrency is None else s.cold_concurrency
    found = []
    for quantity in (s.dataset_bytes, s.page_cache, s.rate, concurrency):
        now = quantity.value
        if not now:
            continue

        def verdict_at(value: float, fact: str = quantity.fact) -> DecisionVerdict | None:
            return _verdict_at(s, fact, value)

        # For a fact derived from others, the verdict differs at ``now``: it cannot be varied alone.
        value = find_flip(verdict_at, now, verdict)
        if value is None or value > MOST_COUNT:
            continue
        up = value > now
        other = _verdict_at(s, quantity.fact, value * (1.001 if up else 1 / 1.001))
        if other is None:
            continue
        found.append(
            BreakEven(
                fact=quantity.fact,
                value=value,
                unit=quantity.unit,
                now=now,
                above=other if up else verdict,
                below=verdict if up else other,
            )
        )
    return found


def _verdict_at(s: Situation, fact: str, value: float) -> DecisionVerdict | None:
    moved = moved_situation(s, fact, value)
    return None if moved is None else judge_pools(moved).verdict


def _measured_break_even(s: Situation, i: BlockingInputs, blocked: float) -> list[BreakEven]:
    """The break-even in the share of blocked time; a measured 0 counts as 10^-6."""
    value = find_flip(lambda b: predict_measured(i, min(1.0, b)).pools_pay, max(blocked, 1e-6))
    if value is None or not 0 < value < 1:
        return []
    fact = s.seen.blocked.fact
    return [BreakEven(fact=fact, value=value, now=blocked, above="enable", below="disable")]


def flip_text(b: BreakEven) -> str:
    """A break-even in words, beside the current value."""
    at, now = Quantity(b.fact, b.value, b.unit).text, Quantity(b.fact, b.now, b.unit).text
    if "enable" in (b.above, b.below):
        change = f"pools pay {'above' if b.above == 'enable' else 'below'}"
    else:
        up = b.value > b.now
        change = f"{str(b.above if up else b.below).replace('_', ' ')} {'above' if up else 'below'}"
    return f"{b.fact}: {change} {at}; you have {now}"


def pace_flip(s: Situation, i: BlockingInputs) -> list[str]:
    """For ``flips_when``: the effect of clients that keep pace; empty if the verdict stays."""
    if i.clients_keep_pace or measured(s):
        return []
    fast = predict(replace(i, clients_keep_pace=True))
    if not fast.turns_are_felt or predict(i).pools_pay:
        return []
    if pools_lose_less(s):
        text = "pools may not pay where clients are known to be slow"
        return [f"concurrency.client_bytes_per_second: {text}"]
    change = "pools pay where clients take large responses as fast as nginx sends"
    return [f"concurrency.clients_keep_pace: {change}; {turns_text(fast)} behind them"]
