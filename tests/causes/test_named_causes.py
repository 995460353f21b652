"""Causes from made-up windows: what each stands on, and what must not be named."""

from collections import Counter
from typing import Any

from msgspec.structs import asdict, replace
from rows import each_row

from nginx_tune.documents.base import Unknown
from nginx_tune.documents.log_messages import MESSAGES_BY_ID, LoggedMessage
from nginx_tune.documents.measured_server import (
    DiskUse,
    HeldCall,
    ListenerUse,
    LoopTurn,
    Quota,
    ServerMeasurement,
    StubStatus,
    Waiting,
    WorkerUse,
)
from nginx_tune.documents.observation import Cause
from nginx_tune.measure.proof.latency import latency_of
from nginx_tune.observe.causes.naming import find_causes
from nginx_tune.observe.causes.parts import arrival_wait_seconds, read_bytes_per_second, what_ran


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


def served(requests: int) -> StubStatus:
    return StubStatus(requests=requests, requests_per_second=1.0, accepts=9, dropped=0, active=1)


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


def test_drops_without_an_overflow_are_no_full_queue() -> None:
    dropping = [ListenerUse(address="0.0.0.0", port=80, drops=4, backlog=511)]
    assert ids(replace(QUIET, listeners=dropping)) == ["nothing-found"]
    unknown = replace(QUIET, listeners=dropping, listen_overflows=None)
    assert ids(unknown) == ["accept-queue-overflow"]


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
    idle = replace(QUIET, loop_turn_seconds=LoopTurn(method="tracefs", traced_ratio=1.0))
    (cause,) = find_causes(idle, duration_seconds=10.0)
    assert (cause.id, cause.summary) == (
        "not-enough-evidence", "no request reached the server in this window",
    )  # fmt: skip
    assert cause.next_command == "nginx-tune observe --duration 5min"
    assert ids(replace(QUIET, workers=[])) == ["not-enough-evidence"]


@each_row(
    ("figures", "is_idle", "figure"),
    [
        ({"loop_turn_seconds": turns({10_000: 99}, 0.0)}, True, "99 turns of all loops"),
        ({"loop_turn_seconds": turns({10_000: 100}, 0.0)}, False, ""),
        ({"stub_status": served(99)}, True, "99 requests"),
        ({"stub_status": served(100)}, False, ""),
        ({"loop_turn_seconds": None, "state_d_ratio": 0.0, "cpu_seconds": 0.004}, True, "4 ms"),
        ({"loop_turn_seconds": None, "state_d_ratio": 0.0, "cpu_seconds": 0.2}, False, ""),
    ],
)
def test_a_window_with_next_to_no_traffic_shows_nothing(
    figures: dict[str, Any], figure: str, *, is_idle: bool
) -> None:
    """At three in the morning no loop waits for a disk: that is no finding."""
    workers = [replace(IDLE, state_d_ratio=0.0, state_samples=2000, state_d_error=0.01)] * 2
    (cause,) = find_causes(replace(QUIET, workers=workers, **figures), duration_seconds=10.0)
    assert cause.id == ("not-enough-evidence" if is_idle else "nothing-found")
    assert figure in " ".join(cause.not_known)
    if is_idle:
        assert cause.summary == "almost no request reached the server in this window"


def test_workers_that_were_replaced_are_no_idle_ones() -> None:
    idle = replace(QUIET, loop_turn_seconds=LoopTurn(method="tracefs", traced_ratio=1.0))
    gone = Unknown(path="/server/cpu_seconds", reason="workers that ended: 2")
    (cause,) = find_causes(idle, duration_seconds=10.0, unknown=[gone])
    assert cause.id == "not-enough-evidence"
    assert cause.summary.startswith("workers were replaced in this window")
    assert cause.not_known == ["the work of the other workers: workers that ended: 2"]


def test_little_traffic_that_waits_is_found_all_the_same() -> None:
    waits = replace(QUIET, loop_turn_seconds=turns({500_000_000: 12}, 6.0), workers=[blocked(0.6)])
    assert ids(waits) == ["loop-blocked-on-disk"]


