"""The models of emulated disks: single reads, the figures at every depth, the kinds; pure.

A ``DiskModel`` is one queue in front of c = ``channels``. With reads of s bytes, a bus of B bytes
per second, the mean time t = read_seconds + tail_ratio × tail_seconds and the share of time without
stalls a = every / (every + stall):

- a single read takes S = (t + s/B) / a: the latency at depth 1;
- d readers, each with one read in flight, get X(d) = min(d / S, X) reads per second: no read waits
  for a channel until all are busy, whatever the spread of the times;
- X = a × min(c / (t + s/B), B / s): the plateau;
- K = X × S: the knee, the depth where the two lines meet; it is c unless the bus is the limit;
- each of d readers waits d / X(d) for a read (Little's law).

A disk of a class has a model, or limits that give it a plateau but no knee; ``settle_kinds`` says
which of the two a host allows.
"""

import heapq
import math
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from nginx_tune.documents.facts_storage import Curve, CurvePoint, Sweep
from nginx_tune.documents.lab import DiskModel, Lab, LabDisk
from nginx_tune.errors import UndecidedError

_DEPTHS = (1, 2, 4, 8, 16, 32, 64)
SMALL_READ_BYTES = 4096
_REGION_BYTES = 128 << 10
"""The size of a bad region, which is the kernel's usual read-ahead."""
_SEQUENTIAL_READ_BYTES = 1 << 20
_PROBED_READS = 10_000
"""The number of reads that a probe makes at each depth; it reports the longest."""


class ReadAnswer(NamedTuple):
    """The time of the answer to a read; ``failed`` if the answer is an error."""

    at_seconds: float
    failed: bool


