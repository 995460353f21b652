"""The formulas of modelled disks against a simulation of the very process that serves them."""

import heapq
import itertools
import math
import random
import statistics

import pytest

from nginx_tune.documents.lab import DiskModel
from nginx_tune.nginx.lab import disk_models as formulas
from nginx_tune.nginx.lab.disk_models import ServiceProcess

HDD = DiskModel(read_seconds=0.008, spread_ratio=0.5, bytes_per_second=160e6, sequential_seconds=0)
SSD = DiskModel(read_seconds=0.0005, channels=8, bytes_per_second=400e6)
TAILED = DiskModel(read_seconds=0.001, channels=4, tail_ratio=0.02, tail_seconds=0.02)
STALLING = DiskModel(read_seconds=0.001, channels=4, stall_every_seconds=0.8, stall_seconds=0.2)
BUS_BOUND = DiskModel(read_seconds=0.001, channels=16, bytes_per_second=50e6)
MODELS = {"hdd": HDD, "ssd": SSD, "tail": TAILED, "stalls": STALLING, "bus": BUS_BOUND}


def closed(
    model: DiskModel, depth: int, *, read_bytes: int = 4096, reads: int = 5_000, seed: int = 1
) -> tuple[float, list[float]]:
    """Rate and latencies of so many readers with one read each under way all the time."""
    process = ServiceProcess(model, random.Random(seed).random)
    places = random.Random(seed + 1)
    arrivals = [(0.0, reader) for reader in range(depth)]
    latencies = []
    end = 0.0
    for _ in range(reads):
        now, reader = heapq.heappop(arrivals)
        answer = process.serve(now, places.randrange(1 << 20) << 12, read_bytes)
        latencies.append(answer.at_seconds - now)
        end = max(end, answer.at_seconds)
        heapq.heappush(arrivals, (answer.at_seconds, reader))
    return reads / end, latencies


def test_rate_and_latency_at_every_depth() -> None:
    wrong = []
    for (name, model), depth in itertools.product(MODELS.items(), (1, 2, 4, 8, 16, 64)):
        rate, latencies = closed(model, depth)
        seen = (rate, statistics.fmean(latencies))
        expected = (
            formulas.predict_reads_per_second(model, 4096, depth),
            formulas.predict_latency_seconds(model, 4096, depth),
        )
        if seen != pytest.approx(expected, rel=0.08):
            wrong.append((name, depth, seen, expected))
    assert wrong == []


def test_the_knee_is_where_the_lines_meet() -> None:
    assert formulas.predict_knee(HDD, 4096) == pytest.approx(1)
    assert formulas.predict_knee(SSD, 4096) == pytest.approx(8)
    # 12 205 reads a second pass the bus, and one takes 1.08 ms: 13 readers saturate it, not 16.
    assert formulas.predict_knee(BUS_BOUND, 4096) == pytest.approx(13.2, abs=0.1)
    assert formulas.predict_plateau(BUS_BOUND, 4096) == pytest.approx(50e6 / 4096)


def test_quantiles_at_depth_1() -> None:
    for model in (HDD, TAILED):
        _, latencies = closed(model, 1, reads=30_000)
        latencies.sort()
        for quantile in (0.5, 0.9, 0.99, 0.999):
            seen = latencies[math.ceil(quantile * len(latencies)) - 1]
            expected = formulas.predict_quantile_seconds(model, 4096, quantile)
            assert seen == pytest.approx(expected, rel=0.12), quantile


def test_a_read_that_goes_on_does_not_move_the_head() -> None:
    process = ServiceProcess(HDD, random.Random(1).random)
    first = process.serve(0.0, 0, 1 << 20).at_seconds
    second = process.serve(first, 1 << 20, 1 << 20).at_seconds
    assert second - first == pytest.approx((1 << 20) / 160e6)
    third = process.serve(second, 0, 1 << 20).at_seconds
    assert third - second >= 0.004


def test_errors_and_the_same_disk_from_the_same_seed() -> None:
    model = DiskModel(read_seconds=0.001, error_ratio=0.1, tail_ratio=0.1, tail_seconds=0.01)
    runs = []
    for _ in range(2):
        process = ServiceProcess(model, random.Random(3).random)
        runs.append([process.serve(float(n), (n % 4000) << 17, 4096) for n in range(8000)])
    assert runs[0] == runs[1]
    failed = [answer.failed for answer in runs[0]]
    assert failed[:4000] == failed[4000:], "a bad region stays bad"
    assert 320 <= sum(failed[:4000]) <= 480
    other = ServiceProcess(model, random.Random(3).random, salt=1)
    assert [other.serve(float(n), n << 17, 4096).failed for n in range(4000)] != failed[:4000]
