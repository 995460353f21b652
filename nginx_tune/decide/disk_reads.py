"""Reads of files from their disks: ``directio``, ``read-ahead``."""

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
from nginx_tune.decide.bodies import BUFFERS, DIRECT_BUFFER_BYTES, output_bytes
from nginx_tune.decide.model.cache import DirectForecast, DirectInputs, FileGroup, forecast_direct
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.pool import CACHE_SHARE_FOR_COLD
from nginx_tune.decide.model.reads import USUAL_READ_AHEAD_BYTES, turn_bytes
from nginx_tune.decide.pool_plan import PoolPlan
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
from nginx_tune.documents.units import bytes_text, nginx_size, percent_text, plural

SMALLEST_DIRECT_BYTES = 1 << 20
"""Smallest threshold for directio: smaller files take a read or two with any buffer size."""
WORTH_RATIO = 0.75
"""Share of the disk's current work from which directio does not pay."""
LEAST_DIRECT_BUFFER_BYTES = 256 << 10
"""Minimum output buffer with directio: smaller reads without read-ahead waste a disk with seeks."""
_MOST_BYTES = 1 << 62
_MOST_TIMES = 1e6


class DirectPlan(NamedTuple):
    """A threshold for directio, with its forecast."""

    threshold_bytes: int
    inputs: DirectInputs
    forecast: DirectForecast

    @property
    def pays(self) -> bool:
        """True if directio clearly reduces the disk's work."""
        return self.forecast.disk_ratio <= WORTH_RATIO


def decide_directio(s: Situation, plan: PoolPlan) -> Decision:
    """``directio``: reading large files past the page cache.

    Files above a size are read with O_DIRECT and no longer push small, popular files out of memory.
    The price is high: every request for a large file reads the disk, however popular it is.
    sendfile and the kernel's read-ahead are off for these files, so nginx copies them, one output
    buffer at a time. Without thread pools each of these reads blocks the event loop, so directio is
    never advised without them. Cached responses of a proxy do not use it.

    The model compares the disk's work per request with all files in one page cache, and with the
    large ones apart from it (Che's approximation; sizes as scanned, popularity independent of
    size). The kernel protects pages that are used twice better than the model assumes, so the gain
    must be clear. No fact shows how popular large files are: one hot file of 8 MiB among 110 on
    a hard disk reduced 135 hot requests a second to 8 (nginx 1.22.1). So it is only proposed, with
    the command that measures it.
    """
    ruled_out = _ruled_out(s, plan)
    if ruled_out is not None:
        return ruled_out
    buckets = _buckets(s)
    if not buckets or s.blocking_inputs is None:
        return Decision(
            id="directio",
            verdict="not_enough_evidence",
            summary="Left unset: the distribution of file sizes is not known.",
            confidence="low",
            flips_when=["a scan of the data finds popular small files and large ones"],
            next_command=FACTS_COMMAND,
        )
    best = plan_direct(s, plan)
    if best is None:
        return Decision(
            id="directio",
            verdict="disable",
            summary="Left unset: the files are all small or all large, or there is no memory for "
            "large enough buffers.",
            evidence=known(s.dataset_bytes, s.page_cache, s.concurrency),
            confidence="high" if s.dataset_bytes.provenance == "measured" else "medium",
            flips_when=["the data has both popular small files and large ones"],
        )
    evidence, flip = _evidence(s, best), _break_even(s, best)
    predicted = _predicted(best.forecast)
    size = nginx_size(best.threshold_bytes)
    if not best.pays:
        return Decision(
            id="directio",
            verdict="disable",
            summary=f"Left unset: direct reads of files over {size} would make the disk work "
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
        summary=f"Left unset: reading files over {size} past the page cache would serve "
        f"{percent_text(best.forecast.small_hit_ratio, 2)} of the requests for smaller ones from "
        f"memory instead of {percent_text(best.forecast.hit_ratio, 2)}, if large files are "
        "requested as evenly as small ones; one popular large file reverses that.",
        proposed=[
            setting(
                "directio",
                "http",
                "directio",
                size,
                reason="larger files no longer push the small ones out of memory",
            ),
            *(
                [setting("directio", "http", "directio_alignment", "4k", reason="XFS needs it")]
                if any(place.filesystem == "xfs" for place in s.facts.storage.paths)
                else []
            ),
            setting(
                "directio",
                "http",
                "output_buffers",
                str(BUFFERS),
                nginx_size(int(best.inputs.buffer_bytes)),
                reason="without read-ahead each disk read is one buffer long",
            ),
        ],
        evidence=evidence,
        predicted=predicted,
        confidence="low",
        flips_when=_flips(flip),
        break_evens=flip,
        risks=[
            "every request for a large file reads the disk, even for a popular one",
            "no sendfile and no read-ahead for these files: more CPU per byte",
        ],
        next_command=validate_command(s.facts),
    )


