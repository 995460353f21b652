"""What the model of blocking needs of host and workload, and how much of it memory answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from nginx_tune.decide.model.cache import (
    PopularityClass,
    hit_ratio,
    hit_ratio_after,
    objects_asked,
    page_cache_hit_ratio,
)
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.sizes import SizeGroup, mean_pieces

FITS_RATIO = 0.9
"""Data up to this share of the page cache counts as fitting: some of it holds metadata, logs
and buffers, and reclaim starts before the limit."""
PAGE_BYTES = 4096
HALF_PAGE_BYTES = PAGE_BYTES / 2
"""What a file's last page leaves free where sizes are many."""
NAME_BYTES = 1128.0 + 192.0
"""Inode and directory entry of a file. Source: slabinfo of Linux 6.18, ext4_inode_cache and
dentry; other file systems' inodes are about as large."""


_LESS_ROOM = 0.9
"""Page cache that files really get, over what is reckoned with: other users of it come and go."""
COUNTED = 200
"""Requests that a measurement counts, or so: blocks of some seconds come to 70 to 1000."""
_COUNTED_SECONDS = 10.0
"""Assumed: time for which a measurement counts requests, in all of its blocks, at least."""
_LEAST_COUNTED = 20.0
"""Assumed: who measures fewer goes on for longer."""
QUANTILE = 1.645
"""Of the normal distribution: one in twenty is further to either side."""


class CacheAge(NamedTuple):
    """How long a page cache has been asked for what it is asked for now."""

    requests: float | None = None
    """Since it was empty, or full of files at random; None for the long run."""
    began_full: bool = False
    once: bool = False
    """Whether no file is asked for again before all have been."""


LONG_SINCE = CacheAge()


@dataclass(frozen=True)
class BlockingInputs:
    """Everything the model needs; plain numbers, so that one can be moved for a break-even."""

    workers: int
    page_cache_bytes: float
    dataset_bytes: float
    object_bytes: float
    classes: tuple[PopularityClass, ...]
    """Popularity of the objects."""
    disk: ModelDisk
    read_bytes: float
    """Bytes of one read by nginx: a sendfile chunk, or a buffer where sendfile cannot be used."""
    window_bytes: float = 0.0
    """Bytes that one read from the disk brings, where that is more: the read-ahead."""
    turn_bytes: float = 0.0
    """Bytes after which the disk may turn to another loop's file, however long nginx's read is;
    0: as many as one read brings."""
    goes_on_bytes: float = 0.0
    """Bytes that a loop without pools reads on end, where that is more than one read."""
    sendfile_bytes: float = 0.0
    """Bytes of a file that one ``sendfile()`` may send to a client that takes them at once; 0 where
    bodies go another way, or as one read."""
    rate_per_second: float | None = None
    others_per_second: float = 0.0
    """Requests that read no file, beside these."""
    concurrency: float | None = None
    """Transfers in flight at the busy time, whole server."""
    since_seconds: float | None = None
    """For how long clients have been coming, where all came at once; None for long."""
    cold_concurrency: float | None = None
    """Of these, the ones that miss the page cache, where somebody knows."""
    cold_by_popularity: bool = False
    """Whether those ask by the popularity: all of them may miss at once, and some hit."""
    think_seconds: float = 0.0
    """Pause of a client that waits for its answer before its next request."""
    link_bytes_per_second: float | None = None
    client_bytes_per_second: float | None = None
    """What one client takes at most."""
    clients_keep_pace: bool = False
    """Whether clients take an answer as fast as it is sent, however large."""
    encrypts: bool = False
    """Whether the worker encrypts bodies itself."""
    sizes: tuple[SizeGroup, ...] = ()
    """Sizes of the objects about their mean; empty for one size."""
    page_waste_bytes: float = HALF_PAGE_BYTES
    """What the last page of a file leaves free, on average."""
    names_take_memory: bool = True
    """Whether inodes and directory entries share the page cache's limit."""
    directories: float | None = None
    """That the files lie in, where somebody counted them."""
    asked: CacheAge = LONG_SINCE
    can_offload: bool = True
    """Whether a pool takes reads off the loop; not with kernel TLS (ngx_ssl_sendfile())."""

    @cached_property
    def objects(self) -> float:
        """Files that can be asked for."""
        return sum(c.objects for c in self.classes)

    @property
    def way_bytes_per_second(self) -> float | None:
        """What link and slow clients take together at most; None where nothing is known of it."""
        ways = [] if self.link_bytes_per_second is None else [self.link_bytes_per_second]
        if self.client_bytes_per_second is not None and self.concurrency:
            ways.append(self.client_bytes_per_second * self.concurrency)
        return min(ways, default=None)

    @property
    def _window(self) -> float:
        return max(self.read_bytes, self.window_bytes)

    @property
    def _stretch(self) -> float:
        """Bytes that hold the loop on end: more than a window while the client keeps pace."""
        way = self.way_bytes_per_second
        if way is not None and way < self.disk.bytes_per_second:
            return self._window
        return max(self._window, self.goes_on_bytes)

    @property
    def longest_hold_bytes(self) -> float:
        """Bytes of one file that hold the loop before it turns to others."""
        on_end = self.sendfile_bytes if self.clients_keep_pace else 0.0
        return max(self._stretch, on_end)

    @property
    def hold_bytes(self) -> float:
        """Bytes for which one cold read holds a loop without pools, on average."""
        return self.object_bytes / self.holds_per_miss

    @cached_property
    def holds_per_miss(self) -> float:
        """Times that one cold object holds the loop."""
        return mean_pieces(self.object_bytes, self.sizes, self._stretch)

    @property
    def disk_read_bytes(self) -> float:
        """Bytes of one read from the disk, on average."""
        return self.object_bytes / self.disk_reads_per_miss

    @cached_property
    def disk_reads_per_miss(self) -> float:
        """Reads from the disk for one cold object, offloaded or each waited for by itself."""
        return mean_pieces(self.object_bytes, self.sizes, self._window)

    @cached_property
    def turns_per_miss(self) -> float:
        """Pieces of one cold object between which the disk may read for another loop."""
        turn = min(self.turn_bytes or self._window, self._window)
        return mean_pieces(self.object_bytes, self.sizes, turn)

    @cached_property
    def tasks_per_request(self) -> float:
        """Reads by nginx, each one task when offloaded."""
        return mean_pieces(self.object_bytes, self.sizes, self.read_bytes)

    @property
    def footprint_bytes(self) -> float:
        """Memory that one object takes when it is there."""
        names = NAME_BYTES if self.names_take_memory else 0.0
        return self.dataset_bytes / self.objects + self.page_waste_bytes + names

    @cached_property
    def miss_ratio(self) -> float:
        """Share of requests that find their object outside the page cache."""
        return max(0.0, 1.0 - _hits(self, usable_objects(self)))


