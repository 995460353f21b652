"""What each decision says for hosts and workloads that stand for the rows of the sources."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from rows import each_row
from situations import (
    FLAGS,
    GIBIBYTE,
    MEBIBYTE,
    dataset,
    decide_without_break_evens,
    host,
    lab_host,
    lab_load,
    load,
    nginx,
    site,
    source_host,
)
from situations import decide_without_break_evens as decide

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.decide import engine
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.engine import situation_of
from nginx_tune.decide.pool_forecast import forecast_gain
from nginx_tune.decide.pool_plan import plan_pools
from nginx_tune.decide.upstreams import as_proposed
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions
from nginx_tune.documents.facts import (
    Cpu,
    Dataset,
    Disk,
    Facts,
    Kernel,
    Limits,
    Memory,
    PathStorage,
    Storage,
    Throttled,
)
from nginx_tune.documents.facts_machine import Link, Network
from nginx_tune.documents.site import CacheBounds, Upstream
from nginx_tune.documents.units import number_text
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    CpuPerRequest,
    HttpVersion,
    ObjectSizes,
    Rate,
    TlsUse,
    Workload,
)


def one(decisions: Decisions, name: str) -> Decision:
    return next(d for d in decisions.decisions if d.id == name)


def settings(decision: Decision) -> list[str]:
    return [" ".join([s.directive, *s.args]) for s in decision.settings]


def predicted(decision: Decision, metric: str) -> tuple[float, float, float]:
    p = next(p for p in decision.predicted if p.metric == metric)
    return p.low, p.expected, p.high


# thread-pools


def test_the_scenario_is_foreseen() -> None:
    """A7: measured 228-240 times the rate and 1/239-1/246 of the mean."""
    d = one(decide(lab_host(), lab_load(), site=site()), "thread-pools")
    assert d.verdict == "enable"
    assert settings(d) == ["aio threads"]
    low, expected, high = predicted(d, "ratio(hot.requests_per_second)")
    assert expected >= 10
    assert low <= 228
    assert high >= 240
    low, expected, high = predicted(d, "ratio(hot.mean)")
    assert expected <= 0.1
    assert low <= 1 / 246
    assert high >= 1 / 239
    assert predicted(d, "ratio(total.bytes_per_second)")[1] >= 3
    assert predicted(d, "ratio(cold.bytes_per_second)")[1] >= 0.9
    assert d.confidence == "high"


def test_hot_users_that_pause_gain_less_rate_and_the_same_latency() -> None:
    """A pause of 20 ms between requests: 45 times the rate and 1/180 of the mean were measured."""
    workload = lab_load()
    pausing = msgspec.structs.replace(workload.concurrency, think_seconds=0.02)
    workload = msgspec.structs.replace(workload, concurrency=pausing)
    d = one(decide(lab_host(), workload, site=site()), "thread-pools")
    low, expected, high = predicted(d, "ratio(hot.requests_per_second)")
    assert low <= 45 <= high
    assert expected < 100
    low, _, high = predicted(d, "ratio(hot.mean)")
    assert low <= 1 / 180 <= high


def test_the_source_is_foreseen() -> None:
    """A5-A7: 31 times the rate, 1/33 of the mean latency, 9 times the bytes."""
    workload = load("media", data_bytes=256 * 10**9, peak=250, cold_peak=200)
    d = one(decide(source_host(), workload, site=site()), "thread-pools")
    assert d.verdict == "enable"
    # With disks of a class only, nobody measured, the range is too wide to be called a prediction.
    assert all(p.metric != "ratio(hot.requests_per_second)" for p in d.predicted)
    s = situation_of(source_host(), workload, site=site())
    assert s.blocking_inputs is not None
    found = {p.metric: p for p in forecast_gain(s, s.blocking_inputs, plan_pools(s))}
    for metric, figure in (
        ("ratio(hot.requests_per_second)", 31),
        ("ratio(total.bytes_per_second)", 9),
    ):
        assert found[metric].low <= figure <= found[metric].high


def test_data_that_fits_leaves_pools_off_and_says_what_they_would_cost() -> None:
    """A8: CPU of a 1-KB request +50..150 %."""
    workload = load(data_bytes=2 * MEBIBYTE, file_bytes=1024, rate=6000, peak=None)
    d = one(engine.decide(host(), workload, site=site()), "thread-pools")
    assert d.verdict == "disable"
    assert d.settings == []
    assert "fits in the page cache" in d.summary
    low, expected, high = predicted(d, "ratio(server.cpu_seconds_per_request)")
    assert 1.4 <= low <= 1.5 <= expected <= high
    assert high == pytest.approx(2.5, rel=0.05)
    assert any(text.startswith("workload.dataset.bytes: ") for text in d.flips_when)


def test_unknown_data_is_not_guessed() -> None:
    d = one(decide(host(), Workload(), site=site()), "thread-pools")
    assert d.verdict == "not_enough_evidence"
    assert d.settings == []
    assert "inspect --dataset" in d.next_command


def test_a_scan_that_ran_out_of_time_proves_no_fit() -> None:
    facts = host(datasets=[dataset(GIBIBYTE, MEBIBYTE, complete=False)])
    assert one(decide(facts, Workload(), site=site()), "thread-pools").verdict == (
        "not_enough_evidence"
    )
    large = host(datasets=[dataset(4096 * GIBIBYTE, MEBIBYTE, complete=False)])
    assert one(decide(large, Workload(), site=site()), "thread-pools").verdict == "enable"


def test_an_unknown_page_cache_is_not_guessed() -> None:
    facts = host(memory=Memory())
    assert one(decide(facts, load(), site=site()), "thread-pools").verdict == "not_enough_evidence"


def test_freebsd_reads_with_its_own_aio() -> None:
    """A10."""
    flags = [*FLAGS, "--with-file-aio"]
    facts = host(kernel=Kernel(system="FreeBSD"), nginx=nginx(flags=flags))
    decisions = decide(facts, load(), site=site())
    d = one(decisions, "thread-pools")
    assert d.verdict == "set"
    assert settings(d) == ["aio on"]
    assert not any(s.directive == "thread_pool" for x in decisions.decisions for s in x.settings)
    without = host(kernel=Kernel(system="FreeBSD"), nginx=nginx())
    assert settings(one(decide(without, load(), site=site()), "thread-pools")) == []


@each_row(
    ("version", "flags", "reason"),
    [
        ("1.26.3", ["--with-http_ssl_module"], "without --with-threads"),
        ("1.6.3", FLAGS, "has no thread pools"),
        ("1.7.10", FLAGS, "has no thread pools"),
        ("1.9.15", FLAGS, "wrong bodies"),
    ],
)
def test_a_build_without_working_pools_gets_none(
    version: str, flags: list[str], reason: str
) -> None:
    """A12; nginx CHANGES, 1.9.13 to 1.11.13."""
    decisions = decide(host(nginx=nginx(version, flags)), load(), site=site())
    d = one(decisions, "thread-pools")
    assert d.verdict == "not_applicable"
    assert reason in d.summary
    assert d.flips_when
    written = {s.directive for x in decisions.decisions for s in x.settings}
    assert not written & {"aio", "thread_pool", "aio_write"}


def test_cleartext_http2_waits_for_the_fix() -> None:
    workload = msgspec.structs.replace(load(), http_version=HttpVersion(value="2"))
    old = decide(host(nginx=nginx("1.20.2")), workload, site=site())
    assert one(old, "thread-pools").verdict == "not_applicable"
    new = decide(host(), workload, site=site())
    assert one(new, "thread-pools").verdict == "enable"


@each_row(("version", "arg"), [("1.1", "on"), ("2", "off")])
def test_pools_read_for_cleartext_http2_without_sendfile(version: str, arg: str) -> None:
    """Of such a connection one sendfile() is in the pool at a time (scenario http2-cold-files)."""
    workload = msgspec.structs.replace(load(), http_version=HttpVersion(value=version))
    decisions = decide(host(), workload, site=site())
    assert [s.args for s in one(decisions, "sendfile").settings] == [[arg]]
    buffers, chunk = one(decisions, "output-buffers"), one(decisions, "sendfile-max-chunk")
    assert (buffers.verdict == "not_applicable") == (version == "1.1")
    assert (chunk.verdict == "not_applicable") == (version == "2")


def test_cleartext_http2_keeps_sendfile_where_no_pool_reads() -> None:
    workload = msgspec.structs.replace(
        load(data_bytes=GIBIBYTE), http_version=HttpVersion(value="2")
    )
    decisions = decide(host(), workload, site=site())
    assert one(decisions, "thread-pools").verdict == "disable"
    assert [s.args for s in one(decisions, "sendfile").settings] == [["on"]]


def test_load_average_iowait_and_virtual_size_are_no_input() -> None:
    """A6: a host can only say so through facts, and no fact holds them."""
    fields = msgspec.json.schema(Facts)
    names = str(fields).lower()
    assert "loadavg" not in names
    assert "iowait" not in names
    assert "vmsize" not in names


# thread-pool-size


def test_twenty_cold_transfers_fit_the_default_pool() -> None:
    d = one(decide(lab_host(), lab_load(20), site=site()), "thread-pool-size")
    assert d.verdict == "keep"
    assert "32" in d.summary


@each_row("provenance", ["assumed", "declared"])
def test_no_thread_is_needed_for_transfers_that_are_not_there(provenance: Provenance) -> None:
    """128 workers may have 16 threads each: the usual 32 are no need of so few cold transfers."""
    cpu = Cpu(online=128, cpuset=128, effective=128.0)
    busy = lab_load(20)
    concurrency = msgspec.structs.replace(busy.concurrency, provenance=provenance)
    decisions = decide(
        msgspec.structs.replace(lab_host(), cpu=cpu),
        msgspec.structs.replace(busy, concurrency=concurrency),
        site=site(),
    )
    d = one(decisions, "thread-pool-size")
    (line,) = [*d.settings, *d.proposed]
    assert line.args[1] == "threads=16"
    assert "would be needed" not in d.summary
    is_known = provenance == "declared"
    assert ("less than one cold transfer per worker" in line.reason) == is_known
    assert ("the peak of cold transfers is not known" in line.reason) != is_known
    assert any("busiest worker" in e.fact for e in d.evidence) == is_known


def test_forty_cold_transfers_get_more_threads() -> None:
    """Measured: 40 cold transfers on 32 threads: the gain is gone."""
    d = one(decide(lab_host(), lab_load(40), site=site()), "thread-pool-size")
    assert d.verdict == "raise"
    assert settings(d) == ["thread_pool default threads=64 max_queue=65536"]


def large_windows() -> Facts:
    facts = lab_host()
    disks = [msgspec.structs.replace(d, read_ahead_bytes=8 * MEBIBYTE) for d in facts.storage.disks]
    return msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, disks=disks)
    )


def test_too_many_cold_transfers_get_pools_apart() -> None:
    """Measured: with 100 cold transfers more threads only churn the page cache."""
    decisions = decide(large_windows(), lab_load(100, 10), site=site(hot_locations=["/hot/"]))
    size = one(decisions, "thread-pool-size")
    assert size.verdict == "set"
    cold, hot = settings(size)
    assert cold.startswith("thread_pool cold threads=")
    assert hot.startswith("thread_pool hot threads=")
    pools = one(decisions, "thread-pools")
    assert [(s.block, s.args) for s in pools.settings] == [
        ("", ["threads=cold"]),
        ("/hot/", ["threads=hot"]),
    ]
    assert predicted(pools, "ratio(hot.mean)")[1] <= 0.1


def test_without_named_hot_locations_the_gain_is_not_promised() -> None:
    decisions = decide(large_windows(), lab_load(100, 10), site=site())
    low, expected, high = predicted(one(decisions, "thread-pools"), "ratio(hot.mean)")
    assert low <= expected == 1.0 <= high
    size = one(decisions, "thread-pool-size")
    assert "hot_locations" in size.summary
    assert size.confidence == "low"


def test_an_assumed_concurrency_buys_no_threads() -> None:
    facts = host(datasets=[dataset(1024 * GIBIBYTE, 4 * MEBIBYTE)])
    d = one(decide(facts, Workload(kind="media"), site=site()), "thread-pool-size")
    assert d.verdict == "keep"
    assert "not known" in d.summary


# per-disk-pools, aio-write


def cache_host(**other: object) -> Facts:
    return host(disks=3, mount="/data", **other)  # type: ignore[arg-type]


def test_three_disks_get_a_cache_a_pool_and_a_share_each() -> None:
    """A16."""
    decisions = decide(cache_host(), Workload(kind="cache"), site=site(cache_dirs=[]))
    pools = one(decisions, "per-disk-pools")
    assert pools.verdict == "enable"
    assert "aio threads=pool_$disk" in settings(pools)
    layout = one(decisions, "cache-layout")
    lines = settings(layout)
    for number in (1, 2, 3):
        assert f"thread_pool pool_{number} threads=16 max_queue=65536" in settings(pools)
        start = f"proxy_cache_path /data/{number}/nginx-cache "
        path = next(line for line in lines if line.startswith(start))
        assert f"keys_zone=cache_{number}:" in path
        assert "use_temp_path=off" in path
    assert "proxy_cache cache_$disk" in lines
    split = next(s for s in layout.settings if s.directive == "split_clients")
    key = next(s for s in one(decisions, "cache-key").settings if s.directive == "proxy_cache_key")
    assert split.args == [*key.args, "$disk"] == ["$scheme$host$request_uri", "$disk"]
    assert split.lines == [["33.3%", "1"], ["33.3%", "2"], ["*", "3"]]
    assert settings(one(decisions, "thread-pools")) == []
    assert settings(one(decisions, "aio-write")) == ["aio_write on"]


def test_directories_on_one_disk_share_a_pool() -> None:
    places = [PathStorage(path=f"/data/{n}", leaf_disks=["sda"]) for n in (1, 2)]
    storage = Storage(paths=places, disks=[Disk(name="sda", class_="hdd", size_bytes=10**13)])
    decisions = decide(
        host(storage=storage), Workload(kind="cache"), site=site(cache_dirs=["/data/1", "/data/2"])
    )
    d = one(decisions, "per-disk-pools")
    assert d.verdict == "disable"
    assert not d.settings
    layout = one(decisions, "cache-layout")
    assert "proxy_cache cache_$disk" in settings(layout)
    (why,) = (s.reason for s in layout.settings if s.directive == "proxy_cache")
    assert "share a disk" in why
    assert "RAID" not in why
    assert settings(one(decisions, "thread-pools")) == ["aio threads"]


def test_roots_on_disks_of_their_own_get_a_pool_each() -> None:
    given = site(roots=["/srv/1", "/srv/2"], root_prefixes=["/a/", "/b/"])
    decisions = decide(host(disks=2), load(), site=given)
    d = one(decisions, "per-disk-pools")
    assert d.verdict == "enable"
    assert [(s.block, s.args) for s in d.settings if s.directive == "aio"] == [
        ("/a/", ["threads=pool_1"]),
        ("/b/", ["threads=pool_2"]),
    ]


def test_roots_that_are_looked_through_get_no_pools_of_their_own() -> None:
    """Every request looks for its file on the first disk, on the loop, whatever the pools."""
    decisions = decide(host(disks=2), load(), site=site(roots=["/srv/1", "/srv/2"]))
    d = one(decisions, "per-disk-pools")
    assert d.verdict == "disable"
    assert not d.settings
    assert "root_prefixes" in d.summary
    assert "hold up" not in " ".join(s.reason for one in decisions.decisions for s in one.settings)


@each_row(
    ("size_gib", "free_gib", "held_gib", "max_size"),
    [
        (None, None, 0, "2980g"),
        (100, 100, 0, "80g"),
        (100, 10, 0, "9g"),
        (100, 10, 60, "69g"),
        (100, None, 0, "80g"),
        (100_000, 100_000, 0, "2980g"),
    ],
)
def test_a_cache_fits_its_file_system(
    size_gib: int | None, free_gib: int | None, held_gib: int, max_size: str
) -> None:
    """A partition is smaller than its disk, and not all of it is free."""
    facts = host(mount="/data", memory_bytes=4096 * GIBIBYTE)
    paths = [
        msgspec.structs.replace(
            p,
            size_bytes=None if size_gib is None else size_gib * GIBIBYTE,
            available_bytes=None if free_gib is None else free_gib * GIBIBYTE,
        )
        for p in facts.storage.paths
    ]
    held = [Dataset(path="/data/1", files=9, bytes=held_gib * GIBIBYTE)] if held_gib else []
    facts = msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, paths=paths), datasets=held
    )
    sizes = ObjectSizes(mean_bytes=10e6, provenance="learnt")
    workload = msgspec.structs.replace(Workload(kind="cache"), sizes=sizes)
    decisions = decide(facts, workload, site=site(cache_dirs=["/data/1"]))
    (args,) = [
        s.args for d in decisions.decisions for s in d.settings if s.directive == "proxy_cache_path"
    ]
    assert f"max_size={max_size}" in args


@each_row("object_bytes", [512, 64 << 10, 4 << 20])
@each_row("disks", [1, 3, 12])
@each_row("memory_gib", [1, 16, 256])
def test_a_cache_is_no_larger_than_its_keys(object_bytes: int, disks: int, memory_gib: int) -> None:
    """Source: ngx_http_file_cache_add: an object without a key is not in the cache."""
    facts = host(disks=min(disks, 8), mount="/data", memory_bytes=memory_gib * GIBIBYTE)
    sizes = ObjectSizes(mean_bytes=float(object_bytes), provenance="learnt")
    workload = msgspec.structs.replace(Workload(kind="cache"), sizes=sizes)
    given = site(cache_dirs=[f"/data/{n}" for n in range(1, disks + 1)])
    decisions = decide_without_break_evens(facts, workload, site=given)
    paths = [
        s.args
        for d in decisions.decisions
        for s in (*d.settings, *d.proposed)
        if s.directive == "proxy_cache_path"
    ]
    assert len(paths) == disks
    zones = 0
    for args in paths:
        words = dict(word.split("=", 1) for word in args[2:])
        zone = int(words["keys_zone"].split(":")[1].removesuffix("m"))
        if "max_size" not in words:  # the facts have no disk for the last ones
            zones += zone
            continue
        number, unit = int(words["max_size"][:-1]), words["max_size"][-1]
        size = number * {"g": GIBIBYTE, "m": MEBIBYTE}[unit]
        zones += zone
        file_bytes = -(-(object_bytes + 640) // 4096) * 4096
        assert size <= zone * 7083 * file_bytes + GIBIBYTE
    assert zones <= max(disks * 10, 0.5 * memory_gib * 1024)


def test_named_directories_of_unknown_disks_count_as_independent_but_declared() -> None:
    facts = host(page_cache_bytes=GIBIBYTE)
    bounds = {path: CacheBounds(max_bytes=256 * GIBIBYTE) for path in ("/a", "/b")}
    own = site(cache_dirs=["/a", "/b"], cache_bounds=bounds)
    d = one(decide(facts, Workload(kind="cache"), site=own), "per-disk-pools")
    assert d.verdict == "enable"
    assert d.confidence == "low"
    assert any(e.provenance == "declared" for e in d.evidence)


@each_row(("version", "verdict"), [("1.26.3", "enable"), ("1.11.9", "not_applicable")])
def test_aio_write_by_version(version: str, verdict: str) -> None:
    """A11; nginx CHANGES, 1.9.13 to 1.11.13."""
    facts = cache_host(nginx=nginx(version))
    assert one(decide(facts, Workload(kind="cache"), site=site()), "aio-write").verdict == verdict


# the rest


@each_row(
    ("version", "verdict", "lines"),
    [
        ("1.26.3", "lower", ["sendfile_max_chunk 512k"]),
        ("1.20.2", "set", ["sendfile_max_chunk 512k"]),
    ],
)
def test_a_hard_disk_gets_the_chunk_of_the_source(
    version: str, verdict: str, lines: list[str]
) -> None:
    """A3, nginx CHANGES, 1.21.4."""
    d = one(decide(host(nginx=nginx(version)), load(), site=site()), "sendfile-max-chunk")
    assert (d.verdict, settings(d)) == (verdict, lines)


def test_a_shared_folder_gets_no_sendfile() -> None:
    storage = Storage(paths=[PathStorage(path="/srv/1", filesystem="vboxsf")])
    d = one(decide(host(storage=storage), load(), site=site()), "sendfile")
    assert (d.verdict, settings(d)) == ("disable", ["sendfile off"])


def test_large_tls_bodies_are_read_in_larger_pieces() -> None:
    """Counted in the debug log: 245 pool tasks with 32k buffers, 16 with 512k."""
    workload = msgspec.structs.replace(load(), tls=TlsUse(value=True, provenance="declared"))
    d = one(decide(host(), workload, site=site()), "output-buffers")
    assert settings(d) == ["output_buffers 2 256k"]


def test_quota_counts_and_online_does_not() -> None:
    """auto is the CPUs online, whatever the cgroup says."""
    facts = host(cpu=Cpu(online=32, cpuset=32, quota_cpus=1.5, effective=1.5))
    d = one(decide(facts, load(), site=site()), "workers")
    assert settings(d) == ["worker_processes 2"]
    assert settings(one(decide(host(), load(), site=site()), "workers")) == [
        "worker_processes auto"
    ]


def test_workers_beyond_the_bound_have_their_own_reason() -> None:
    d = one(decide(host(cpus=4096), load(), site=site()), "workers")
    assert (settings(d), "the most that nginx-tune sets" in d.summary) == (
        ["worker_processes 512"],
        True,
    )


def test_connections_stay_below_the_hard_limit_and_a_tenth_of_memory() -> None:
    """ngx_get_connection(); setrlimit(2)."""
    tight = host(limits=Limits(nofile_soft=256, nofile_hard=1024, nr_open=1048576))
    decisions = decide(tight, load(), site=site())
    assert settings(one(decisions, "connections")) == ["worker_connections 480"]
    assert settings(one(decisions, "file-limits")) == ["worker_rlimit_nofile 1024"]
    assert "LimitNOFILE" in one(decisions, "file-limits").next_command
    small = host(memory_bytes=64 * MEBIBYTE, page_cache_bytes=32 * MEBIBYTE)
    few = one(decide(small, load(), site=site()), "connections")
    assert 64 <= int(few.settings[0].args[0]) < 4096


def test_so_many_clients_have_slots_or_are_said_not_to_fit() -> None:
    wide = host(limits=Limits(nofile_soft=1024, nofile_hard=1 << 20, nr_open=1 << 20))
    half_a_million = one(decide(wide, load("proxy", peak=500_000), site=site()), "connections")
    assert int(half_a_million.settings[0].args[0]) * 8 >= 2 * 500_000
    assert "this host carries" not in half_a_million.summary
    too_many = one(decide(wide, load("proxy", peak=20e6), site=site()), "connections")
    assert "enough for about 2,09" in too_many.summary
    assert "of 20,000,000 clients" in too_many.summary


def test_a_shells_own_limit_is_not_nginxs() -> None:
    """Under systemd nginx starts with 1024, whatever the operator's shell has."""
    limits = Limits(nofile_soft=65536, nofile_hard=65536, nr_open=1048576, nofile_of="reader")
    d = one(decide(host(limits=limits), load(), site=site()), "file-limits")
    assert d.verdict != "keep"
    assert [s.directive for s in d.settings] == ["worker_rlimit_nofile"]


