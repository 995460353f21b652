"""What was seen on the running server outranks what is assumed."""

from typing import Any

import msgspec
import pytest
from rows import each_row
from situations import GIBIBYTE, host, load, nginx, one, site
from situations import decide_without_break_evens as decide

from nginx_tune.decide import engine
from nginx_tune.decide.engine import situation_of
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts, Network, Running, Worker
from nginx_tune.documents.facts_machine import Listener
from nginx_tune.documents.measured_server import (
    HeldCall,
    ListenerUse,
    LoopTurn,
    ServerMeasurement,
    StubStatus,
    WorkerUse,
)
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.workload import Workload


def running(threads: int = 1, **other: Any) -> Facts:
    workers = [Worker(pid=n, threads=threads) for n in range(2, 10)]
    nginx_now = msgspec.structs.replace(nginx(), running=Running(pid=1, workers=workers))
    return host(nginx=nginx_now, **other)


def observed(**server: Any) -> Observation:
    return Observation(
        duration_seconds=30.0, worker_processes=8, server=ServerMeasurement(**server)
    )


def counted(requests: int) -> StubStatus:
    return StubStatus(
        requests=requests, requests_per_second=requests / 30, accepts=0, dropped=0, active=1
    )


def evidence(decision: Decision) -> dict[str, Any]:
    return {e.fact: (e.value, e.provenance) for e in decision.evidence}


def test_loops_seen_in_disk_reads_turn_pools_on_whatever_the_model_assumes() -> None:
    """A1: 12 of 240 loop seconds in reads, where the data was thought to be served rarely."""
    quiet = load(rate=0.01, peak=1)
    assert one(decide(running(), quiet, site=site()), "thread-pools").verdict == "disable"
    decisions = decide(
        running(), quiet, site=site(), observation=observed(block_io_delay_seconds=12)
    )
    d = one(decisions, "thread-pools")
    assert (d.verdict, d.confidence) == ("enable", "high")
    assert "5 % of the time (measured)" in d.summary
    assert evidence(d)["share of time a loop blocks in disk reads"] == (0.05, "measured")


def test_loops_seen_free_of_reads_leave_pools_off_whatever_the_model_assumes() -> None:
    assert one(decide(running(), load(), site=site()), "thread-pools").verdict == "enable"
    decisions = decide(
        running(), load(), site=site(), observation=observed(block_io_delay_seconds=0.0)
    )
    d = one(decisions, "thread-pools")
    assert d.verdict == "disable"
    assert one(decisions, "thread-pool-size").verdict == "not_applicable"


@pytest.mark.long
@each_row(
    ("idle", "served"),
    [
        ({"loop_turn_seconds": LoopTurn(count=0, blocked_seconds=0.0, traced_ratio=1.0)},
         {"loop_turn_seconds": LoopTurn(count=900, blocked_seconds=0.0, traced_ratio=1.0)}),
        ({"stub_status": counted(0), "loop_turn_seconds": LoopTurn(count=30), "cpu_seconds": 0.01},
         {"stub_status": counted(900), "cpu_seconds": 0.3}),
        ({"cpu_seconds": 0.0}, {"cpu_seconds": 0.3}),
        ({"loop_turn_seconds": LoopTurn(count=99, blocked_seconds=0.0, traced_ratio=1.0)},
         {"loop_turn_seconds": LoopTurn(count=100, blocked_seconds=0.0, traced_ratio=1.0)}),
        ({"stub_status": counted(99)}, {"stub_status": counted(100)}),
        ({"cpu_seconds": 0.004}, {"cpu_seconds": 0.006}),
    ],
)  # fmt: skip
def test_loops_that_had_nothing_to_do_are_no_evidence(
    idle: dict[str, Any], served: dict[str, Any]
) -> None:
    """A window at night showed loops without a wait, and turned pools off with high confidence."""
    fact = "share of time a loop blocks in disk reads"
    assumed = one(decide(running(), load(), site=site()), "thread-pools")
    for figures, verdict, known in ((idle, assumed.verdict, False), (served, "disable", True)):
        seen = observed(block_io_delay_seconds=0.0, state_d_ratio=0.0, **figures)
        d = one(decide(running(), load(), site=site(), observation=seen), "thread-pools")
        assert (d.verdict, fact in evidence(d)) == (verdict, known)
    assert assumed.verdict == "enable"


