"""The part of a ``split_clients`` table that a key falls into; pure.

Source: ngx_http_split_clients_module.c, ngx_murmurhash.c (MurmurHash2 by Austin Appleby, seed 0).
"""

from __future__ import annotations

from collections.abc import Sequence

_FACTOR = 0x5BD1E995
_ALL = 0xFFFFFFFF
_HUNDREDTHS = 10_000


def murmur_hash2(data: bytes) -> int:
    """The 32-bit hash that nginx makes of a key."""
    value = len(data) & _ALL
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _FACTOR & _ALL
        word = (word ^ word >> 24) * _FACTOR & _ALL
        value = value * _FACTOR & _ALL ^ word
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _ALL
    value = (value ^ value >> 13) * _FACTOR & _ALL
    return value ^ value >> 15


def part_of(key: bytes, shares: Sequence[int]) -> int:
    """The index of the key's part; ``shares`` are hundredths of a percent, the rest is ``*``."""
    value = murmur_hash2(key)
    total = 0
    for index, share in enumerate(shares):
        total += share
        if value < total * _ALL // _HUNDREDTHS:
            return index
    return len(shares)


def even_part(key: bytes, count: int) -> int:
    """The part of a key among ``count`` equal parts, as ``decide.cache_layout`` writes them."""
    return part_of(key, [int(1000 / count) * 10] * (count - 1))
