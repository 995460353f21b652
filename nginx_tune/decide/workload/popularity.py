"""Popularity from counted objects: the measured curve, and the Zipf law that fits it best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, repeat
from typing import NamedTuple

from nginx_tune.documents.learning import LineSample, ObjectSample
from nginx_tune.documents.workload import CurveShare

CURVE_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995,
                0.999, 1.0)  # fmt: skip
_HEAD_LINES = 16
"""Least sampled lines of an object that is counted by them. Of 8, 16, 32 and 64 it had the smallest
errors of the working sets (simulated, 6.4 million objects, exponents 0.7 to 1.1)."""
_FEWEST_REQUESTS = 30
"""Least requests of an object in the fit: the order of rarer ones is chance."""
_ORDER_BIAS = 0.005
"""Error of the exponent from sorting by counts, not by true popularity: seen in simulations of
laws from 0.5 to 1.1."""
_FEWEST_OBJECTS = 10
_EXACT_RANKS = 1024
_GROUP_GROWTH = 1.01
_STEEPEST = 5.0
_BISECTIONS = 50


class Counted(NamedTuple):
    """Objects with the same number of requests."""

    requests: float
    """Requests for each."""
    size_bytes: int
    objects: float
    """Number of objects; not 1 for a sampled object that represents others."""


def counted_objects(
    objects: ObjectSample, lines: LineSample | None, data_requests: int
) -> list[Counted]:
    """All objects, the most popular first; ``lines`` are needed where the objects are a sample.

    Then an object with enough lines in the sample of lines stands for itself, by its own count
    where it is in the sample of objects too. The rest of the objects' sample stands for the rest of
    the objects, weighted so that the requests add up.
    """
    if not objects.level:
        alone = zip(objects.requests, objects.sizes, repeat(1.0))
        return sorted(map(Counted._make, alone), reverse=True)
    assert lines is not None  # noqa: S101  # as above
    kept = zip(objects.requests, objects.sizes, strict=True)
    tail = dict(zip(accumulate(objects.gaps), kept, strict=True))
    found = []
    seen = Counter(lines.objects)
    heads = {key: 0 for key, count in seen.items() if count >= _HEAD_LINES}
    sizes = dict.fromkeys(heads, 0)
    for key, times, size in zip(lines.objects, lines.times, lines.sizes, strict=True):
        if key in heads:
            heads[key] += times
            sizes[key] = max(sizes[key], size)
    for key, times in heads.items():
        count, size = tail.pop(key, (times << lines.level, sizes[key]))
        found.append(Counted(count, size, 1.0))
    in_tail = sum(count for count, _ in tail.values())
    left = max(data_requests - sum(item.requests for item in found), in_tail)
    weight = left / in_tail if in_tail else 1.0
    found += [Counted(count, size, weight) for count, size in tail.values()]
    return sorted(found, reverse=True)


def curve_of(counted: Sequence[Counted]) -> list[CurveShare]:
    """Bytes of the most popular objects that receive each of ``CURVE_SHARES``.

    Among objects with the same number of requests, a part of the objects counts for the same part
    of their bytes. Ordered by size instead, the last hundredth of requests would look up to a third
    smaller in a log with half of its objects requested once.
    """
    total = sum(item.requests * item.objects for item in counted)
    shares = list(CURVE_SHARES[:-1])
    curve = []
    requests = size = 0.0
    for each, alike in groupby(counted, key=lambda item: item.requests):
        objects = alike_bytes = 0.0
        for item in alike:
            objects += item.objects
            alike_bytes += item.objects * item.size_bytes
        more = each * objects
        while shares and requests + more >= shares[0] * total:
            part = math.ceil(objects * (shares[0] * total - requests) / more)
            within = min(max(part, 0), objects) / objects * alike_bytes
            curve.append(CurveShare(requests_ratio=shares.pop(0), bytes=round(size + within)))
        requests += more
        size += alike_bytes
    return [*curve, CurveShare(requests_ratio=1.0, bytes=round(size))]


def curve_error(counted: Sequence[Counted]) -> float:
    """Upper bound of the standard error of a share of requests on the curve.

    Source: Horvitz, Thompson, JASA 47, 1952, for objects drawn with probability 1 / weight.
    """
    total = sum(item.requests * item.objects for item in counted)
    variance = sum(i.requests**2 * i.objects * (i.objects - 1) for i in counted)
    return math.sqrt(max(variance, 0.0)) / total if total else 0.0


@dataclass(frozen=True)
class ZipfFit:
    """Popularity that falls as rank^-exponent."""

    exponent: float
    error: float
    """Standard error, including the bias of sorting."""
    objects: int
    """Number of fitted ranks."""
    distance: float
    """Largest difference of the shares of requests up to a rank, measured and fitted."""


def fewest_requests(objects: ObjectSample, lines: LineSample | None) -> int:
    """Fewest requests of an object in the fit, such that all these objects are known by name."""
    if not objects.level or lines is None:
        return _FEWEST_REQUESTS
    return max(_FEWEST_REQUESTS, 2 * _HEAD_LINES << lines.level)


def fit_zipf(counted: Sequence[Counted], fewest: int = _FEWEST_REQUESTS) -> ZipfFit | None:
    """The most likely Zipf exponent of the ranks with enough requests; None with too few.

    Source: Clauset, Shalizi, Newman, Power-Law Distributions in Empirical Data, SIAM Review 51,
            2009: maximum likelihood and the Kolmogorov-Smirnov distance; regression on a log-log
            plot is biased.
    """
    head = [item for item in counted if item.requests >= fewest]
    ranks = sum(item.objects for item in head)
    if ranks < _FEWEST_OBJECTS:
        return None
    total = sum(item.requests * item.objects for item in head)
    mean = _mean_log_rank(head) / total
    groups = _rank_groups(ranks)
    low, high = 0.0, _STEEPEST
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _moments(groups, middle)[0] > mean:
            low = middle
        else:
            high = middle
    exponent = (low + high) / 2
    variance = _moments(groups, exponent)[1]
    return ZipfFit(
        exponent=exponent,
        error=math.hypot(_ORDER_BIAS, 1 / math.sqrt(total * variance) if variance > 0 else 0.0),
        objects=round(ranks),
        distance=_distance(head, groups, exponent, total),
    )


class _Group(NamedTuple):
    """Consecutive ranks as one."""

    last: float
    width: float
    log_rank: float


def _rank_groups(ranks: float) -> list[_Group]:
    groups = []
    before = 0.0
    while before < ranks:
        width = 1.0 if before < _EXACT_RANKS else math.floor(before * (_GROUP_GROWTH - 1))
        width = min(width, max(ranks - before, 1e-9))
        groups.append(_Group(before + width, width, math.log(before + (width + 1) / 2)))
        before += width
    return groups


def _moments(groups: Sequence[_Group], exponent: float) -> tuple[float, float]:
    """Mean and variance of the logarithm of the rank of a request."""
    weights = [group.width * math.exp(-exponent * group.log_rank) for group in groups]
    total = sum(weights)
    mean = sum(w * g.log_rank for w, g in zip(weights, groups, strict=True)) / total
    square = sum(w * g.log_rank**2 for w, g in zip(weights, groups, strict=True)) / total
    return mean, square - mean**2


def _mean_log_rank(head: Sequence[Counted]) -> float:
    """The sum of requests times the logarithm of their objects' ranks."""
    found = rank = 0.0
    for item in head:
        after = rank + item.objects
        if item.objects == 1.0:
            found += item.requests * math.log(after)
        else:
            found += item.requests * (math.lgamma(after + 1) - math.lgamma(rank + 1))
        rank = after
    return found


def _distance(
    head: Sequence[Counted], groups: Sequence[_Group], exponent: float, total: float
) -> float:
    weights = [group.width * math.exp(-exponent * group.log_rank) for group in groups]
    scale = sum(weights)
    worst = fitted = measured = rank = 0.0
    items = iter(head)
    item: Counted | None = next(items)
    for group, weight in zip(groups, weights, strict=True):
        fitted += weight / scale
        while item is not None and rank + item.objects <= group.last:
            rank += item.objects
            measured += item.requests * item.objects / total
            item = next(items, None)
        within = item.requests * (group.last - rank) / total if item is not None else 0.0
        worst = max(worst, abs(measured + within - fitted))
    return worst