@each_row(
    ("version", "verdict", "lines"),
    [("1.26.3", "keep", []), ("1.10.3", "disable", ["accept_mutex off"])],
)
def test_accept_by_version(version: str, verdict: str, lines: list[str]) -> None:
    """B7, nginx CHANGES, 1.11.3."""
    d = one(decide(host(nginx=nginx(version)), load(), site=site()), "accept")
    assert (d.verdict, settings(d)) == (verdict, lines)
    alone = decide(host(nginx=nginx(version), cpus=1), load(), site=site())
    d = one(alone, "accept")
    assert (d.verdict, settings(d)) == ("not_applicable", [])


def busy(rate: float, per_connection: float = 1.0) -> Workload:
    workload = load(data_bytes=GIBIBYTE, file_bytes=1024)
    reuse = msgspec.structs.replace(
        workload.connection_reuse, requests_per_connection=per_connection, provenance="learnt"
    )
    return msgspec.structs.replace(
        workload,
        rate=Rate(mean_per_second=rate, peak_per_second=rate, provenance="learnt"),
        connection_reuse=reuse,
        cpu_per_request=CpuPerRequest(mean_seconds=20e-6, stdev_seconds=10e-6),
    )


def test_reuseport_needs_contention_and_idle_workers() -> None:
    """B2-B4: long-lived connections gain, CPU-heavy short ones lose."""
    many = one(decide(host(cpus=16), busy(160_000), site=site()), "reuseport")
    assert (many.verdict, settings(many)) == ("enable", ["listen reuseport"])
    assert any("closed queue" in risk for risk in many.risks)
    few = one(decide(host(cpus=16), busy(1000), site=site()), "reuseport")
    assert (few.verdict, settings(few)) == ("keep", [])
    unknown = one(decide(host(cpus=16), load(), site=site()), "reuseport")
    assert unknown.verdict == "not_enough_evidence"


