"""Rows of the sources that are decisions, each with a test that names it."""

import ast
import re
from pathlib import Path

import msgspec
import pytest
from rows import each_row
from situations import (
    FLAGS,
    GIBIBYTE,
    MEBIBYTE,
    host,
    lab_host,
    lab_load,
    lines,
    load,
    measured,
    nginx,
    one,
    site,
    source_host,
)
from situations import decide_without_break_evens as decide

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.decide.engine import situation_of
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import DiskClass, Facts, Kernel, Layer
from nginx_tune.documents.workload import ConnectionReuse, CpuPerRequest, Rate, TlsUse, Workload

HERE = Path(__file__).parent
NO_DECISION = {
    "A2": "the source's host: an input of the tests of A5 to A7",
    "A4": "the two loads: classes of the load plan",
    "A5": "figures without pools: a prediction's test and a scenario",
    "A17": "how the source measured",
    "B1": "the three models of listening, as words",
    "B5": "how the source shows latencies: report",
    "C3": "a metric: observe",
    "C4": "a figure: the scenario accept-balance",
}
"""Rows that nobody decides by, and what they are instead."""
ROWS = [*(f"A{n}" for n in range(1, 18)), *(f"B{n}" for n in range(1, 8)),
        *(f"C{n}" for n in range(1, 10))]  # fmt: skip
_ROW = re.compile(r"\b([ABC])(\d+)(?:-[ABC]?(\d+))?")


def named_rows() -> dict[str, list[str]]:
    """The tests whose first words name a row, by row."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.FunctionDef) and node.name.startswith("test_")):
                continue
            for letter, first, last in _ROW.findall(ast.get_docstring(node) or ""):
                for number in range(int(first), int(last or first) + 1):
                    found.setdefault(f"{letter}{number}", []).append(f"{path.name}:{node.name}")
    return found


def test_every_row_that_is_a_decision_has_a_test() -> None:
    named = named_rows()
    assert set(NO_DECISION) <= set(ROWS)
    missing = [row for row in ROWS if row not in NO_DECISION and row not in named]
    assert missing == []


def number(decision: Decision, metric: str) -> float:
    return next(p.expected for p in decision.predicted if p.metric == metric)


def connections(rate: float, per_connection: float, cpu: float, *, spread: float = 1.0) -> Workload:
    return msgspec.structs.replace(
        load(data_bytes=GIBIBYTE, file_bytes=4096, rate=rate, peak=200),
        rate=Rate(peak_per_second=rate, provenance="learnt"),
        connection_reuse=ConnectionReuse(
            requests_per_connection=per_connection, provenance="learnt"
        ),
        cpu_per_request=CpuPerRequest(
            mean_seconds=cpu, stdev_seconds=cpu * spread, provenance="measured"
        ),
    )


def test_one_miss_holds_up_everything_of_its_worker() -> None:
    """A1: what blocks is predicted, and that pools free requests that need no disk."""
    d = one(decide(source_host(), load("media", cold_peak=200), site=site()), "thread-pools")
    assert number(d, "server.loop_blocked_ratio without pools") > 0.9
    assert "times faster" in d.summary


def test_every_read_is_offloaded_so_hits_pay_for_the_misses() -> None:
    """A9: nginx cannot ask whether bytes are in memory; the price of hits is in the decision."""
    few_misses = load(data_bytes=50 * GIBIBYTE, file_bytes=4096, exponent=1.1, rate=200, peak=4)
    d = one(decide(host(disk_class="nvme"), few_misses, site=site()), "thread-pools")
    assert d.verdict == "disable"
    assert "costs less than offloading every read" in d.summary
    assert number(d, "ratio(server.cpu_seconds_per_request)") > 1.5
    assert d.flips_when


def test_one_line_is_enough_for_the_default_pool() -> None:
    """A13: `aio threads` alone is 32 threads and a queue of 65536; nothing is declared."""
    decisions = decide(lab_host(), lab_load(), site=site())
    assert lines(one(decisions, "thread-pools")) == ["aio threads"]
    assert lines(one(decisions, "thread-pool-size")) == []


def test_a_queue_is_never_made_short() -> None:
    """A15: with max_queue=0 nothing waits and a burst is refused; A14: nor is it below 65536."""
    for cold in (20, 40, 100, 400):
        for facts in (lab_host(), source_host()):
            decisions = decide(facts, lab_load(cold), site=site(hot_locations=["/hot/"])).decisions
            pools = [s for d in decisions for s in d.settings if s.directive == "thread_pool"]
            assert all("max_queue=65536" in s.args for s in pools)


def test_pools_are_for_the_locations_that_read_files() -> None:
    """A15: several pools for different locations; A11: aio_write where something is written."""
    apart = decide(lab_host(), lab_load(150, 10), site=site(hot_locations=["/hot/"]))
    pools = one(apart, "thread-pools").settings
    assert {(s.context, s.block) for s in pools} == {("location", ""), ("location", "/hot/")}
    assert one(apart, "aio-write").verdict == "not_applicable"


def test_an_overflow_is_said_to_be_silent_damage() -> None:
    """A14, ngx_thread_task_post()."""
    d = one(decide(lab_host(), lab_load(), site=site()), "thread-pools")
    assert any("truncates responses that have status 200" in risk for risk in d.risks)


@each_row(("version", "verdict"), [("1.18.0", "enable"), ("1.21.5", "enable"), ("1.21.6", "keep")])
def test_old_nginx_gives_connections_to_few_of_many_workers(version: str, verdict: str) -> None:
    """B2, B3: 1.18's busiest worker took 77 to 100 %, reuseport 25 to 30 %."""
    workload = connections(2000, 10, 50e-6)
    d = one(decide(host(cpus=16, nginx=nginx(version)), workload, site=site()), "reuseport")
    assert d.verdict == verdict
    few = one(decide(host(cpus=4, nginx=nginx(version)), workload, site=site()), "reuseport")
    assert few.verdict == "keep"
    old = host(cpus=16, nginx=nginx(version), kernel=Kernel(system="Linux", release="3.8.13"))
    assert one(decide(old, workload, site=site()), "reuseport").verdict == "not_applicable"


