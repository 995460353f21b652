"""What holds for any facts, workload and site."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from situations import (
    GIBIBYTE,
    MEBIBYTE,
    dataset,
    decide_without_break_evens,
    host,
    load,
    nginx,
    site,
)
from tiers import draws

from nginx_tune.change.generate import emit_decided
from nginx_tune.change.generate.writing import key_of
from nginx_tune.decide import complete_site, decide
from nginx_tune.decide.engine import situation_of
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import (
    Cpu,
    Disk,
    Facts,
    Kernel,
    Limits,
    Memory,
    PathStorage,
    Storage,
)
from nginx_tune.documents.facts_storage import Curve, CurvePoint
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    CpuPerRequest,
    HttpVersion,
    ObjectSizes,
    Popularity,
    Rate,
    ServedData,
    TlsUse,
    Workload,
)

QUICK = settings(
    max_examples=draws(40, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
MAYBE_INT = st.none() | st.integers(1, 2**42) | st.integers(-5, 2**63)
MAYBE_FLOAT = st.none() | st.floats(0.1, 1e5) | st.floats(-1, 1e15, allow_nan=False)
CLASSES = st.sampled_from(["hdd", "ssd", "nvme", "network", "virtual", "memory", "unknown"])
PROVENANCE = st.sampled_from(["measured", "learnt", "declared", "assumed"])
DIRECTORIES = ["/srv/1", "/srv/2", "/data/1", "/data/2", "/data/3"]


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    curve = st.none() | st.builds(
        Curve,
        read_bytes=st.integers(0, 1 << 22),
        points=st.lists(
            st.builds(
                CurvePoint,
                depth=st.integers(0, 256),
                reads_per_second=st.floats(0, 1e7, allow_nan=False),
            ),
            max_size=3,
        ),
        sequential_bytes_per_second=MAYBE_FLOAT,
    )
    disks = draw(
        st.lists(
            st.builds(
                Disk, name=st.sampled_from(["sda", "sdb", "sdc"]), class_=CLASSES,
                size_bytes=MAYBE_INT, read_ahead_bytes=MAYBE_INT, curve=curve,
            ),
            max_size=3,
        )
    )  # fmt: skip
    paths = draw(
        st.lists(
            st.builds(
                PathStorage,
                path=st.sampled_from(["/", *DIRECTORIES]),
                filesystem=st.sampled_from([None, "ext4", "vboxsf"]),
                leaf_disks=st.lists(st.sampled_from(["sda", "sdb", "sdc", "sdx"]), max_size=2),
            ),
            max_size=4,
        )
    )
    return Facts(
        kernel=Kernel(
            system=draw(st.sampled_from([None, "Linux", "FreeBSD", "Darwin"])),
            sysctls=draw(st.dictionaries(st.just("net.core.somaxconn"), st.text(max_size=12))),
        ),
        cpu=draw(st.builds(Cpu, online=MAYBE_INT, effective=MAYBE_FLOAT, quota_cpus=MAYBE_FLOAT)),
        memory=draw(
            st.builds(
                Memory, total_bytes=MAYBE_INT, available_bytes=MAYBE_INT,
                cgroup_limit_bytes=MAYBE_INT, page_cache_limit_bytes=MAYBE_INT,
            )
        ),
        storage=Storage(paths=paths, disks=disks),
        limits=draw(
            st.builds(Limits, nofile_soft=MAYBE_INT, nofile_hard=MAYBE_INT, nr_open=MAYBE_INT)
        ),
        nginx=nginx(
            draw(st.sampled_from(["1.6.0", "1.9.15", "1.18.0", "1.22.1", "1.29.7", "x", "1"])),
            draw(st.sampled_from([[], ["--with-threads"], ["--with-http_ssl_module"]])),
        ),
        datasets=draw(
            st.lists(
                st.builds(dataset, st.integers(1, 2**60), st.integers(1, 2**40)), max_size=2
            )
        ),
    )  # fmt: skip


@st.composite
def any_workload(draw: st.DrawFn) -> Workload:
    return Workload(
        kind=draw(st.sampled_from(["static", "media", "cache", "proxy"])),
        dataset=draw(
            st.builds(ServedData, files=MAYBE_INT, bytes=MAYBE_INT, provenance=PROVENANCE)
        ),
        popularity=draw(st.builds(Popularity, exponent=MAYBE_FLOAT, provenance=PROVENANCE)),
        sizes=draw(st.builds(ObjectSizes, mean_bytes=MAYBE_FLOAT, provenance=PROVENANCE)),
        rate=draw(st.builds(Rate, peak_per_second=MAYBE_FLOAT, provenance=PROVENANCE)),
        concurrency=draw(
            st.builds(
                Concurrency,
                mean=MAYBE_FLOAT,
                peak=MAYBE_FLOAT,
                cold_peak=MAYBE_FLOAT,
                provenance=PROVENANCE,
            )
        ),
        connection_reuse=draw(st.builds(ConnectionReuse, requests_per_connection=MAYBE_FLOAT)),
        tls=draw(st.builds(TlsUse, value=st.booleans())),
        http_version=draw(st.builds(HttpVersion, value=st.sampled_from(["1.1", "2"]))),
        cpu_per_request=draw(
            st.builds(CpuPerRequest, mean_seconds=MAYBE_FLOAT, stdev_seconds=MAYBE_FLOAT)
        ),
    )


ANY_SITE = st.builds(
    Site,
    roots=st.lists(st.sampled_from(DIRECTORIES), min_size=1, max_size=3, unique=True),
    cache_dirs=st.lists(st.sampled_from(DIRECTORIES), max_size=3, unique=True),
    hot_locations=st.lists(st.sampled_from(["/hot/", "/img"]), max_size=2, unique=True),
)

BOUNDS = {
    "worker_processes": (1, 512),
    "worker_connections": (64, 1 << 20),
    "worker_rlimit_nofile": (1, 1 << 20),
    "keepalive": (16, 256),
}


def check_settings(decisions: Decisions) -> None:
    owners: dict[tuple[str, str, str], set[str]] = {}
    places: Counter[Any] = Counter()
    for decision in decisions.decisions:
        for s in decision.settings:
            assert s.decision == decision.id
            assert s.reason
            assert all("\n" not in word for word in s.args)
            owners.setdefault((s.context, s.block, key_of(s)[0]), set()).add(decision.id)
            places[s.context, s.block, key_of(s)] += 1
            low, high = BOUNDS.get(s.directive, (0, 0))
            if high and s.args[0] != "auto":
                assert low <= int(s.args[0]) <= high, s
            if s.directive == "thread_pool":
                assert 4 <= int(s.args[1].removeprefix("threads=")) <= 128
    shared = {place: ids for place, ids in owners.items() if len(ids) > 1}
    # The options of one listen come from two decisions, each its own word; so do headers.
    assert not {place for place in shared if place[2] not in ("listen", "proxy_set_header")}
    assert max(places.values(), default=1) == 1


def values(decisions: Decisions, directive: str) -> list[str]:
    return [
        " ".join(s.args)
        for d in decisions.decisions
        for s in d.settings
        if s.directive == directive
    ]


def check_agreement(decisions: Decisions, facts: Facts) -> None:
    """What one decision sets holds with what the others set."""
    verdict = {d.id: d.verdict for d in decisions.decisions}
    pools = {line.split()[0] for line in values(decisions, "thread_pool")}
    asked = {
        line.partition("=")[2] or "default"
        for line in values(decisions, "aio")
        if line.startswith("threads")
    }
    by_disk = {name for name in pools if name.startswith("pool_")}
    assert asked - {"pool_$disk"} <= pools | {"default"}
    assert pools - asked <= (by_disk if "pool_$disk" in asked else set())
    on = bool(asked)
    assert on == (verdict["thread-pools"] == "enable")
    assert on or not values(decisions, "aio_write")
    assert on or not values(decisions, "output_buffers")
    assert on or verdict["thread-pool-size"] in ("not_applicable", "not_enough_evidence")
    if on:
        assert verdict["ktls"] in ("disable", "not_applicable")
    if values(decisions, "sendfile") == ["off"]:
        assert not values(decisions, "sendfile_max_chunk")
    assert not values(decisions, "tcp_nopush"), "benchmarks/README.md says why"
    limit = values(decisions, "worker_rlimit_nofile")
    connections = int(values(decisions, "worker_connections")[0])
    if limit and facts.limits.nofile_hard and facts.limits.nofile_hard > 200_000:
        held = [
            int(v.split()[0].removeprefix("max=")) for v in values(decisions, "open_file_cache")
        ]
        roomy = facts.limits.nr_open is None or facts.limits.nr_open > 200_000
        assert not roomy or int(limit[0]) >= 2 * connections + sum(held)
    somaxconn = facts.kernel.sysctls.get("net.core.somaxconn", "")
    for line in values(decisions, "listen"):
        if line.startswith("backlog=") and somaxconn.isascii() and somaxconn.isdigit():
            assert int(line.removeprefix("backlog=")) <= int(somaxconn)
    if "reuseport" in values(decisions, "listen"):
        assert verdict["reuseport"] == "enable"


@pytest.mark.long
@QUICK
@given(facts=any_facts(), workload=any_workload(), site=ANY_SITE)
def test_no_two_decisions_contradict(facts: Facts, workload: Workload, site: Site) -> None:
    check_agreement(decide(facts, workload, site=site), facts)


@pytest.mark.long
@QUICK
@given(facts=any_facts(), workload=any_workload(), site=ANY_SITE)
def test_any_input_gives_bounded_settings_and_the_same_bytes(
    facts: Facts, workload: Workload, site: Site
) -> None:
    decisions = decide(facts, workload, site=site)
    check_settings(decisions)
    assert encode(decisions) == encode(decide(facts, workload, site=site))
    complete = complete_site(site, facts, workload.kind)
    assert complete_site(complete, facts, workload.kind) == complete
    text = emit_decided(decisions, complete)
    assert text == emit_decided(decisions, complete)
    assert "$disk" not in text or "split_clients" in text
    for decision in decisions.decisions:
        assert decision.summary
        assert decision.flips_when or decision.verdict in ("not_applicable", "keep")
        for p in decision.predicted:
            assert 0 <= p.low <= p.expected <= p.high < float("inf"), p


@pytest.mark.long
@settings(QUICK, max_examples=draws(20, 60))
@given(
    data=st.integers(64 * MEBIBYTE, 4096 * GIBIBYTE),
    cache=st.integers(64 * MEBIBYTE, 512 * GIBIBYTE),
    file_bytes=st.sampled_from([4096, 60_000, MEBIBYTE, 4 * MEBIBYTE]),
    exponent=st.sampled_from([0.0, 0.6, 0.8, 1.1]),
    peak=st.floats(1, 2000),
    rate=st.none() | st.floats(0.1, 20_000),
    disk=CLASSES,
    cpus=st.sampled_from([1, 4, 16]),
)
def test_a_break_even_is_where_the_verdict_flips(
    data: int,
    cache: int,
    file_bytes: int,
    exponent: float,
    peak: float,
    rate: float | None,
    disk: Any,
    cpus: int,
) -> None:
    """Moving the named fact across its value flips thread-pools; staying on its side does not."""

    def documents(**moved: float) -> tuple[Facts, Workload]:
        facts = host(
            cpus=cpus,
            memory_bytes=1024 * GIBIBYTE,
            page_cache_bytes=int(moved.get("memory.page_cache_limit_bytes", cache)),
            disk_class=disk,
        )
        total = int(moved.get("workload.dataset.bytes", data))
        workload = load(
            data_bytes=total,
            file_bytes=file_bytes,
            exponent=exponent,
            peak=moved.get("workload.concurrency", peak),
            rate=moved.get("workload.rate", rate) if rate is not None else None,
        )
        return facts, workload

    def pays(**moved: float) -> bool:
        prediction = situation_of(*documents(**moved), site=site()).prediction
        assert prediction is not None
        return prediction.pools_pay

    def verdict(**moved: float) -> str:
        decided = decide_without_break_evens(*documents(**moved), site=site())
        return decided.decisions[0].verdict

    decision = decide(*documents(), site=site()).decisions[0]
    if pays():
        assert decision.verdict in ("enable", "not_enough_evidence")
        assert decision.settings or decision.proposed
    else:
        assert decision.verdict == "disable"
    for b in decision.break_evens:
        away = 1.001 if b.value > b.now else 1 / 1.001
        across = verdict(**{b.fact: b.value * away})
        assert across == (b.above if b.value > b.now else b.below), b
        assert across != decision.verdict, b
        assert verdict(**{b.fact: b.value / away}) == decision.verdict, b


def test_documents_come_back_from_their_json() -> None:
    decisions = decide(host(), load(), site=site())
    assert msgspec.json.decode(encode(decisions), type=Decisions) == decisions


def test_the_situation_reads_disks_under_the_site() -> None:
    facts = host(disks=3)
    s = Situation(facts, load(), site(roots=["/srv/2"]))
    assert s.disk.name == "sdb"
