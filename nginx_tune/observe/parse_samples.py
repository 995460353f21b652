"""Samples of the kernel's profiler, and the memory map that says whose code ran; pure.

Source: perf_event_open(2), the ring buffer; proc(5), /proc/PID/maps.
"""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

_HEADER = struct.Struct("=IHH")
_ADDRESS = struct.Struct("=Q")
_SAMPLE = 9
_LOST = 2
_MODE_BITS = 7
_KERNEL = 1
_VERSION = re.compile(r"[.-][0-9][0-9.]*$")
_SUFFIX = re.compile(r"\.so(?:\.[0-9.]+)?$")

KERNEL = "kernel"
GENERATED = "generated code"
"""Of LuaJIT, or of PCRE's compiler of expressions: memory without a file."""
UNKNOWN = "unknown"


class Samples(NamedTuple):
    """What a stretch of the ring buffer holds."""

    kernel: int
    addresses: list[int]
    """Of instructions outside the kernel."""


def parse_samples(data: bytes) -> Samples:
    """The samples of a stretch of whole records; other records are passed over."""
    kernel, addresses, at = 0, [], 0
    while at + _HEADER.size <= len(data):
        kind, mode, size = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or at + size > len(data):
            break
        if kind == _SAMPLE and size >= _HEADER.size + _ADDRESS.size:
            if mode & _MODE_BITS == _KERNEL:
                kernel += 1
            else:
                addresses.append(_ADDRESS.unpack_from(data, at + _HEADER.size)[0])
        at += size
    return Samples(kernel, addresses)


class CodeMap:
    """Which file, or other piece of memory, an address belongs to."""

    def __init__(self, maps: str) -> None:
        ranges = sorted(_ranges(maps.splitlines()))
        self._starts = [start for start, _, _ in ranges]
        self._ranges = ranges

    def name_of(self, address: int) -> str:
        """``libz``, ``nginx``, ``ngx_http_lua_module``; ``generated code`` for memory of none."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0 or address >= self._ranges[place][1]:
            return UNKNOWN
        return self._ranges[place][2]


def _ranges(lines: Iterable[str]) -> Iterable[tuple[int, int, str]]:
    for line in lines:
        fields = line.split(None, 5)
        low, dash, high = fields[0].partition("-") if fields else ("", "", "")
        if len(fields) < 5 or not dash or "x" not in fields[1]:  # noqa: PLR2004
            continue
        try:
            start, end = int(low, 16), int(high, 16)
        except ValueError:
            continue
        yield start, end, _name(fields[5] if len(fields) > 5 else "")  # noqa: PLR2004


def _name(path: str) -> str:
    path = path.strip().removesuffix(" (deleted)")
    if not path.startswith("/"):
        return path.strip("[]") if path.startswith("[v") else GENERATED
    base = path.rpartition("/")[2]
    if ".so" in base:
        return _VERSION.sub("", _SUFFIX.sub("", base))
    return base if not base.startswith(("zero", "memfd")) else GENERATED