def test_heavy_requests_keep_one_queue() -> None:
    """B4: 100 000 CPU-heavy requests: stdev 1.58 ms with one queue, 25.27 ms with one each."""
    heavy = msgspec.structs.replace(
        busy(90_000), cpu_per_request=CpuPerRequest(mean_seconds=1.7e-4, stdev_seconds=3e-4)
    )
    d = one(decide(host(cpus=16), heavy, site=site()), "reuseport")
    assert d.verdict == "keep"
    assert "longer" in d.summary


def test_reuseport_behind_a_blocked_loop_is_off() -> None:
    """Nothing takes over the queue of a stalled worker."""
    facts = host(nginx=nginx(flags=["--with-http_ssl_module"]))
    assert one(decide(facts, load(), site=site()), "reuseport").verdict == "disable"


@each_row(
    ("version", "verdict"),
    [("1.8.1", "not_applicable"), ("1.10.3", "not_applicable"), ("1.13.3", "not_applicable"),
     ("1.13.4", "enable"), ("1.14.2", "enable")],
)  # fmt: skip
def test_old_nginx_gets_no_reuseport_that_its_audit_warns_of(version: str, verdict: str) -> None:
    """B6: until 1.13.4 a mere ``nginx -t`` can reset live connections."""
    few_of_many = msgspec.structs.replace(busy(0), rate=load().rate)
    for workload in (busy(160_000), few_of_many):
        d = one(decide(host(cpus=16, nginx=nginx(version)), workload, site=site()), "reuseport")
        assert (d.verdict, bool(d.settings)) == (verdict, verdict == "enable")
        if version in ("1.10.3", "1.13.3"):
            assert "1.13.4 fixed it" in d.summary
            assert d.flips_when == ["nginx is 1.13.4 or newer"]


