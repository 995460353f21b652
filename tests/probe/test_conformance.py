"""The probe against a server whose behaviour is known: what must hold on any machine.

The same truths with the tolerances of a quiet machine: ``benchmarks/conformance.py``.
"""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from command_line import RunCli
from probe_loads import StartNginx, load_class, load_plan
from truth import ground_truth, truth_plan

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.loadplan import Arrivals, LoadPlan
from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.probe import find_probe, run_probe
from nginx_tune.measure.proof.expression import parse_expression
from nginx_tune.measure.proof.gates import answer_expression
from nginx_tune.measure.proof.histogram import decode_histogram
from nginx_tune.measure.proof.runs import Pair, PairedRuns
from nginx_tune.report.measurement import measured_screen
from nginx_tune.report.screen import plain_text

pytestmark = pytest.mark.needs("probe")

CALIPER = 1.05
"""Room for what a busy machine adds to a sleep."""


def count_above(latency: Latency, seconds: float) -> int:
    return decode_histogram(latency.histogram).count_above(int(seconds * 1e9))


def run_stopped(plan: LoadPlan) -> Measurement:
    """What a probe measures that stands still for 0.3 s after its first second."""
    command = [find_probe(), "--progress-fd", "2"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(encode(plan))
        process.stdin.close()
        process.stderr.readline()  # a second of it is over
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout is not None
        return msgspec.json.decode(process.stdout.read(), type=Measurement)


def test_a_probe_that_is_stopped_says_so() -> None:
    """The stop is in the response times, which count from the intended start, and flagged."""
    with ground_truth() as server:
        measurement = run_stopped(truth_plan(server.port))
    seen = measurement.classes["c"]
    assert seen.requests == 400
    assert (seen.lateness_seconds.max or 0) >= 0.29
    assert (seen.response_seconds.max or 0) >= 0.29
    assert count_above(seen.lateness_seconds, 0.1) >= 30
    assert any(flag.startswith("lateness: c: ") for flag in measurement.flags)


def test_a_stopped_probe_says_nothing_of_a_latency_that_nobody_saw() -> None:
    with ground_truth() as server:
        plan = truth_plan(server.port)
    measurement = run_stopped(plan)  # nobody listens there any more
    seen = measurement.classes["c"]
    assert (seen.requests, seen.response_seconds.count) == (0, 0)
    assert (seen.lateness_seconds.max or 0) >= 0.29
    assert not any(flag.startswith("lateness: c: ") for flag in measurement.flags)


def test_what_is_never_answered_is_censored_and_its_quantiles_are_bounds() -> None:
    with ground_truth("--never", 100) as server:
        plan = truth_plan(server.port, drain_seconds=1.0, rate=500.0, duration_seconds=2.2)
        measurement = run_probe(plan)
        told = server.end()
    seen = measurement.classes["c"]
    whole = seen.response_seconds
    assert told["unanswered"] >= 10
    assert (seen.intended, seen.requests + seen.censored) == (1100, 1100)
    assert seen.censored == told["unanswered"]
    assert whole.count == seen.ttfb_seconds.count == seen.service_seconds.count == 1100
    assert whole.censored == seen.ttfb_seconds.censored == seen.service_seconds.censored
    # The youngest was asked for in the last second, and then had the drain.
    assert 0.9 <= (whole.censored_from_seconds or 0) <= 3.2 * CALIPER
    assert whole.at_least[-2:] == ["p999", "max"]
    assert "p50" not in whole.at_least
    assert any(flag.startswith("censored: c: ") for flag in measurement.flags)
    assert "≥" in plain_text(measured_screen(measurement))


def test_requests_that_time_out_stand_in_the_percentiles() -> None:
    """A server that never answers 5 %: p99 is at least the timeout, and no gate below it holds."""
    with ground_truth("--never", 20) as server:
        plan = truth_plan(server.port, rate=500.0, duration_seconds=2.2, timeout_seconds=0.3)
        measurement = run_probe(plan)
        told = server.end()
    seen = measurement.classes["c"]
    assert told["unanswered"] == 55
    assert seen.errors == {"timeout": 55}
    assert (seen.intended, seen.requests, seen.censored) == (1100, 1045, 0)
    for latency in (seen.response_seconds, seen.ttfb_seconds, seen.service_seconds):
        assert (latency.count, latency.censored) == (1100, 55)
        assert {"p99", "p999", "max"} <= set(latency.at_least)
        assert (latency.p99 or 0) >= 0.25
    alone = PairedRuns((Pair(1, measurement, measurement),))
    answer = answer_expression(parse_expression("c.p99 <= 50ms"), alone)
    assert (answer.passed, answer.measured) == (False, seen.response_seconds.p99)
    answer = answer_expression(parse_expression("c.p99 >= 50ms"), alone)
    assert answer.passed
    # What the bound does not decide stays unknown.
    answer = answer_expression(parse_expression("c.p99 <= 9s"), alone)
    assert (answer.passed, answer.measured) == (False, None)
    text = plain_text(measured_screen(measurement))
    assert "c: 55 of 1,100 requests (5 %) failed or were not finished" in text
    assert re.search(r"last byte +≥ .* ≥ [3-9]\d\d ms", text)


def test_a_run_that_ends_in_a_stall_loses_nothing() -> None:
    with ground_truth("--stall-from", 1.0) as server:
        measurement = run_probe(truth_plan(server.port, drain_seconds=0.2, connections=20))
    seen = measurement.classes["c"]
    assert seen.requests + seen.censored == seen.intended == 400
    assert seen.censored > 100
    # Those that never got a connection count too; they were not sent.
    assert seen.service_seconds.count < seen.response_seconds.count == 400
    assert {"p90", "p99", "p999", "max"} <= set(seen.response_seconds.at_least)


@pytest.mark.needs("nginx")
def test_the_workers_of_nginx_are_told_apart(start_nginx: StartNginx) -> None:
    header = "add_header X-Probe-Worker $pid always;"
    nginx = start_nginx(server=header)
    many = load_class(
        "/1k", keepalive=False, arrivals=Arrivals(kind="constant", rate_per_second=200)
    )
    measurement = run_probe(load_plan(nginx, many, load_class("/none", name="absent")))
    seen = measurement.classes["c"]
    assert sum(seen.workers.values()) == seen.requests == 100
    assert sum(share.connections for share in seen.worker_shares.values()) == 100
    for pid in seen.workers:
        assert "nginx" in Path(f"/proc/{pid}/cmdline").read_text()
    # Failures are answered by somebody too, but are no good responses.
    assert set(measurement.classes["absent"].workers.values()) == {0}


@pytest.mark.needs("nginx")
def test_workers_that_got_nothing_count(start_nginx: StartNginx, run_cli: RunCli) -> None:
    """One connection is with one worker: the other three were there too."""
    nginx = start_nginx(server="add_header X-Probe-Worker $pid;", workers=4)
    options = ("--rate", "100", "--connections", "1", "--duration", "500ms", "--allow-live")
    run = run_cli("probe", nginx.url("/1k"), *options, "-f", "json")
    measurement = decode(Measurement, run.stdout.encode())
    seen = measurement.classes["url"]
    assert len(seen.workers) == 1
    assert seen.worker_requests is not None
    assert (seen.worker_requests.workers, seen.worker_requests.max_to_mean) == (4, 4.0)
    assert any("too few connections to compare 4 workers: 1 " in flag for flag in measurement.flags)
    assert re.search(
        r"^ +3 idle +0 +0 % +0 *$", plain_text(measured_screen(measurement)), re.MULTILINE
    )
