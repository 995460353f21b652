"""``/proc/swaps``: where memory is moved to."""

from __future__ import annotations

import re
from typing import Literal

from nginx_tune.documents.facts import Swap

_LINE = re.compile(r"^(\S+)\s+(partition|file)\s+([0-9]{1,18})\s+([0-9]{1,18})\s+-?[0-9]+$")


def parse_swaps(text: str) -> list[Swap]:
    """Every place that swap is on.

    Source: mm/swapfile.c swap_show(): sizes in KiB, names with octal escapes.
    """
    found = []
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), match[1])
        kind: Literal["zram", "partition", "file"]
        if re.fullmatch(r"/dev/zram\d+", path):
            kind = "zram"
        else:
            kind = "file" if match[2] == "file" else "partition"
        size, used = int(match[3]) * 1024, int(match[4]) * 1024
        found.append(Swap(path=path, kind=kind, size_bytes=size, used_bytes=used))
    return found
