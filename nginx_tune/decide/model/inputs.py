"""The inputs of the model of blocking, and how much of the requests memory answers by them.

A page cache that was empty is filled by clients that wait for their answers: nobody can count their
requests beforehand, since they ask as fast as they are answered, and that is as fast as what they
ask for is read (``since_empty``).

The time in cold reads may be far from its mean where few files and few misses make it. The mean is
of the long run, and of any files that are popular. What is measured is one run's misses, and one
order of the files: with a handful of large ones among many small, most of the time is theirs,
whether the popular ones are among them or not is chance, and so is how many of their reads fall
into some seconds (``time_factors``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from nginx_tune.decide.model.cache import (
    FITS_RATIO,
    HALF_PAGE_BYTES,
    NAME_BYTES,
    PopularityClass,
    hit_ratio,
    hit_ratio_after,
    miss_overlap,
    objects_asked,
    page_cache_hit_ratio,
)
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.reads import SizeGroup, mean_pieces

_LESS_ROOM = 0.9
"""Page cache that files really get, over what is reckoned with: other users of it come and go."""
COUNTED = 200
"""Requests that a measurement counts, or so: blocks of some seconds come to 70 to 1000."""
_COUNTED_SECONDS = 10.0
"""Assumed: time for which a measurement counts requests, in all of its blocks, at least."""
_LEAST_COUNTED = 20.0
"""Assumed: who measures fewer goes on for longer."""
QUANTILE = 1.645
"""Standard deviations of a normal distribution: one in twenty is further to either side."""


class CacheAge(NamedTuple):
    """The age of a page cache, in requests for what is asked for now."""

    requests: float | None = None
    """Since it was empty, or full of files at random; None for the long run."""
    began_full: bool = False
    once: bool = False
    """True if no file is asked for again before all have been."""


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
    """Those of them that miss the page cache, where somebody knows."""
    cold_by_popularity: bool = False
    """True if those ask by the popularity: all of them may miss at once, and some hit."""
    think_seconds: float = 0.0
    """Pause of a client that waits for its answer before its next request."""
    link_bytes_per_second: float | None = None
    client_bytes_per_second: float | None = None
    """Most that one client takes."""
    clients_keep_pace: bool = False
    """True if clients take an answer as fast as it is sent, however large."""
    encrypts: bool = False
    """True if the worker encrypts bodies itself."""
    sizes: tuple[SizeGroup, ...] = ()
    """Sizes of the objects about their mean; empty for one size."""
    page_waste_bytes: float = HALF_PAGE_BYTES
    """Bytes that the last page of a file leaves free, on average."""
    names_take_memory: bool = True
    """True if inodes and directory entries share the page cache's limit."""
    directories: float | None = None
    """That the files lie in, where somebody counted them."""
    asked: CacheAge = LONG_SINCE
    limit_seconds: float | None = None
    """Most that an answer may take, where an objective says so."""
    limit_share: float | None = None
    """Share of the answers that may take longer; None where it is their mean that may not."""
    only_quantity: bool = False
    """True if an objective asks for bytes or requests a second, and none for a time."""
    can_offload: bool = True
    """True if a pool takes reads off the loop; not with kernel TLS (ngx_ssl_sendfile())."""

    @cached_property
    def objects(self) -> float:
        """Files that can be asked for."""
        return sum(c.objects for c in self.classes)

    @property
    def way_bytes_per_second(self) -> float | None:
        """Most that link and slow clients take together; None where nothing is known of it."""
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
    """Distance of a share counted over so many requests from the true one, in one case of twenty.

    One request at least. However many are counted, the popular files among them stay the same.
    """
    return QUANTILE * math.sqrt(max(0.0, share * (1 - share)) / counted) + 1 / counted


_BISECTIONS = 60
_ALL = 0.999
"""Share of the objects from which all count as asked for: the last ones take for ever."""


def since_empty(i: BlockingInputs) -> BlockingInputs:
    """The inputs with the requests that were made of a page cache which was empty at first.

    Each read from the disk brings an object that nobody had asked for; requests are as many as ask
    for so many objects. The same inputs where clients do not wait, where nobody knows since when
    they come, and where all was asked for by now.
    """
    if i.since_seconds is None or i.rate_per_second is not None or i.asked.requests is not None:
        return i
    read = i.since_seconds * _objects_per_second(i)
    if read >= _ALL * i.objects:
        return i
    return replace(i, asked=CacheAge(_requests_for(i, read), once=i.asked.once))


