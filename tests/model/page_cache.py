"""Page caches that are told what is asked for, and count: an LRU list, and Linux's two lists.

Nothing in here knows a formula. Files are whole pieces of the cache, or several pieces of which
some may be gone while others are there.
"""

import random
from bisect import bisect
from collections import OrderedDict
from itertools import accumulate
from typing import Protocol

Piece = tuple[int, int]
"""A file and the number of a piece of it."""


class Cache(Protocol):
    """What answers from memory, or does not."""

    def ask(self, piece: Piece) -> bool:
        """Whether the piece was there; it is, afterwards."""


class Lru:
    """The least recently used piece goes."""

    def __init__(self, pieces: int) -> None:
        self._most = pieces
        self._kept: OrderedDict[Piece, None] = OrderedDict()

    def ask(self, piece: Piece) -> bool:
        if piece in self._kept:
            self._kept.move_to_end(piece)
            return True
        self._kept[piece] = None
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return False


class LinuxLists:
    """Linux's inactive and active list of file pages, and what it remembers of the evicted.

    A page comes to the head of the inactive list; asked for again there it becomes active. Both
    lists are queues: an access moves nothing within them. The inactive list's tail is evicted.
    The active list's tail goes to the inactive list's head where the inactive list is the shorter
    one, and as fast as the inactive list is scanned while evicted pages come back so soon that
    they would have stayed had they been active; those become active at once.

    Source: mm/swap.c folio_mark_accessed(); mm/vmscan.c prepare_scan_control(),
            inactive_is_low(), shrink_active_list(); mm/workingset.c workingset_refault() of
            Linux 6.18, without CONFIG_LRU_GEN.
    """

    def __init__(self, pieces: int) -> None:
        self._most = pieces
        self._inactive: OrderedDict[Piece, bool] = OrderedDict()
        self._active: OrderedDict[Piece, bool] = OrderedDict()
        self._evicted: dict[Piece, int] = {}
        self._age = 0
        self._refaulted = False
        self._owed = 0.0

    def ask(self, piece: Piece) -> bool:
        if piece in self._active:
            self._active[piece] = True
            return True
        if piece in self._inactive:
            if self._inactive[piece]:
                del self._inactive[piece]
                self._activate(piece)
            else:
                self._inactive[piece] = True
            return True
        while len(self._active) + len(self._inactive) >= self._most:
            self._reclaim()
        evicted_at = self._evicted.pop(piece, None)
        if evicted_at is not None and self._age - evicted_at <= len(self._active):
            self._activate(piece)
            self._refaulted = True
        else:
            self._inactive[piece] = True
        return False

    def _activate(self, piece: Piece) -> None:
        self._active[piece] = False
        self._age += 1

    def _reclaim(self) -> None:
        if self._active and (self._refaulted or len(self._active) > len(self._inactive)):
            self._owed += len(self._active) / max(1, len(self._inactive))
            self._refaulted = False
        while self._active and (self._owed >= 1 or not self._inactive):
            piece, referenced = self._active.popitem(last=False)
            self._inactive[piece] = referenced
            self._owed = max(0.0, self._owed - 1)
        piece, _ = self._inactive.popitem(last=False)
        self._age += 1
        self._evicted[piece] = self._age


def hits(cache: Cache, exponent: float, sizes: list[int], requests: int, *, seed: int = 7) -> float:
    """Share of a file that was there, mean over the second half of the requests.

    ``sizes`` are the pieces of each file, the most popular file first.
    """
    rng = random.Random(seed)
    weights = list(accumulate((rank + 1) ** -exponent for rank in range(len(sizes))))
    found = 0.0
    asked = 0
    for number in range(requests):
        file = bisect(weights, rng.random() * weights[-1])
        there = sum(cache.ask((file, piece)) for piece in range(sizes[file]))
        if number >= requests // 2:
            asked += 1
            found += there / sizes[file]
    return found / asked
