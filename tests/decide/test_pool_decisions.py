"""Thread pools, for hosts and workloads that stand for the rows of the sources."""

import msgspec
import pytest
from rows import each_row
from situations import (
    FLAGS,
    GIBIBYTE,
    MEBIBYTE,
    dataset,
    host,
    lab_host,
    lab_load,
    lines,
    load,
    nginx,
    one,
    predicted,
    site,
    source_host,
)
from situations import decide_without_break_evens as decide

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.decide import engine
from nginx_tune.decide.engine import situation_of
from nginx_tune.decide.pool_forecast import forecast_gain
from nginx_tune.decide.pool_plan import plan_pools
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.facts import Cpu, Disk, Facts, Kernel, Memory, PathStorage, Storage
from nginx_tune.documents.site import CacheBounds
from nginx_tune.documents.workload import (
    CurveShare,
    HttpVersion,
    LogSummary,
    Popularity,
    ServedData,
    Workload,
)


def test_the_scenario_is_foreseen() -> None:
    """A7: measured 228-240 times the rate and 1/239-1/246 of the mean."""
    d = one(decide(lab_host(), lab_load(), site=site()), "thread-pools")
    assert d.verdict == "enable"
    assert lines(d) == ["aio threads"]
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
    """A8: CPU of a 1-KB request +34..150 %."""
    workload = load(data_bytes=2 * MEBIBYTE, file_bytes=1024, rate=6000, peak=None)
    d = one(engine.decide(host(), workload, site=site()), "thread-pools")
    assert d.verdict == "disable"
    assert d.settings == []
    assert "fits in the page cache" in d.summary
    low, expected, high = predicted(d, "ratio(server.cpu_seconds_per_request)")
    assert 1.3 <= low <= 1.35 < expected <= high
    assert high == pytest.approx(2.5, rel=0.05)
    assert any(text.startswith("workload.dataset.bytes: ") for text in d.flips_when)