def _times_as_much(ratio: float) -> str:
    """A ratio as words; the ratio to an idle disk has no number."""
    return f"{ratio:.2g} times as much" if ratio < _MOST_TIMES else "where memory holds all of it"


def plan_direct(s: Situation, plan: PoolPlan) -> DirectPlan | None:
    """The threshold with the least disk work; None where there is nothing to compare."""
    if _ruled_out(s, plan) is not None:
        return None
    plans = [
        DirectPlan(threshold, inputs, forecast_direct(inputs))
        for threshold, inputs in _thresholds(s)
    ]
    return min(plans, key=lambda direct: direct.forecast.disk_ratio, default=None)


def _ruled_out(s: Situation, plan: PoolPlan) -> Decision | None:
    if s.kind == "proxy":
        return not_applicable("directio", "A proxy without a cache reads no files.")
    if s.kind == "cache":
        return not_applicable(
            "directio", "Cached responses never use it.", flips="the files are served directly"
        )
    if not s.is_linux:
        return not_applicable("directio", "Only direct reads on Linux are modelled.")
    if not plan.on:
        return not_applicable(
            "directio",
            "Without thread pools every direct read blocks the event loop.",
            flips="thread-pools is enabled",
        )
    return None


def _buckets(s: Situation) -> list[SizeBucket]:
    """Distribution of file sizes; empty unless the scan covers the served files."""
    if s.workload.dataset.provenance not in ("measured", "assumed"):
        return []
    scanned = [d.sizes.buckets for d in s.facts.datasets if d.sizes is not None]
    return [b for buckets in scanned for b in buckets if b.files > 0 and b.bytes > 0]


def _thresholds(s: Situation) -> Iterator[tuple[int, DirectInputs]]:
    """Every threshold that has files above and below it, with the model's inputs."""
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
    """The page-cache size at which the verdict on this threshold changes."""
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
    ] or ["there are many more popular small files, or fewer large ones"]


LARGEST_WINDOW_BYTES = 2 << 20
MOVES_SLOWLY_SECONDS = 1e-3
WORTH_FACTOR = 2.0
"""Factor by which a window must be too large or too small to be changed."""
MANY_PARTS = 0.3
"""Share of range requests above which read-ahead is mostly wasted."""
_SECTOR_BYTES = 512
_KIBIBYTE = 1024


def decide_read_ahead(s: Situation, _plan: PoolPlan) -> Decision:
    """``read-ahead``: the kernel's read-ahead window of each disk.

    A disk with slow seeks pays for every read, so the transfer of a window should take about as
    long as the seek before it. Flash has no seeks and needs no more than the usual 128 KiB. The
    window is a setting of the block device: nginx's own ``read_ahead`` takes no size on Linux and
    only doubles it. Read-ahead is wasted where clients request parts of files. It does harm where
    the windows of all concurrent reads fill the page cache and evict hot files. A file smaller than
    the window is read whole, and nothing beyond it.

    Each device under the data is judged separately. Nothing is written to nginx.conf: the command
    sets the devices until the next boot, the host settings for good. File systems with their own
    read-ahead (ZFS, btrfs, network file systems) ignore the window of the device.
    """
    if s.kind == "proxy":
        return not_applicable("read-ahead", "A proxy without a cache reads no files.")
    if not s.is_linux:
        return not_applicable("read-ahead", "Only read-ahead on Linux is modelled.")
    places = [place for place in s.data_paths if place.filesystem not in OWN_READ_AHEAD]
    if s.data_paths and not places:
        own = s.data_paths[0].filesystem
        return not_applicable(
            "read-ahead",
            f"{own} has its own read-ahead and ignores the window of a block device.",
            evidence=[Evidence(fact="storage.paths filesystem", value=own)],
            flips="the data moves to a file system on a block device",
        )
    window = Quantity("read-ahead of the device", s.read_ahead_bytes or None, "bytes")
    p, size = s.prediction, s.object_bytes
    if window.value is None or p is None:
        what = "read-ahead of the device" if window.value is None else "size of the data or cache"
        return Decision(
            id="read-ahead",
            verdict="not_enough_evidence",
            summary=f"Unchanged: the {what} is not known.",
            evidence=known(window, size),
            flips_when=["the facts have the device under the data and the size of the data"],
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
            summary="Unchanged: the data fits in the page cache, so the disk is hardly read.",
            evidence=evidence,
            confidence="high" if s.dataset_bytes.provenance == "measured" else "medium",
            flips_when=["the data outgrows the page cache"],
        )
    changes = [_change_of(s, device, p.cold_transfers) for device in _devices(s)]
    changed = [change for change in changes if change.wanted != change.device.window_bytes]
    if changed:
        return _change(s, changed, evidence=evidence)
    small = size.value is not None and size.value <= window.value * WORTH_FACTOR
    why = f"files of {size.text} are hardly longer" if small else "it suits the disk"
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
    """Name of the block device; empty if not known."""
    window_bytes: int
    disk: ModelDisk


