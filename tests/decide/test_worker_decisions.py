"""Workers, connections and what binds, for hosts and workloads of the sources."""

import re
from typing import Any, get_args

import msgspec
import pytest
from rows import each_row
from situations import GIBIBYTE, MEBIBYTE, host, lines, load, measured, nginx, one, site
from situations import decide_without_break_evens as decide

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.upstreams import as_proposed
from nginx_tune.documents.decisions import DecisionId, Decisions
from nginx_tune.documents.facts import Cpu, Kernel, Limits, Throttled
from nginx_tune.documents.facts_machine import Link, Network
from nginx_tune.documents.site import Upstream
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    CpuPerRequest,
    Objective,
    Rate,
    TlsUse,
    Workload,
)


def test_quota_counts_and_online_does_not() -> None:
    """auto is the CPUs online, whatever the cgroup says."""
    facts = host(cpu=Cpu(online=32, cpuset=32, quota_cpus=1.5, effective=1.5))
    d = one(decide(facts, load(), site=site()), "workers")
    assert lines(d) == ["worker_processes 2"]
    assert lines(one(decide(host(), load(), site=site()), "workers")) == ["worker_processes auto"]


def test_workers_beyond_the_bound_have_their_own_reason() -> None:
    d = one(decide(host(cpus=4096), load(), site=site()), "workers")
    assert (lines(d), "the most that nginx-tune sets" in d.summary) == (
        ["worker_processes 512"],
        True,
    )


def test_connections_stay_below_the_hard_limit_and_a_tenth_of_memory() -> None:
    """ngx_get_connection(); setrlimit(2)."""
    tight = host(limits=Limits(nofile_soft=256, nofile_hard=1024, nr_open=1048576))
    decisions = decide(tight, load(), site=site())
    assert lines(one(decisions, "connections")) == ["worker_connections 480"]
    assert lines(one(decisions, "file-limits")) == ["worker_rlimit_nofile 1024"]
    assert "LimitNOFILE" in one(decisions, "file-limits").next_command
    for hard, provenance in ((1024, "measured"), (None, "assumed")):
        limited = host(limits=Limits(nofile_soft=256, nofile_hard=hard))
        found = one(decide(limited, load(), site=site()), "connections").evidence
        assert {e.provenance for e in found if e.unit == "descriptors"} == {provenance}
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
    ("version", "verdict", "written"),
    [("1.26.3", "keep", []), ("1.10.3", "disable", ["accept_mutex off"])],
)
def test_accept_by_version(version: str, verdict: str, written: list[str]) -> None:
    """B7, nginx CHANGES, 1.11.3."""
    d = one(decide(host(nginx=nginx(version)), load(), site=site()), "accept")
    assert (d.verdict, lines(d)) == (verdict, written)
    alone = decide(host(nginx=nginx(version), cpus=1), load(), site=site())
    d = one(alone, "accept")
    assert (d.verdict, lines(d)) == ("not_applicable", [])


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
    assert (many.verdict, lines(many)) == ("enable", ["listen reuseport"])
    assert any("closed queue" in risk for risk in many.risks)
    few = one(decide(host(cpus=16), busy(1000), site=site()), "reuseport")
    assert (few.verdict, lines(few)) == ("keep", [])
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
    assert lines(one(decide(roomy, busy(1500), site=site()), "backlog")) == ["listen backlog=3000"]
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
        assert lines(d) == ["worker_processes 2"]
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
        "This host cannot fill its link of 100 Gbit/s or serve the load of 9,000"
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
    assert ", below the load of " in found.binding
    figures = re.search(r"about ([\d,.]+) requests/s \[([\d,.]+) – ([\d,.]+)\] \(", found.binding)
    assert figures, found.binding
    about, low, high = (float(figure.replace(",", "")) for figure in figures.groups())
    assert low <= about <= high
    assert about == pytest.approx(found.bindings[0].requests_per_second, rel=0.05)
    assert "the CPU time of a request are only assumed" in found.binding
    # A rate far beyond it is what the host cannot give; one far below binds nothing.
    far = load(**words | {"rate": 100 * found.bindings[0].requests_per_second})
    headline = decide(host(**facts), far, site=site()).headline
    assert headline.startswith("This host cannot ")
    assert "can give at most" in headline or " alone allow" in headline
    few = load(**words | {"rate": found.bindings[0].requests_per_second / 100})
    least = decide(host(**facts), few, site=site())
    assert "; the load of " in least.binding
    assert not least.headline


@each_row(
    ("objective", "said"),
    [
        ("p99 <= 10s", r"Within p99 <= 10s it carries about [\d,.]+ requests/s \[[\d,.]+ – "),
        ("hot.p99 < 5ms", r"Within hot.p99 < 5ms it carries about [\d,.]+ requests/s \["),
        ("p99 <= 1us", r"Within p99 <= 1us it carries no rate"),
        ("errors == 0", r"At that load the p99 of answers is about [\d.]+ m?s \[[\d.]+ m?s – "),
    ],
)
def test_the_headline_has_a_figure_for_the_objective(objective: str, said: str) -> None:
    words = load(data_bytes=4 * GIBIBYTE, file_bytes=64 << 10, rate=20.0)
    words = msgspec.structs.replace(words, objectives=[Objective(expression=objective)])
    found = decide(measured(host(), 0.008, 120e6), words, site=site())
    assert re.search(said, found.binding), found.binding


def test_clients_beyond_all_connections_are_the_headline() -> None:
    facts = msgspec.structs.replace(host(), limits=Limits(nofile_hard=4096, nr_open=4096))
    found = decide(facts, load("proxy", peak=500_000), site=site())
    assert "This host cannot serve 500,000 concurrent clients" in found.headline
    assert "origin may be a lower limit" in found.binding
