"""The inputs of the model of blocking, and the share of requests that memory answers.

Clients that wait for their answers fill an empty page cache. The number of their requests is not an
input: they request as fast as they are answered, which is as fast as the files are read
(``since_empty``).

The measured time in cold reads may be far from the model's mean, which is over the long run and
over all orders of popularity. A measurement has the misses of one run, and one order. A few large
files among many small files take most of the time. Whether they are popular, and how many of their
reads happen in a few seconds, is chance (``time_factors``).
"""

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
"""Ratio of the smallest page cache for files to the expected one, since its other users vary."""
COUNTED = 200
"""Typical number of requests in a measurement: runs of some seconds have 70 to 1000."""
_COUNTED_SECONDS = 10.0
"""Assumed least total time of all runs of a measurement."""
_LEAST_COUNTED = 20.0
"""Assumed: least number of requests in a measurement; a measurement is longer if there are
fewer."""
QUANTILE = 1.645
"""Distance from the mean, in standard deviations of a normal distribution, beyond which one value
in twenty is on each side."""


class CacheAge(NamedTuple):
    """The age of a page cache, as a number of requests."""

    requests: float | None = None
    """Requests since the cache was empty or full of random files; None for the long run."""
    began_full: bool = False
    once: bool = False
    """True if no file is requested again before all others have been."""


LONG_SINCE = CacheAge()


@dataclass(frozen=True)
class BlockingInputs:
    """All inputs of the model as plain numbers, each of which a break-even search may vary."""

    workers: int
    page_cache_bytes: float
    dataset_bytes: float
    object_bytes: float
    classes: tuple[PopularityClass, ...]
    """Popularity of the objects."""
    disk: ModelDisk
    read_bytes: float
    """Bytes of one read by nginx: a sendfile chunk, or a buffer if sendfile cannot be used."""
    window_bytes: float = 0.0
    """Bytes of one read from the disk, if longer than ``read_bytes`` because of read-ahead."""
    turn_bytes: float = 0.0
    """Bytes after which the disk may read another loop's file, even within one read by nginx; 0
    for the size of one read."""
    goes_on_bytes: float = 0.0
    """Bytes that a loop without pools reads in a row, if more than one read; else 0."""
    sendfile_bytes: float = 0.0
    """Maximum number of bytes of one ``sendfile()`` to a fast client; 0 without sendfile, or if
    ``read_bytes`` is the limit."""
    rate_per_second: float | None = None
    others_per_second: float = 0.0
    """Requests that read no file, in addition to ``rate_per_second``."""
    concurrency: float | None = None
    """Concurrent transfers of all workers at the peak."""
    since_seconds: float | None = None
    """Time since all clients arrived at once; None for the long run."""
    cold_concurrency: float | None = None
    """Concurrent transfers that miss the page cache, if known."""
    cold_by_popularity: bool = False
    """True if the clients of ``cold_concurrency`` request files by popularity, so that some of
    their requests are hits; at times, all of them miss."""
    think_seconds: float = 0.0
    """Pause of a client that waits for its answer before its next request."""
    link_bytes_per_second: float | None = None
    client_bytes_per_second: float | None = None
    """Greatest speed of a client."""
    clients_keep_pace: bool = False
    """True if clients receive even large answers as fast as nginx sends them."""
    encrypts: bool = False
    """True if the worker encrypts bodies itself."""
    sizes: tuple[SizeGroup, ...] = ()
    """Sizes of the objects relative to their mean; empty if all have one size."""
    page_waste_bytes: float = HALF_PAGE_BYTES
    """Unused bytes of a file's last page, on average."""
    names_take_memory: bool = True
    """True if inodes and directory entries count against the page cache's limit."""
    directories: float | None = None
    """Number of directories that hold the files; None if not counted."""
    asked: CacheAge = LONG_SINCE
    limit_seconds: float | None = None
    """Limit that an objective sets on the time of an answer."""
    limit_share: float | None = None
    """Share of the answers that may exceed the limit; None if the limit is on their mean."""
    only_quantity: bool = False
    """True if the objectives are only about bytes or requests a second, not about times."""

    @cached_property
    def objects(self) -> float:
        """The number of files."""
        return sum(c.objects for c in self.classes)

    @property
    def way_bytes_per_second(self) -> float | None:
        """Capacity of the way to the clients: the link's speed or that of all clients together.

        The lower of both; None if neither is known.
        """
        ways = [] if self.link_bytes_per_second is None else [self.link_bytes_per_second]
        if self.client_bytes_per_second is not None and self.concurrency:
            ways.append(self.client_bytes_per_second * self.concurrency)
        return min(ways, default=None)

    @property
    def _window(self) -> float:
        return max(self.read_bytes, self.window_bytes)

    @property
    def _stretch(self) -> float:
        """Bytes that the loop reads without a pause; for a fast client, more than one window."""
        way = self.way_bytes_per_second
        if way is not None and way < self.disk.bytes_per_second:
            return self._window
        return max(self._window, self.goes_on_bytes)

    @property
    def longest_hold_bytes(self) -> float:
        """Bytes of one file that the loop reads before it turns to other transfers."""
        on_end = self.sendfile_bytes if self.clients_keep_pace else 0.0
        return max(self._stretch, on_end)

    @property
    def hold_bytes(self) -> float:
        """Mean bytes for which one cold read blocks a loop without pools."""
        return self.object_bytes / self.holds_per_miss

    @cached_property
    def holds_per_miss(self) -> float:
        """Number of times that one cold object blocks the loop."""
        return mean_pieces(self.object_bytes, self.sizes, self._stretch)

    @property
    def disk_read_bytes(self) -> float:
        """Bytes of one read from the disk, on average."""
        return self.object_bytes / self.disk_reads_per_miss

    @cached_property
    def disk_reads_per_miss(self) -> float:
        """Reads from the disk for one cold object, offloaded or on the loop."""
        return mean_pieces(self.object_bytes, self.sizes, self._window)

    @cached_property
    def turns_per_miss(self) -> float:
        """Number of pieces of one cold object; after each, the disk may read for another loop."""
        turn = min(self.turn_bytes or self._window, self._window)
        return mean_pieces(self.object_bytes, self.sizes, turn)

    @cached_property
    def tasks_per_request(self) -> float:
        """Reads by nginx for one request; each is one task of a thread pool."""
        return mean_pieces(self.object_bytes, self.sizes, self.read_bytes)

    @property
    def footprint_bytes(self) -> float:
        """Memory of one resident object."""
        names = NAME_BYTES if self.names_take_memory else 0.0
        return self.dataset_bytes / self.objects + self.page_waste_bytes + names

    @cached_property
    def miss_ratio(self) -> float:
        """Share of requests whose object is not in the page cache."""
        return max(0.0, 1.0 - _hits(self, usable_objects(self)))