class _Change(NamedTuple):
    """A device and its best window (which may be the current one), with the reason."""

    device: _Device
    wanted: int
    reason: str = ""


def _devices(s: Situation) -> list[_Device]:
    """The distinct devices under the data, except where a file system has its own read-ahead."""
    found: dict[str, _Device] = {}
    disks = {disk.name: disk for disk in s.facts.storage.disks}
    lower = {
        layer.name: layer.lower for layer in s.facts.storage.layers if layer.kind == "partition"
    }
    for place, model in zip(s.data_paths, s.disks_by_path, strict=True):
        if place.filesystem in OWN_READ_AHEAD:
            continue
        own = [place.device] if place.device else list(place.leaf_disks)
        for name in own:
            whole = (lower.get(name) or [name])[0]
            disk = disks.get(whole)
            window = place.read_ahead_bytes or (disk and disk.read_ahead_bytes) or 0
            if window and _is_device(whole):
                found.setdefault(whole, _Device(whole, window, model))
    return list(found.values()) or [_Device("", s.read_ahead_bytes, s.disk)]


def _is_device(name: str) -> bool:
    return name.replace("-", "").replace("_", "").isalnum()


def _change_of(s: Situation, device: _Device, cold: float) -> _Change:
    """The best window of a device."""
    window, size = device.window_bytes, s.object_bytes.value
    most = _most_for_cache(s, cold)
    wanted = min(wanted_window(device.disk), most)
    partial = s.workload.sizes.partial_ratio or 0.0
    if window > most * WORTH_FACTOR and size and size > most:
        each = bytes_text(window)
        reason = f"{cold:.0f} concurrent cold reads of {each} would evict hot files from memory"
        return _Change(device, most, reason)
    if window > wanted * WORTH_FACTOR and partial > MANY_PARTS:
        reason = f"{percent_text(partial, 2)} of the requests are for parts of files"
        return _Change(device, wanted, reason)
    small = size is not None and size <= window * WORTH_FACTOR
    if window * WORTH_FACTOR <= wanted and not small and partial <= MANY_PARTS:
        return _Change(device, wanted, "reading a window should take as long as the seek to it")
    return _Change(device, window)


def wanted_window(disk: ModelDisk) -> int:
    """The window in bytes, a power of two, whose transfer takes as long as the seek before it.

    Any number of readers then uses at least half of the bandwidth.
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


_MOST_NAMED = 4


def _change(s: Situation, changes: Sequence[_Change], *, evidence: list[Evidence]) -> Decision:
    first = changes[0]
    device, wanted = first.device, first.wanted
    verdict: DecisionVerdict = "raise" if wanted > device.window_bytes else "lower"
    alike = [
        change
        for change in changes
        if (change.device.window_bytes, change.wanted) == (device.window_bytes, wanted)
    ]
    named = [disk.device.name for disk in alike if disk.device.name]
    names = ", ".join(named) if len(named) <= _MOST_NAMED else plural(len(named), "disk")
    others = "".join(
        f"; of {change.device.name} from {bytes_text(change.device.window_bytes)} to "
        f"{bytes_text(change.wanted)}"
        for change in changes
        if change not in alike
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
    paths = " ".join(f"/dev/{disk.device.name or 'DEVICE'}" for disk in alike)
    return Decision(
        id="read-ahead",
        verdict=verdict,
        summary=f"From {bytes_text(device.window_bytes)} to {bytes_text(wanted)}"
        f"{f' on {names}' if names else ''}: {first.reason}{others}.",
        host_settings=[
            HostSetting(
                kind="udev",
                name=change.device.name,
                value=str(change.wanted // _KIBIBYTE),
                before=str(change.device.window_bytes // _KIBIBYTE),
                reason=change.reason,
                decision="read-ahead",
            )
            for change in changes
            if change.device.name
        ],
        evidence=evidence,
        predicted=predicted if verdict == "raise" else [],
        confidence=_confidence(s),
        flips_when=["the data moves to another kind of disk"],
        risks=["the window holds for all reads of these devices; blockdev sets it until a reboot"],
        next_command=f"blockdev --setra {wanted // _SECTOR_BYTES} {paths}",
    )


def _confidence(s: Situation) -> Confidence:
    return "medium" if s.disk.provenance == "measured" else "low"
