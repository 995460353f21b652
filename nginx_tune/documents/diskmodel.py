"""How a modelled disk of the lab answers: part of ``lab``."""

from __future__ import annotations

from nginx_tune.documents.base import Part
from nginx_tune.documents.bounds import AtMostCount, AtMostNumber, AtMostSeconds


class DiskModel(Part, frozen=True, kw_only=True):
    """A disk as a queue: one line in front of some channels, each busy with one read at a time.

    A read that gets a channel waits for the bus, moves its bytes over it and takes
    ``read_seconds`` more; the channel is free again when the read is answered. One channel is a
    hard disk with one head, many are an SSD. The formulas are in ``nginx/lab/model_disk.py``.
    """

    read_seconds: AtMostSeconds
    """Of one read, its transfer apart: seek and rotation, or the flash's own time."""
    spread_ratio: float = 0.0
    """Reads take ``read_seconds`` ± this share of it, evenly spread; the mean stays."""
    channels: AtMostCount = 1
    """Reads under way at once; the others wait their turn."""
    bytes_per_second: AtMostNumber | None = None
    """Of the bus that all channels share; null when transfers cost nothing."""
    sequential_seconds: AtMostSeconds | None = None
    """In place of ``read_seconds`` for a read that goes on where the last one ended: a head that
    need not move. Null: as any other read."""
    tail_ratio: float = 0.0
    """This share of the reads takes longer …"""
    tail_seconds: AtMostSeconds = 0.0
    """… by an exponential time of this mean."""
    stall_every_seconds: AtMostSeconds | None = None
    """Mean time from the end of one stall of the whole disk to the next, exponential; null for
    none."""
    stall_seconds: AtMostSeconds = 0.0
    """How long a stall lasts: nothing is answered."""
    error_ratio: float = 0.0
    """This share of the disk's regions of 128 KiB is bad: reads that begin there fail with EIO,
    again and again (the kernel tries once more what a read-ahead did not get)."""
