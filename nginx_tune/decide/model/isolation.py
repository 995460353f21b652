"""What one slow disk does to the readers of the others, with one pool for all and with one each.

A first-in first-out pool does not know disks: reads of the slow one come to occupy its threads,
and reads of the healthy ones wait for a thread. With a pool for each disk they meet only their
own disk (the sources, A16).

Source: asymptotic bounds of closed queueing networks (Denning and Buzen, The Operational Analysis
of Queueing Network Models, ACM Computing Surveys 10(3), 1978): a disk with N readers that each
wait W for a thread finishes at most min(mu, N / (W + s)) reads a second. W is where the threads
in use add up to the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_BISECTIONS = 60


class DiskReaders(NamedTuple):
    """One disk and those who read from it, each asking again when answered."""

    readers: float
    read_seconds: float
    """One read on the idle disk."""
    reads_per_second: float
    """Most that the disk finishes."""

    def rate(self, wait_seconds: float) -> float:
        """Reads a second when each waits that long for a thread first."""
        return min(self.reads_per_second, self.readers / (wait_seconds + self.read_seconds))


def responses_apart(disks: Sequence[DiskReaders]) -> list[float]:
    """Mean response of each disk's readers, when every disk has threads enough of its own."""
    return [disk.readers / disk.rate(0.0) for disk in disks]


def responses_shared(disks: Sequence[DiskReaders], threads: float) -> list[float]:
    """The same with one pool of ``threads`` for all disks."""
    wait = _wait_for_a_thread(disks, threads)
    return [disk.readers / disk.rate(wait) for disk in disks]


def _wait_for_a_thread(disks: Sequence[DiskReaders], threads: float) -> float:
    def in_use(wait: float) -> float:
        return sum(disk.readers - disk.rate(wait) * wait for disk in disks)

    if in_use(0.0) <= threads:
        return 0.0
    low, high = 0.0, sum(d.readers / d.reads_per_second + d.read_seconds for d in disks)
    while in_use(high) > threads and high < 1e12:  # noqa: PLR2004  # a pool far too small
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if in_use(middle) > threads:
            low = middle
        else:
            high = middle
    return (low + high) / 2
