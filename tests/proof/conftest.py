"""Factories of measurements, so that a test names only what it is about."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import pytest
from hdr_reference import plain_text, recorded

from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measurement import Measurement

MakeRuns = Callable[..., list[Measurement]]


def latency_of(seconds: Sequence[float]) -> Latency:
    """What the probe writes about these latencies."""
    return _latency_of(tuple(seconds))


@cache  # the reference takes a tenth of a second for each
def _latency_of(seconds: tuple[float, ...]) -> Latency:
    histogram = recorded(round(value * 1e9) for value in seconds)
    at = histogram.get_value_at_percentile
    return Latency(
        count=len(seconds),
        mean=sum(seconds) / len(seconds) if seconds else None,
        stdev=histogram.get_stddev() / 1e9 if seconds else None,
        p50=at(50) / 1e9 if seconds else None,
        p99=at(99) / 1e9 if seconds else None,
        max=max(seconds, default=None),
        histogram=plain_text(histogram),
    )


@pytest.fixture(scope="session")
def latency() -> Callable[[Sequence[float]], Latency]:
    return latency_of


@pytest.fixture
def make_runs() -> MakeRuns:
    """Blocks ``2 k`` (baseline) and ``2 k + 1`` (candidate) from pairs of values of one field of
    the class ``hot``; further fields of the class are the same everywhere."""

    def make(
        pairs: Sequence[tuple[Any, Any]], field: str = "requests_per_second", **same: Any
    ) -> list[Measurement]:
        runs = []
        for index, pair in enumerate(pairs):
            for half, (variant, value) in enumerate(
                zip(("baseline", "candidate"), pair, strict=True)
            ):
                part = msgspec.structs.replace(ClassMeasurement(**same), **{field: value})
                runs.append(
                    Measurement(variant=variant, number=2 * index + half, classes={"hot": part})
                )
        return runs

    return make
