"""How far the time in cold reads may be from its mean, where few files and few misses make it.

The mean is of the long run, and of any files that are popular. What is measured is one run's
misses, and one order of the files: with a handful of large ones among many small, most of the
time is theirs, whether the popular ones are among them or not is chance, and so is how many
of their reads fall into some seconds.
"""

from __future__ import annotations

import math

from nginx_tune.decide.model.cache import miss_overlap
from nginx_tune.decide.model.inputs import (
    QUANTILE,
    BlockingInputs,
    counted_requests,
    miss_ratio,
    usable_objects,
)


def time_factors(i: BlockingInputs) -> tuple[float, float]:
    """What the time in cold reads may be times its mean: one in twenty is below, one above.

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
    """What others wait behind answers sent in one turn may be times its mean, as ``time_factors``.

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