def test_old_reuseport_has_its_risks() -> None:
    """B6, ngx_clone_listening()."""
    d = one(decide(host(cpus=16, nginx=nginx("1.14.2")), busy(160_000), site=site()), "reuseport")
    assert any("1.15.2" in risk for risk in d.risks)


def test_backlog_follows_the_burst_up_to_somaxconn() -> None:
    """listen(2), ngx_linux_config.h."""
    roomy = host(kernel=Kernel(system="Linux", sysctls={"net.core.somaxconn": "4096"}))
    assert settings(one(decide(roomy, busy(1500), site=site()), "backlog")) == [
        "listen backlog=3000"
    ]
    old = host(kernel=Kernel(system="Linux", sysctls={"net.core.somaxconn": "128"}))
    d = one(decide(old, busy(1500), site=site()), "backlog")
    assert (d.verdict, d.next_command) == ("keep", "sysctl net.core.somaxconn=3000")


@each_row(("version", "count"), [("1.15.2", 4), ("1.26.3", 5), ("1.29.7", 3)])
def test_upstream_keepalive_by_version(version: str, count: int) -> None:
    """Since 1.29.7 HTTP/1.1 and an empty Connection are the default."""
    facts = host(nginx=nginx(version))
    d = one(decide(facts, load("proxy"), site=site()), "upstream-keepalive")
    assert len(d.settings) == count
    assert d.settings[1].directive == "keepalive"