class ServiceProcess:
    """The simulated disk, which computes the time of the answer to each arriving read.

    ``draw`` returns the next number in [0, 1), and ``salt`` selects the bad regions. Together they
    determine all answers.
    """

    def __init__(self, model: DiskModel, draw: Callable[[], float], *, salt: int = 0) -> None:
        self._model = model
        self._salt = salt
        self._draw = draw
        self._free_at = [0.0] * model.channels
        self._bus_free_at = 0.0
        self._last_end: int | None = None
        self._stall_from = math.inf
        self._stall_until = 0.0
        self._started = False

    def serve(self, now: float, offset: int, length: int) -> ReadAnswer:
        """The answer to a read that arrives at ``now``, which must not decrease between calls."""
        model = self._model
        if not self._started:
            self._started = True
            self._next_stall(now)
        start = max(now, heapq.heappop(self._free_at))
        end = start
        if model.bytes_per_second is not None:
            self._bus_free_at = max(start, self._bus_free_at) + length / model.bytes_per_second
            end = self._bus_free_at
        end = self._past_stalls(start, end + self._own_seconds(offset))
        self._last_end = offset + length
        heapq.heappush(self._free_at, end)
        return ReadAnswer(end, failed=self._is_bad(offset // _REGION_BYTES))

    def _is_bad(self, region: int) -> bool:
        ratio = self._model.error_ratio
        return ratio > 0 and zlib.crc32(struct.pack("<QQ", self._salt, region)) < ratio * 2**32

    def _own_seconds(self, offset: int) -> float:
        model = self._model
        if model.sequential_seconds is not None and offset == self._last_end:
            return model.sequential_seconds
        seconds = model.read_seconds
        if model.spread_ratio > 0:
            seconds *= 1 + model.spread_ratio * (2 * self._draw() - 1)
        if model.tail_ratio > 0 and self._draw() < model.tail_ratio:
            seconds += self._exponential(model.tail_seconds)
        return seconds

    def _past_stalls(self, start: float, end: float) -> float:
        """The end of a read, delayed by stalls; ``start`` must not decrease between calls."""
        while start >= self._stall_until and self._stall_until > self._stall_from:
            self._next_stall(self._stall_until)
        if end > self._stall_from:
            end += self._stall_until - max(start, self._stall_from)
        return end

    def _next_stall(self, after: float) -> None:
        model = self._model
        if model.stall_every_seconds is None or model.stall_seconds <= 0:
            return
        self._stall_from = after + self._exponential(model.stall_every_seconds)
        self._stall_until = self._stall_from + model.stall_seconds

    def _exponential(self, mean: float) -> float:
        return -mean * math.log(1 - self._draw())


def predict_service_seconds(model: DiskModel, read_bytes: int) -> float:
    """The mean time of a read that does not wait: the latency at depth 1."""
    return _channel_seconds(model, read_bytes) / _moving_ratio(model)


def predict_plateau(model: DiskModel, read_bytes: int) -> float:
    """The highest reads per second at any depth."""
    by_channels = model.channels / _channel_seconds(model, read_bytes)
    bus = model.bytes_per_second
    by_bus = math.inf if bus is None else bus / read_bytes
    return _moving_ratio(model) * min(by_channels, by_bus)


def predict_knee(model: DiskModel, read_bytes: int) -> float:
    """The depth at which the plateau is reached."""
    return predict_plateau(model, read_bytes) * predict_service_seconds(model, read_bytes)


def predict_reads_per_second(model: DiskModel, read_bytes: int, depth: int) -> float:
    """The rate of ``depth`` readers that each have one read in flight."""
    return min(
        depth / predict_service_seconds(model, read_bytes), predict_plateau(model, read_bytes)
    )


def predict_latency_seconds(model: DiskModel, read_bytes: int, depth: int) -> float:
    """The mean latency of a read with ``depth`` readers."""
    return depth / predict_reads_per_second(model, read_bytes, depth)


def predict_quantile_seconds(model: DiskModel, read_bytes: int, quantile: float) -> float:
    """A quantile of the latency at depth 1, without stalls.

    The even spread lies below the exponential tail. The result is exact if the model has only one
    of the two, and close with both while few reads are in the tail.
    """
    transfer = _transfer_seconds(model, read_bytes)
    if quantile > 1 - model.tail_ratio and model.tail_seconds > 0:
        beyond = (1 - quantile) / model.tail_ratio
        return transfer + model.read_seconds - model.tail_seconds * math.log(beyond)
    among = quantile / (1 - model.tail_ratio) if model.tail_ratio < 1 else quantile
    return transfer + model.read_seconds * (1 + model.spread_ratio * (2 * among - 1))


def predict_curve(model: DiskModel, read_bytes: int) -> Curve:
    """The curve that a probe would measure on such a disk."""
    small = _sweep(model, SMALL_READ_BYTES)
    own = _sweep(model, read_bytes)
    return Curve(
        read_bytes=read_bytes,
        points=own.points,
        knee_depth=own.knee_depth,
        knee_reason=own.knee_reason,
        plateau_reads_per_second=own.plateau_reads_per_second,
        small_reads=None if read_bytes == SMALL_READ_BYTES else small,
        sequential_bytes_per_second=_sequential_bytes_per_second(model),
        target="a disk model",
        provenance="declared",
    )


def _sweep(model: DiskModel, read_bytes: int) -> Sweep:
    plateau = predict_plateau(model, read_bytes)
    knee = predict_knee(model, read_bytes)
    return Sweep(
        read_bytes=read_bytes,
        points=[_point(model, read_bytes, depth) for depth in _DEPTHS],
        knee_depth=round(knee) if round(knee) > 1 else None,
        knee_reason=f"the model reaches its plateau at depth {knee:.3g}",
        plateau_reads_per_second=plateau,
    )


def _point(model: DiskModel, read_bytes: int, depth: int) -> CurvePoint:
    queued = predict_latency_seconds(model, read_bytes, depth) - predict_service_seconds(
        model, read_bytes
    )
    p50, p99, p999 = (
        queued + predict_quantile_seconds(model, read_bytes, quantile)
        for quantile in (0.5, 0.99, 0.999)
    )
    longest = predict_quantile_seconds(model, read_bytes, 1 - 1 / _PROBED_READS)
    if model.stall_every_seconds is not None:
        longest += model.stall_seconds
    return CurvePoint(
        depth=depth,
        reads_per_second=predict_reads_per_second(model, read_bytes, depth),
        p50_seconds=p50,
        p99_seconds=p99,
        p999_seconds=p999,
        max_seconds=queued + longest,
    )


def _sequential_bytes_per_second(model: DiskModel) -> float | None:
    own = model.read_seconds if model.sequential_seconds is None else model.sequential_seconds
    seconds = own + _transfer_seconds(model, _SEQUENTIAL_READ_BYTES)
    return _SEQUENTIAL_READ_BYTES / seconds if seconds > 0 else None


def _transfer_seconds(model: DiskModel, read_bytes: int) -> float:
    return 0.0 if model.bytes_per_second is None else read_bytes / model.bytes_per_second


def _channel_seconds(model: DiskModel, read_bytes: int) -> float:
    own = model.read_seconds + model.tail_ratio * model.tail_seconds
    return own + _transfer_seconds(model, read_bytes)


def _moving_ratio(model: DiskModel) -> float:
    if model.stall_every_seconds is None:
        return 1.0
    return model.stall_every_seconds / (model.stall_every_seconds + model.stall_seconds)


MIB = 1 << 20

LIMITS: dict[str, tuple[int | None, int | None]] = {
    "hdd": (80 * MIB, 400),
    "ssd": (400 * MIB, 20_000),
    "nvme": (1_500 * MIB, 80_000),
    "memory": (None, None),
}
"""Limits in bytes and reads per second. The hdd row is the four-disk array of source row A2 as one
worker saw it on the development machine; the other rows are typical plateaus of their class."""

MODELS: dict[str, DiskModel] = {
    # 7200 revolutions per minute: half a turn takes 4.2 ms, and a mean seek as long again.
    "hdd": DiskModel(
        read_seconds=0.008, spread_ratio=0.5, bytes_per_second=160e6, sequential_seconds=0.0
    ),
    # SATA: its bus, and few enough channels for one process to serve; a housekeeping pause of
    # some milliseconds in one read of a thousand.
    "ssd": DiskModel(
        read_seconds=0.0002,
        channels=4,
        bytes_per_second=500e6,
        tail_ratio=0.001,
        tail_seconds=0.004,
    ),
}
"""Models by class. NVMe drives have none, since they answer faster than the server of a model
could."""

CLASSES = tuple(LIMITS)


MOST_READS_PER_SECOND = 25_000
"""Maximum number of reads per second of a modelled disk: its single-process server cannot answer
more."""


class Settled(NamedTuple):
    """A lab that is possible here, with a note on each disk that differs from the wanted one."""

    lab: Lab
    notes: list[str]


def settle_kinds(lab: Lab, *, no_models: str, no_limits: str) -> Settled:
    """The lab with disks that are possible here, and a note on each disk that differs.

    ``no_models`` and ``no_limits`` are the reasons why a kind is impossible; each is empty if its
    kind is possible.
    Errors: UndecidedError for a disk if neither kind is possible.
    """
    notes: list[str] = []
    disks = [_settle(disk, no_models, no_limits, notes) for disk in lab.disks]
    return Settled(msgspec.structs.replace(lab, disks=disks), notes)


def model_of(disk: LabDisk) -> DiskModel | None:
    """The model of a disk: its own, otherwise that of its class; None if there is none."""
    return disk.model or MODELS.get(disk.class_name)


def is_limited(disk: LabDisk) -> bool:
    """True for a disk that needs the block cgroup."""
    return disk.kind == "limited" and (disk.bytes_per_second, disk.reads_per_second) != (None, None)


def describe_disk(disk: LabDisk) -> str:
    """A text on the speed of the disk."""
    model = model_of(disk) if disk.kind == "modelled" else None
    if model is not None:
        plateau = predict_plateau(model, SMALL_READ_BYTES)
        channels = "one head" if model.channels == 1 else f"{model.channels} channels"
        return f"modelled: {1e3 * model.read_seconds:.3g} ms, {channels}, {plateau:,.0f} reads/s"
    limits = (disk.bytes_per_second or "no", disk.reads_per_second or "no")
    return f"limited: {limits[0]} bytes/s, {limits[1]} reads/s"


def _settle(disk: LabDisk, no_models: str, no_limits: str, notes: list[str]) -> LabDisk:
    if disk.kind == "modelled":
        why_not = no_models or _why_no_model(disk)
        if not why_not:
            return disk
        if no_limits:
            raise _neither(disk, why_not, no_limits)
        limited = _as_limited(disk)
        notes.append(
            f"{disk.name} is limited instead of modelled ({why_not}): its curve has a plateau and "
            "no knee"
        )
        return limited
    if not is_limited(disk) or not no_limits:
        return disk
    if no_models or model_of(disk) is None:
        raise _neither(
            disk, no_models or f"there is no model of class {disk.class_name}", no_limits
        )
    notes.append(f"{disk.name} is modelled as its class instead of limited ({no_limits})")
    return msgspec.structs.replace(disk, kind="modelled")


def _why_no_model(disk: LabDisk) -> str:
    model = model_of(disk)
    if model is None:
        return f"there is no model of class {disk.class_name}"
    plateau = predict_plateau(model, SMALL_READ_BYTES)
    if plateau > MOST_READS_PER_SECOND:
        return f"{plateau:,.0f} reads/s are more than the {MOST_READS_PER_SECOND:,} of a model"
    return ""


def _as_limited(disk: LabDisk) -> LabDisk:
    model = model_of(disk)
    if model is None:
        bytes_per_second, reads_per_second = LIMITS[disk.class_name]
    else:
        bandwidth = model.bytes_per_second
        bytes_per_second = None if bandwidth is None else round(bandwidth)
        reads_per_second = max(1, round(predict_plateau(model, SMALL_READ_BYTES)))
    return msgspec.structs.replace(
        disk, kind="limited", bytes_per_second=bytes_per_second, reads_per_second=reads_per_second
    )


def _neither(disk: LabDisk, no_models: str, no_limits: str) -> UndecidedError:
    return UndecidedError(
        f"disk {disk.name} can be neither modelled ({no_models}) nor limited ({no_limits})",
        hint="modprobe fuse for modelled disks, or enable the blkio (io) cgroup controller",
    )
