"""What is learnt from a log is what the log was made of."""

import random
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import fmean

import msgspec
import pytest
from synthetic_logs import FULL, Request, Truth, lines_of, requests_of, size_of

from nginx_tune.decide.workload.learnt import learnt_workload
from nginx_tune.decide.workload.log_format import parse_log_format
from nginx_tune.documents.learning import LearnPlan, LogReading, Tally
from nginx_tune.documents.workload import Workload
from nginx_tune.observe.access_logs import LogFrame, read_frames

pytestmark = pytest.mark.needs("probe")
TRUTHS = [
    Truth(),
    Truth(seed=2, exponent=0.6, rate=20, stop_ratio=1.0, tls_ratio=0.0),
    Truth(seed=3, exponent=1.2, objects=20_000, rate=400, duration_mean=0.02, stop_ratio=0.02),
]


def learn(truth: Truth, **bounds: int) -> tuple[LogReading, Workload]:
    plan = LearnPlan(format=parse_log_format(FULL), **bounds)
    lines = "".join(f"{line}\n" for line in written(truth)).encode()
    reading = read_frames([LogFrame("L", b""), LogFrame("B", lines)], plan)
    tally = msgspec.json.decode(reading.tally, type=Tally)
    return reading, learnt_workload(tally, reading.timeline, reading.popularity, plan)


@cache
def written(truth: Truth) -> list[str]:
    return list(lines_of(truth))


def working_set(requests: list[Request], ratio: float) -> float:
    """Bytes of the most popular objects that receive this share of the requests.

    Objects that are asked for equally often come in any order: the mean over many of them.
    """
    counts = Counter(request.object for request in requests)
    rng = random.Random(41)
    orders = []
    for _ in range(20):
        left, found = ratio * len(requests), 0
        for rank, count in sorted(counts.items(), key=lambda item: (-item[1], rng.random())):
            if left <= 0:
                break
            found += size_of(rank)
            left -= count
        orders.append(found)
    return fmean(orders)


@pytest.fixture(scope="module", params=TRUTHS, ids=lambda truth: f"seed-{truth.seed}")
def learnt(request: pytest.FixtureRequest) -> tuple[Truth, list[Request], Workload]:
    truth = request.param
    return truth, list(requests_of(truth)), learn(truth)[1]


def test_popularity(learnt: tuple[Truth, list[Request], Workload]) -> None:
    truth, _, workload = learnt
    popularity = workload.popularity
    assert popularity.exponent is not None
    assert popularity.exponent_error is not None
    assert abs(popularity.exponent - truth.exponent) < 3 * popularity.exponent_error
    assert popularity.exponent_error < 0.02
    assert popularity.fit_distance_ratio is not None
    assert popularity.fit_distance_ratio < 0.02