@each_row("version", ["1.15.3", "1.22.1", "1.29.6"])
def test_a_few_connections_are_kept_for_a_second_where_nothing_is_known(version: str) -> None:
    """An idle connection holds a thread of servers that have one for each: not for longer."""
    facts = host(nginx=nginx(version), cpus=4)
    d = one(decide(facts, Workload(kind="proxy"), site=site()), "upstream-keepalive")
    lines = {one.directive: one.args for one in d.settings}
    assert (lines["keepalive"], lines["keepalive_timeout"]) == (["2"], ["1s"])
    assert d.confidence == "low"
    wide = host(nginx=nginx(version), cpus=128)
    assert not one(decide(wide, Workload(kind="proxy"), site=site()), "upstream-keepalive").settings
    left = as_proposed(d)
    assert (left.verdict, left.settings, left.proposed) == ("not_enough_evidence", [], d.settings)


@each_row("version", ["1.29.7", "1.30.0"])
def test_connections_are_kept_where_requests_at_once_are_known(version: str) -> None:
    """An idle connection holds a thread of servers that have one for each (of eight, say)."""
    facts = host(nginx=nginx(version))
    d = one(decide(facts, Workload(kind="proxy"), site=site()), "upstream-keepalive")
    assert (d.verdict, d.settings) == ("not_enough_evidence", [])
    assert {"keepalive", "keepalive_timeout"} <= {one.directive for one in d.proposed}
    assert "a thread or process for each connection" in d.summary
    measured = one(decide(facts, load("proxy"), site=site()), "upstream-keepalive")
    assert {"keepalive", "keepalive_timeout"} <= {one.directive for one in measured.settings}


