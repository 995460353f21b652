"""Merged measurements: the same as one load host that had sent it all."""

import math
import statistics

import pytest
from hdr_reference import recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.documents.loadplan import Stripe
from nginx_tune.documents.measured_class import ClassMeasurement, Latency, TlsSessions, WorkerShare
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import ClassSecond, Generator, Measurement, SeriesPoint
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.histogram import decode_histogram
from nginx_tune.measure.proof.merge import HostMeasurement, merge_measurements

NANOSECONDS = st.lists(st.integers(min_value=1_000, max_value=60_000_000_000), max_size=60)


def latency(values: list[int], censored: int = 0) -> Latency:
    """What the probe's recorder makes of values; the last ``censored`` are lower bounds."""
    if not values:
        return Latency()
    histogram = recorded(values)
    decoded = decode_histogram(histogram.encode().decode())
    ages = [value / 1e9 for value in values[len(values) - censored :]]
    told = {
        name: min(value / 1e9, max(values) / 1e9)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
        if (value := decoded.value_at(share)) is not None
    }
    highest = max(values) / 1e9
    return Latency(
        count=len(values),
        mean=statistics.fmean(values) / 1e9,
        stdev=statistics.pstdev(values) / 1e9,
        max=highest,
        histogram=histogram.encode().decode(),
        censored=censored,
        censored_from_seconds=min(ages, default=None),
        at_least=[n for n, v in {**told, "max": highest}.items() if ages and v >= min(ages)],
        **told,
    )


def measurement(
    values: list[int], *, index: int = 0, count: int = 2, **more: object
) -> Measurement:
    parts: dict[str, object] = {
        "plan_digest": "d",
        "stripe": Stripe(index=index, count=count),
        "started_unix_seconds": 1000.0,
        "duration_seconds": 2.0,
        "classes": {
            "hot": ClassMeasurement(
                requests=len(values),
                intended=len(values),
                response_seconds=latency(values),
                errors={"reset": index},
                statuses={"200": len(values)},
            )
        },
        "generator": Generator(cpu_seconds=1.0, cpu_ratio=0.5 + index / 10),
        "series": [
            SeriesPoint(second=k, classes={"hot": ClassSecond(requests=10, bytes=100, p99=0.1)})
            for k in range(2)
        ],
    }
    return Measurement(**{**parts, **more})  # type: ignore[arg-type]


def merge(*measurements: Measurement) -> Measurement:
    return merge_measurements(
        [HostMeasurement(f"m{k}", item) for k, item in enumerate(measurements)]
    )


@settings(max_examples=80, deadline=None)
@given(hosts=st.lists(NANOSECONDS, min_size=2, max_size=5), censored=st.integers(0, 3))
def test_merging_gives_what_one_recorder_of_everything_gives(
    hosts: list[list[int]], censored: int
) -> None:
    # The unfinished ones stand last; each host has as many.
    each = [(values, min(censored, len(values))) for values in hosts]
    merged = (
        merge(
            *(
                measurement(
                    values,
                    index=k,
                    count=len(hosts),
                    classes={"hot": ClassMeasurement(response_seconds=latency(values, cut))},
                )
                for k, (values, cut) in enumerate(each)
            )
        )
        .classes["hot"]
        .response_seconds
    )
    done = [v for values, cut in each for v in values[: len(values) - cut]]
    unfinished = [v for values, cut in each for v in values[len(values) - cut :]]
    alone = latency(done + unfinished, len(unfinished))
    assert merged.count == alone.count
    if alone.count:
        assert decode_histogram(merged.histogram) == decode_histogram(alone.histogram)
        assert merged.mean == pytest.approx(alone.mean)
        assert merged.stdev == pytest.approx(alone.stdev, abs=1e-6)
    for name in ("p50", "p90", "p99", "p999", "max", "censored", "at_least"):
        assert getattr(merged, name) == getattr(alone, name), name
    assert merged.censored_from_seconds == alone.censored_from_seconds


def test_counts_rates_and_series_add() -> None:
    merged = merge(measurement([5_000] * 3), measurement([7_000] * 4, index=1))
    hot = merged.classes["hot"]
    assert (hot.requests, hot.errors, hot.statuses) == (7, {"reset": 1}, {"200": 7})
    assert hot.requests_per_second == pytest.approx(20)
    assert hot.bytes_per_second == pytest.approx(200)
    assert [p.classes["hot"] for p in merged.series] == [ClassSecond(requests=20, bytes=200)] * 2
    assert merged.generator.cpu_seconds == 2.0
    assert merged.generator.cpu_ratio == 0.6
    assert merged.start_skew_seconds == 0
    assert merged.flags == []
    assert [(agent.name, agent.stripe.index) for agent in merged.agents] == [("m0", 0), ("m1", 1)]


