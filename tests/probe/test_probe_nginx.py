"""The probe against the real nginx: every body whole, every failure by its kind."""

from __future__ import annotations

import math

import pytest
from hdrh.histogram import HdrHistogram
from probe_loads import Nginx, StartNginx, load_class, load_plan

from nginx_tune.documents.loadplan import Arrivals
from nginx_tune.measure.load.probe import run_probe

pytestmark = pytest.mark.needs("nginx", "probe")


def test_whole_files_are_good_and_counted_to_the_byte(nginx: Nginx) -> None:
    measurement = run_probe(load_plan(nginx, load_class("/1k", "/100k", "/4m")))
    result = measurement.classes["c"]
    assert result.errors == {}
    assert (result.requests, result.intended, result.censored) == (100, 100, 0)
    assert result.statuses == {"200": 100}
    assert result.response_seconds.count == result.ttfb_seconds.count == 100
    assert measurement.generator.lateness_seconds.count == 100
    assert measurement.generator.cpu_seconds > 0
    # The window ends on the clock: the last bodies may come after it.
    assert 0 < result.bytes <= 100 * (4 << 20)


@pytest.mark.parametrize("sendfile", ["on", "off"])
def test_the_short_bodies_of_an_overflowing_pool_are_failures(
    start_nginx: StartNginx, sendfile: str
) -> None:
    nginx = start_nginx(
        main="thread_pool p threads=1 max_queue=0;",
        server=f"aio threads=p; sendfile {sendfile}; output_buffers 1 64k;",
    )
    users = load_class("/4m", "/100k", arrivals=Arrivals(kind="closed", users=16))
    result = run_probe(load_plan(nginx, users, duration_seconds=1)).classes["c"]
    lines = nginx.error_log.read_text().count("queue overflow")
    assert lines > 0
    # Every line is one request that was cut short, all of them answered with status 200 or not
    # at all, and none of them counts as good.
    assert result.truncated == pytest.approx(lines, abs=max(2, 0.02 * lines))
    assert set(result.errors) <= {"truncated", "empty"}
    assert set(result.statuses) <= {"200"}
    assert result.requests == result.response_seconds.count
    assert result.requests + result.truncated == result.intended


def test_histograms_read_the_same_in_the_public_library(nginx: Nginx) -> None:
    measurement = run_probe(load_plan(nginx, load_class("/1k", "/100k")))
    result = measurement.classes["c"]
    for latency in (result.response_seconds, result.ttfb_seconds, result.service_seconds):
        histogram = HdrHistogram.decode(latency.histogram)
        assert histogram.get_total_count() == latency.count == 100
        for share, value in ((0.5, latency.p50), (0.9, latency.p90), (0.99, latency.p99)):
            # The maximum is told exactly; the last bucket ends a little above it.
            seconds = min(_quantile(histogram, share) / 1e9, latency.max)
            assert value == pytest.approx(seconds, rel=1e-12)
        assert histogram.get_max_value() / 1e9 == pytest.approx(latency.max, rel=0.001)
        assert histogram.get_mean_value() / 1e9 == pytest.approx(latency.mean, rel=1e-6)


def _quantile(histogram: HdrHistogram, share: float) -> int:
    """The value of rank ceil(share × count); the library's own rounds that rank to the nearest."""
    rank = math.ceil(share * histogram.get_total_count())
    for item in histogram.get_recorded_iterator():
        rank -= item.count_at_value_iterated_to
        if rank <= 0:
            return histogram.get_highest_equivalent_value(item.value_iterated_to)
    raise AssertionError
