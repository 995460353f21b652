"""How large nginx's output buffers may be: what all transfers together hold stays in bounds."""

from __future__ import annotations

from nginx_tune.decide.model.protocol import BUFFER_BYTES
from nginx_tune.decide.situation import Situation

BUFFERS = 2
LARGE_BYTES = 256 << 10
"""Where the kernel reads ahead, larger ones save next to nothing."""
DIRECT_BYTES = 1 << 20
"""Where it does not, the disk moves as much at once as the buffer holds."""
MEMORY_SHARE = 0.05
"""Share of the page cache that the buffers of all transfers may take away."""


def output_bytes(s: Situation, largest: int) -> int:
    """A buffer of at most ``largest`` bytes: a power of two for which there is memory."""
    cache, peak = s.page_cache.value or 0.0, s.concurrency.value or 0.0
    room = MEMORY_SHARE * cache / max(1.0, peak) / BUFFERS
    size = BUFFER_BYTES
    while size * 2 <= min(room, largest):
        size *= 2
    return size
