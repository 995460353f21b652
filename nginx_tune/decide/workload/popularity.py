"""Popularity from counted objects: the measured curve, and the Zipf law that fits it best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from nginx_tune.documents.learning import ObjectPopularity
from nginx_tune.documents.workload import CurveShare

CURVE_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995,
                0.999, 1.0)  # fmt: skip
_FEWEST_REQUESTS = 30
"""Minimum number of requests of an object to be part of the fit, since the order of rarer objects
is chance."""
_ORDER_BIAS = 0.005
"""Error of the exponent because objects are sorted by counts instead of true popularity, from
simulations with exponents from 0.5 to 1.1."""
_FEWEST_OBJECTS = 10
_EXACT_RANKS = 1024
_GROUP_GROWTH = 1.01
_STEEPEST = 5.0
_BISECTIONS = 50


class Counted(NamedTuple):
    """Objects with the same number of requests."""

    requests: int
    """Requests for each object."""
    objects: float
    """Number of objects with this many requests."""
    bytes: float
    """Bytes of all these objects."""
    weight: float = 1.0
    """Number of objects that each counted object represents."""


def counted_objects(popularity: ObjectPopularity) -> list[Counted]:
    """All objects, most popular first; sampled objects are weighted so that requests add up."""
    in_sample = sum(requests * objects for requests, objects, _ in popularity.sampled)
    weight = popularity.other_requests / in_sample if in_sample else 1.0
    found = [Counted(*alike) for alike in popularity.known]
    for requests, objects, size in popularity.sampled:
        found.append(Counted(requests, objects * weight, size * weight, weight))
    return sorted(found, reverse=True)


def curve_of(counted: Sequence[Counted]) -> list[CurveShare]:
    """Bytes of the most popular objects that receive each of ``CURVE_SHARES``.

    Objects with the same number of requests count as equally large. Ordered by size instead, the
    objects of the last hundredth of requests would seem up to a third smaller, in a log with half
    of its objects requested once.
    """
    total = sum(item.requests * item.objects for item in counted)
    shares = list(CURVE_SHARES[:-1])
    curve = []
    requests = size = 0.0
    for each, alike in groupby(counted, key=lambda item: item.requests):
        _, counts, sizes, _ = zip(*alike, strict=True)
        objects, alike_bytes = sum(counts), sum(sizes)
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
    variance = sum(i.requests**2 * i.objects * (i.weight - 1) for i in counted)
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
    """Largest difference between the measured and the fitted share of requests up to a rank."""


def fit_zipf(counted: Sequence[Counted], known_from_requests: int = 0) -> ZipfFit | None:
    """The most likely Zipf exponent of the ranks with enough requests; None if these are too few.

    Objects with at least ``known_from_requests`` requests were all counted, not sampled.

    Source: Clauset, Shalizi, Newman, Power-Law Distributions in Empirical Data, SIAM Review 51,
            2009: maximum likelihood and the Kolmogorov-Smirnov distance; regression on a log-log
            plot is biased.
    """
    fewest = max(_FEWEST_REQUESTS, known_from_requests)
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
    """Consecutive ranks that count as one."""

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
