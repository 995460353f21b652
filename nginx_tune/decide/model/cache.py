"""Hit ratios of the page cache: Che's approximation of an LRU cache, and Linux's two lists.

Objects are grouped into classes of equal popularity, because a dataset has millions of objects and
the tail of a Zipf law is flat: exact ranks at the head, geometric groups after it. All classes
share one unknown, the characteristic time: the time for which an object stays in the cache without
a request.

With all files in one page cache, one request for a large file evicts many small files. With
``directio`` small files have the memory to themselves. Each request for a large file, even a
popular one, then reads the disk, by the buffer instead of the read-ahead window.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nginx_tune.decide.model.disk import ModelDisk

FITS_RATIO = 0.9
"""Share of the page cache up to which data counts as fitting. The rest holds metadata, logs and
buffers, and the kernel reclaims pages before the limit."""
PAGE_BYTES = 4096
HALF_PAGE_BYTES = PAGE_BYTES / 2
"""Mean unused bytes of a file's last page, for many sizes."""
NAME_BYTES = 1128.0 + 192.0
"""Inode and directory entry of a file. Source: slabinfo of Linux 6.18, ext4_inode_cache and
dentry; other file systems' inodes are about as large."""
_EXACT_RANKS = 32
_GROUP_GROWTH = 1.25
_STEPS = 100
"""Maximum number of steps of Newton's method, which converges slowly if the cache holds nearly all
objects."""
_PRECISE = 1e-12
_TWO_LISTS = 0.25
"""Position of Linux's page cache between an LRU list (0) and the most popular objects (1)."""


class PopularityClass(NamedTuple):
    """Objects that are requested equally often."""

    objects: float
    probability_each: float
    """Chance that one request is for one given object of the class."""


@lru_cache(maxsize=256)
def zipf_classes(objects: float, exponent: float) -> tuple[PopularityClass, ...]:
    """Classes of ``objects`` objects with popularity rank^-exponent; exponent 0 is uniform.

    Source: Breslau et al., Web Caching and Zipf-like Distributions, INFOCOM 1999.
    """
    if exponent <= 0:
        return (PopularityClass(objects, 1 / objects),)
    weighted: list[tuple[float, float]] = []
    rank = 1.0
    while rank <= objects:
        step = 1.0 if rank < _EXACT_RANKS else math.floor(rank * (_GROUP_GROWTH - 1))
        count = min(step, objects - rank + 1)
        weighted.append((count, _mean_weight(rank - 0.5, rank - 0.5 + count, exponent)))
        rank += step
    total = sum(count * weight for count, weight in weighted)
    return tuple(PopularityClass(count, weight / total) for count, weight in weighted)


def _mean_weight(start: float, end: float, exponent: float) -> float:
    """Mean of x^-exponent over [start, end]."""
    if abs(exponent - 1) < 1e-9:  # noqa: PLR2004  # the power rule does not hold at 1
        return math.log(end / start) / (end - start)
    power = 1 - exponent
    return float((end**power - start**power) / (power * (end - start)))


def curve_classes(
    curve: Sequence[tuple[float, float]], object_bytes: float, dataset_bytes: float
) -> tuple[PopularityClass, ...]:
    """Classes from a measured curve of (share of requests, bytes of the most popular objects).

    Objects beyond the end of the curve count as equally popular.
    """
    points = sorted((bytes_, share) for share, bytes_ in curve)
    if not points or points[-1][0] < dataset_bytes:
        points.append((dataset_bytes, 1.0))
    classes = []
    bytes_before = share_before = 0.0
    for bytes_, share in points:
        objects = (bytes_ - bytes_before) / object_bytes
        if objects > 0 and share >= share_before:
            classes.append(PopularityClass(objects, (share - share_before) / objects))
            bytes_before, share_before = bytes_, share
    total = sum(c.objects * c.probability_each for c in classes)
    if total <= 0:
        return zipf_classes(max(1.0, dataset_bytes / object_bytes), 0.0)
    return tuple(PopularityClass(c.objects, c.probability_each / total) for c in classes)


@lru_cache(maxsize=4096)
def hit_ratio(classes: tuple[PopularityClass, ...], capacity_objects: float) -> float:
    """Share of requests that an LRU cache of ``capacity_objects`` answers, 0 to 1.

    Source: Che, Tung, Wang, Hierarchical Web Caching Systems, JSAC 20(7), 2002: an object is
    resident if it was requested within the characteristic time T, and T is such that the expected
    number of resident objects equals the capacity.
    """
    objects = sum(c.objects for c in classes)
    if capacity_objects >= objects:
        return 1.0
    if capacity_objects <= 0:
        return 0.0
    if len(classes) == 1:  # all objects are equally popular
        return capacity_objects / objects
    time = _characteristic_time(classes, capacity_objects)
    return sum(c.objects * c.probability_each * _asked_within(c, time) for c in classes)