def test_the_wait_of_an_arrival() -> None:
    """One turn of a second in ten: a tenth of the arrivals wait half a second on average."""
    wait = arrival_wait_seconds(turns({10**9: 1}, 0.0), workers=1, duration_seconds=10.0)
    assert wait is not None
    assert abs(wait - 0.05) < 0.001


def held(seconds: float, count: int = 1, **parts: float) -> LoopTurn:
    """Turns of a length, of which each part is a share of the whole."""
    wait = seconds**2 * count / 2 / 10 / 2
    by = {part: share * wait for part, share in parts.items()}
    by["computing"] = wait - sum(by.values())
    busy = seconds * count
    return replace(
        turns({round(seconds * 1e9): count, 10_000: 5000}, busy * parts.get("blocked", 0.0)),
        arrival_wait_seconds=wait,
        arrival_wait_by=by,
        asleep_seconds=busy * parts.get("asleep", 0.0),
        queued_seconds=busy * parts.get("queued", 0.0),
    )


def first(server: ServerMeasurement, **options: float) -> Cause:
    return find_causes(server, duration_seconds=10.0, **options)[0]


def test_a_loop_held_by_computing_is_named_with_what_ran() -> None:
    busy = replace(IDLE, main_thread_cpu_seconds=6.0, user_ratio=0.9)
    server = replace(QUIET, workers=[busy, IDLE], loop_turn_seconds=held(2.0, 3))
    cause = first(server)
    assert cause.id == "loop-held-by-cpu"
    assert "90 % of that outside the kernel" in cause.summary
    sampled = replace(server, cpu_samples={"libz": 900, "kernel": 80, "libc": 20})
    assert "90 % zlib (compression), 8 % the kernel" in first(sampled).summary
    # The same turns with all of a CPU used are one cause, not two.
    full = replace(sampled, workers=[replace(busy, main_thread_cpu_seconds=9.9)])
    assert ids(full) == ["loop-held-by-cpu"]


def test_long_turns_are_never_nothing() -> None:
    """Whatever holds them: a part that is known is named, else it is said not to be known."""
    for seconds in (0.12, 0.5, 3.0):
        for part, named in (
            ("computing", "loop-held-by-cpu"), ("asleep", "loop-asleep-in-call"),
            ("queued", "cpu-contention"), ("stopped", "cause-not-known"),
        ):  # fmt: skip
            shares = {} if part == "computing" else {part: 0.95}
            ran = replace(IDLE, main_thread_cpu_seconds=0.1 + seconds * (1 - sum(shares.values())))
            long = held(seconds, 1, **shares)
            found = ids(replace(QUIET, workers=[ran, IDLE], loop_turn_seconds=long))
            assert found == [named], (seconds, part)
    mixed = held(0.2, 1, queued=0.4, asleep=0.2, stopped=0.0)
    assert ids(replace(QUIET, loop_turn_seconds=mixed)) == ["cause-not-known"]
    cause = first(replace(QUIET, loop_turn_seconds=mixed))
    assert cause.confidence == "low"
    assert "the longest turn took" in cause.summary
    bound = replace(mixed, at_least=["max"])
    assert "took ≥ 20" in first(replace(QUIET, loop_turn_seconds=bound)).summary


def test_no_computing_is_named_that_the_threads_clock_rules_out() -> None:
    """A trace that misses how a thread leaves its CPU shows a wait as computing."""
    server = replace(QUIET, workers=[IDLE], loop_turn_seconds=held(0.5, 18))
    assert ids(server) == ["cause-not-known"]
    ran = [replace(IDLE, main_thread_cpu_seconds=6.0)]
    assert ids(replace(server, workers=ran)) == ["loop-held-by-cpu"]
    stolen = [replace(IDLE, main_thread_cpu_seconds=2.0)]
    assert ids(replace(server, workers=stolen)) == ["cause-not-known"]
    assert "loop-held-by-cpu" in ids(replace(server, workers=stolen, steal_ratio=0.7))