@each_row(("limit", "most"), [(524_288, 256), (1024, 120), (64, 16)])
def test_kept_connections_leave_slots_to_others(limit: int, most: int) -> None:
    few = Limits(nofile_soft=limit, nofile_hard=limit, nr_open=1 << 20, nofile_of="nginx")
    many = msgspec.structs.replace(
        load("proxy"), concurrency=Concurrency(peak=20_000, provenance="measured")
    )
    d = one(decide(host(limits=few), many, site=site()), "upstream-keepalive")
    (kept,) = [one for one in d.settings if one.directive == "keepalive"]
    assert kept.args == [str(most)]
    assert ("a quarter of its slots" in kept.reason) is (most < 256)


def test_open_files_are_cached_within_the_descriptors() -> None:
    """C7: open() is never offloaded."""
    few = one(
        decide(host(), load(data_bytes=10**7, file_bytes=10**4), site=site()), "open-file-cache"
    )
    assert [" ".join([one.directive, *one.args]) for one in few.proposed] == [
        "open_file_cache max=1000 inactive=60s",
        "open_file_cache_valid 3s",
    ]
    many = load(data_bytes=10**13, file_bytes=10**5)
    assert one(decide(host(), many, site=site()), "open-file-cache").verdict == "disable"


def test_descriptors_of_files_that_are_asked_for_once_save_nothing() -> None:
    """Scenario cold-open: names are read from the disk, each for one request alone."""
    workload = load(data_bytes=10**8, file_bytes=10**5, rate=50.0)
    for change in ({"once": True}, {"requests_seen": 20.0}):
        asked = msgspec.structs.replace(workload.popularity, **change)
        seen = msgspec.structs.replace(workload, popularity=asked)
        d = one(decide(host(), seen, site=site()), "open-file-cache")
        assert (d.verdict, d.settings) == ("disable", []), change


@each_row(
    ("workload", "saved"),
    [
        (load(data_bytes=10**9, file_bytes=10**6), "of a request's time"),
        (load(data_bytes=10**8, file_bytes=10**5), "of a request's time"),
        (load(data_bytes=10**7, file_bytes=10**4, rate=100.0), "of a loop's time"),
    ],
    ids=["large files", "files of 100 KB", "few requests"],
)
def test_where_opens_cost_next_to_nothing_they_are_left(workload: Workload, saved: str) -> None:
    d = one(decide(host(), workload, site=site()), "open-file-cache")
    assert (d.verdict, settings(d)) == ("keep", [])
    assert saved in d.summary


def test_large_cold_files_in_demand_keep_a_descriptor_for_each_reader() -> None:
    """Few files of many windows, several readers of each: they would share the read-ahead."""
    d = one(decide(lab_host(), lab_load(), site=site()), "open-file-cache")
    assert (d.verdict, settings(d)) == ("keep", [])
    assert "read-ahead" in d.summary


def test_names_that_memory_forgets_are_worth_a_descriptor() -> None:
    """C8: 200 GB in files of a megabyte, and memory for the inodes of a few."""
    data = load(data_bytes=200 * 10**9, file_bytes=10**6, rate=50.0, exponent=1.2)
    small = host(memory_bytes=10**9, page_cache_bytes=10**9)
    assert one(decide(small, data, site=site()), "open-file-cache").verdict == "enable"


