import math
import random

import pytest
from rows import each_row
from simulation import Action, Clock, Station, divided, gamma, poisson
from tiers import draws

from nginx_tune.decide.model.blocking import predict
from nginx_tune.decide.model.cache import zipf_classes
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.reads import ReadPath, read_path

MEBIBYTE = 1 << 20


@each_row(
    ("path", "tasks"),
    [
        (read_path(tls=True, http_version="1.1"), 245),
        (read_path(tls=False, http_version="1.1", gzip=True), 245),
        (read_path(tls=False, http_version="1.1", sendfile=False), 245),
        (read_path(tls=False, http_version="2"), 977),
    ],
)
def test_reads_of_one_response_are_those_measured(path: ReadPath, tasks: int) -> None:
    """Counted in the debug log: pool tasks of one response of 8 000 000 bytes."""
    assert math.ceil(8_000_000 / path.task_bytes) == tasks


def test_small_reads_find_what_was_read_ahead() -> None:
    tls = read_path(tls=True, http_version="1.1")
    assert tls.window_bytes(0) == 128 << 10
    assert tls.window_bytes(8 * MEBIBYTE) == 512 << 10
    assert tls.window_bytes(4096) == 32 << 10
    assert read_path(tls=False, http_version="1.1").window_bytes(0) == 512 << 10


def simulate_blocked(path: ReadPath, *, workers: int, rate: float, size: int, miss: float) -> float:
    """Share of time in disk reads of loops that read every cold window themselves.

    A window takes its transfer, and a start unless the loop's last one was of the same file;
    reads that follow inside a window take nothing. Each worker does one thing at a time.
    """
    clock, rng = Clock(), random.Random(23)
    loops = [Station(clock, 1) for _ in range(workers)]
    last: dict[int, object] = {}
    part = divided(clock, rng, workers, every=2)

    def request() -> None:
        if rng.random() >= miss:
            return
        number = part()
        left, me = size, object()

        def one_window() -> None:
            loops[number].take(read)

        def read(done: Action) -> None:
            nonlocal left
            window = min(left, path.window_bytes(0))
            left -= window
            start = 0.0 if last.get(number) is me else gamma(rng, 0.004, 0.5)
            last[number] = me

            def finish() -> None:
                loops[number].busy_seconds += start + window / 100e6
                done()
                if left > 0:
                    one_window()

            clock.after(start + window / 100e6, finish)

        one_window()

    poisson(clock, rng, rate, request)
    seconds = draws(250, 400)
    clock.run(seconds)
    return sum(loop.busy_seconds for loop in loops) / workers / seconds


@pytest.mark.long
@each_row(
    ("tls", "version"), [(False, "1.1"), (True, "1.1"), (False, "2")], ids=["sendfile", "tls", "h2"]
)
@each_row("workers", [1, 4])
def test_the_blocked_share_is_that_of_simulated_loops(
    tls: bool, version: str, workers: int
) -> None:
    path = read_path(tls=tls, http_version=version)
    size, objects = MEBIBYTE, 1000.0
    inputs = BlockingInputs(
        workers=workers,
        page_cache_bytes=objects * size * 0.6 / 0.9,
        dataset_bytes=objects * size,
        object_bytes=size,
        classes=zipf_classes(objects, 0.0),
        # Each loop reads from a disk of its own here, so that heads are never shared.
        disk=ModelDisk(0.004, 100e6, heads=100 if workers > 1 else 1, spread=0.5),
        read_bytes=path.task_bytes,
        window_bytes=path.window_bytes(0),
        rate_per_second=20.0 * workers,
    )
    p = predict(inputs)
    assert p.hit_ratio == pytest.approx(0.6, abs=0.01)
    simulated = simulate_blocked(path, workers=workers, rate=20.0 * workers, size=size, miss=0.4)
    assert p.blocked_ratio == pytest.approx(simulated, rel=0.1)