def test_a_busy_loop_whose_turns_nobody_timed_is_not_free() -> None:
    busy = replace(IDLE, main_thread_cpu_seconds=7.0, loop_blocked_seconds=None)
    server = replace(QUIET, workers=[busy, IDLE], loop_turn_seconds=None)
    assert ids(server) == ["cause-not-known"]
    light = replace(server, workers=[replace(busy, main_thread_cpu_seconds=2.0), IDLE])
    cause = first(light)
    assert (cause.id, cause.confidence) == ("nothing-found", "medium")
    assert "how long single turns were" in cause.not_known


def test_the_objective_decides_what_is_long() -> None:
    server = replace(QUIET, loop_turn_seconds=held(0.03, 1))
    assert first(server).id == "nothing-found"
    assert first(server, allowed_seconds=0.02).id == "loop-held-by-cpu"
    ran = replace(IDLE, main_thread_cpu_seconds=0.5)
    slow = replace(QUIET, workers=[ran, IDLE], loop_turn_seconds=held(0.4, 1))
    assert first(slow).id == "loop-held-by-cpu"
    assert first(slow, allowed_seconds=5.0).id == "nothing-found"


def call(state: str, name: str, kind: str, ratio: float, file: str = "") -> HeldCall:
    return HeldCall(state=state, call=name, kind=kind, ratio=ratio, file=file)


def test_what_waits_for_the_disk_is_told_by_its_call() -> None:
    base = replace(QUIET, workers=[blocked(0.6)])
    log = call("D", "write", "write", 0.5, "/var/log/nginx/access.log")
    for calls, name, words in (
        ([call("D", "sendfile", "read", 0.5, "a file")], "loop-blocked-on-disk", "these reads"),
        ([log], "loop-blocked-on-writes", "/var/log/nginx/access.log: the loop"),
        ([call("D", "pwrite64", "write", 0.5, "a file")], "loop-blocked-on-writes", "aio_write"),
        ([call("D", "openat", "names", 0.4), call("D", "sendfile", "read", 0.1)],
         "loop-blocked-on-names", "open_file_cache"),
        ([call("D", "page fault", "page fault", 0.5)], "loop-blocked-on-disk", "page faults"),
        ([log, call("S", "futex", "other", 0.9)], "loop-blocked-on-writes", "buffer=64k"),
    ):  # fmt: skip
        cause = first(replace(base, held_calls=calls))
        assert (cause.id, words in cause.summary) == (name, True), cause.summary
    swapping = replace(
        base, held_calls=[call("D", "page fault", "page fault", 0.5)], swapped_in_pages=400
    )
    assert first(swapping).id == "loop-blocked-on-swap"
    pooled = replace(
        base, workers=[blocked(0.6, threads=33)],
        held_calls=[call("D", "sendfile", "read", 0.5, "a file")],
    )  # fmt: skip
    assert "in locations without aio threads" in first(pooled).summary


def test_stops_quotas_and_steal_are_causes_of_their_own() -> None:
    stopped = replace(IDLE, state_ratios={"S": 0.8, "T": 0.2}, state_samples=1000)
    assert ids(replace(QUIET, workers=[IDLE, stopped])) == ["worker-stopped"]
    once = replace(IDLE, state_ratios={"S": 0.999, "T": 0.001}, state_samples=1000)
    assert ids(replace(QUIET, workers=[once])) == ["nothing-found"]
    waiting = [replace(IDLE, run_queue_seconds=7.0)]
    quota = Quota(periods=100, throttled_periods=90, throttled_seconds=6.9)
    assert ids(replace(QUIET, workers=waiting, quota=quota)) == ["cpu-throttled"]
    both = replace(quota, throttled_seconds=3.0)
    assert ids(replace(QUIET, workers=waiting, quota=both)) == ["cpu-throttled", "cpu-contention"]
    unused = Quota(periods=100, throttled_periods=0, throttled_seconds=0.0)
    assert ids(replace(QUIET, quota=unused)) == ["nothing-found"]
    assert ids(replace(QUIET, steal_ratio=0.2)) == ["cpu-steal"]
    assert ids(replace(QUIET, steal_ratio=0.01)) == ["nothing-found"]