def test_working_set_and_sizes(learnt: tuple[Truth, list[Request], Workload]) -> None:
    _, requests, workload = learnt
    popularity, sizes = workload.popularity, workload.sizes
    assert popularity.curve_error_ratio == 0.0
    assert popularity.working_set_50_bytes == pytest.approx(working_set(requests, 0.5), rel=0.01)
    assert popularity.working_set_90_bytes == pytest.approx(working_set(requests, 0.9), rel=0.01)
    assert popularity.working_set_99_bytes == pytest.approx(working_set(requests, 0.99), rel=0.01)
    asked = sorted(request.size for request in requests)
    assert sizes.mean_bytes == pytest.approx(sum(asked) / len(asked), rel=1e-5)
    assert sizes.p50_bytes == asked[len(asked) // 2 - 1]
    assert sizes.p99_bytes == asked[len(asked) * 99 // 100 - 1]
    assert sizes.sent_ratio == pytest.approx(1.0)
    assert workload.dataset.files == len({request.object for request in requests})


def test_rates(learnt: tuple[Truth, list[Request], Workload]) -> None:
    _, requests, workload = learnt
    ends = Counter(int(request.end * 1000 + 0.5) // 1000 for request in requests)
    seconds = range(min(ends), max(ends) + 1)
    assert workload.rate.mean_per_second == pytest.approx(len(requests) / len(seconds), rel=1e-5)
    for width, found in (
        (1, workload.rate.peak_1s_per_second),
        (10, workload.rate.peak_10s_per_second),
        (60, workload.rate.peak_60s_per_second),
    ):
        busiest = max(sum(ends[s + more] for more in range(width)) for s in seconds)
        assert found == pytest.approx(busiest / width, rel=1e-5)
    assert workload.rate.peak_per_second == workload.rate.peak_60s_per_second


def test_concurrency(learnt: tuple[Truth, list[Request], Workload]) -> None:
    truth, requests, workload = learnt
    assert workload.concurrency.mean == pytest.approx(truth.rate * truth.duration_mean, rel=0.05)
    busy: Counter[int] = Counter()
    for request in requests:
        start = request.end - request.duration
        for second in range(int(start), int(request.end) + 1):
            busy[second] += min(request.end, second + 1) - max(start, second)
    assert workload.concurrency.peak == pytest.approx(max(busy.values()), rel=0.01)


def test_connections(learnt: tuple[Truth, list[Request], Workload]) -> None:
    truth, requests, workload = learnt
    lengths = Counter(request.connection for request in requests)
    reuse = workload.connection_reuse
    assert reuse.requests_per_connection == pytest.approx(len(requests) / len(lengths), rel=1e-5)
    assert reuse.single_request_ratio == pytest.approx(
        sum(1 for length in lengths.values() if length == 1) / len(lengths), abs=1e-5
    )
    assert reuse.p50_requests == sorted(lengths.values())[len(lengths) // 2]
    assert workload.tls.requests_ratio == pytest.approx(truth.tls_ratio, abs=0.01)
    assert workload.tls.value == (truth.tls_ratio > 0.5)
    assert workload.traffic is not None
    assert workload.traffic.cache_statuses["HIT"] == pytest.approx(truth.hit_ratio, abs=0.01)
    assert workload.kind == "cache"


def test_a_sample_gives_what_all_objects_give_within_its_error() -> None:
    truth = Truth(seed=4, objects=30_000, requests=60_000, exponent=0.8)
    exact = learn(truth)[1].popularity
    reading, workload = learn(truth, most_objects=4_000, most_lines=30_000)
    rows = [*reading.popularity.known, *reading.popularity.sampled]
    assert sum(objects for _, objects, _ in rows) <= 4_000
    sampled = workload.popularity
    assert sampled.curve_error_ratio is not None
    assert 0 < sampled.curve_error_ratio < 0.05
    assert workload.dataset.files == pytest.approx(len(
        {request.object for request in requests_of(truth)}), rel=0.1
    )  # fmt: skip
    shares = {point.bytes: point.requests_ratio for point in exact.curve}
    for point in sampled.curve:
        below = [share for size, share in shares.items() if size <= point.bytes]
        above = [share for size, share in shares.items() if size >= point.bytes]
        slack = 4 * sampled.curve_error_ratio
        assert max(below, default=0.0) - slack <= point.requests_ratio
        assert point.requests_ratio <= min(above, default=1.0) + slack
    assert sampled.exponent == pytest.approx(truth.exponent, abs=0.05)


def test_decisions_are_made_from_it(tmp_path: Path, run_cli) -> None:
    log, learnt = tmp_path / "access.log", tmp_path / "workload.json"
    log.write_text("".join(f"{line}\n" for line in lines_of(Truth(requests=5_000))))
    facts = tmp_path / "facts.json"
    assert run_cli("inspect", "-f", "json", "-o", facts).returncode == 0
    run = run_cli("learn", log, "--log-format", FULL, "-f", "json", "-o", learnt)
    assert run.returncode == 0, run.stderr
    for command in (
        ("recommend", "-f", "json"),
        ("generate", "--cache-dir", "/var/cache/nginx-tune-test"),
    ):
        run = run_cli(*command, "--workload", learnt, "--facts", facts)
        assert run.returncode == 0, run.stderr
    run = run_cli("recommend", "-f", "json", "--workload", learnt, "--facts", facts)
    assert '"learnt"' in run.stdout
