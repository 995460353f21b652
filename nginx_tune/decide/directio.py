"""``directio``: whether large files are read past the page cache.

Files from a size on are then read with O_DIRECT. They no longer push small, popular files out of
memory. The price is high: each request for a large file goes to the disk, however often it was
asked for; sendfile and the kernel's read-ahead are off for these files, so that they are copied
through nginx, an output buffer at a time; reads are aligned. Without thread pools each of these
reads holds the loop, so it is never advised without them, nor for cached responses of a proxy,
which do not use it.

Weighed is the disk's work for one request, all files in one page cache against large ones apart
from it (Che's approximation; sizes as they were scanned, popularity the same for all sizes). The
kernel protects what is asked for twice better than the model has it, so the gain must be clear.
And no fact here says how popular large files are: one hot file of 8 MiB among 110 on a hard disk
left 8 of 135 hot requests a second (nginx 1.22.1). So it is never written as a line: it is
proposed, with the command that measures it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from nginx_tune.decide.answer import FACTS_COMMAND, not_applicable, setting, validate_command
from nginx_tune.decide.break_even import find_flip
from nginx_tune.decide.model.directio import (
    DirectForecast,
    DirectInputs,
    FileGroup,
    forecast_direct,
)
from nginx_tune.decide.model.protocol import turn_bytes
from nginx_tune.decide.output_sizes import BUFFERS, DIRECT_BYTES, output_bytes
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import BreakEven, Decision, Evidence, Predicted
from nginx_tune.documents.facts import SizeBucket
from nginx_tune.documents.units import bytes_text, nginx_size, percent_text

ID: Final = "directio"
SMALLEST_BYTES = 1 << 20
"""Files below it are read in a read or two, and gain nothing from a buffer's size."""
WORTH_RATIO = 0.75
"""The disk's work must fall to this share of what it was."""
LEAST_BUFFER_BYTES = 256 << 10
"""A direct read of less, without read-ahead, wastes a disk that positions."""
_MOST_BYTES = 1 << 62
_MOST_TIMES = 1e6


class DirectPlan(NamedTuple):
    """The best threshold, and what it would do."""

    threshold_bytes: int
    inputs: DirectInputs
    forecast: DirectForecast

    @property
    def pays(self) -> bool:
        """Whether the disk's work falls clearly."""
        return self.forecast.disk_ratio <= WORTH_RATIO