NOBODY = Waiting(
    looks=7, clients=9.0, clients_waiting=0.0, clients_sending=0.0, upstreams=0.0,
    upstreams_waiting=0.0, upstreams_connecting=0.0,
)  # fmt: skip


def test_where_the_time_goes_when_loops_are_free() -> None:
    asked = replace(NOBODY, clients_waiting=6.0, client_seconds=0.3, client_longest_seconds=0.6)
    upstream = replace(
        asked, upstreams=6.0, upstreams_waiting=5.5, upstream_seconds=0.2,
        upstream_longest_seconds=0.4,
    )  # fmt: skip
    pools = replace(asked, pool_threads=32.0, pool_busy_ratio=0.5, pool_full_ratio=0.0)
    for waiting, resolver, named in (
        (NOBODY, True, "nothing-found"),
        (upstream, False, "slow-upstream"),
        (upstream, True, "slow-upstream"),
        (replace(upstream, upstream_seconds=0.01), False, "nothing-found"),
        (replace(asked, upstreams_connecting=4.0), False, "slow-upstream"),
        (asked, True, "slow-resolver"),
        (asked, False, "cause-not-known"),
        (replace(asked, client_seconds=0.01), False, "nothing-found"),
        (pools, False, "slow-disk-in-pools"),
        (replace(pools, pool_full_ratio=0.9), False, "pool-queue-wait"),
        (replace(upstream, looks=1), False, "nothing-found"),
        (
            replace(upstream, upstreams_waiting_ratio=0.2, clients_waiting_ratio=0.2),
            True,
            "nothing-found",
        ),
        (replace(asked, clients_waiting_ratio=0.2), True, "nothing-found"),
    ):
        found = ids(replace(QUIET, waiting=waiting, has_resolver=resolver))
        assert found == [named], waiting
    cause = first(replace(QUIET, waiting=upstream))
    assert "the loops are free" in cause.summary
    assert "$upstream_header_time" in cause.summary
    failing = replace(QUIET, waiting=NOBODY, has_resolver=True, resolver_failures=4)
    assert ids(failing) == ["slow-resolver"]


def test_connections_that_are_closed_to_make_room() -> None:
    full = replace(IDLE, connections_max=18)
    assert ids(replace(QUIET, workers=[full], worker_connections=20)) == ["connections-exhausted"]
    assert ids(replace(QUIET, workers=[full], worker_connections=512)) == ["nothing-found"]
    assert ids(replace(QUIET, connections_reused=3)) == ["connections-exhausted"]
    # A listener takes one of the worker_connections, and the master's pipe another.
    one = ListenerUse(address="0.0.0.0", port=80)
    most = replace(IDLE, connections_max=17)
    assert ids(replace(QUIET, workers=[most], worker_connections=20)) == ["nothing-found"]
    at_port = replace(QUIET, workers=[most], worker_connections=20, listeners=[one])
    assert ids(at_port) == ["connections-exhausted"]


def test_a_loop_that_always_has_something_to_do_is_saturated() -> None:
    shared = replace(IDLE, main_thread_cpu_seconds=8.6, run_queue_seconds=1.35)
    assert ids(replace(QUIET, workers=[shared])) == ["cpu-saturated"]
    assert ids(replace(QUIET, workers=[replace(shared, run_queue_seconds=0.2)])) == [
        "nothing-found"
    ]


