"""``/proc/net/netstat`` and ``/proc/net/tls_stat``: what the network stack counts."""

from __future__ import annotations

import re
from itertools import pairwise

_TLS_LINE = re.compile(r"^(Tls\w+)\s+([0-9]{1,20})\s*$", re.MULTILINE)


def parse_netstat(text: str) -> dict[str, int]:
    """Counters by name: each pair of lines has the names above and the values below.

    Source: net/ipv4/proc.c netstat_seq_show().
    """
    found: dict[str, int] = {}
    lines = text.splitlines()
    for names, values in pairwise(lines):
        title, _, words = names.partition(": ")
        same, _, numbers = values.partition(": ")
        if title != same:
            continue
        pairs = zip(words.split(), numbers.split(), strict=False)
        found |= {
            name: int(number)
            for name, number in pairs
            if re.fullmatch(r"-?[0-9]{1,20}", number) and not name.isdecimal()
        }
    return found


def parse_tls_stat(text: str) -> dict[str, int]:
    """Counters by name.

    Source: Documentation/networking/tls.rst.
    """
    return {name: int(value) for name, value in _TLS_LINE.findall(text)}