def page_cache_hit_ratio(classes: tuple[PopularityClass, ...], capacity_objects: float) -> float:
    """Share of requests that Linux's page cache of that size answers, in the long run.

    Linux keeps objects that were requested twice in a list of their own. So the hit ratio exceeds
    that of an LRU list by a quarter of the distance to that of a cache of the most popular objects,
    for exponents from 0 to 1.3 and all sizes.
    Source: tests/model/test_model_page_cache.py, a simulation of Linux's two lists.
    """
    lru = hit_ratio(classes, capacity_objects)
    if len(classes) == 1 or lru >= 1.0:
        return lru
    return lru + _TWO_LISTS * max(0.0, _best_hit_ratio(classes, capacity_objects) - lru)


def hit_ratio_after(
    classes: tuple[PopularityClass, ...],
    capacity_objects: float,
    requests: float,
    *,
    began_full: bool,
) -> float:
    """Share of hits after ``requests`` requests to a cache that began empty or full.

    A full cache begins with random objects. Until as many objects have been requested as the cache
    holds, none of them is evicted. Any other object is resident if it was resident at the start and
    has not been evicted since.
    Source: as ``hit_ratio``, before the characteristic time.
    """
    objects = sum(c.objects for c in classes)
    if capacity_objects >= objects and began_full:
        return 1.0
    known = objects_asked(classes, requests)
    if known >= capacity_objects:
        return page_cache_hit_ratio(classes, capacity_objects)
    left = min(1.0, (capacity_objects - known) / max(objects - known, 1e-9)) if began_full else 0.0
    return sum(
        c.objects * c.probability_each * (1 - math.exp(-c.probability_each * requests) * (1 - left))
        for c in classes
    )


def missed_shares(
    groups: Sequence[tuple[PopularityClass, ...]],
    capacity_objects: float,
    requests: float | None,
    *,
    began_full: bool,
) -> list[float]:
    """Misses of each group of classes in a shared LRU cache, as shares of all requests.

    ``requests`` and ``began_full`` are as for ``hit_ratio_after``; None for the long run.
    Shape: one value for each group; their sum is the share of misses.
    """
    classes = tuple(class_ for group in groups for class_ in group)
    objects = sum(c.objects for c in classes)
    if capacity_objects >= objects and (requests is None or began_full):
        return [0.0] * len(groups)
    time, left = requests or 0.0, 0.0
    known = math.inf if requests is None else objects_asked(classes, requests)
    if known >= capacity_objects:
        time = _characteristic_time(classes, capacity_objects) if capacity_objects > 0 else 0.0
    elif began_full:
        left = min(1.0, (capacity_objects - known) / max(objects - known, 1e-9))
    return [
        sum(c.objects * c.probability_each * math.exp(-c.probability_each * time) for c in group)
        * (1 - left)
        for group in groups
    ]


def believed_ratio(classes: tuple[PopularityClass, ...], requests: float) -> float:
    """Share of requests for an object that was checked within the last ``requests`` requests.

    The first request for an object after that time checks it again; later requests rely on that.
    """
    return sum(
        c.objects * c.probability_each * (asked / (1 + asked))
        for c in classes
        for asked in [c.probability_each * requests]
    )


def objects_asked(classes: tuple[PopularityClass, ...], requests: float) -> float:
    """The expected number of different objects in ``requests`` requests."""
    return sum(c.objects * _asked_within(c, requests) for c in classes)


def _best_hit_ratio(classes: tuple[PopularityClass, ...], capacity_objects: float) -> float:
    """The hit ratio of a cache of the most popular objects."""
    hits, room = 0.0, max(0.0, capacity_objects)
    for objects, probability in _by_popularity(classes):
        if objects >= room:
            return min(1.0, hits + room * probability)
        hits += objects * probability
        room -= objects
    return min(1.0, hits)


@lru_cache(maxsize=64)
def _by_popularity(classes: tuple[PopularityClass, ...]) -> list[PopularityClass]:
    return sorted(classes, key=lambda c: -c.probability_each)


def cold_overlap(classes: tuple[PopularityClass, ...], capacity_objects: float) -> float:
    """Probability that two requests are for one object and that an LRU cache of that size lacks it.

    Source: as ``hit_ratio``; a request misses if its object was not requested within T.
    """
    objects = sum(c.objects for c in classes)
    if capacity_objects >= objects:
        return 0.0
    time = _characteristic_time(classes, capacity_objects) if capacity_objects > 0 else 0.0
    return sum(
        c.objects * c.probability_each**2 * math.exp(-c.probability_each * time) for c in classes
    )