def test_every_id_that_can_be_decided_is_decided_once() -> None:
    names = [d.id for d in decide(host(), load(), site=site()).decisions]
    assert len(set(names)) == len(names)
    assert set(names) == set(get_args(DecisionId))


def test_a_quota_that_throttles_is_said_beside_the_workers() -> None:
    """``cpu.stat`` of nginx's group: what a number of workers cannot mend."""
    for periods, expected in ((1000, True), (50, False)):
        held = Throttled(
            directory="/sys/fs/cgroup/nginx", periods=periods, throttled_periods=periods // 2,
            throttled_seconds=9.0,
        )  # fmt: skip
        cpu = Cpu(online=8, cpuset=8, quota_cpus=2.0, effective=2.0, throttled=held)
        facts = msgspec.structs.replace(host(), cpu=cpu)
        d = one(decide(facts, load(), site=site()), "workers")
        assert settings(d) == ["worker_processes 2"]
        assert any("throttled 50 % of the periods" in risk for risk in d.risks) == expected
        assert (
            any(e.fact == "share of periods throttled by the quota" for e in d.evidence) == expected
        )


@each_row(
    ("peak", "servers", "said", "is_raised"),
    [
        (500_000, ["10.0.0.1:9000", "10.0.0.2:9000"], "4 times as many server addresses", True),
        (100_000, ["10.0.0.1:9000", "10.0.0.2:9000"], "is enough", True),
        (20_000, ["10.0.0.1:9000", "10.0.0.2:9000"], "", False),
        (500_000, ["unix:/run/app.sock"], "", False),
    ],
)
def test_local_ports_bound_connections_to_one_address(
    peak: int, servers: list[str], said: str, *, is_raised: bool
) -> None:
    """A connection takes a port of its own towards each address and port."""
    sysctls = {"net.ipv4.ip_local_port_range": "32768 60999"}
    facts = host(kernel=Kernel(system="Linux", sysctls=sysctls))
    given = site(upstreams=[Upstream(name="ws", servers=servers)])
    d = one(decide(facts, load("proxy", peak=peak), site=given), "upstream-keepalive")
    assert [one.value for one in d.host_settings] == ["1024 65535"] * is_raised
    assert any("local ports" in risk for risk in d.risks) is bool(said)
    assert any(said in risk for risk in d.risks)