def test_throughput_is_of_the_time_that_all_measured() -> None:
    merged = merge(measurement([5_000]), measurement([5_000], index=1, started_unix_seconds=1000.5))
    assert merged.duration_seconds == pytest.approx(1.5)
    assert merged.started_unix_seconds == 1000.5
    assert merged.start_skew_seconds == pytest.approx(0.5)
    # Either host did ten a second in all of the common time.
    assert merged.classes["hot"].requests_per_second == pytest.approx(20)
    assert merged.flags == ["start_skew: the load hosts began 0.50 s apart"]


def test_each_hosts_flags_are_kept_with_its_name() -> None:
    late = "lateness: hot: the probe was late"
    merged = merge(
        measurement([5_000], flags=[late]),
        measurement([5_000], index=1, count=2, started_unix_seconds=None),
    )
    assert merged.flags[0] == f"{late} (m0)"
    assert merged.flags[1].startswith("start_unknown: ")
    assert [agent.flags for agent in merged.agents] == [[late], []]
    alone = merge(measurement([5_000], index=1, count=3))
    assert alone.flags == ["agents_missing: of seed 1, stripes 0, 2 of 3 are missing"]


def test_what_tls_agreed_on_adds() -> None:
    def agreed(index: int, **counts: int) -> Measurement:
        sessions = [
            TlsSessions(version=name[1:].replace("_", "."), cipher="X", connections=count)
            for name, count in counts.items()
        ]
        return measurement(
            [], index=index, classes={"hot": ClassMeasurement(tls_sessions=sessions)}
        )

    merged = merge(agreed(0, v1_2=3, v1_3=2), agreed(1, v1_3=5)).classes["hot"].tls_sessions
    assert [(one.version, one.connections) for one in merged] == [("1.3", 7), ("1.2", 3)]


def test_workers_of_the_one_server_add() -> None:
    def answered(by: dict[str, int], index: int) -> Measurement:
        shares = {
            pid: WorkerShare(requests=n, connections=1, response_seconds=latency([5_000] * n))
            for pid, n in by.items()
        }
        return measurement(
            [], index=index, classes={"hot": ClassMeasurement(workers=by, worker_shares=shares)}
        )

    hot = merge(answered({"70": 30, "71": 10}, 0), answered({"70": 30, "72": 50}, 1)).classes["hot"]
    assert hot.workers == {"70": 60, "71": 10, "72": 50}
    assert hot.worker_shares["70"].response_seconds.count == 60
    assert hot.worker_shares["70"].connections == 2
    assert hot.worker_requests is not None
    assert hot.worker_requests.max_to_mean == pytest.approx(1.5)


@each_row(
    ("other", "words"),
    [
        (measurement([1], index=0), "m0 and m1 have the same arrivals (seed 1, stripe 0 of 2"),
        (measurement([1], index=1, count=3), "have the same arrivals (seed 1, stripe 0 of 2 and"),
        (measurement([1], index=1, plan_digest="e"), "m0 and m1 are of different load plans"),
        (measurement([1], index=1, classes={}), "m1 has the classes none, m0 has hot"),
        (measurement([1], index=1, started_unix_seconds=1002.0), "m0 ended before m1 began"),
        (
            measurement([1], index=1, server=ServerMeasurement(pool_overflow=1)),
            "m0 and m1 both have figures of the server",
        ),
    ],
)
def test_what_does_not_add_is_refused(other: Measurement, words: str) -> None:
    first = measurement([1], server=ServerMeasurement(pool_overflow=2))
    with pytest.raises(UsageError) as refused:
        merge(first, other)
    assert words in refused.value.message
    assert "\n" not in refused.value.message


def test_histograms_of_different_precision_are_refused() -> None:
    coarse = Latency(count=1, histogram=recorded([5_000], digits=2).encode().decode())
    other = measurement([], index=1, classes={"hot": ClassMeasurement(response_seconds=coarse)})
    with pytest.raises(UsageError, match="different precision"):
        merge(measurement([5_000]), other)


def test_loads_of_different_seeds_add() -> None:
    merged = merge(measurement([5_000], count=1), measurement([7_000], count=1, seed=2))
    assert merged.classes["hot"].requests == 2
    assert math.isclose(merged.classes["hot"].response_seconds.max or 0, 7e-6)
    assert [agent.name for agent in merged.agents] == ["m0", "m1"]
