"""The part of ``facts`` about trees of files."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Part
from nginx_tune.documents.bounds import Bytes, Count, MeanBytes, Number, Ratio


class SizeBucket(Part, frozen=True, kw_only=True):
    """Files whose size is in ``(le_bytes/2, le_bytes]``."""

    le_bytes: Bytes
    files: Count
    bytes: Bytes


class Sizes(Part, frozen=True, kw_only=True):
    """Distribution of file sizes; quantiles are over files.

    They are right to the byte, or to 0.2 % where there are more than 65,536 different sizes.
    """

    mean_bytes: MeanBytes
    p50_bytes: Bytes
    p90_bytes: Bytes
    p99_bytes: Bytes
    max_bytes: Bytes
    buckets: list[SizeBucket] = []


class Residency(Part, frozen=True, kw_only=True):
    """The share of a dataset's bytes that the page cache holds now."""

    ratio: Ratio | None = None
    method: Literal["cachestat", "mincore", "none"] = "none"
    trusted: bool = False
    reason: str = ""
    """Why it is not trusted or not known."""
    coverage_ratio: Number | None = None
    """Share of the bytes that was asked about."""
    error_ratio: Number | None = None
    """The ratio is this close to the truth, 19 times in 20; 0 when every file was asked."""


class Dataset(Part, frozen=True, kw_only=True):
    """A tree of files that nginx serves."""

    path: str
    files: Count | None = None
    bytes: Bytes | None = None
    allocated_bytes: Bytes | None = None
    """What the file system keeps of them: less than ``bytes`` where files are sparse or
    compressed; a hole is read without the disk, and takes page cache all the same."""
    complete: bool = True
    """False when the scan's time budget ran out: files and bytes are then lower bounds."""
    reason: str = ""
    """Why it is not complete, or what was left out."""
    directories: Count = 0
    """Directories that were read, the first one too; 0 where nobody counted them."""
    sizes: Sizes | None = None
    sample_ratio: Ratio = 1.0
    """Share of the files whose size was asked; below 1 ``bytes`` and ``sizes`` are estimates."""
    bytes_error_ratio: Number | None = 0.0
    """``bytes`` is this close to the truth, relative to itself, 19 times in 20."""
    symlinks: Count = 0
    """Symbolic links met and not followed."""
    hard_links: Count = 0
    """Further names of files that were counted already."""
    special_files: Count = 0
    """Sockets, pipes and devices."""
    other_filesystems: Count = 0
    """Directories on which another file system is mounted; left out."""
    seen_by_nginx: bool = False
    """True when it was walked through the mounts of an nginx in another mount namespace."""
    residency: Residency = Residency()
