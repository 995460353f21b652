"""Waits behind large answers that memory holds, against a simulated loop and by what is known."""

import random
from dataclasses import replace

import pytest
from rows import each_row
from tiers import draws

from nginx_tune.decide.model.blocking import cpu_ratio, predict
from nginx_tune.decide.model.cache import zipf_classes
from nginx_tune.decide.model.disk import TYPICAL
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.reads import SizeGroup, read_path
from nginx_tune.decide.model.sending import chunk_wait_seconds, send_seconds, turn_wait

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


def simulated_waits(i: BlockingInputs, arrivals: int) -> tuple[float, float]:
    """Mean and p99 of who comes to a loop that reads and sends in one turn, by Lindley."""
    rng = random.Random(11)
    weights = [group.share for group in i.sizes]
    wait, waits = 0.0, []
    for _ in range(arrivals):
        waits.append(wait)
        (group,) = rng.choices(i.sizes, weights)
        size = group.over_mean * i.object_bytes
        service = send_seconds(i, size)
        if rng.random() < i.miss_ratio:
            pieces = max(1.0, size / i.longest_hold_bytes)
            service += pieces * i.disk.latency_seconds + size / i.disk.bytes_per_second
        wait = max(0.0, wait + service - rng.expovariate(i.rate_per_second or 0.0))
    return sum(waits) / arrivals, sorted(waits)[arrivals * 99 // 100]


@each_row("rate", [5.0, 31.0, 200.0])
def test_others_wait_as_behind_a_simulated_loop(rate: float) -> None:
    busy = replace(SITE, rate_per_second=rate)
    mean, _ = simulated_waits(busy, draws(100_000, 300_000))
    assert turn_wait(busy, 0.0).mean_seconds == pytest.approx(mean, rel=0.1)


@pytest.mark.long
@each_row(("rate", "miss"), [(10.0, 0.0), (31.0, 0.0), (10.0, 0.4), (31.0, 0.4)])
def test_one_in_a_hundred_waits_as_behind_a_simulated_loop(rate: float, miss: float) -> None:
    """With 40 % of cold files a turn is of reads too, and twice as long."""
    busy = replace(SITE, rate_per_second=rate)
    if miss:
        room = (1 - miss) * SITE.dataset_bytes / 0.9
        busy = replace(busy, page_cache_bytes=room, classes=zipf_classes(32.0, 0.0))
        assert busy.miss_ratio == pytest.approx(miss, abs=0.02)
    _, p99 = simulated_waits(busy, draws(100_000, 300_000))
    assert turn_wait(busy, 0.0).p99_seconds == pytest.approx(p99, rel=0.15)


@each_row(
    ("rate", "large_bytes", "measured_p99_seconds"),
    [(91.12, 7654e3, 4.6e-3), (7.42, 15690e3, 5.0e-3), (7.42, 5692e3, 1.2e-3)],
    ids=["drawn-5309-005", "drawn-7717-031", "drawn-7717-004"],
)
def test_the_tail_behind_turns_is_felt_where_it_was_measured(
    rate: float, large_bytes: float, measured_p99_seconds: float
) -> None:
    """One file in seven is large; 0.2 to 0.6 ms with pools."""
    site = replace(
        SITE,
        rate_per_second=rate,
        object_bytes=large_bytes / 7,
        sizes=(SizeGroup(6 / 7, 0.01), SizeGroup(1 / 7, 6.94)),
    )
    p = predict(site)
    assert p.turn_wait_seconds < 0.3e-3
    assert p.pools_pay == p.turns_are_felt == (measured_p99_seconds > 2e-3)


@each_row(("over_loop", "are_turns"), [(0.5, False), (1.05, True)], ids=["slower", "faster"])
def test_a_way_slower_than_a_loop_sends_ends_its_turns(
    over_loop: float, *, are_turns: bool
) -> None:
    """The sockets fill behind it, whoever keeps pace on its other side."""
    sends = SITE.object_bytes / send_seconds(SITE, SITE.object_bytes)
    found = turn_wait(replace(SITE, link_bytes_per_second=over_loop * sends), 0.0)
    assert (found.mean_seconds > 0) == (found.p99_seconds > 0) == are_turns


def test_a_link_that_bounds_requests_leaves_no_turns_of_whole_files() -> None:
    """Files of 2.8 GB on 10 Gbit/s: the link, not a rate, was what bounded them."""
    huge = replace(
        SITE,
        dataset_bytes=2.8e9 * 4,
        object_bytes=2.8e9,
        page_cache_bytes=64e9,
        rate_per_second=None,
        concurrency=64.0,
        workers=8,
        link_bytes_per_second=1.25e9,
        sizes=(),
    )
    p = predict(huge)
    assert p.hit_ratio == pytest.approx(1.0)
    assert p.turn_wait_seconds == p.turn_p99_seconds == 0.0


def test_large_answers_over_tls_pay_for_pools_though_memory_has_them_all() -> None:
    p = predict(SITE)
    assert p.hit_ratio == pytest.approx(1.0)
    assert p.wait_off_seconds < 1e-9
    assert p.turns_are_felt
    assert p.pools_pay
    assert p.only_others


@each_row(
    "changed",
    [
        {"clients_keep_pace": False},
        {"goes_on_bytes": 0.0},  # a turn of sendfile ends after a chunk
        {"rate_per_second": 0.5},
        {"rate_per_second": 100_000.0},  # no CPU to spare for handing over
        {"rate_per_second": None},
        {"object_bytes": 30e3},
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


@each_row(
    ("chunk_kilobytes", "measured_seconds"),
    [(2048, 2.82e-3), (1024, 2.07e-3), (512, 1.28e-3), (256, 0.81e-3), (128, 0.57e-3)],
)
def test_others_wait_for_a_chunk_of_each_file_as_was_measured(
    chunk_kilobytes: int, measured_seconds: float
) -> None:
    """drawn-5309-039 under Reno: one worker; a small request takes 0.2 ms by itself."""
    waits = chunk_wait_seconds(FROM_MEMORY, chunk_kilobytes << 10)
    assert 0.7 < (waits + 0.2e-3) / measured_seconds < 1.6


def test_with_a_rate_others_wait_for_passes_and_no_longer_than_all_that_are_under_way() -> None:
    seldom = replace(FROM_MEMORY, rate_per_second=100.0)
    alone = replace(seldom, concurrency=None)
    assert 0 < chunk_wait_seconds(seldom, 2 << 20) <= chunk_wait_seconds(FROM_MEMORY, 2 << 20)
    assert chunk_wait_seconds(alone, 2 << 20) < chunk_wait_seconds(
        replace(alone, rate_per_second=200.0), 2 << 20
    )
    always = replace(alone, rate_per_second=1e6)
    assert chunk_wait_seconds(always, 2 << 20) > 0.04e-3
    chunks = [128 << 10, 512 << 10, 1 << 20, 2 << 20]
    waits = [chunk_wait_seconds(seldom, chunk) for chunk in chunks]
    assert waits == sorted(waits)


@each_row("slow", [{"clients_keep_pace": False}, {"sendfile_bytes": 0.0}])
def test_no_chunk_is_waited_for_where_sockets_are_full_or_buffers_are_sent(
    slow: dict[str, float],
) -> None:
    assert chunk_wait_seconds(replace(FROM_MEMORY, **slow), 2 << 20) == 0  # type: ignore[arg-type]