def test_stacked_disks_count_once() -> None:
    loop = DiskUse(name="loop0", read_bytes_per_second=80e6)
    for below, total in ((80e6, 80e6), (95e6, 95e6), (3e6, 80e6)):
        disk = DiskUse(name="vda", read_bytes_per_second=below, below=["loop0"])
        assert read_bytes_per_second([loop, disk]) == total
    apart = DiskUse(name="vdb", read_bytes_per_second=80e6)
    assert read_bytes_per_second([loop, apart]) == 160e6


def test_whose_code_ran_needs_samples_enough() -> None:
    assert what_ran({"libz": 10}) == ""
    found = what_ran({"libcrypto": 60, "libssl": 30, "libc": 6, "nginx": 2, "libfoo": 2})
    assert found == "90 % OpenSSL (TLS), 6 % the C library"
    assert what_ran({"generated code": 99, "libpcre2": 1}).startswith("99 % generated code")
    assert what_ran({"libcurl": 95, "libfoo": 5}) == "95 % libcurl, 5 % libfoo"


def test_what_error_logs_say_is_never_nothing() -> None:
    assert ids(replace(QUIET, descriptors_exhausted=60)) == ["descriptors-exhausted"]
    assert ids(replace(QUIET, upstream_failures=9)) == ["failing-upstream"]
    assert ids(replace(QUIET, upstream_failures=4)) == ["nothing-found"]
    status = StubStatus(requests=500, requests_per_second=50, accepts=50, dropped=0, active=9)
    assert ids(replace(QUIET, upstream_failures=4, stub_status=status)) == ["nothing-found"]
    assert ids(replace(QUIET, upstream_failures=5, stub_status=status)) == ["failing-upstream"]
    assert ids(replace(QUIET, descriptors_exhausted=0, upstream_failures=0)) == ["nothing-found"]


def logged(*seen: tuple[str, str, int], **changes: Any) -> ServerMeasurement:
    """A window whose logs hold these lines, on a server that computes all the time."""
    messages = [LoggedMessage(id=id_, name=name, lines=lines) for id_, name, lines in seen]
    counts: Counter[str] = Counter()
    for one in messages:
        counts.update(dict.fromkeys(MESSAGES_BY_ID[one.id].counts, one.lines))
    busy = replace(IDLE, main_thread_cpu_seconds=9.9)
    return replace(QUIET, workers=[busy], log_messages=messages, **counts, **changes)


@each_row(
    ("seen", "named", "words"),
    [
        ([("cache-keys-zone", "x", 450_201)], ["shared-zone-full", "cpu-saturated"],
         ("450,201", 'cache keys zone "x"', "keys_zone")),
        ([("ssl-session-cache", "S", 3)], ["shared-zone-full", "cpu-saturated"],
         ('SSL session shared cache "S"', "ssl_session_cache")),
        ([("ports-used-up", "127.0.0.1:18201", 146_041), ("upstream-reset", "", 9)],
         ["local-ports-exhausted", "failing-upstream", "cpu-saturated"],
         ("146,041", "127.0.0.1:18201", "keepalive")),
        ([("upstream-backlog", "unix:/run/php.sock", 900)], ["failing-upstream", "cpu-saturated"],
         ("listen queue", "unix:/run/php.sock", "pm.max_children")),
        # The one with the most lines first, whatever the kind.
        ([("no-live-upstreams", "", 700), ("no-space", "", 2)],
         ["failing-upstream", "no-space-left", "cpu-saturated"], ("700", "max_fails")),
        ([("worker-killed", "9", 1)], ["worker-crashed", "cpu-saturated"], ("OOM",)),
        ([("response-spilled", "", 80)], ["spilled-to-disk", "cpu-saturated"], ("proxy_buffers",)),
        ([("not-resolved", "a.example", 80)], ["cpu-saturated"], ()),
    ],
)  # fmt: skip
def test_what_logs_name_comes_before_the_cpu(
    seen: list[tuple[str, str, int]], named: list[str], words: tuple[str, ...]
) -> None:
    found = find_causes(logged(*seen), duration_seconds=10.0)
    assert [cause.id for cause in found] == named
    assert all(word in found[0].summary for word in words), found[0].summary