def test_cpu_heavy_short_connections_keep_one_queue_on_old_nginx_too() -> None:
    """B4: deliberate overload: 1.58 ms of spread with one queue, 25.27 ms with one for each."""
    workload = connections(5000, 1, 3e-3, spread=1.0)
    d = one(decide(host(cpus=16, nginx=nginx("1.18.0")), workload, site=site()), "reuseport")
    assert d.verdict == "keep"
    assert number(d, "wait with reuseport") > 3 * number(d, "wait with one queue")


def test_long_connections_hardly_wait_in_a_listen_queue() -> None:
    """C5: there reuseport alone improved p99 by a third, because connections were long-lived."""
    short = one(decide(host(cpus=16), connections(5000, 1, 2e-3), site=site()), "reuseport")
    long_ = one(decide(host(cpus=16), connections(5000, 500, 2e-3), site=site()), "reuseport")

    def loss(d: Decision) -> float:
        return number(d, "wait with reuseport") - number(d, "wait with one queue")

    assert loss(long_) < loss(short) / 100
    old = decide(host(cpus=16, nginx=nginx("1.18.0")), connections(5000, 500, 2e-3), site=site())
    assert one(old, "reuseport").verdict == "enable"


@each_row(("migrates", "risky"), [("0", True), ("1", False)])
def test_a_reload_that_shrinks_the_queues_is_a_risk(migrates: str, risky: bool) -> None:
    """B6."""
    kernel = Kernel(system="Linux", sysctls={"net.ipv4.tcp_migrate_req": migrates})
    facts = host(cpus=16, kernel=kernel, nginx=nginx("1.18.0"))
    d = one(decide(facts, connections(2000, 10, 50e-6), site=site()), "reuseport")
    assert any("closed queue" in risk for risk in d.risks) == risky


def test_an_uneven_spread_alone_is_no_fault() -> None:
    """B7: LIFO is kind to CPU caches; the mutex is to be off."""
    d = one(decide(host(nginx=nginx("1.18.0")), load(), site=site()), "accept")
    assert d.verdict == "keep"
    assert any("does no harm there" in risk for risk in d.risks)


def test_a_read_of_a_file_blocks_whatever_the_socket_is() -> None:
    """C1: without pools even a single slow reader's miss is a blocked loop."""
    built_without = host(nginx=nginx(flags=FLAGS[1:]))
    decisions = decide(built_without, load(rate=20, peak=None), site=site())
    assert one(decisions, "reuseport").verdict == "disable"


def test_rare_stalls_count_and_not_only_the_mean() -> None:
    """C2: flash is fast on average; its spread makes the predicted wait, not its mean."""
    workload = load(file_bytes=30_000, rate=5000, peak=10**6)
    p = situation_of(host(disk_class="ssd"), workload, site=site()).prediction
    assert p is not None
    blocked = p.blocked_ratio
    # An exponential read time would double it; the class's spread of 3 gives five times.
    expected = blocked * p.hold_seconds * 5 / (1 - blocked)
    assert p.wait_off_seconds == pytest.approx(expected, rel=0.1)