def miss_ratio(i: BlockingInputs) -> float:
    """Share of requests that find their object outside the page cache."""
    return i.miss_ratio


def resident_objects(i: BlockingInputs) -> float:
    """Objects that the page cache holds now: as many as it can, or as were asked for yet."""
    most = min(i.objects, usable_objects(i))
    if i.asked.requests is None or i.asked.began_full:
        return most
    return min(most, objects_asked(i.classes, i.asked.requests))


def usable_objects(i: BlockingInputs) -> float:
    """Objects that the page cache has room for, in objects of mean size."""
    return FITS_RATIO * i.page_cache_bytes / i.footprint_bytes


def room_range(i: BlockingInputs) -> tuple[BlockingInputs, BlockingInputs]:
    """The inputs with the least and the most room that files may come to have in memory.

    A tenth less than reckoned with, or all of the limit and nothing else in it.
    """
    all_of_it = i.footprint_bytes * i.objects / i.dataset_bytes / FITS_RATIO
    return (
        replace(i, page_cache_bytes=_LESS_ROOM * i.page_cache_bytes),
        replace(i, page_cache_bytes=max(1.0, all_of_it) * i.page_cache_bytes),
    )


def hit_range(i: BlockingInputs) -> tuple[float, float]:
    """The least and the greatest share of hits that the page cache may come to.

    From a plain LRU list with the least room to Linux's lists with the most; less and more what so
    many requests as an experiment counts may be off by chance, which of the files are the popular
    ones among them.
    """
    less, more = room_range(i)
    room = usable_objects(less)
    low = _hits(i, room)
    if i.asked == LONG_SINCE:
        low = hit_ratio(i.classes, room)
    high = _hits(i, usable_objects(more))
    counted = min(COUNTED, counted_requests(i))
    return (
        max(0.0, low - _chance(low, counted)),
        min(1.0, high + _chance(high, counted)),
    )


def counted_requests(i: BlockingInputs) -> float:
    """Requests for files that a measurement counts, by what comes in some seconds.

    Source: drawn-7717-009, where one file of 11 MB was asked for in two seconds: eight requests
            in all blocks without pools, of which memory answered 0.60 where 0.48 were foretold.
    """
    if i.rate_per_second is None:
        return COUNTED
    return max(_LEAST_COUNTED, i.rate_per_second * _COUNTED_SECONDS)


def _hits(i: BlockingInputs, objects: float) -> float:
    if i.asked.once:  # an empty cache holds none of them when it is asked for
        empty = i.asked.requests is not None and not i.asked.began_full
        return float(objects >= i.objects and not empty)
    if i.asked.requests is None:
        return page_cache_hit_ratio(i.classes, objects)
    return hit_ratio_after(i.classes, objects, i.asked.requests, began_full=i.asked.began_full)


def _chance(share: float, counted: float) -> float:
    """How far a share counted over so many requests is from the true one, in one case of twenty.

    One request at least. However many are counted, the popular files among them stay the same.
    """
    return QUANTILE * math.sqrt(max(0.0, share * (1 - share)) / counted) + 1 / counted
