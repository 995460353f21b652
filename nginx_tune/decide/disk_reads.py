"""Reads of files from their disks: ``directio``, ``read-ahead``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nginx_tune.decide.answer import (
    FACTS_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
    validate_command,
)
from nginx_tune.decide.model.cache import (
    DirectForecast,
    DirectInputs,
    FileGroup,
    forecast_direct,
)
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.pool import CACHE_SHARE_FOR_COLD
from nginx_tune.decide.model.reads import USUAL_READ_AHEAD_BYTES, turn_bytes
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.sendfile import BUFFERS, DIRECT_BUFFER_BYTES, output_bytes
from nginx_tune.decide.sensitivity import find_flip
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import OWN_READ_AHEAD
from nginx_tune.documents.decisions import (
    BreakEven,
    Confidence,
    Decision,
    DecisionVerdict,
    Evidence,
    HostSetting,
    Predicted,
)
from nginx_tune.documents.facts import SizeBucket
from nginx_tune.documents.units import bytes_text, nginx_size, percent_text

SMALLEST_DIRECT_BYTES = 1 << 20
"""Files below it are read in a read or two, and gain nothing from a buffer's size."""
WORTH_RATIO = 0.75
"""The disk's work must fall to this share of what it was."""
LEAST_DIRECT_BUFFER_BYTES = 256 << 10
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
        """True if the disk's work falls clearly."""
        return self.forecast.disk_ratio <= WORTH_RATIO