def test_small_files_on_flash_promise_nothing() -> None:
    """C6: aio threads and aio_write alone gave no gain there."""
    small = load("cache", data_bytes=400 * GIBIBYTE, file_bytes=30_000, exponent=0.8, rate=500)
    decisions = decide(host(disk_class="nvme", cpus=16), small, site=site(cache_dirs=["/srv/1"]))
    d = one(decisions, "thread-pools")
    assert d.verdict == "disable" or any("gain nothing" in risk for risk in d.risks)


def test_opens_stay_on_the_loop_and_are_cached_where_that_fits() -> None:
    """C7, C8: no released nginx opens files in a pool; only the cache of descriptors helps."""
    many_small = load(data_bytes=GIBIBYTE * 80, file_bytes=8192, exponent=1.0)
    decisions = decide(host(), many_small, site=site())
    assert one(decisions, "open-file-cache").verdict == "enable"
    written = {s.directive for d in decisions.decisions for s in d.settings}
    assert not written & {"aio_open", "thread_open"}
    assert any("open() and stat() stay" in r for r in one(decisions, "thread-pools").risks)


def test_what_still_blocks_in_a_cache_is_kept_small() -> None:
    """C9: a fill is renamed and not copied: the temporary file is on the same disk."""
    decisions = decide(host(disks=3, mount="/data"), Workload(kind="cache"), site=site())
    paths = [
        s for d in decisions.decisions for s in d.settings if s.directive == "proxy_cache_path"
    ]
    assert len(paths) == 3
    assert all("use_temp_path=off" in s.args for s in paths)


# read-ahead and kernel TLS


def disk_with(read_ahead: int | None, **other: object) -> Facts:
    facts = host(**other)  # type: ignore[arg-type]
    disks = [msgspec.structs.replace(d, read_ahead_bytes=read_ahead) for d in facts.storage.disks]
    return msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, disks=disks)
    )


@each_row(
    ("read_ahead", "file_bytes", "disk", "verdict"),
    [
        (128 << 10, 16 * MEBIBYTE, "hdd", "raise"),
        (MEBIBYTE, 16 * MEBIBYTE, "hdd", "keep"),
        (128 << 10, 60_000, "hdd", "keep"),
        (128 << 10, 16 * MEBIBYTE, "nvme", "keep"),
        (None, 16 * MEBIBYTE, "hdd", "not_enough_evidence"),
    ],
)
def test_a_head_reads_on_as_long_as_it_moves(
    read_ahead: int | None, file_bytes: int, disk: str, verdict: str
) -> None:
    facts = disk_with(read_ahead, disk_class=disk)
    d = one(decide(facts, load(file_bytes=file_bytes), site=site()), "read-ahead")
    assert d.verdict == verdict
    if verdict == "raise":
        assert d.next_command == "blockdev --setra 2048 /dev/sda"


def test_windows_that_fill_the_page_cache_are_lowered() -> None:
    facts = disk_with(32 * MEBIBYTE, memory_bytes=4 * GIBIBYTE)
    workload = load(file_bytes=64 * MEBIBYTE, cold_peak=400, peak=450)
    d = one(decide(facts, workload, site=site()), "read-ahead")
    assert d.verdict == "lower"
    again = disk_with(int(d.next_command.split()[2]) * 512, memory_bytes=4 * GIBIBYTE)
    assert one(decide(again, workload, site=site()), "read-ahead").verdict == "keep"


def secure(**other: object) -> Workload:
    tls = TlsUse(value=True, provenance="declared")
    return msgspec.structs.replace(load(**other), tls=tls)  # type: ignore[arg-type]


@each_row(
    ("version", "openssl", "kernel", "data", "verdict"),
    [
        ("1.26.3", "OpenSSL 3.0.15", True, 256 * GIBIBYTE, "disable"),
        ("1.26.3", "OpenSSL 3.0.15", True, GIBIBYTE, "not_enough_evidence"),
        ("1.20.2", "OpenSSL 3.0.15", True, GIBIBYTE, "not_applicable"),
        ("1.26.3", "OpenSSL 1.1.1n", True, GIBIBYTE, "not_applicable"),
        ("1.26.3", "OpenSSL 3.0.15", False, GIBIBYTE, "not_applicable"),
    ],
)
def test_kernel_tls_goes_round_pools(
    version: str, openssl: str, kernel: bool, data: int, verdict: str
) -> None:
    """ngx_ssl_sendfile()."""
    there = msgspec.structs.replace(nginx(version), openssl=openssl)
    facts = host(nginx=there, kernel=Kernel(system="Linux", features={"tls": kernel}))
    d = one(decide(facts, secure(data_bytes=data), site=site()), "ktls")
    assert (d.verdict, lines(d)) == (verdict, [])