def resident_objects(i: BlockingInputs) -> float:
    """Objects in the page cache now: as many as fit, or were requested so far."""
    most = min(i.objects, usable_objects(i))
    if i.asked.requests is None or i.asked.began_full:
        return most
    return min(most, objects_asked(i.classes, i.asked.requests))


def usable_objects(i: BlockingInputs) -> float:
    """Objects of mean size for which the page cache has space."""
    return FITS_RATIO * i.page_cache_bytes / i.footprint_bytes


def room_range(i: BlockingInputs) -> tuple[BlockingInputs, BlockingInputs]:
    """The inputs with the smallest and the largest page cache that files may get.

    The smallest is a tenth below the expected size, the largest is the whole limit.
    """
    all_of_it = i.footprint_bytes * i.objects / i.dataset_bytes / FITS_RATIO
    return (
        replace(i, page_cache_bytes=_LESS_ROOM * i.page_cache_bytes),
        replace(i, page_cache_bytes=max(1.0, all_of_it) * i.page_cache_bytes),
    )


def hit_range(i: BlockingInputs) -> tuple[float, float]:
    """The minimum and the maximum plausible share of hits.

    The minimum is that of an LRU list in the smallest page cache, the maximum that of Linux's two
    lists in the largest page cache. The sampling error of a measurement widens the range on both
    sides.
    """
    less, more = room_range(i)
    room = usable_objects(less)
    low = _hits(i, room)
    if i.asked == LONG_SINCE:
        low = hit_ratio(i.classes, room)
    high = _hits(i, usable_objects(more))
    counted = min(COUNTED, counted_requests(i))
    return (max(0.0, low - _chance(low, counted)), min(1.0, high + _chance(high, counted)))