def _objects_per_second(i: BlockingInputs) -> float:
    """Objects that loops without pools read, one at a time each, and the clients take."""
    each = i.holds_per_miss * i.disk.read_seconds(i.hold_bytes)
    read = min(float(i.workers), i.disk.heads_for(i.hold_bytes)) / each
    way = i.way_bytes_per_second
    return read if way is None else min(read, way / i.object_bytes)


def _requests_for(i: BlockingInputs, objects: float) -> float:
    """The requests that ask for so many objects, some of them more than once."""
    low = high = objects
    while objects_asked(i.classes, high) < objects:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if objects_asked(i.classes, middle) < objects:
            low = middle
        else:
            high = middle
    return high


def time_factors(i: BlockingInputs) -> tuple[float, float]:
    """Bounds of the time in cold reads over its mean: one in twenty is below, one above.

    Misses come by themselves, so their times add up to a compound Poisson sum, of which those of a
    slow disk may be few and most of the time; which file is how large has nothing to do with how
    popular it is, so the mean time of a miss is that of a sample of as many files as misses are
    spread over. Both variances add up, and a sum of positive parts is about a gamma variable of
    that mean and variance.

    Source: Feller, An Introduction to Probability Theory 2 (1971), VI.4 (compound Poisson);
            Wilson and Hilferty, The Distribution of Chi-Square, PNAS 17 (1931); held against
            drawn files and misses in tests/model/test_model_chance.py.
    """
    miss = miss_ratio(i)
    if miss <= 0:
        return 1.0, 1.0
    counted = counted_requests(i)
    sizes = _times_squared_over_mean(i)
    disks = i.disk.spread_between_disks(i.hold_bytes) ** 2
    same = 1 / i.objects if i.asked.once else miss_overlap(i.classes, usable_objects(i))
    variance = (1 + sizes) * (1 + disks) / (counted * miss)
    variance += sizes * max(0.0, same - 1 / i.objects)
    return _factors(variance)


def turn_factors(i: BlockingInputs) -> tuple[float, float]:
    """Bounds of the wait behind answers sent in one turn over its mean, as ``time_factors``.

    Who comes by finds a turn as often as it is long, and waits half of it: by the square of a
    file's size, so that the few largest make nearly all of the wait, popular or not.
    Source: drawn-5309-036, one file in eight of 47 MB among small ones: small answers took 0.32 to
            0.89 ms in four blocks, where the mean of all orders of the files says 1.0.
    """
    if not i.sizes:
        return 1.0, 1.0
    mean = sum(g.share * g.over_mean**2 for g in i.sizes)
    square = sum(g.share * g.over_mean**4 for g in i.sizes)
    sizes = max(0.0, square / mean**2 - 1)
    same = sum(c.objects * c.probability_each**2 for c in i.classes)
    variance = (1 + sizes) / counted_requests(i)
    return _factors(variance + sizes * max(0.0, same - 1 / i.objects))


def _factors(variance: float) -> tuple[float, float]:
    return (
        min(1.0, _gamma_factor(variance, -QUANTILE)),
        max(1.0, _gamma_factor(variance, QUANTILE)),
    )


def _times_squared_over_mean(i: BlockingInputs) -> float:
    """Squared coefficient of variation of the time in which one file is read."""
    if not i.sizes:
        return 0.0
    mean = square = 0.0
    for group in i.sizes:
        size = group.over_mean * i.object_bytes
        reads = max(1.0, size / i.longest_hold_bytes)
        each = reads * i.disk.latency_seconds + size / i.disk.bytes_per_second
        mean += group.share * each
        square += group.share * each**2
    return max(0.0, square / mean**2 - 1)


def _gamma_factor(variance: float, deviations: float) -> float:
    """Quantile of a gamma variable of mean 1; 0 where most of it is next to nothing."""
    ninth = variance / 9
    return max(0.0, 1 - ninth + deviations * math.sqrt(ninth)) ** 3
