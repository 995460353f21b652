"""Files of several sizes: in how many pieces one of them is read, on average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.facts import SizeBucket


class SizeGroup(NamedTuple):
    """Files of about one size."""

    share: float
    """Of all files."""
    over_mean: float
    """Their size over the mean of all files."""


class Pieces(NamedTuple):
    """Of how many bytes the pieces are in which files are read."""

    mean_bytes: float
    spread: float
    """Coefficient of variation of the time that one takes."""


def size_groups(buckets: Sequence[SizeBucket]) -> tuple[SizeGroup, ...]:
    """The sizes of a scan, relative to their mean; empty where all are of one size."""
    found = [b for b in buckets if b.files > 0 and b.bytes > 0]
    files, total = sum(b.files for b in found), sum(b.bytes for b in found)
    if len(found) <= 1:
        return ()
    mean = total / files
    return tuple(SizeGroup(b.files / files, b.bytes / b.files / mean) for b in found)


def mean_pieces(object_bytes: float, groups: Sequence[SizeGroup], piece_bytes: float) -> float:
    """Pieces in which a file is read, on average over the files; none has less than one.

    Small files take a piece each, however small, so that files of several sizes take more pieces
    than as many of their mean size. Sizes vary about a group's mean, so there are no steps.
    """
    if not groups:
        return max(1.0, object_bytes / piece_bytes)
    return sum(g.share * max(1.0, g.over_mean * object_bytes / piece_bytes) for g in groups)


def piece_sizes(
    object_bytes: float,
    groups: Sequence[SizeGroup],
    piece_bytes: float,
    *,
    latency_bytes: float,
) -> Pieces:
    """The pieces in which files are read, as those that come by find them.

    ``latency_bytes`` is what the disk would have read in the time that it takes to the first byte.
    Few large files among small ones are few pieces, and most of the time.
    """
    counted = squares = total = 0.0
    for group in groups or (SizeGroup(1.0, 1.0),):
        size = group.over_mean * object_bytes
        pieces = max(1.0, size / piece_bytes)
        each = latency_bytes + size / pieces
        counted += group.share * pieces
        total += group.share * pieces * each
        squares += group.share * pieces * each**2
    mean = total / counted
    varies = max(0.0, squares / counted / mean**2 - 1.0)
    return Pieces(mean - latency_bytes, math.sqrt(varies))