def counted_requests(i: BlockingInputs) -> float:
    """Requests for files in a measurement of some seconds.

    Source: drawn-7717-009, with one request for a file of 11 MB in two seconds: eight requests
            in all runs without pools, of which memory answered 0.60, predicted 0.48.
    """
    if i.rate_per_second is None:
        return COUNTED
    return max(_LEAST_COUNTED, i.rate_per_second * _COUNTED_SECONDS)


def _hits(i: BlockingInputs, objects: float) -> float:
    if i.asked.once:  # every file is new to a cache that began empty
        empty = i.asked.requests is not None and not i.asked.began_full
        return float(objects >= i.objects and not empty)
    if i.asked.requests is None:
        return page_cache_hit_ratio(i.classes, objects)
    return hit_ratio_after(i.classes, objects, i.asked.requests, began_full=i.asked.began_full)


def _chance(share: float, counted: float) -> float:
    """Sampling error of a share over ``counted`` requests, exceeded in one case of twenty.

    One request is added, since more requests do not change which files are popular.
    """
    return QUANTILE * math.sqrt(max(0.0, share * (1 - share)) / counted) + 1 / counted


_BISECTIONS = 60
_ALL = 0.999
"""Share beyond which all objects count as requested, since the last ones take very long."""


def since_empty(i: BlockingInputs) -> BlockingInputs:
    """The inputs with the number of requests since the page cache was empty.

    Each object is read from the disk once, so the time gives the number of different objects, and
    that gives the expected number of requests. The inputs stay the same if clients do not wait, if
    the time since they arrived is not known, or if all objects have been requested.
    """
    if i.since_seconds is None or i.rate_per_second is not None or i.asked.requests is not None:
        return i
    read = i.since_seconds * _objects_per_second(i)
    if read >= _ALL * i.objects:
        return i
    return replace(i, asked=CacheAge(_requests_for(i, read), once=i.asked.once))


def _objects_per_second(i: BlockingInputs) -> float:
    """Objects a second that loops without pools can read, or clients receive if that is less."""
    each = i.holds_per_miss * i.disk.read_seconds(i.hold_bytes)
    read = min(float(i.workers), i.disk.heads_for(i.hold_bytes)) / each
    way = i.way_bytes_per_second
    return read if way is None else min(read, way / i.object_bytes)


def _requests_for(i: BlockingInputs, objects: float) -> float:
    """The expected number of requests until ``objects`` different objects were requested."""
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
    """Bounds on the time in cold reads, as factors on its mean.

    One case in twenty is below the lower bound, and one is above the upper.

    Misses are independent, so the sum of their times is a compound Poisson variable, of which few
    reads of a slow disk may be most. Size and popularity of a file are independent, so the mean
    time of a miss varies as in a sample of as many files as misses are spread over. Both variances
    add up, and the sum is approximately a gamma variable with that mean and variance.

    Source: Feller, An Introduction to Probability Theory 2 (1971), VI.4 (compound Poisson);
            Wilson and Hilferty, The Distribution of Chi-Square, PNAS 17 (1931); held against
            drawn files and misses in tests/model/test_model_chance.py.
    """
    miss = i.miss_ratio
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
    """Bounds on the wait behind answers that are sent in one turn, as factors on its mean.

    One case in twenty is beyond each bound, as in ``time_factors``.

    The chance that an event meets a turn is in proportion to the turn's length, and on average it
    waits for half of the turn. So the wait grows with the square of a file's size: the few largest
    files, by chance popular or not, cause nearly all of it.
    Source: drawn-5309-036 (benchmarks/regret), where one file in eight has 47 MB and the others are
            small: small answers took 0.32 to 0.89 ms in four runs; the model, which
            averages over all orders of popularity, predicts 1.0 ms.
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
    """Squared coefficient of variation of the time to read one file."""
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
    """Quantile of a gamma variable with mean 1 (Wilson and Hilferty); 0 for a large variance."""
    ninth = variance / 9
    return max(0.0, 1 - ninth + deviations * math.sqrt(ninth)) ** 3
