"""Waits behind large answers that memory holds, against a simulated loop and by what is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nginx_tune.model.blocking import cpu_ratio, predict
from nginx_tune.model.cache import zipf_classes
from nginx_tune.model.disk import TYPICAL
from nginx_tune.model.inputs import BlockingInputs
from nginx_tune.model.protocol import read_path
from nginx_tune.model.sizes import SizeGroup
from nginx_tune.model.turns import chunk_wait_seconds, send_seconds, turn_wait_seconds

TLS = read_path(tls=True, http_version="1.1")
SITE = BlockingInputs(
    workers=1,
    page_cache_bytes=4e9,
    dataset_bytes=80e6,
    object_bytes=2.6e6,
    classes=zipf_classes(32.0, 0.4),
    disk=TYPICAL["ssd"],
    read_bytes=float(TLS.task_bytes),
    goes_on_bytes=float(TLS.goes_on_bytes),
    rate_per_second=31.0,
    clients_keep_pace=True,
    encrypts=True,
    sizes=(SizeGroup(0.88, 0.01), SizeGroup(0.12, 8.26)),
)
"""One file in eight is of 21 MB, the others are small."""
FROM_MEMORY = replace(
    SITE,
    object_bytes=1.03e6,
    goes_on_bytes=0.0,
    sendfile_bytes=2.0 * (1 << 20),
    rate_per_second=None,
    concurrency=64.0,
    encrypts=False,
    sizes=(SizeGroup(0.67, 0.0113), SizeGroup(0.22, 0.0832), SizeGroup(0.11, 8.77)),
)
"""drawn-5309-039: one file in nine is of 9 MB, and 64 clients wait for their answers."""


def simulated_wait(i: BlockingInputs, arrivals: int) -> float:
    """Mean wait of who comes to a loop that sends each answer in one turn, by Lindley."""
    rng = random.Random(11)
    weights = [group.share for group in i.sizes]
    wait, waits = 0.0, 0.0
    for _ in range(arrivals):
        waits += wait
        (group,) = rng.choices(i.sizes, weights)
        service = send_seconds(i, group.over_mean * i.object_bytes)
        wait = max(0.0, wait + service - rng.expovariate(i.rate_per_second or 0.0))
    return waits / arrivals


@pytest.mark.parametrize("rate", [5.0, 31.0, 200.0])
def test_others_wait_as_behind_a_simulated_loop(rate: float) -> None:
    busy = replace(SITE, rate_per_second=rate)
    assert turn_wait_seconds(busy, 0.0) == pytest.approx(simulated_wait(busy, 300_000), rel=0.1)


def test_large_answers_over_tls_pay_for_pools_though_memory_has_them_all() -> None:
    p = predict(SITE)
    assert p.hit_ratio == pytest.approx(1.0)
    assert p.wait_off_seconds < 1e-9
    assert p.turns_are_felt
    assert p.pools_pay
    assert p.only_others


@pytest.mark.parametrize(
    "changed",
    [
        {"clients_keep_pace": False},
        {"goes_on_bytes": 0.0},  # a turn of sendfile ends after a chunk
        {"rate_per_second": 0.5},
        {"rate_per_second": 100_000.0},  # no CPU to spare for handing over
        {"rate_per_second": None},
        {"object_bytes": 30e3},
        {"can_offload": False},
    ],
)
def test_pools_do_not_pay_where_no_turn_is_felt(changed: dict[str, float]) -> None:
    assert not predict(replace(SITE, **changed)).pools_pay  # type: ignore[arg-type]


def test_encrypting_makes_handing_over_a_smaller_part_of_the_cpu_time() -> None:
    tasks = SITE.tasks_per_request
    plain = cpu_ratio(tasks, SITE.object_bytes, of_files=0.4)
    assert plain > 3
    over_tls = cpu_ratio(tasks, SITE.object_bytes, of_files=0.4, encrypts=True)
    assert over_tls == pytest.approx(1.65, rel=0.1)  # drawn-4201-004: 0.75 ms for 0.45


@pytest.mark.parametrize(
    ("transfers", "chunk_kilobytes", "measured_seconds"),
    [
        (64, 2048, 19.2e-3),
        (64, 1024, 11.2e-3),
        (64, 512, 3.1e-3),
        (64, 128, 1.04e-3),
        (4, 2048, 1.28e-3),
        (4, 1024, 0.78e-3),
        (4, 512, 0.46e-3),
        (4, 128, 0.23e-3),
    ],
)
def test_others_wait_for_a_chunk_of_each_file_as_was_measured(
    transfers: float, chunk_kilobytes: int, measured_seconds: float
) -> None:
    """One worker, small requests beside the files; a request takes 0.1 ms by itself."""
    site = replace(FROM_MEMORY, concurrency=transfers)
    waits = chunk_wait_seconds(site, chunk_kilobytes << 10)
    assert 0.5 < (waits + 0.1e-3) / measured_seconds < 2.0


def test_with_a_rate_others_wait_for_passes_and_no_longer_than_all_that_are_under_way() -> None:
    seldom = replace(FROM_MEMORY, rate_per_second=100.0)
    alone = replace(seldom, concurrency=None)
    assert 0 < chunk_wait_seconds(seldom, 2 << 20) <= chunk_wait_seconds(FROM_MEMORY, 2 << 20)
    assert chunk_wait_seconds(alone, 2 << 20) < chunk_wait_seconds(
        replace(alone, rate_per_second=200.0), 2 << 20
    )
    always = replace(alone, rate_per_second=1e6)
    assert chunk_wait_seconds(always, 2 << 20) > 0.2e-3
    chunks = [128 << 10, 512 << 10, 1 << 20, 2 << 20]
    waits = [chunk_wait_seconds(seldom, chunk) for chunk in chunks]
    assert waits == sorted(waits)


@pytest.mark.parametrize("slow", [{"clients_keep_pace": False}, {"sendfile_bytes": 0.0}])
def test_no_chunk_is_waited_for_where_sockets_are_full_or_buffers_are_sent(
    slow: dict[str, float],
) -> None:
    assert chunk_wait_seconds(replace(FROM_MEMORY, **slow), 2 << 20) == 0  # type: ignore[arg-type]