@each_row(
    ("calls", "verdict", "share"),
    [
        ({"sendfile": "read"}, "enable", 0.05),
        ({"write": "write"}, "disable", 0.0),
        ({"openat": "names"}, "disable", 0.0),
        ({"page fault": "page fault"}, "disable", 0.0),
        ({"sendfile": "read", "openat": "names"}, "enable", 0.025),
    ],
)
def test_only_waits_for_reads_turn_pools_on(
    calls: dict[str, str], verdict: str, share: float
) -> None:
    """Loops that stood in writes of a log, or in open(), stand there with pools too."""
    held = [HeldCall(state="D", call=call, kind=kind, ratio=0.03) for call, kind in calls.items()]
    seen = observed(block_io_delay_seconds=12, held_calls=held)
    decisions = decide(running(), load(rate=0.01, peak=1), site=site(), observation=seen)
    d = one(decisions, "thread-pools")
    assert d.verdict == verdict
    assert evidence(d)["share of time a loop blocks in disk reads"] == (share, "measured")


@each_row("blocked_seconds", [0.0, 0.2, 12.0, 200.0])
def test_the_break_even_of_the_measured_share_is_right(blocked_seconds: float) -> None:
    def verdict(seconds: float) -> Decision:
        o = observed(block_io_delay_seconds=seconds)
        return one(engine.decide(running(), load(), site=site(), observation=o), "thread-pools")

    d = verdict(blocked_seconds)
    (flip,) = d.break_evens
    at = flip.value * 240
    assert verdict(at * 1.02).verdict == "enable"
    assert verdict(at / 1.02).verdict == "disable"


def test_free_loops_say_nothing_while_pools_keep_them_free() -> None:
    o = observed(block_io_delay_seconds=0.0)
    decisions = decide(running(threads=33), load(), site=site(), observation=o)
    assert one(decisions, "thread-pools").verdict == "enable"


def test_tracepoints_are_surer_than_delay_accounting() -> None:
    turns = LoopTurn(blocked_seconds=60.0, traced_ratio=0.5)
    o = observed(loop_turn_seconds=turns, block_io_delay_seconds=0.0)
    d = one(decide(running(), load(), site=site(), observation=o), "thread-pools")
    assert evidence(d)["share of time a loop blocks in disk reads"] == (0.5, "measured")


def test_rate_reuse_and_cpu_take_the_place_of_what_was_assumed() -> None:
    status = StubStatus(requests=3000, requests_per_second=100.0, accepts=300, dropped=0, active=40)
    o = observed(stub_status=status, cpu_seconds=0.6)
    d = one(decide(running(), Workload(), site=site(), observation=o), "reuseport")
    assert evidence(d)["workload.rate"] == (100, "measured")
    assert evidence(d)["new connections"] == (10, "measured")
    said = load(rate=5000.0)
    d = one(decide(running(), said, site=site(), observation=o), "reuseport")
    assert evidence(d)["workload.rate"] == (5000, "declared")


def test_overflows_of_the_accept_queue_raise_the_backlog() -> None:
    listener = ListenerUse(address="*", port=80, backlog=511)
    o = observed(listen_overflows=7, listeners=[listener])
    facts = running(network=Network(somaxconn=4096))
    d = one(decide(facts, load(), site=site(), observation=o), "backlog")
    assert d.verdict == "raise"
    assert d.settings[0].args == ["backlog=1022"]
    assert "overflowed 7 times" in d.summary
    assert any("listen() again only when backlog changes" in risk for risk in d.risks)


def test_refused_tasks_raise_the_pool() -> None:
    """A14."""
    o = observed(pool_overflow=12, block_io_delay_seconds=20)
    d = one(decide(running(), load(), site=site(), observation=o), "thread-pool-size")
    assert d.verdict == "raise"
    assert "12 tasks refused" in d.summary


