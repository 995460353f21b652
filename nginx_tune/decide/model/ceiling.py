"""What bounds the bytes a server can send once its loops no longer block: disks, link or memory."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.decide.model.blocking import Prediction
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.turns import MEMORY_BYTES_PER_SECOND


class Ceiling(NamedTuple):
    """The lowest bound."""

    name: str
    bytes_per_second: float


def find_ceiling(i: BlockingInputs, p: Prediction) -> Ceiling:
    """The bound that is met first.

    Where hot clients are apart from cold ones they wait for no disk, and fill the link or the
    memory's bandwidth (A6: 9.5 of 10 Gbit/s, of which the disks gave little). Otherwise
    hits and misses come in the ratio that clients ask for, and the disks bound both.
    """
    send = Ceiling("copying from memory", i.workers * MEMORY_BYTES_PER_SECOND)
    if i.link_bytes_per_second is not None and i.link_bytes_per_second < send.bytes_per_second:
        send = Ceiling("the network link", i.link_bytes_per_second)
    miss = 1.0 - p.hit_ratio
    apart = i.cold_concurrency is not None and (i.concurrency or 0.0) > i.cold_concurrency
    if miss <= 0 or apart:
        return send
    read = i.disk_read_bytes
    disks = i.disk.reads_per_second(read) * read / miss
    return send if send.bytes_per_second <= disks else Ceiling("the disks", disks)
