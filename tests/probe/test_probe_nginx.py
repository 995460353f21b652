"""The probe against the real nginx: every body whole, and ten thousand idle connections."""

import http.client
import math
import re
import resource
import threading
from pathlib import Path

import msgspec
import pytest
from command_line import RunCli
from hdrh.histogram import HdrHistogram
from needs import lacks
from probe_loads import Nginx, StartNginx, load_class, load_plan

from nginx_tune.documents.base import encode
from nginx_tune.documents.loadplan import Arrivals, Caps
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


MANY = 10_000
_OTHERS = 700
"""Descriptors of nginx and of the probe for all else."""


class Status(threading.Thread):
    """Asks nginx, by one connection that it keeps, how many it holds; keeps the most it said."""

    def __init__(self, nginx: Nginx) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=10)
        self._ended = threading.Event()
        self.most = 0

    def run(self) -> None:
        """Ask ten times a second."""
        while not self._ended.wait(0.1):
            self._connection.request("GET", "/status")
            text = self._connection.getresponse().read().decode()
            found = re.search(r"Active connections: (\d+)", text)
            assert found is not None
            self.most = max(self.most, int(found[1]))

    def end(self) -> int:
        """The most connections that it held at once, without the one that asked."""
        self._ended.set()
        self.join(timeout=20)
        self._connection.close()
        return self.most - 1


@pytest.fixture
def large(start_nginx: StartNginx) -> Nginx:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < MANY + _OTHERS:
        lacks("descriptors", f"the limit of open files is below {MANY + _OTHERS}")
    return start_nginx(
        main=f"worker_rlimit_nofile {MANY + _OTHERS};",
        # nginx closes idle ones where a sixteenth of its connections or fewer are free
        # (ngx_drain_connections): with room for 10,500 some 180 were always missing.
        connections=MANY + 2000,
        server="location = /status { stub_status; } client_header_timeout 300s;",
    )


@pytest.mark.parametrize("threads", [2, pytest.param(1, marks=pytest.mark.thorough)])
def test_ten_thousand_are_held_while_others_are_served(large: Nginx, threads: int) -> None:
    item = load_class("/1k", connections=50)
    caps = Caps(connections=MANY + 50)
    plan = load_plan(large, item, idle_connections=MANY, threads=threads, caps=caps)
    # A busy machine opened 7,902 of them in seven seconds.
    for warmup in (6.0, 30.0, 120.0):
        status = Status(large)
        status.start()
        measurement = run_probe(
            msgspec.structs.replace(plan, warmup_seconds=warmup, duration_seconds=1.0)
        )
        most = status.end()
        idle = measurement.generator.idle_connections
        assert idle is not None
        assert (idle.wanted, idle.lost, idle.failed) == (MANY, 0, 0)
        if idle.open == MANY:
            break
    assert idle.open == MANY
    # What nginx itself counts: theirs and those of the class.
    assert MANY < most <= MANY + 50
    found = measurement.classes["c"]
    assert found.errors == {}
    assert found.requests == found.intended > 0


def test_the_cap_is_said_and_raised_by_its_option_alone(
    nginx: Nginx, run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    refused = [
        (MANY, "4096", f"{MANY + 20} connections are above the cap of 4096"),
        (20, "39", "40 connections are above the cap of 39"),
    ]
    if 0 < hard < 900_000:
        refused.append((hard, f"{hard + 100}", "open files; the limit (ulimit -n) is"))
    for idle, cap, words in refused:
        plan = load_plan(nginx, load_class("/1k"), idle_connections=idle)
        file.write_bytes(encode(plan))
        run = run_cli("probe", file, "--allow-live", "--cap", f"connections={cap}")
        assert run.returncode == 2
        assert words in run.stderr