def test_a_window_that_is_unfit_is_not_used() -> None:
    o = msgspec.structs.replace(
        observed(block_io_delay_seconds=100.0), flags=["workers were replaced"]
    )
    plain = decide(running(), load(), site=site())
    assert encode(decide(running(), load(), site=site(), observation=o)) == encode(plain)
    short = msgspec.structs.replace(observed(block_io_delay_seconds=0.1), duration_seconds=0.0)
    assert encode(decide(running(), load(), site=site(), observation=short)) == encode(plain)


def test_busy_disks_and_waiting_threads_are_no_harm() -> None:
    """A6: with pools load average, iowait and virtual size rise while everything gets better.

    Nor what comes closest: how busy disks are, CPU ready to run, state D of a pool's threads.
    """
    worker = WorkerUse(
        pid=2, cpu_seconds=20.0, run_queue_seconds=9.0, threads=33, virtual_bytes=309 << 20
    )
    calm = observed(block_io_delay_seconds=0.0)
    busy = observed(
        block_io_delay_seconds=0.0, workers=[worker], disk_read_bytes=10**12, refaults=10**6,
        host_load=173.0, iowait_ratio=0.615,
    )  # fmt: skip
    fit = load(data_bytes=GIBIBYTE)
    for workload in (load(), fit):
        both = [
            encode(decide(running(33), workload, site=site(), observation=o)) for o in (calm, busy)
        ]
        assert both[0] == both[1]


def test_an_ordinary_user_has_the_count_of_the_network_namespace() -> None:
    """Sockets that do not tell their drops; the kernel's own counter does."""
    silent = Listener(address="0.0.0.0", port=80, backlog=511)
    for overflows, listener, expected in (
        (2_500_000, silent, "raise"),
        (9, silent, "keep"),
        (2_500_000, msgspec.structs.replace(silent, drops=0), "keep"),
        (2_500_000, msgspec.structs.replace(silent, port=22), "keep"),
        (2_500_000, msgspec.structs.replace(silent, of_nginx=False), "keep"),
    ):
        facts = msgspec.structs.replace(
            host(), listeners=[listener], network=Network(listen_overflows=overflows)
        )
        found = one(decide(facts, load(), site=site()), "backlog")
        assert found.verdict == expected, (overflows, listener)
        if expected == "raise":
            assert "overflowed 2500000 times" in found.summary


@each_row(
    ("listener", "expected"),
    [
        (
            Listener(address="0.0.0.0", port=80, backlog=511, drops=2_500_000, of_nginx=True),
            "raise",
        ),
        (Listener(address="0.0.0.0", port=443, backlog=511, drops=9), "raise"),
        (Listener(address="0.0.0.0", port=22, backlog=128, drops=2_500_000), "keep"),
        (Listener(address="0.0.0.0", port=80, backlog=128, drops=9, of_nginx=False), "keep"),
        (Listener(address="0.0.0.0", port=80, backlog=511, drops=0, of_nginx=True), "keep"),
    ],
)
def test_drops_at_its_sockets_raise_the_backlog(listener: Listener, expected: str) -> None:
    """What the audit finds in the facts is no news to the decision."""
    facts = msgspec.structs.replace(host(), listeners=[listener])
    d = next(d for d in decide(facts, load(), site=site()).decisions if d.id == "backlog")
    assert d.verdict == expected
    if expected == "raise":
        assert [s.args for s in d.settings] == [["backlog=1022"]]
        assert f"{listener.drops}" in d.summary


def test_the_cache_of_zfs_is_its_own() -> None:
    facts = host(page_cache_bytes=48 * GIBIBYTE)
    memory = msgspec.structs.replace(facts.memory, arc_limit_bytes=8 * GIBIBYTE)
    places = [msgspec.structs.replace(p, filesystem="zfs") for p in facts.storage.paths]
    facts = msgspec.structs.replace(
        facts, memory=memory, storage=msgspec.structs.replace(facts.storage, paths=places)
    )
    assert situation_of(facts, load(), site=site()).page_cache.value == 8 * GIBIBYTE