def decide_directio(s: Situation, plan: PoolPlan) -> Decision:
    """``directio``: whether large files are read past the page cache.

    Files from a size on are then read with O_DIRECT. They no longer push small, popular files out
    of memory. The price is high: each request for a large file goes to the disk, however often it
    was asked for; sendfile and the kernel's read-ahead are off for these files, so that they are
    copied through nginx, an output buffer at a time; reads are aligned. Without thread pools each
    of these reads holds the loop, so it is never advised without them, nor for cached responses of
    a proxy, which do not use it.

    Weighed is the disk's work for one request, all files in one page cache against large ones apart
    from it (Che's approximation; sizes as they were scanned, popularity the same for all sizes).
    The kernel protects what is asked for twice better than the model has it, so the gain must be
    clear. And no fact here says how popular large files are: one hot file of 8 MiB among 110 on a
    hard disk left 8 of 135 hot requests a second (nginx 1.22.1). So it is never written as a line:
    it is proposed, with the command that measures it.
    """
    ruled_out = _ruled_out(s, plan)
    if ruled_out is not None:
        return ruled_out
    buckets = _buckets(s)
    if not buckets or s.blocking_inputs is None:
        return Decision(
            id="directio",
            verdict="not_enough_evidence",
            summary="Left unset: how the sizes of the files spread is not known.",
            confidence="low",
            flips_when=["a scan of the data finds small files in demand beside large ones"],
            next_command=FACTS_COMMAND,
        )
    best = plan_direct(s, plan)
    if best is None:
        return Decision(
            id="directio",
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
            id="directio",
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
        id="directio",
        verdict="not_enough_evidence",
        summary=f"Left unset: with files over {size} past the page cache "
        f"{percent_text(best.forecast.small_hit_ratio, 2)} of the requests for smaller ones would "
        f"find theirs in memory, not {percent_text(best.forecast.hit_ratio, 2)}, if large files "
        "are asked for as evenly as small ones; one popular large file turns that.",
        proposed=[
            setting(
                "directio",
                "http",
                "directio",
                size,
                reason="larger files no longer push the small ones out of memory",
            ),
            *(
                [setting("directio", "http", "directio_alignment", "4k", reason="what XFS needs")]
                if _on_xfs(s)
                else []
            ),
            setting(
                "directio",
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
        next_command=validate_command(s.facts),
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
        return not_applicable("directio", "A proxy without a cache reads no files.")
    if s.kind == "cache":
        return not_applicable(
            "directio", "Cached responses never use it.", flips="the files are served"
        )
    if not s.is_linux:
        return not_applicable("directio", "Only Linux' direct reads were looked at.")
    if not plan.on:
        return not_applicable(
            "directio",
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
    buffer_bytes = output_bytes(s, DIRECT_BUFFER_BYTES)
    if i is None or not buckets or buffer_bytes < LEAST_DIRECT_BUFFER_BYTES:
        return
    for threshold in sorted({max(b.le_bytes, SMALLEST_DIRECT_BYTES) for b in buckets}):
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


LARGEST_WINDOW_BYTES = 2 << 20
MOVES_SLOWLY_SECONDS = 1e-3
WORTH_FACTOR = 2.0
"""A window is changed when it is off by more than this."""
MANY_PARTS = 0.3
"""Share of range requests from which reading on is mostly wasted."""
_SECTOR_BYTES = 512
_KIBIBYTE = 1024


def decide_read_ahead(s: Situation, _plan: PoolPlan) -> Decision:
    """``read-ahead``: how much a disk reads on at once.

    A disk that positions slowly pays for each start, so a window should take about as long to
    transfer as the head takes to get there; flash starts for nothing and needs no more than the
    usual 128 KiB. The window is the block device's: nginx's own ``read_ahead`` knows no size on
    Linux and only doubles it. Reading on is wasted where clients ask for parts of files, and does
    harm where the windows of all running reads fill the page cache: then files that were hot leave
    it. Files that are smaller than the window are read whole, and nothing beyond.

    Every device under the data is weighed by itself. Nothing is written to nginx.conf: the command
    sets the devices until the next boot, the host part for good. A file system that reads ahead by
    itself (ZFS, btrfs, one of the network) does not look at the devices' windows.
    """
    if s.kind == "proxy":
        return not_applicable("read-ahead", "A proxy without a cache reads no files.")
    if not s.is_linux:
        return not_applicable("read-ahead", "Only Linux' read-ahead was looked at.")
    places = [place for place in s.data_paths if place.filesystem not in OWN_READ_AHEAD]
    if s.data_paths and not places:
        own = s.data_paths[0].filesystem
        return not_applicable(
            "read-ahead",
            f"{own} reads ahead by itself: the window of a block device does nothing there.",
            evidence=[Evidence(fact="storage.paths filesystem", value=own)],
            flips="the data moves to a file system on a block device",
        )
    window = Quantity("read-ahead of the device", s.read_ahead_bytes or None, "bytes")
    p, size = s.prediction, s.object_bytes
    if window.value is None or p is None:
        what = "read-ahead of the device" if window.value is None else "data's or cache's size"
        return Decision(
            id="read-ahead",
            verdict="not_enough_evidence",
            summary=f"As it is: the {what} is not known.",
            evidence=known(window, size),
            flips_when=["the device under the data and the data's size are in the facts"],
            next_command=FACTS_COMMAND,
        )
    evidence = known(
        window,
        size,
        s.page_cache,
        Quantity("disk read latency", s.disk.latency_seconds, "s", s.disk.provenance),
        Quantity("disk bandwidth", s.disk.bytes_per_second, "bytes/s", s.disk.provenance),
    )
    if p.hit_ratio >= 1.0:
        return Decision(
            id="read-ahead",
            verdict="keep",
            summary="As it is: the data fits in the page cache, so the disk is hardly read.",
            evidence=evidence,
            confidence="high" if s.dataset_bytes.provenance == "measured" else "medium",
            flips_when=["the data outgrows the page cache"],
        )
    changes = [_change_of(s, device, p.cold_transfers) for device in _devices(s)]
    changed = [one for one in changes if one.wanted != one.device.window_bytes]
    if changed:
        return _change(s, changed, evidence=evidence)
    small = size.value is not None and size.value <= window.value * WORTH_FACTOR
    why = f"files of {size.text} end within it or soon after" if small else "it suits the disk"
    return Decision(
        id="read-ahead",
        verdict="keep",
        summary=f"{window.text} stays: {why}.",
        evidence=evidence,
        confidence=_confidence(s),
        flips_when=["the data moves to another kind of disk"],
    )


class _Device(NamedTuple):
    """A block device under the data."""

    name: str
    """Empty when not known."""
    window_bytes: int
    disk: ModelDisk


class _Change(NamedTuple):
    """A device, its window as it should be, and why; the same window where it stays."""

    device: _Device
    wanted: int
    reason: str = ""


def _devices(s: Situation) -> list[_Device]:
    """The devices under the data whose windows count, each once."""
    found: dict[str, _Device] = {}
    disks = {disk.name: disk for disk in s.facts.storage.disks}
    lower = {one.name: one.lower for one in s.facts.storage.layers if one.kind == "partition"}
    for place, model in zip(s.data_paths, s.disks_by_path, strict=True):
        if place.filesystem in OWN_READ_AHEAD:
            continue
        own = [place.device] if place.device else list(place.leaf_disks)
        for name in own:
            whole = (lower.get(name) or [name])[0]
            there = disks.get(whole)
            window = place.read_ahead_bytes or (there and there.read_ahead_bytes) or 0
            if window and _is_device(whole):
                found.setdefault(whole, _Device(whole, window, model))
    return list(found.values()) or [_Device("", s.read_ahead_bytes, s.disk)]


def _is_device(name: str) -> bool:
    return name.replace("-", "").replace("_", "").isalnum()


def _change_of(s: Situation, device: _Device, cold: float) -> _Change:
    """The window that a device should have."""
    window, size = device.window_bytes, s.object_bytes.value
    most = _most_for_cache(s, cold)
    wanted = min(wanted_window(device.disk), most)
    partial = s.workload.sizes.partial_ratio or 0.0
    if window > most * WORTH_FACTOR and size and size > most:
        each = bytes_text(window)
        why = f"{cold:.0f} cold reads at once with {each} each would fill the page cache that hot "
        return _Change(device, most, f"{why}files need")
    if window > wanted * WORTH_FACTOR and partial > MANY_PARTS:
        reason = f"{percent_text(partial, 2)} of the requests are for parts of files"
        return _Change(device, wanted, reason)
    small = size is not None and size <= window * WORTH_FACTOR
    if window * WORTH_FACTOR <= wanted and not small and partial <= MANY_PARTS:
        return _Change(device, wanted, "the head would read on for as long as it took to get there")
    return _Change(device, window)


def wanted_window(disk: ModelDisk) -> int:
    """Window whose transfer takes as long as the positioning before it: a power of two.

    Source: the same balance as for a stripe or a chunk: half of the time is transfer, so at
    least half of the bandwidth is used whatever the number of readers.
    """
    if disk.latency_seconds < MOVES_SLOWLY_SECONDS:
        return USUAL_READ_AHEAD_BYTES
    wanted, balance = USUAL_READ_AHEAD_BYTES, disk.latency_seconds * disk.bytes_per_second
    while wanted < balance and wanted < LARGEST_WINDOW_BYTES:
        wanted *= 2
    return wanted


def _most_for_cache(s: Situation, cold: float) -> int:
    room = CACHE_SHARE_FOR_COLD * (s.page_cache.value or 0.0) / max(1.0, cold)
    most = USUAL_READ_AHEAD_BYTES
    while most * 2 <= min(room, 64 * LARGEST_WINDOW_BYTES):
        most *= 2
    return most


def _change(s: Situation, changes: Sequence[_Change], *, evidence: list[Evidence]) -> Decision:
    first = changes[0]
    device, wanted = first.device, first.wanted
    verdict: DecisionVerdict = "raise" if wanted > device.window_bytes else "lower"
    alike = [
        one
        for one in changes
        if (one.device.window_bytes, one.wanted) == (device.window_bytes, wanted)
    ]
    names = ", ".join(one.device.name for one in alike if one.device.name)
    others = "".join(
        f"; of {one.device.name} from {bytes_text(one.device.window_bytes)} to "
        f"{bytes_text(one.wanted)}"
        for one in changes
        if one not in alike
    )
    size = s.object_bytes.value or 1.0
    before, after = min(device.window_bytes, size), min(float(wanted), size)
    gain = after / device.disk.read_seconds(after) * device.disk.read_seconds(before) / before
    predicted = [
        Predicted(
            metric="ratio(cold.bytes_per_second)",
            low=min(1.0, round(gain, 4)),
            expected=round(1 + (gain - 1) / 2, 4),
            high=round(max(1.0, gain), 4),
        )
    ]
    paths = " ".join(f"/dev/{one.device.name or 'DEVICE'}" for one in alike)
    return Decision(
        id="read-ahead",
        verdict=verdict,
        summary=f"From {bytes_text(device.window_bytes)} to {bytes_text(wanted)}"
        f"{f' of {names}' if names else ''}: {first.reason}{others}.",
        host_settings=[
            HostSetting(
                kind="udev",
                name=one.device.name,
                value=str(one.wanted // _KIBIBYTE),
                before=str(one.device.window_bytes // _KIBIBYTE),
                reason=one.reason,
                decision="read-ahead",
            )
            for one in changes
            if one.device.name
        ],
        evidence=evidence,
        predicted=predicted if verdict == "raise" else [],
        confidence=_confidence(s),
        flips_when=["the data moves to another kind of disk"],
        risks=["everything on these devices reads on as far; what blockdev sets is gone by a boot"],
        next_command=f"blockdev --setra {wanted // _SECTOR_BYTES} {paths}",
    )


def _confidence(s: Situation) -> Confidence:
    return "medium" if s.disk.provenance == "measured" else "low"
