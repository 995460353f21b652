"""What the network stack prints of packets and memory: softnet_stat, sockstat, masks of CPUs."""

from __future__ import annotations

import re

from nginx_tune.documents.facts import Softnet
from nginx_tune.host.door import Missing

_SOFTNET = re.compile(r"([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]{8})(?: [0-9a-f]{8})*")
_MASK = re.compile(r"[0-9a-f,]*[1-9a-f][0-9a-f,]*")
_LEVELS = 3


def parse_softnet(text: str) -> Softnet | Missing:
    """The counters of all CPUs, added.

    Source: net/core/net-procfs.c softnet_seq_show(): a line for each CPU, 32 bits of hexadecimal
            a number, the first three in every kernel.
    """
    rows = [_SOFTNET.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    if not rows:
        return Missing("softnet_stat is empty")
    totals = [0, 0, 0]
    for row in rows:
        if row is None:
            return Missing("softnet_stat is not as the kernel prints it")
        totals = [
            total + int(number, 16) for total, number in zip(totals, row.groups(), strict=True)
        ]
    return Softnet(processed=totals[0], dropped=totals[1], squeezed=totals[2])


def parse_tcp_pages(text: str) -> int | Missing:
    """Pages that TCP's buffers hold.

    Source: net/ipv4/proc.c sockstat_seq_show(): ``TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1``.
    """
    match = re.search(r"^TCP: .*\bmem ([0-9]{1,18})$", text, re.MULTILINE)
    return int(match[1]) if match else Missing("sockstat does not tell the memory of TCP")


def parse_time_wait(text: str) -> int | Missing:
    """Connections in TIME_WAIT; of the same line."""
    match = re.search(r"^TCP: .*\btw ([0-9]{1,18})\b", text, re.MULTILINE)
    return int(match[1]) if match else Missing("sockstat does not tell connections in TIME_WAIT")


def parse_tcp_mem(text: str) -> tuple[int, int, int] | Missing:
    """Pages at which TCP is content, sparing and at its end.

    Source: Documentation/networking/ip-sysctl.rst, tcp_mem.
    """
    words = text.split()
    if len(words) != _LEVELS or not all(re.fullmatch(r"[0-9]{1,19}", word) for word in words):
        return Missing(f"not three numbers of pages: {text.strip()[:40]!r}")
    low, pressure, high = map(int, words)
    return low, pressure, high


def has_cpus(mask: str) -> bool:
    """Whether a mask of CPUs, as sysfs prints it, has any."""
    return _MASK.fullmatch(mask.strip()) is not None