@each_row("filesystem", ["zfs", "btrfs", "nfs4", "ceph"])
def test_no_window_of_a_device_is_set_for_who_reads_ahead_by_itself(filesystem: str) -> None:
    d = one(decide(on(filesystem, disk_with(128 << 10)), load(), site=site()), "read-ahead")
    assert d.verdict == "not_applicable"
    assert not d.host_settings
    assert not d.next_command


def on(filesystem: str, facts: Facts) -> Facts:
    paths = [msgspec.structs.replace(p, filesystem=filesystem) for p in facts.storage.paths]
    return msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, paths=paths)
    )


def test_every_disk_under_the_data_reads_on() -> None:
    """The largest lever on hard disks: one of twelve would leave eleven as they are."""
    facts = disk_with(128 << 10, disks=12)
    own = site(roots=[f"/srv/{n}" for n in range(1, 13)])
    d = one(decide(facts, load(file_bytes=16 * MEBIBYTE), site=own), "read-ahead")
    names = [disk.name for disk in facts.storage.disks]
    assert [(h.kind, h.name, h.before, h.value) for h in d.host_settings] == [
        ("udev", name, "128", "1024") for name in names
    ]
    assert d.next_command == f"blockdev --setra 2048 {' '.join(f'/dev/{name}' for name in names)}"


def test_the_window_of_a_partition_is_that_of_its_disk() -> None:
    facts = disk_with(128 << 10)
    (place,) = facts.storage.paths
    storage = msgspec.structs.replace(
        facts.storage,
        paths=[msgspec.structs.replace(place, stack=["sda1", "sda"])],
        layers=[Layer(name="sda1", kind="partition", lower=["sda"])],
    )
    facts = msgspec.structs.replace(facts, storage=storage)
    d = one(decide(facts, load(file_bytes=16 * MEBIBYTE), site=site()), "read-ahead")
    assert [h.name for h in d.host_settings] == ["sda"]


@each_row("known", [True, False])
def test_a_server_of_files_that_stalls_stops_no_worker(known: bool) -> None:
    """However fast it is: with fast reads pools would not pay by the model alone."""
    facts = on("nfs4", host(disk_class="network"))
    if not known:  # as a mount without a block device is read
        paths = [msgspec.structs.replace(p, leaf_disks=[]) for p in facts.storage.paths]
        storage = msgspec.structs.replace(facts.storage, paths=paths, disks=[])
        facts = msgspec.structs.replace(facts, storage=storage)
    seldom = load(file_bytes=16 << 10, rate=2.0, peak=2)
    d = one(decide(facts, seldom, site=site()), "thread-pools")
    assert d.verdict == "enable"
    assert d.confidence == "medium"
    assert "nfs4" in d.summary
    local = host(disk_class="ssd")
    assert one(decide(local, seldom, site=site()), "thread-pools").verdict == "disable"


@each_row(("disk_class", "forced"), [("nvme", ""), ("network", " --force")])
def test_disks_that_decide_and_were_not_measured_are_the_first_next_step(
    disk_class: DiskClass, forced: str
) -> None:
    """Nothing rests on a class: a volume of it may be ten times slower than another."""
    facts = host(disk_class=disk_class, page_cache_bytes=16 * GIBIBYTE)
    busy = load(data_bytes=900 * GIBIBYTE, file_bytes=4 * MEBIBYTE, rate=400.0, peak=900)
    decisions = decide(facts, busy, site=site())
    d = one(decisions, "thread-pools")
    assert d.confidence == "low"
    measure = f"nginx-tune inspect --dataset /srv/1 --disks --disk-seconds 10{forced}"
    assert d.next_command == f"{measure} -f json -o facts.json"
    assert next(x.next_command for x in decisions.decisions if x.next_command) == d.next_command
    assert f"measure it: {d.next_command}" in emit_decided(decisions, site())
    slow, fast = (
        one(decide(measured(facts, start, 262_144 / start, heads=16), busy, site=site()), d.id)
        for start in (2e-3, 5e-6)
    )
    assert (slow.verdict, slow.confidence) == ("enable", "high")
    assert (fast.verdict, "--disks" in fast.next_command) == ("disable", False)


def test_threads_near_the_bound_on_tasks_raise_it() -> None:
    """A worker that cannot make its pool ends: 48 workers of 4 disks with 8 threads each."""
    facts = host(cpus=64)
    heavy = load("media", data_bytes=900 * GIBIBYTE, peak=4000, cold_peak=3000)
    d = one(decide(facts, heavy, site=site(roots=["/srv/1"])), "thread-pools")
    assert d.verdict == "enable"
    assert [h.name for h in d.host_settings] == ["TasksMax"]
    few = one(decide(host(cpus=4), heavy, site=site(roots=["/srv/1"])), "thread-pools")
    assert few.verdict == "enable"
    assert not few.host_settings
