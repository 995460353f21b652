"""A link with a known delay, losses and reordering, where the kernel has no netem.

A network namespace has one device, ``far``, whose packets this program reads (tun). What is sent to
`PEER` comes back, with source and destination exchanged, as if it came from there: a client that
connects to the peer is answered by the server that listens on `OWN`, in the same namespace. No
checksum changes by that (RFC 1071: the sum does not hang on the order).

A namespace belongs to a thread: what is called in there, and what that starts, is in it.
"""

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from nginx_tune.nginx.lab.network import Namespace

OWN, PEER = "198.18.7.1", "198.18.7.2"
_TUNSETIFF = 0x400454CA
_TUN, _NO_HEADER = 0x1, 0x1000
_VERSION_4 = 4

T = TypeVar("T")


@dataclass(frozen=True)
class Link:
    """What happens to a packet on its way, in each direction."""

    delay_seconds: float = 0.0
    lost: float = 0.0
    """Chance of each packet."""
    late: float = 0.0
    """Chance of each packet to come after those that follow it."""
    late_seconds: float = 0.01
    seed: int = 1


class Counts:
    """Packets that went over the link."""

    def __init__(self) -> None:
        self.carried = self.lost = self.late = 0


def over(link: Link, call: Callable[[], T]) -> tuple[T, Counts]:
    """What a call returns that is made in a namespace with such a link."""
    counts = Counts()

    def inside() -> T:
        with _device() as device, _carrying(device, link, counts):
            return call()

    return Namespace("a far link").run(inside), counts


@contextlib.contextmanager
def _device() -> Iterator[int]:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"far", _TUN | _NO_HEADER))
        for words in (
            ["ip", "address", "add", f"{OWN}/24", "dev", "far"],
            ["ip", "link", "set", "far", "mtu", "1500", "txqueuelen", "10000", "up"],
        ):
            subprocess.run(words, check=True, capture_output=True)
        yield device
    finally:
        os.close(device)


@contextlib.contextmanager
def _carrying(device: int, link: Link, counts: Counts) -> Iterator[None]:
    ended = threading.Event()
    carrier = threading.Thread(target=_carry, args=(device, link, counts, ended))
    carrier.start()
    try:
        yield
    finally:
        ended.set()
        carrier.join()


def _carry(device: int, link: Link, counts: Counts, ended: threading.Event) -> None:
    chance = random.Random(link.seed)
    under_way: list[tuple[float, int, bytes]] = []
    while not ended.is_set():
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            # A full queue at the other end is a loss like any other.
            with contextlib.suppress(OSError):
                os.write(device, heapq.heappop(under_way)[2])
        wait = min(under_way[0][0] - now, 0.05) if under_way else 0.05
        if not select.select([device], [], [], max(wait, 0.0))[0]:
            continue
        packet = os.read(device, 2048)
        if packet[0] >> 4 != _VERSION_4:
            continue
        counts.carried += 1
        if chance.random() < link.lost:
            counts.lost += 1
            continue
        is_late = chance.random() < link.late
        counts.late += is_late
        due = time.monotonic() + link.delay_seconds + (link.late_seconds if is_late else 0.0)
        back = packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
        heapq.heappush(under_way, (due, counts.carried, back))