@each_row(
    ("workload", "version", "lines"),
    [
        (load(data_bytes=GIBIBYTE // 4, file_bytes=10**6), "1.26.3", []),
        (load(data_bytes=GIBIBYTE // 4, file_bytes=10**6), "1.18.0", ["2m"]),
        (load(data_bytes=10**13, file_bytes=10**7), "1.26.3", ["512k"]),
    ],
)
def test_no_chunk_is_made_for_a_disk_that_nobody_reads(
    workload: Workload, version: str, lines: list[str]
) -> None:
    """Memory holds a quarter of a gibibyte: what an assumed disk would want is no reason."""
    d = one(decide(host(nginx=nginx(version)), workload, site=site()), "sendfile-max-chunk")
    assert [one.args[0] for one in d.settings] == lines


def test_a_chunk_is_not_made_for_files_that_are_all_smaller() -> None:
    sizes = ObjectSizes(mean_bytes=40_000, p99_bytes=240_000, provenance="learnt")
    workload = msgspec.structs.replace(load(data_bytes=10**13, file_bytes=40_000), sizes=sizes)
    d = one(decide(host(), workload, site=site()), "sendfile-max-chunk")
    assert (d.verdict, d.settings) == ("keep", [])


@each_row(
    ("sizes", "live", "is_locked"),
    [
        (ObjectSizes(mean_bytes=6 << 20, p99_bytes=20 << 20, provenance="learnt"), [], True),
        (ObjectSizes(mean_bytes=6 << 20, p99_bytes=900 << 20, provenance="learnt"), [], False),
        (ObjectSizes(mean_bytes=6 << 20, p99_bytes=20 << 20, provenance="assumed"), [], False),
        (ObjectSizes(mean_bytes=16 << 10, p99_bytes=90 << 10, provenance="learnt"), [], False),
        (ObjectSizes(mean_bytes=16 << 10, provenance="learnt"), ["/live/"], True),
    ],
)
def test_requests_for_a_missing_page_wait_where_it_helps(
    sizes: ObjectSizes, live: list[str], *, is_locked: bool
) -> None:
    """One fetch takes as long as the others wait, or all ask for a new file at once."""
    workload = msgspec.structs.replace(load("cache"), sizes=sizes)
    d = one(decide(host(), workload, site=site(live_files=live)), "cache-misses")
    assert any(one.directive == "proxy_cache_lock" for one in d.settings) is is_locked


def many_disks(disks: int, cpus: int, **other: Any) -> Decisions:
    facts = host(disks=disks, cpus=cpus, mount="/cache", memory_bytes=256 * GIBIBYTE, **other)
    workload = load(
        "cache", data_bytes=120_000 * GIBIBYTE, file_bytes=2 << 20, exponent=0.8, rate=9000,
        peak=12_000,
    )  # fmt: skip
    workload = msgspec.structs.replace(
        workload,
        tls=TlsUse(value=True, provenance="learnt"),
        connection_reuse=ConnectionReuse(requests_per_connection=15.0, provenance="learnt"),
    )
    own = site(cache_dirs=[f"/cache/{n}" for n in range(1, disks + 1)])
    return decide(facts, workload, site=own)


@each_row(
    ("disks", "cpus", "fewer"), [(12, 64, True), (36, 16, True), (36, 128, True), (4, 16, False)]
)
def test_workers_are_weighed_against_many_disks(disks: int, cpus: int, *, fewer: bool) -> None:
    """Twelve disks and 64 workers left two threads a disk, 36 and 48 one pool of 32 for all."""
    decisions = many_disks(disks, cpus)
    workers, pools = one(decisions, "workers"), one(decisions, "per-disk-pools")
    assert pools.verdict == "enable"
    threads = {s.args[1] for s in pools.settings if s.directive == "thread_pool"}
    assert len([s for s in pools.settings if s.directive == "thread_pool"]) == disks
    [each] = [int(word.removeprefix("threads=")) for word in threads]
    [count] = [s.args[0] for s in workers.settings]
    assert (count != "auto") == fewer
    if fewer:
        assert 1 <= int(count) < cpus
        assert f"{disks} disks are the limit" in workers.summary
    assert each >= 2
    assert each * disks * (int(count) if fewer else cpus) <= 2048


def test_workers_are_not_fewer_than_memory_needs_cpus() -> None:
    """What the page cache answers takes CPU time that no disk bounds."""
    facts = host(disks=12, cpus=64, mount="/cache", memory_bytes=1024 * GIBIBYTE)
    workload = load(
        "cache", data_bytes=1200 * GIBIBYTE, file_bytes=64 << 10, exponent=1.1, rate=150_000,
        peak=12_000,
    )  # fmt: skip
    workload = msgspec.structs.replace(workload, tls=TlsUse(value=True, provenance="learnt"))
    own = site(cache_dirs=[f"/cache/{n}" for n in range(1, 13)])
    [line] = one(decide(facts, workload, site=own), "workers").settings
    assert line.args == ["auto"] or int(line.args[0]) > 32


def test_pools_that_stay_out_leave_a_worker_for_each_cpu() -> None:
    facts = host(disks=12, cpus=64, mount="/cache", nginx=nginx("1.26.3", []))
    own = site(cache_dirs=[f"/cache/{n}" for n in range(1, 13)])
    workload = load("cache", data_bytes=120_000 * GIBIBYTE, file_bytes=2 << 20, rate=9000)
    [line] = one(decide(facts, workload, site=own), "workers").settings
    assert line.args == ["auto"]


def test_disks_that_cannot_give_what_is_asked_are_the_headline() -> None:
    link = Network(links=[Link(name="eth0", speed_bits_per_second=100 * 10**9)])
    said = many_disks(12, 64, network=link).headline
    assert said.startswith(
        "This host cannot fill its link of 11.6 GiB/s or serve the load of 9,000"
    )
    assert "12 disks" in said
    text = emit_decided(many_disks(12, 64, network=link), complete_site(site(), host(), "cache"))
    assert "# This host cannot fill its link" in text
    quiet = load(data_bytes=10 * GIBIBYTE, rate=10, file_bytes=2 << 20)
    assert not decide(host(network=link), quiet, site=site()).headline


def link_of(bits_per_second: int) -> Network:
    return Network(links=[Link(name="eth0", speed_bits_per_second=bits_per_second)])


@each_row(
    ("resource", "facts", "words"),
    [
        ("disks", {}, {"data_bytes": 2000 * GIBIBYTE, "rate": 5000.0}),
        ("link", {"network": link_of(10**8)},
         {"data_bytes": GIBIBYTE, "rate": 5000.0}),
        ("cpu", {"cpus": 1, "network": link_of(10**12)},
         {"data_bytes": GIBIBYTE, "file_bytes": 1024, "rate": 900_000.0}),
    ],
)  # fmt: skip
def test_what_binds_is_named_with_its_figure(
    resource: str, facts: dict[str, Any], words: dict[str, Any]
) -> None:
    found = decide(host(**facts), load(**words), site=site())
    assert [one.requests_per_second for one in found.bindings] == sorted(
        one.requests_per_second for one in found.bindings
    )
    assert found.bindings[0].resource == resource
    assert f"{number_text(found.bindings[0].requests_per_second)} requests/s" in found.binding
    assert ", below the load of " in found.binding
    # A rate far beyond it is what the host cannot give; one far below binds nothing.
    far = load(**words | {"rate": 100 * found.bindings[0].requests_per_second})
    assert decide(host(**facts), far, site=site()).headline.startswith("This host cannot ")
    few = load(**words | {"rate": found.bindings[0].requests_per_second / 100})
    least = decide(host(**facts), few, site=site())
    assert "; the load of " in least.binding
    assert not least.headline


def test_clients_beyond_all_connections_are_the_headline() -> None:
    facts = msgspec.structs.replace(host(), limits=Limits(nofile_hard=4096, nr_open=4096))
    found = decide(facts, load("proxy", peak=500_000), site=site())
    assert "This host cannot serve 500,000 concurrent clients" in found.headline
    assert "origin may be a lower limit" in found.binding


def test_unmeasured_disks_are_judged_by_the_smaller_regret() -> None:
    """A log was learnt, no disk probed, the data is above memory: off lost 50 times and more."""
    facts = host(disk_class="ssd", memory_bytes=GIBIBYTE, page_cache_bytes=GIBIBYTE // 2, cpus=2)
    assert facts.storage.disks[0].curve is None
    workload = load(
        "static", data_bytes=2 * GIBIBYTE, file_bytes=20_000, exponent=0.7, rate=800, peak=40
    )
    found = one(decide(facts, workload, site=site()), "thread-pools")
    assert found.verdict == "enable"
    assert "the disks were not measured" in found.summary
    assert found.confidence == "low"
    assert "--disks" in found.next_command
    small = load("static", data_bytes=GIBIBYTE // 4, file_bytes=20_000, rate=800, peak=40)
    assert one(decide(facts, small, site=site()), "thread-pools").verdict == "disable"