@each_row(
    ("span_seconds", "requested_bytes", "said"),
    [
        (74, GIBIBYTE // 8, "4.0 GiB of data (128.0 MiB of it in a log of less than a day), 1.0 G"),
        (74, 8 * GIBIBYTE, "8.0 GiB of data, 1.0 GiB"),
        (
            30 * 86_400,
            GIBIBYTE // 8,
            "requested in the log fits in the page cache (128.0 MiB of 1.0 GiB; 4.0 GiB on disk)",
        ),
    ],
)
def test_a_short_log_does_not_shrink_the_data_on_disk(
    span_seconds: int, requested_bytes: int, said: str
) -> None:
    learnt = load("media", data_bytes=requested_bytes, file_bytes=MEBIBYTE, rate=40)
    learnt = msgspec.structs.replace(
        learnt,
        dataset=ServedData(bytes=requested_bytes, provenance="learnt"),
        popularity=Popularity(
            exponent=0.6,
            curve=[CurveShare(requests_ratio=1.0, bytes=requested_bytes)],
            provenance="learnt",
        ),
        log=LogSummary(format="combined", lines=1, requests=1, span_seconds=span_seconds),
    )
    facts = host(page_cache_bytes=GIBIBYTE, datasets=[dataset(4 * GIBIBYTE, MEBIBYTE)])
    assert said in one(decide(facts, learnt, site=site()), "thread-pools").summary


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
    assert lines(d) == ["aio on"]
    assert not any(s.directive == "thread_pool" for x in decisions.decisions for s in x.settings)
    without = host(kernel=Kernel(system="FreeBSD"), nginx=nginx())
    assert lines(one(decide(without, load(), site=site()), "thread-pools")) == []


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
    assert lines(d) == ["thread_pool default threads=64 max_queue=65536"]


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
    cold, hot = lines(size)
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


def cache_host(**other: object) -> Facts:
    return host(disks=3, mount="/data", **other)  # type: ignore[arg-type]


def test_three_disks_get_a_cache_a_pool_and_a_share_each() -> None:
    """A16."""
    decisions = decide(cache_host(), Workload(kind="cache"), site=site(cache_dirs=[]))
    pools = one(decisions, "per-disk-pools")
    assert pools.verdict == "enable"
    assert "aio threads=pool_$disk" in lines(pools)
    layout = one(decisions, "cache-layout")
    written = lines(layout)
    for number in (1, 2, 3):
        assert f"thread_pool pool_{number} threads=16 max_queue=65536" in lines(pools)
        start = f"proxy_cache_path /data/{number}/nginx-cache "
        path = next(line for line in written if line.startswith(start))
        assert f"keys_zone=cache_{number}:" in path
        assert "use_temp_path=off" in path
    assert "proxy_cache cache_$disk" in written
    split = next(s for s in layout.settings if s.directive == "split_clients")
    key = next(s for s in one(decisions, "cache-key").settings if s.directive == "proxy_cache_key")
    assert split.args == [*key.args, "$disk"] == ["$scheme$host$request_uri", "$disk"]
    assert split.lines == [["33.3%", "1"], ["33.3%", "2"], ["*", "3"]]
    assert lines(one(decisions, "thread-pools")) == []
    assert lines(one(decisions, "aio-write")) == ["aio_write on"]


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
    assert "proxy_cache cache_$disk" in lines(layout)
    (why,) = (s.reason for s in layout.settings if s.directive == "proxy_cache")
    assert "share a disk" in why
    assert "RAID" not in why
    assert lines(one(decisions, "thread-pools")) == ["aio threads"]


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


def test_roots_on_one_disk_need_no_measurement() -> None:
    """Although the verdict on pools needs one."""
    facts = host(page_cache_bytes=GIBIBYTE)
    decisions = decide(facts, Workload(), site=site(roots=["/srv/1/a", "/srv/1/b"]))
    assert one(decisions, "thread-pools").verdict == "not_enough_evidence"
    d = one(decisions, "per-disk-pools")
    assert (d.verdict, "shares sda" in d.summary) == ("disable", True)


def test_roots_of_different_locations_are_not_searched_in_turn() -> None:
    given = site(roots=["/srv/1", "/srv/2"], roots_apart=True)
    d = one(decide(host(disks=2), load(), site=given), "per-disk-pools")
    assert d.verdict == "disable"
    assert "the roots belong to different locations" in d.summary
    assert d.flips_when == [
        "[site] root_prefixes assigns URLs to disks, in a configuration that generate writes"
    ]
    assert not d.next_command
    unknown = host(page_cache_bytes=GIBIBYTE, storage=Storage())
    d = one(decide(unknown, load(), site=given), "per-disk-pools")
    assert d.verdict == "not_enough_evidence"
    assert "do not have the disk of /srv/1" in d.summary
    assert "inspect --dataset" in d.next_command


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


def test_unmeasured_disks_are_judged_by_the_smaller_regret() -> None:
    """A log was learnt, no disk probed, the data is above memory: off lost 50 times and more."""
    facts = host(disk_class="ssd", memory_bytes=GIBIBYTE, page_cache_bytes=GIBIBYTE // 2, cpus=2)
    assert facts.storage.disks[0].curve is None
    workload = load(
        "static", data_bytes=2 * GIBIBYTE, file_bytes=20_000, exponent=0.7, rate=800, peak=40
    )
    decisions = decide(facts, workload, site=site())
    found = one(decisions, "thread-pools")
    assert found.verdict == "enable"
    assert "the disks were not measured" in found.summary
    assert found.confidence == "low"
    text = emit_decided(decisions, site())
    assert "aio threads: written below, though the disks were not measured" in text
    assert "--disks" in found.next_command
    small = load("static", data_bytes=GIBIBYTE // 4, file_bytes=20_000, rate=800, peak=40)
    assert one(decide(facts, small, site=site()), "thread-pools").verdict == "disable"
