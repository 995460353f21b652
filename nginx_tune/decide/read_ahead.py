"""``read-ahead``: how much a disk reads on at once.

A disk that positions slowly pays for each start, so a window should take about as long to
transfer as the head takes to get there; flash starts for nothing and needs no more than the
usual 128 KiB. The window is the block device's: nginx's own ``read_ahead`` knows no size on
Linux and only doubles it. Reading on is wasted where clients ask for parts of files, and does
harm where the windows of all running reads fill the page cache: then files that were hot leave
it. Files that are smaller than the window are read whole, and nothing beyond.

Nothing is written to nginx.conf: the command sets the device, until the next boot.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import FACTS_COMMAND, not_applicable
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.pool import CACHE_SHARE_FOR_COLD
from nginx_tune.decide.model.protocol import USUAL_READ_AHEAD_BYTES
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Confidence, Decision, Evidence, Predicted, Verdict
from nginx_tune.documents.units import bytes_text, percent_text

ID: Final = "read-ahead"
LARGEST_BYTES = 2 << 20
MOVES_SLOWLY_SECONDS = 1e-3
WORTH_FACTOR = 2.0
"""A window is changed when it is off by more than this."""
MANY_PARTS = 0.3
"""Share of range requests from which reading on is mostly wasted."""
_SECTOR_BYTES = 512


def decide_read_ahead(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind == "proxy":
        return not_applicable(ID, "A proxy without a cache reads no files.")
    if not s.is_linux:
        return not_applicable(ID, "Only Linux' read-ahead was looked at.")
    window = Quantity("read-ahead of the device", s.read_ahead_bytes or None, "bytes")
    p, size = s.prediction, s.object_bytes
    if window.value is None or p is None:
        what = "read-ahead of the device" if window.value is None else "data's or cache's size"
        return Decision(
            id=ID,
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
            id=ID,
            verdict="keep",
            summary="As it is: the data fits in the page cache, so the disk is hardly read.",
            evidence=evidence,
            confidence="high" if s.dataset_bytes.provenance == "measured" else "medium",
            flips_when=["the data outgrows the page cache"],
        )
    most = _most_for_cache(s, p.cold_transfers)
    wanted = min(wanted_window(s.disk), most)
    partial = s.workload.sizes.partial_ratio or 0.0
    if window.value > most * WORTH_FACTOR and size.value and size.value > most:
        reason = (
            f"{p.cold_transfers:.0f} cold reads at once with {window.text} each would fill "
            "the page cache that hot files need"
        )
        return _change(s, "lower", window, most, reason, evidence=evidence)
    if window.value > wanted * WORTH_FACTOR and partial > MANY_PARTS:
        reason = f"{percent_text(partial, 2)} of the requests are for parts of files"
        return _change(s, "lower", window, wanted, reason, evidence=evidence)
    small = size.value is not None and size.value <= window.value * WORTH_FACTOR
    if window.value * WORTH_FACTOR <= wanted and not small and partial <= MANY_PARTS:
        reason = "the head would read on for as long as it took to get there"
        return _change(s, "raise", window, wanted, reason, evidence=evidence)
    why = f"files of {size.text} end within it or soon after" if small else "it suits the disk"
    return Decision(
        id=ID,
        verdict="keep",
        summary=f"{window.text} stays: {why}.",
        evidence=evidence,
        confidence=_confidence(s),
        flips_when=["the data moves to another kind of disk"],
    )


def wanted_window(disk: ModelDisk) -> int:
    """Window whose transfer takes as long as the positioning before it: a power of two.

    Source: the same balance as for a stripe or a chunk: half of the time is transfer, so at
    least half of the bandwidth is used whatever the number of readers.
    """
    if disk.latency_seconds < MOVES_SLOWLY_SECONDS:
        return USUAL_READ_AHEAD_BYTES
    wanted, balance = USUAL_READ_AHEAD_BYTES, disk.latency_seconds * disk.bytes_per_second
    while wanted < balance and wanted < LARGEST_BYTES:
        wanted *= 2
    return wanted


def _most_for_cache(s: Situation, cold: float) -> int:
    room = CACHE_SHARE_FOR_COLD * (s.page_cache.value or 0.0) / max(1.0, cold)
    most = USUAL_READ_AHEAD_BYTES
    while most * 2 <= min(room, 64 * LARGEST_BYTES):
        most *= 2
    return most


def _change(
    s: Situation,
    verdict: Verdict,
    window: Quantity,
    wanted: int,
    reason: str,
    *,
    evidence: list[Evidence],
) -> Decision:
    before = min(window.value or 1.0, s.object_bytes.value or 1.0)
    after = min(float(wanted), s.object_bytes.value or 1.0)
    gain = (after / s.disk.read_seconds(after)) / (before / s.disk.read_seconds(before))
    predicted = [
        Predicted(
            metric="ratio(cold.bytes_per_second)",
            low=min(1.0, round(gain, 4)),
            expected=round(1 + (gain - 1) / 2, 4),
            high=round(max(1.0, gain), 4),
        )
    ]
    return Decision(
        id=ID,
        verdict=verdict,
        summary=f"From {window.text} to {bytes_text(wanted)}: {reason}.",
        evidence=evidence,
        predicted=predicted if verdict == "raise" else [],
        confidence=_confidence(s),
        flips_when=["the data moves to another kind of disk"],
        risks=["everything on this device reads on as far; the setting is gone after a boot"],
        next_command=f"blockdev --setra {wanted // _SECTOR_BYTES} /dev/{_device(s)}",
    )


def _device(s: Situation) -> str:
    """The device that the file system is on; its window is the one that counts."""
    under = {place.path for place in s.data_paths if place.read_ahead_bytes}
    stacks = [p.stack for p in s.facts.storage.paths if p.path in under and p.stack]
    name = stacks[0][0] if stacks else (s.disk.name.split("+")[0] or "DEVICE")
    return name if name.replace("-", "").replace("_", "").isalnum() else "DEVICE"


def _confidence(s: Situation) -> Confidence:
    return "medium" if s.disk.provenance == "measured" else "low"
