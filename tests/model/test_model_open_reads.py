"""Files that a loop reads in turn: how long it stands in them, against a simulated disk."""

import random
from collections import deque
from dataclasses import replace

import pytest
from rows import each_row

from nginx_tune.decide.model.blocking import predict
from nginx_tune.decide.model.cache import zipf_classes
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.open_reads import apart_ratio

MEBIBYTE = 1 << 20
DISK = ModelDisk(0.008, 160e6, heads=1, spread=0.1)
SITE = BlockingInputs(
    workers=1,
    page_cache_bytes=400e6,
    dataset_bytes=900e6,
    object_bytes=5.6e6,
    classes=zipf_classes(160.0, 0.0),
    disk=DISK,
    read_bytes=512.0 * 1024,
    window_bytes=512.0 * 1024,
    turn_bytes=256.0 * 1024,
    sendfile_bytes=2.0 * MEBIBYTE,
    rate_per_second=7.0,
    clients_keep_pace=True,
)
"""drawn-6151-015: files of 5.6 MB, of which half are cold, from a hard disk to one loop."""


def simulated_ratio(i: BlockingInputs, seconds: float) -> float:
    """Share of time in reads: each file has its turn, and a file after another one is sought."""
    chance, clock, busy = random.Random(3), 0.0, 0.0
    rate = (i.rate_per_second or 0.0) * i.miss_ratio
    comes, last = chance.expovariate(rate), -1
    under_way: deque[tuple[int, float]] = deque()
    number = 0
    while clock < seconds:
        while comes <= clock or not under_way:
            clock = max(clock, comes if not under_way else clock)
            under_way.append((number, i.object_bytes))
            number, comes = number + 1, comes + chance.expovariate(rate)
        file, left = under_way.popleft()
        piece = min(left, i.longest_hold_bytes)
        spent = piece / DISK.bytes_per_second + (DISK.latency_seconds if file != last else 0.0)
        clock, busy, last = clock + spent, busy + spent, file
        if left > piece:
            under_way.append((file, left - piece))
    return busy / clock


@each_row("keeps_pace", [True, False])
@each_row("rate", [2.0, 7.0])
def test_a_loop_stands_in_reads_as_simulated(rate: float, *, keeps_pace: bool) -> None:
    """It reads 2 MiB on end for a client that keeps pace, else no more than a window."""
    i = replace(SITE, rate_per_second=rate, clients_keep_pace=keeps_pace)
    assert predict(i).blocked_ratio == pytest.approx(simulated_ratio(i, 3000.0), rel=0.15)


def test_what_is_read_on_end_is_sought_less_often() -> None:
    assert predict(SITE).blocked_ratio == pytest.approx(0.19, abs=0.03)  # measured: 0.15
    slow = replace(SITE, clients_keep_pace=False)
    assert predict(slow).blocked_ratio > 1.25 * predict(SITE).blocked_ratio


def test_files_that_never_meet_hold_a_loop_for_the_least() -> None:
    """drawn-6151-009: two loops that go to and fro between files of 9 MB fall behind for good."""
    tls = replace(
        SITE,
        workers=2,
        object_bytes=9.4e6,
        window_bytes=128.0 * 1024,
        read_bytes=32.0 * 1024,
        goes_on_bytes=4.0 * MEBIBYTE,
        sendfile_bytes=0.0,
        encrypts=True,
    )
    files = 7.0 * tls.miss_ratio
    assert predict(tls).blocked_ratio > 0.9
    assert apart_ratio(tls, files) == pytest.approx(0.13, abs=0.02)  # as measured
    assert apart_ratio(tls, 1e9) == 1.0