def miss_overlap(classes: tuple[PopularityClass, ...], capacity_objects: float) -> float:
    """Probability that two misses of an LRU cache of that size are for the same object.

    Its inverse is the number of objects over which misses are spread. Source: as ``cold_overlap``.
    """
    objects = sum(c.objects for c in classes)
    if capacity_objects >= objects:
        return 1 / objects
    time = _characteristic_time(classes, capacity_objects) if capacity_objects > 0 else 0.0
    missed = [(n, each * math.exp(-each * time)) for n, each in classes]
    total = sum(number * each for number, each in missed)
    if total <= 0:
        return 1 / objects
    return sum(number * (each / total) ** 2 for number, each in missed)


@lru_cache(maxsize=1024)
def _characteristic_time(classes: tuple[PopularityClass, ...], capacity_objects: float) -> float:
    """The time, in requests, within which as many objects are requested as the cache holds.

    The number of different objects is a concave function of this time and never exceeds it, so
    Newton's method, started at the capacity, approaches the root from below.
    """
    time = capacity_objects
    for _ in range(_STEPS):
        missing, slope = capacity_objects, 0.0
        for objects, probability in classes:
            asked = -math.expm1(-probability * time)
            missing -= objects * asked
            slope += objects * probability * (1 - asked)
        if missing <= _PRECISE * capacity_objects or slope <= 0:
            break
        step = missing / slope
        time += step
        if step <= _PRECISE * time:
            break
    return time


def _asked_within(c: PopularityClass, time: float) -> float:
    return -math.expm1(-c.probability_each * time)


class FileGroup(NamedTuple):
    """Files of about one size."""

    files: float
    bytes: float
    """Bytes of all files together."""

    @property
    def mean_bytes(self) -> float:
        """Mean size of a file."""
        return self.bytes / self.files


class DirectInputs(NamedTuple):
    """Files below and above the threshold, their common popularity, and their disk."""

    small: FileGroup
    large: FileGroup
    classes: tuple[PopularityClass, ...]
    """Popularity of the files, which does not depend on their size."""
    page_cache_bytes: float
    disk: ModelDisk
    turn_bytes: float
    """Bytes that the disk reads in one piece because of read-ahead."""
    buffer_bytes: float
    """Bytes of one direct read."""


class DirectForecast(NamedTuple):
    """Hits and disk time, with and without direct reads of large files."""

    hit_ratio: float
    """Hit ratio of all files, if they share one page cache."""
    small_hit_ratio: float
    """Hit ratio of small files that have the page cache to themselves."""
    disk_seconds: float
    """Mean time of the disk for one request, with all files in one page cache."""
    direct_disk_seconds: float

    @property
    def disk_ratio(self) -> float:
        """Ratio of the disk's time with direct reads to its time without."""
        return self.direct_disk_seconds / self.disk_seconds if self.disk_seconds > 0 else math.inf


def forecast_direct(i: DirectInputs) -> DirectForecast:
    """Hit ratios and disk time, with and without direct reads of large files.

    Reads of several requests overlap, so the disk positions again after each window or buffer.
    Popularity does not depend on the size. So all files that share a cache have the same hit ratio,
    and objects of mean size represent them in Che's approximation.
    """
    files = i.small.files + i.large.files
    share = i.large.files / files
    together = _hits(i, [i.small, i.large])
    apart = _hits(i, [i.small])
    small = _read_seconds(i.disk, i.small.mean_bytes, i.turn_bytes)
    large = _read_seconds(i.disk, i.large.mean_bytes, i.turn_bytes)
    direct = _read_seconds(i.disk, i.large.mean_bytes, i.buffer_bytes)
    return DirectForecast(
        hit_ratio=together,
        small_hit_ratio=apart,
        disk_seconds=(1 - together) * ((1 - share) * small + share * large),
        direct_disk_seconds=(1 - share) * (1 - apart) * small + share * direct,
    )


def _hits(i: DirectInputs, groups: Sequence[FileGroup]) -> float:
    """Hit ratio of the files that share the cache."""
    files = sum(group.files for group in groups)
    footprint = sum(group.bytes for group in groups) + files * (HALF_PAGE_BYTES + NAME_BYTES)
    resident = FITS_RATIO * i.page_cache_bytes / footprint
    objects = sum(c.objects for c in i.classes)
    return hit_ratio(i.classes, resident * objects)


def _read_seconds(disk: ModelDisk, file_bytes: float, piece_bytes: float) -> float:
    pieces = max(1.0, math.ceil(file_bytes / piece_bytes))
    return pieces * disk.read_seconds(file_bytes / pieces)
