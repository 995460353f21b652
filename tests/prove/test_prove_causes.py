"""Causes from made-up windows: what each stands on, and what must not be named."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import asdict, replace

from nginx_tune.documents.base import Unknown
from nginx_tune.documents.measurement import (
    DiskUse,
    ListenerUse,
    LoopTurn,
    ServerMeasurement,
    StubStatus,
    WorkerUse,
)
from nginx_tune.prove.causes import arrival_wait_seconds, find_causes
from nginx_tune.prove.tally import latency_of


def turns(values: dict[int, int], blocked_seconds: float) -> LoopTurn:
    busy = sum(value * count for value, count in values.items()) / 1e9
    return LoopTurn(
        **asdict(latency_of(Counter(values))), method="bpftrace", busy_seconds=busy,
        blocked_seconds=blocked_seconds, traced_ratio=1.0,
    )  # fmt: skip


IDLE = WorkerUse(
    pid=1, state_d_ratio=0.0, state_samples=1000, state_d_error=0.0, main_thread_cpu_seconds=0.1,
    run_queue_seconds=0.0, threads=1, loop_blocked_seconds=0.0,
)  # fmt: skip
QUIET = ServerMeasurement(
    pool_overflow=0, connections_exhausted=0, listen_overflows=0, listen_drops=0,
    loop_turn_seconds=turns({10_000: 5000}, 0.0), workers=[IDLE, IDLE],
)  # fmt: skip


def ids(server: ServerMeasurement, seconds: float = 10.0) -> list[str]:
    return [cause.id for cause in find_causes(server, duration_seconds=seconds)]


def blocked(ratio: float, **changes: object) -> WorkerUse:
    worker = replace(IDLE, state_d_ratio=ratio, state_d_error=0.01, loop_blocked_seconds=ratio * 10)
    return replace(worker, **changes)


def test_nothing_is_named_where_nothing_is() -> None:
    assert ids(QUIET) == ["nothing-found"]


def test_a_disk_that_fails_is_named_first() -> None:
    failing = replace(QUIET, read_errors=3, pool_overflow=2)
    assert ids(failing) == ["disk-read-errors", "pool-queue-overflow"]
    assert ids(replace(QUIET, read_errors=0)) == ["nothing-found"]


def test_high_load_and_busy_disks_alone_are_no_cause() -> None:
    busy = replace(QUIET, disks=[DiskUse(name="sda", utilisation_ratio=1.0, in_flight=40.0)])
    assert ids(busy) == ["nothing-found"]


def test_blocking_by_trace_counters_and_samples() -> None:
    traced = replace(
        QUIET, workers=[blocked(0.6)], loop_turn_seconds=turns({80_000_000: 75}, 6.0)
    )  # fmt: skip
    counted = replace(
        QUIET, loop_turn_seconds=None, block_io_delay_seconds=6.0,
        block_io_delay_method="taskstats",
        workers=[replace(IDLE, block_io_delay_seconds=6.0, loop_blocked_seconds=None)],
    )  # fmt: skip
    sampled = replace(
        QUIET, loop_turn_seconds=None, workers=[blocked(0.6, loop_blocked_seconds=None)]
    )
    for server, confidence, words in (
        (traced, "high", "60 % of the window"),
        (counted, "high", "60 % of the window"),
        (sampled, "medium", "60 ± 1 % of the window"),
    ):
        cause = find_causes(server, duration_seconds=10.0)[0]
        assert cause.id == "loop-blocked-on-disk"
        assert cause.confidence == confidence
        assert words in cause.summary
        assert "thread pools would take" in cause.summary


def test_a_blocked_worker_among_many_is_found() -> None:
    server = replace(QUIET, workers=[IDLE] * 15 + [blocked(0.5)])
    assert ids(server) == ["loop-blocked-on-disk"]


def test_a_sampled_share_must_be_clear_of_its_error() -> None:
    worker = replace(blocked(0.06), state_d_error=0.05, loop_blocked_seconds=None)
    assert ids(replace(QUIET, loop_turn_seconds=None, workers=[worker])) == ["nothing-found"]


def test_with_pools_running_more_pools_are_not_the_advice() -> None:
    server = replace(QUIET, workers=[blocked(0.6, threads=33)])
    cause = find_causes(server, duration_seconds=10.0)[0]
    assert "open()" in cause.summary
    assert "would take" not in cause.summary


def test_lost_requests_come_first() -> None:
    server = replace(
        QUIET, workers=[blocked(0.6)], pool_overflow=7, pool_overflow_by_pool={"p": 7},
        connections_exhausted=3, listen_overflows=4,
        listeners=[ListenerUse(address="0.0.0.0", port=80, drops=4, backlog=511)],
    )  # fmt: skip
    assert ids(server) == [
        "pool-queue-overflow", "connections-exhausted", "accept-queue-overflow",
        "loop-blocked-on-disk",
    ]  # fmt: skip


def test_drops_at_others_listeners_are_not_ours() -> None:
    assert ids(replace(QUIET, listen_overflows=50, listen_drops=50)) == ["nothing-found"]


def test_cpu_queues_and_unevenness() -> None:
    assert ids(replace(QUIET, workers=[replace(IDLE, main_thread_cpu_seconds=9.9)])) == [
        "cpu-saturated"
    ]
    assert ids(replace(QUIET, workers=[replace(IDLE, run_queue_seconds=4.0)])) == ["cpu-contention"]
    uneven = [replace(IDLE, connections=n, connection_ratio=n / 100) for n in (97.0, 1.0, 1.0, 1.0)]
    assert ids(replace(QUIET, workers=uneven)) == ["uneven-workers"]
    wait = latency_of(Counter({50_000_000: 2000}))
    assert ids(replace(QUIET, pool_queue_wait_seconds=wait)) == ["pool-queue-wait"]
    status = StubStatus(requests=9, requests_per_second=1, accepts=9, dropped=2, active=1)
    assert ids(replace(QUIET, stub_status=status)) == ["connections-exhausted"]


def test_too_little_is_said_to_be_too_little() -> None:
    bare = ServerMeasurement(workers=[WorkerUse(pid=1)])
    reason = Unknown(path="/server/loop_turn_seconds", reason="no right to trace")
    found = find_causes(bare, duration_seconds=10.0, unknown=[reason])
    assert [cause.id for cause in found] == ["not-enough-evidence"]
    assert found[0].not_known == ["no right to trace"]
    assert ids(QUIET, 0.2) == ["not-enough-evidence"]
    assert ids(replace(QUIET, workers=[])) == ["not-enough-evidence"]


def test_the_wait_of_an_arrival() -> None:
    """One turn of a second in ten: a tenth of the arrivals wait half a second on average."""
    wait = arrival_wait_seconds(turns({10**9: 1}, 0.0), workers=1, duration_seconds=10.0)
    assert wait is not None
    assert abs(wait - 0.05) < 0.001
