"""The probe against the real nginx: every body whole, every failure by its kind."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from probe_loads import Nginx, StartNginx, load_class, load_plan

from nginx_tune.documents.loadplan import Arrivals, Paths, Permit, Target
from nginx_tune.errors import UsageError
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


def test_several_classes_stand_side_by_side(nginx: Nginx) -> None:
    measurement = run_probe(
        load_plan(
            nginx,
            load_class("/1k", name="open"),
            load_class("/100k", name="closed", arrivals=Arrivals(kind="closed", users=4)),
            load_class("/1k", name="head", method="HEAD"),
            load_class("/1k", name="close", keepalive=False),
        )
    )
    for name in ("open", "head", "close"):
        assert measurement.classes[name].requests == 100, name
    assert measurement.classes["head"].bytes == 0
    assert measurement.classes["close"].connections_opened == 100
    closed = measurement.classes["closed"]
    assert closed.requests > 10
    # One each, and another one after every 1 000 requests (keepalive_requests).
    assert 4 <= closed.connections_opened <= 4 + closed.requests // 1000
    assert [point.second for point in measurement.series] == [0]


def test_status_and_length_are_checked(nginx: Nginx) -> None:
    wrong = Paths(kind="fixed", paths=["/1k"], bytes=[1023])
    measurement = run_probe(
        load_plan(
            nginx,
            load_class("/none", name="absent"),
            load_class("/none", name="expected", status=[404], paths=_path("/none")),
            load_class(name="longer", paths=wrong),
            load_class("/1k", name="cut", headers={"Range": "bytes=0-9"}),
            load_class(name="range", headers={"Range": "bytes=0-9"}, status=[206], paths=_ten()),
        )
    )
    results = measurement.classes
    assert results["absent"].errors == {"status": 100}
    assert results["absent"].statuses == {"404": 100}
    assert results["absent"].requests == 0
    assert results["expected"].requests == 100
    assert results["longer"].errors == {"length": 100}
    assert results["cut"].errors == {"status": 100}
    assert results["range"].requests == 100


def _path(path: str) -> Paths:
    return Paths(kind="fixed", paths=[path])


def _ten() -> Paths:
    return Paths(kind="fixed", paths=["/1k"], bytes=[10])


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


def test_progress_comes_once_a_second(nginx: Nginx) -> None:
    lines: list[dict[str, Any]] = []
    plan = load_plan(nginx, load_class("/1k"), duration_seconds=2.2)
    run_probe(plan, on_progress=lines.append)
    assert [line["second"] for line in lines] == [1, 2]
    last = lines[-1]["classes"]["c"]
    # 200 arrivals a second; those of an instant may fall to the next line.
    assert last["scheduled"] == pytest.approx(200, abs=20)
    assert last["sent"] == pytest.approx(last["scheduled"], abs=20)
    assert 0 < last["p50"] <= last["p99"]
    assert last["lateness_p99"] >= 0
    assert lines[-1]["cpu_seconds"] > 0


def test_what_the_probe_refuses_is_a_usage_error(nginx: Nginx) -> None:
    with pytest.raises(UsageError, match="not a server that nginx-tune started"):
        run_probe(load_plan(nginx, load_class("/1k"), permit=Permit()))
    elsewhere = Target(address="192.0.2.1", port=80)
    with pytest.raises(UsageError, match=r"192\.0\.2\.1 is not an address of this host"):
        run_probe(load_plan(nginx, load_class("/1k"), target=elsewhere))
    with pytest.raises(UsageError, match="more users than connections"):
        run_probe(load_plan(nginx, load_class("/1k", arrivals=Arrivals(kind="closed", users=21))))
    with pytest.raises(UsageError, match="cpus"):
        run_probe(load_plan(nginx, load_class("/1k")), cpus=[4000])