def decide_directio(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    ruled_out = _ruled_out(s, plan)
    if ruled_out is not None:
        return ruled_out
    buckets = _buckets(s)
    if not buckets or s.blocking_inputs is None:
        return Decision(
            id=ID,
            verdict="not_enough_evidence",
            summary="Left unset: how the sizes of the files spread is not known.",
            confidence="low",
            flips_when=["a scan of the data finds small files in demand beside large ones"],
            next_command=FACTS_COMMAND,
        )
    best = plan_direct(s, plan)
    if best is None:
        return Decision(
            id=ID,
            verdict="disable",
            summary="Left unset: there are not both small files and large ones, or no memory for "
            "buffers large enough.",
            evidence=known(s.dataset_bytes, s.page_cache, s.concurrency),
            confidence="high" if s.dataset_bytes.provenance == "measured" else "medium",
            flips_when=["small files in demand lie beside large ones"],
        )
    evidence, flip = _evidence(s, best), _break_even(s, best)
    predicted = _predicted(best.forecast)
    size = nginx_size(best.threshold_bytes)
    if not best.pays:
        return Decision(
            id=ID,
            verdict="disable",
            summary=f"Left unset: with files over {size} past the page cache the disk would work "
            f"{_times_as_much(best.forecast.disk_ratio)}.",
            evidence=evidence,
            predicted=predicted,
            confidence="medium",
            flips_when=_flips(flip),
            break_evens=flip,
        )
    return Decision(
        id=ID,
        verdict="not_enough_evidence",
        summary=f"Left unset: with files over {size} past the page cache "
        f"{percent_text(best.forecast.small_hit_ratio, 2)} of the requests for smaller ones would "
        f"find theirs in memory, not {percent_text(best.forecast.hit_ratio, 2)}, if large files "
        "are asked for as evenly as small ones; one popular large file turns that.",
        proposed=[
            setting(
                ID,
                "http",
                "directio",
                size,
                reason="larger files no longer push the small ones out of memory",
            ),
            *(
                [setting(ID, "http", "directio_alignment", "4k", reason="what XFS needs")]
                if _on_xfs(s)
                else []
            ),
            setting(
                ID,
                "http",
                "output_buffers",
                str(BUFFERS),
                nginx_size(int(best.inputs.buffer_bytes)),
                reason="without read-ahead the disk moves no more at once than a buffer holds",
            ),
        ],
        evidence=evidence,
        predicted=predicted,
        confidence="low",
        flips_when=_flips(flip),
        break_evens=flip,
        risks=[
            "each request for a large file reads the disk, a popular one as well",
            "no sendfile and no read-ahead for these files: more CPU for each byte",
        ],
        next_command=validate_command(s),
    )


def _times_as_much(ratio: float) -> str:
    """In words: a disk that has nothing to do has no multiple of it."""
    return f"{ratio:.2g} times as much" if ratio < _MOST_TIMES else "where memory has all of it now"


def plan_direct(s: Situation, plan: PoolPlan) -> DirectPlan | None:
    """The threshold with which the disk works least; None where there is nothing to weigh."""
    if _ruled_out(s, plan) is not None:
        return None
    plans = [
        DirectPlan(threshold, inputs, forecast_direct(inputs))
        for threshold, inputs in _thresholds(s)
    ]
    return min(plans, key=lambda one: one.forecast.disk_ratio, default=None)


def _ruled_out(s: Situation, plan: PoolPlan) -> Decision | None:
    if s.kind == "proxy":
        return not_applicable(ID, "A proxy without a cache reads no files.")
    if s.kind == "cache":
        return not_applicable(ID, "Cached responses never use it.", flips="the files are served")
    if not s.is_linux:
        return not_applicable(ID, "Only Linux' direct reads were looked at.")
    if not plan.on:
        return not_applicable(
            ID,
            "Reads stay on the loop, and a direct one always waits for the disk.",
            flips="thread-pools is enabled",
        )
    return None


def _buckets(s: Situation) -> list[SizeBucket]:
    """Sizes of the files, where the scan is of what is served."""
    if s.workload.dataset.provenance not in ("measured", "assumed"):
        return []
    scanned = [d.sizes.buckets for d in s.facts.datasets if d.sizes is not None]
    return [b for buckets in scanned for b in buckets if b.files > 0 and b.bytes > 0]


def _thresholds(s: Situation) -> Iterator[tuple[int, DirectInputs]]:
    """Every size that has files on both sides, with what the model needs."""
    i, buckets = s.blocking_inputs, _buckets(s)
    buffer_bytes = output_bytes(s, DIRECT_BYTES)
    if i is None or not buckets or buffer_bytes < LEAST_BUFFER_BYTES:
        return
    for threshold in sorted({max(b.le_bytes, SMALLEST_BYTES) for b in buckets}):
        small = _group([b for b in buckets if b.le_bytes <= threshold])
        large = _group([b for b in buckets if b.le_bytes > threshold])
        if threshold > _MOST_BYTES or small is None or large is None:
            continue
        yield (
            threshold,
            DirectInputs(
                small=small,
                large=large,
                classes=i.classes,
                page_cache_bytes=i.page_cache_bytes,
                disk=i.disk,
                turn_bytes=float(turn_bytes(s.read_ahead_bytes)),
                buffer_bytes=float(buffer_bytes),
            ),
        )


def _group(buckets: Sequence[SizeBucket]) -> FileGroup | None:
    files, total = sum(b.files for b in buckets), sum(b.bytes for b in buckets)
    return FileGroup(float(files), float(total)) if files and total else None


def _on_xfs(s: Situation) -> bool:
    return any(p.filesystem == "xfs" for p in s.facts.storage.paths)


def _predicted(f: DirectForecast) -> list[Predicted]:
    ratio = min(f.disk_ratio, _MOST_TIMES)
    return [
        Predicted(
            metric="page_cache.hit_ratio of smaller files",
            low=round(f.hit_ratio, 4),
            expected=round(f.small_hit_ratio, 4),
            high=round(f.small_hit_ratio, 4),
        ),
        Predicted(
            metric="ratio(disk time of a request)",
            low=round(ratio / 2, 4),
            expected=round(ratio, 4),
            high=round(ratio * 2, 4),
        ),
    ]


def _evidence(s: Situation, best: DirectPlan) -> list[Evidence]:
    small, large = best.inputs.small, best.inputs.large
    size = bytes_text(best.threshold_bytes)
    return known(
        s.page_cache,
        s.exponent,
        Quantity(f"files up to {size}", small.files, "files"),
        Quantity(f"data in files up to {size}", small.bytes, "bytes"),
        Quantity(f"files over {size}", large.files, "files"),
        Quantity(f"data in files over {size}", large.bytes, "bytes"),
        Quantity("bytes of one direct read", best.inputs.buffer_bytes, "bytes", "assumed"),
    )


def _break_even(s: Situation, best: DirectPlan) -> list[BreakEven]:
    """The page cache at which the verdict on this threshold changes."""
    now = best.inputs.page_cache_bytes

    def pays(page_cache_bytes: float) -> bool:
        moved = best.inputs._replace(page_cache_bytes=page_cache_bytes)
        return forecast_direct(moved).disk_ratio <= WORTH_RATIO

    value = find_flip(pays, now)
    if value is None:
        return []
    above = pays(max(value, now) * 1.001) if value > now else pays(now)
    return [
        BreakEven(
            fact=s.page_cache.fact,
            value=float(f"{value:.6g}"),
            unit="bytes",
            now=now,
            above="enable" if above else "disable",
            below="disable" if above else "enable",
        )
    ]


def _flips(found: Sequence[BreakEven]) -> list[str]:
    return [
        f"{b.fact}: {b.above} above {bytes_text(b.value)}; you have {bytes_text(b.now)}"
        for b in found
    ] or ["the small files in demand are many more, or the large ones fewer"]
