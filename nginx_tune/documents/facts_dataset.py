"""The part of ``facts`` about trees of files."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Part


class SizeBucket(Part, frozen=True, kw_only=True):
    """Files whose size is in ``(le_bytes/2, le_bytes]``."""

    le_bytes: int
    files: int
    bytes: int


class Sizes(Part, frozen=True, kw_only=True):
    """Distribution of file sizes; quantiles are over files, from power-of-two buckets."""

    mean_bytes: float
    p50_bytes: int
    p90_bytes: int
    p99_bytes: int
    max_bytes: int
    buckets: list[SizeBucket] = []


class Residency(Part, frozen=True, kw_only=True):
    """The share of a dataset's bytes that the page cache holds now."""

    ratio: float | None = None
    method: Literal["cachestat", "mincore", "none"] = "none"
    trusted: bool = False
    reason: str = ""
    """Why it is not trusted or not known."""
    coverage_ratio: float | None = None
    """Share of the bytes that was asked about."""
    error_ratio: float | None = None
    """The ratio is this close to the truth, 19 times in 20; 0 when every file was asked."""


class Dataset(Part, frozen=True, kw_only=True):
    """A tree of files that nginx serves."""

    path: str
    files: int | None = None
    bytes: int | None = None
    allocated_bytes: int | None = None
    """What the file system keeps of them: less than ``bytes`` where files are sparse or
    compressed; a hole is read without the disk, and takes page cache all the same."""
    complete: bool = True
    """False when the scan's time budget ran out: files and bytes are then lower bounds."""
    reason: str = ""
    """Why it is not complete, or what was left out."""
    directories: int = 0
    """Directories that were read, the first one too; 0 where nobody counted them."""
    sizes: Sizes | None = None
    sample_ratio: float = 1.0
    """Share of the files whose size was asked; below 1 ``bytes`` and ``sizes`` are estimates."""
    bytes_error_ratio: float | None = 0.0
    """``bytes`` is this close to the truth, relative to itself, 19 times in 20."""
    symlinks: int = 0
    """Symbolic links met and not followed."""
    hard_links: int = 0
    """Further names of files that were counted already."""
    special_files: int = 0
    """Sockets, pipes and devices."""
    other_filesystems: int = 0
    """Directories on which another file system is mounted; left out."""
    seen_by_nginx: bool = False
    """True when it was walked through the mounts of an nginx in another mount namespace."""
    residency: Residency = Residency()