def test_what_is_done_by_design_comes_after_a_loop_that_a_disk_blocks() -> None:
    server = replace(
        logged(("limit-req", "z", 900)), workers=[blocked(0.6), blocked(0.6)],
        loop_turn_seconds=turns({500_000_000: 12}, 6.0), block_io_delay_seconds=12.0,
    )  # fmt: skip
    assert ids(server)[:2] == ["loop-blocked-on-disk", "refused-by-limit"]


def test_what_limits_refuse_is_named() -> None:
    assert ids(replace(QUIET, refused_by_limit=160)) == ["refused-by-limit"]
    assert ids(replace(QUIET, refused_by_limit=4)) == ["nothing-found"]
    assert ids(replace(QUIET, refused_by_limit=4, stub_status=served(520))) == ["nothing-found"]
    cause = first(replace(QUIET, refused_by_limit=160, stub_status=served(520)))
    assert (cause.id, cause.confidence) == ("refused-by-limit", "high")


def test_what_logs_hide_is_not_surely_nothing() -> None:
    def said(*names: str) -> Cause:
        unknown = [Unknown(path=f"/server/{name}", reason="level crit") for name in names]
        (cause,) = find_causes(QUIET, duration_seconds=10.0, unknown=unknown)
        return cause

    hidden = said("upstream_failures", "refused_by_limit")
    assert (hidden.id, hidden.confidence) == ("nothing-found", "medium")
    assert any(
        "upstream failures, requests refused by a limit: level crit" in one
        for one in hidden.not_known
    )
    # What a level of error never shows, and has other signs, is no doubt.
    assert said("connections_reused", "open_seconds").confidence == "high"


def test_waits_that_connections_do_not_tell_are_not_surely_nothing() -> None:
    unclear = replace(NOBODY, clients=20.0, clients_unclear=20.0, clients_unclear_seconds=0.15)
    status = replace(served(600), requests_per_second=60.0)
    for waiting, counted, confidence in (
        (unclear, None, "low"),
        (replace(unclear, clients_unclear_seconds=0.02), None, "high"),
        (replace(unclear, clients_unclear=0.5), None, "high"),
        # By Little's law they were idle, or waited 0.3 s each.
        (unclear, replace(status, writing=0.1), "high"),
        (unclear, replace(status, writing=20.0), "low"),
        (NOBODY, replace(status, writing=20.0), "low"),
        (replace(NOBODY, clients_sending=19.5), replace(status, writing=20.0), "high"),
        # Many short requests are many at a time too.
        (NOBODY, replace(status, writing=20.0, requests_per_second=9000.0), "high"),
    ):
        (cause,) = find_causes(
            replace(QUIET, waiting=waiting, stub_status=counted), duration_seconds=10.0
        )
        assert (cause.id, cause.confidence) == ("nothing-found", confidence), (waiting, counted)


def test_kept_upstreams_of_which_nothing_tells_are_named_where_clients_wait() -> None:
    asked = replace(NOBODY, clients_waiting=20.0, client_seconds=0.15, upstreams=20.0)
    cause = first(replace(QUIET, waiting=replace(asked, upstreams_unclear=20.0)))
    assert (cause.id, cause.confidence) == ("slow-upstream", "medium")
    few = replace(asked, upstreams_unclear=2.0)
    assert first(replace(QUIET, waiting=few)).id == "cause-not-known"
    idle = replace(NOBODY, upstreams=20.0, upstreams_unclear=20.0)
    assert ids(replace(QUIET, waiting=idle)) == ["nothing-found"]


def test_an_accept_queue_that_stands_is_never_nothing() -> None:
    def causes_at(median: float | None) -> list[str]:
        queue = ListenerUse(address="0.0.0.0", port=80, accept_queue_median=median)
        return ids(replace(QUIET, listeners=[queue]))

    assert causes_at(46.0) == ["cause-not-known"]
    assert causes_at(2.0) == causes_at(None) == ["nothing-found"]
