"""What the disk probe does in the time it has; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from nginx_tune.documents.diskplan import DiskCaps, DiskPlan, DiskStep
from nginx_tune.documents.facts import DiskClass

ReadSize = Literal["readahead", "chunk", "tls"]

SMALL_READ_BYTES = 4096
"""The size at which disks are compared by reads per second."""
_SEQUENTIAL_READ_BYTES = 1 << 20
_USUAL_READ_AHEAD_BYTES = 128 << 10
"""Linux's default: VM_READAHEAD_PAGES, include/linux/mm.h."""
_LEAST_READ_BYTES = 16 << 10
_CHUNK_BYTES = 512 << 10
_TLS_BYTES = 32 << 10
"""One buffer of nginx's ``output_buffers 2 32k``."""

_DEEPEST = 64
_DEEPEST_PARALLEL = 128
"""For disks with many queues, and for arrays of several disks."""
_MANY_LEAVES = 4

_OPENING_SHARE = 0.1
_MOST_OPENING_SECONDS = 2.0
_WAITING_SHARE = 0.1
"""For the last reads of each step, which are waited for."""
_WARMUP_SHARE = 0.15
_TURN_SECONDS = 0.2
"""A throttled disk works in turns of 100 or 200 ms (block/blk-throttle.c, throtl_slice): the
measured time is a whole number of turns, so that no part of one counts as a gain."""
_LEAST_MEASURED_SECONDS = 0.1
_DEPTH_1_WEIGHT = 2.0
"""Depth 1 gives the model its latency, and has the fewest reads in a second."""


def read_bytes_for(size: ReadSize, read_ahead_bytes: int | None) -> int:
    """Bytes that one cold read of nginx asks the disk for.

    ``readahead``: what sendfile() from a cold page cache makes the kernel read, the read-ahead
    of the file system's device (at most a chunk: some devices announce megabytes). ``chunk``: a
    read-ahead as large as ``sendfile_max_chunk 512k``. ``tls``: a buffer of output_buffers.
    """
    if size == "tls":
        return _TLS_BYTES
    if size == "chunk":
        return _CHUNK_BYTES
    wanted = read_ahead_bytes or _USUAL_READ_AHEAD_BYTES
    bounded = min(max(wanted, _LEAST_READ_BYTES), _CHUNK_BYTES)
    return bounded - bounded % SMALL_READ_BYTES


def deepest(disk_class: DiskClass, leaves: int) -> int:
    """The depth at which a sweep ends."""
    parallel = disk_class == "nvme" or leaves >= _MANY_LEAVES
    return _DEEPEST_PARALLEL if parallel else _DEEPEST


def plan_disk(
    paths: Sequence[str], *, read_bytes: int, depth: int, seconds: float, seed: int = 1
) -> DiskPlan:
    """A plan that fits into so many seconds, opening included.

    Sequential reads first, then random reads of nginx's size at depths 1, 2, 4 … up to ``depth``,
    then reads of 4 KiB at the same depths.
    """
    depths = [1 << power for power in range(depth.bit_length())]
    opening = min(_OPENING_SHARE * seconds, _MOST_OPENING_SECONDS)
    wanted: list[tuple[DiskStep, float]] = [
        (_step("sequential", _SEQUENTIAL_READ_BYTES, 1), 1.0),
        *((_step("random", read_bytes, d), _DEPTH_1_WEIGHT if d == 1 else 1.0) for d in depths),
    ]
    if read_bytes != SMALL_READ_BYTES:
        wanted += [(_step("random", SMALL_READ_BYTES, d), 1.0) for d in depths]
    unit = (seconds - opening - _WAITING_SHARE * seconds) / sum(weight for _, weight in wanted)
    return DiskPlan(
        paths=list(paths),
        steps=[_timed(step, weight * unit) for step, weight in wanted],
        seed=seed,
        open_seconds=opening,
        caps=DiskCaps(seconds=seconds - opening),
    )


def _step(kind: Literal["random", "sequential"], read_bytes: int, depth: int) -> DiskStep:
    return DiskStep(kind=kind, read_bytes=read_bytes, depth=depth, seconds=0.0)


def _timed(step: DiskStep, seconds: float) -> DiskStep:
    most = (1 - _WARMUP_SHARE) * seconds
    turns = math.floor(most / _TURN_SECONDS + 1e-9)
    measured = turns * _TURN_SECONDS or min(seconds, max(most, _LEAST_MEASURED_SECONDS))
    return DiskStep(
        kind=step.kind,
        read_bytes=step.read_bytes,
        depth=step.depth,
        warmup_seconds=seconds - measured,
        seconds=measured,
    )
