"""What reading large files past the page cache does to the disk, small and large files together.

With all files in one page cache, a large one that is asked for once pushes out many small ones.
Past it (``directio``) small files have the memory to themselves, and each request for a large one
is read from the disk, however popular, a buffer at a time instead of a window of the read-ahead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.decide.model.cache import PopularityClass, hit_ratio
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.inputs import FITS_RATIO, HALF_PAGE_BYTES, NAME_BYTES


class FileGroup(NamedTuple):
    """Files of about one size."""

    files: float
    bytes: float
    """Of all of them."""

    @property
    def mean_bytes(self) -> float:
        """Of one."""
        return self.bytes / self.files


class DirectInputs(NamedTuple):
    """Files below and above the threshold, asked for alike, and what they are read from."""

    small: FileGroup
    large: FileGroup
    classes: tuple[PopularityClass, ...]
    """Popularity of the files, whatever their size."""
    page_cache_bytes: float
    disk: ModelDisk
    turn_bytes: float
    """What the disk is asked for together by the read-ahead."""
    buffer_bytes: float
    """One direct read."""


class DirectForecast(NamedTuple):
    """Both ways to read."""

    hit_ratio: float
    """Of any file, all in one page cache."""
    small_hit_ratio: float
    """Of small files when they have it to themselves."""
    disk_seconds: float
    """Time that the disk works for one request, on average, all in one page cache."""
    direct_disk_seconds: float

    @property
    def disk_ratio(self) -> float:
        """The disk's work with direct reads over without."""
        return self.direct_disk_seconds / self.disk_seconds if self.disk_seconds > 0 else math.inf


def forecast_direct(i: DirectInputs) -> DirectForecast:
    """Hits and work of the disk, both ways.

    Reads of several requests overlap, so a read positions the disk anew after each window, or
    buffer. Popularity does not depend on the size, so one hit ratio goes for all that share a
    cache, and files of one mean size can stand for them.
    Source: Che's approximation (``model_cache``) for objects of mean size: the characteristic time
            is where the expected bytes that are there equal the capacity.
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
