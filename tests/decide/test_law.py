"""The law of decisions, held over situations drawn at random."""

import math
import random
import re
from collections import Counter
from typing import Any

import msgspec
import pytest
from rows import each_row
from situations import (
    FLAGS,
    GIBIBYTE,
    KIBIBYTE,
    MEBIBYTE,
    dataset,
    host,
    load,
    nginx,
    site,
    two_sizes,
)
from situations import decide_without_break_evens as decide
from tiers import REPEAT, SEED, dice, draws

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.generate.writing import key_of
from nginx_tune.decide.answer import build_of
from nginx_tune.decide.cache_growth import LARGEST_ZONE_MEBIBYTES
from nginx_tune.decide.carried import WIDEST
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.engine import is_prediction, says_harm, situation_of
from nginx_tune.decide.model.blocking import predict
from nginx_tune.decide.model.pool import MAX_THREADS_ALL_WORKERS, SMALLEST_DISK_POOL, SMALLEST_POOL
from nginx_tune.decide.pool_judgement import flips_on_assumptions, pools_lose_less
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decision, Decisions, Predicted, Setting
from nginx_tune.documents.facts import Dataset, Facts, PathStorage, Sizes
from nginx_tune.documents.site import Site, SiteTls
from nginx_tune.documents.workload import HttpVersion, RoundTrip, TlsUse, Workload

COUNT = draws(100, 3000)
MOST_IN_A_CHAIN = 10
"""Roots that a generated file can look through; more are refused."""
VERSIONS = [f"1.{minor}.0" for minor in range(4, 32)]
HTTP3 = "--with-http_v3_module"
FILESYSTEMS = ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "9p", "nfs4"]


def drawn(rng: random.Random) -> tuple[Facts, Workload, Site]:
    """One host, workload and site; every dimension of the issue's grid, far ends included."""
    memory = 2 ** rng.uniform(27, 40)
    disks = rng.choice([1, 1, 2, 3, 4, 8, 12, 24, 40])
    file_bytes = round(2 ** rng.uniform(10, 33))
    data = max(file_bytes, round(memory * 2 ** rng.uniform(math.log2(0.05), math.log2(20))))
    kind = rng.choice(["static", "media", "cache", "proxy"])
    facts = host(
        cpus=rng.choice([1, 2, 4, 8, 16, 64, 128, 256]),
        memory_bytes=round(memory),
        disk_class=rng.choice(["hdd", "ssd", "nvme", "network", "virtual", "memory", "unknown"]),
        disks=disks,
        nginx=rng.choice(
            [
                nginx(rng.choice(VERSIONS)),
                nginx(rng.choice(VERSIONS), [*FLAGS, HTTP3]),
                nginx(flags=[]),
                nginx("1.26.0", ["--with-debug"]),
            ]
        ),
        datasets=_scan(rng, data, file_bytes),
    )
    filesystem = rng.choice(FILESYSTEMS)
    paths = [
        msgspec.structs.replace(p, filesystem=filesystem, **_no_disk(filesystem))
        for p in facts.storage.paths
    ]
    facts = msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, paths=paths)
    )
    workload = load(
        kind,  # type: ignore[arg-type]
        data_bytes=data,
        file_bytes=file_bytes,
        exponent=rng.uniform(0, 1.3),
        peak=rng.choice([None, 1, 20, 250, 5000]),
        rate=rng.choice([None, 0.0, 1.0, 50.0, 2000.0, 40_000.0]),
    )
    workload = _provenances(rng, workload)
    pace = msgspec.structs.replace(workload.concurrency, clients_keep_pace=rng.random() < 0.3)
    workload = msgspec.structs.replace(workload, concurrency=pace)
    directories = [f"/srv/{n}" for n in range(1, disks + 1)]
    parts: dict[str, Any] = {"roots": directories, "hot_locations": rng.choice([[], ["/hot/"]])}
    if rng.random() < 0.4:
        parts["tls"] = SiteTls(certificate="/c", certificate_key="/k")
        parts["http3"] = rng.random() < 0.5
    elif round(memory) % 4 == 0 and _may_be_cleartext_http2(facts, workload):
        parts["listen"] = ["80 http2"]  # no further draw, which would move all fixed cases
    if rng.random() < 0.3:
        parts["streams"] = rng.choice([["/sse/"], ["/a/", "/b/"]])
        parts["stream_silence_seconds"] = rng.choice([None, 1.0, 45.0, 1e9, math.inf])
    if kind == "cache":
        parts["cache_dirs"] = directories
    if disks > 1 and rng.random() < 0.7:
        parts["root_prefixes"] = [f"/{n}/" for n in range(1, disks + 1)]
    return facts, workload, site(**parts)


def _may_be_cleartext_http2(facts: Facts, workload: Workload) -> bool:
    is_http2 = workload.http_version.value == "2" and not workload.tls.value
    return is_http2 and build_of(facts.nginx).at_least(1, 9, 5)


def _scan(rng: random.Random, data: int, file_bytes: int) -> list[Any]:
    if rng.random() < 0.4:
        return []
    tree = dataset(data, file_bytes)
    large = rng.choice([8 * MEBIBYTE, GIBIBYTE])
    buckets = two_sizes(rng.randrange(1, 10**6), 16 * KIBIBYTE, rng.randrange(1, 10**4), large)
    assert isinstance(tree.sizes, Sizes)
    return [
        msgspec.structs.replace(tree, sizes=msgspec.structs.replace(tree.sizes, buckets=buckets))
    ]


def _no_disk(filesystem: str) -> dict[str, Any]:
    return {"leaf_disks": []} if filesystem in ("tmpfs", "9p", "nfs4") else {}


def _provenances(rng: random.Random, workload: Workload) -> Workload:
    """Each part as somebody said it, or as nobody did."""
    changes: dict[str, Any] = {
        name: msgspec.structs.replace(
            getattr(workload, name),
            provenance=rng.choice(["measured", "learnt", "declared", "assumed"]),
        )
        for name in ("dataset", "popularity", "sizes", "rate", "concurrency")
    }
    changes["tls"] = TlsUse(value=rng.random() < 0.4, provenance="declared")
    share = rng.choice([0.0, 0.0, 0.3, 0.9])
    changes["http_version"] = HttpVersion(
        value="3" if share > 1 / 2 else rng.choice(["1.1", "2"]),
        shares={"3": share} if share else {},
        provenance=rng.choice(["learnt", "declared", "assumed"]),
    )
    changes["round_trip"] = RoundTrip(
        p90_seconds=rng.choice([None, 1e-4, 0.03, 0.3, 50.0]),
        provenance=rng.choice(["learnt", "declared", "assumed"]),
    )
    return msgspec.structs.replace(workload, **changes)


def forgetful(rng: random.Random, part: Any) -> Any:
    """A document, or a part of one, without some of what need not be known."""
    if isinstance(part, list):
        return [forgetful(rng, one) for one in part]
    if not isinstance(part, msgspec.Struct):
        return part
    return msgspec.structs.replace(
        part,
        **{
            field.name: None
            if field.default is None and rng.random() < 0.15
            else forgetful(rng, getattr(part, field.name))
            for field in msgspec.structs.fields(part)
        },
    )


BOUNDS = {
    "worker_processes": (1, 512),
    "worker_connections": (64, 1 << 20),
    "worker_rlimit_nofile": (1, 1 << 20),
    "keepalive": (1, 256),
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
                fewest = SMALLEST_DISK_POOL if s.decision == "per-disk-pools" else SMALLEST_POOL
                assert fewest <= int(s.args[1].removeprefix("threads=")) <= 128
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
    assert not on or verdict["thread-pools"] == "enable"
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
        each = 1 if verdict["http3"] == "enable" else 2  # a stream of QUIC has no socket
        assert not roomy or int(limit[0]) >= each * connections + sum(held)
    somaxconn = facts.kernel.sysctls.get("net.core.somaxconn", "")
    for line in values(decisions, "listen"):
        if line.startswith("backlog=") and somaxconn.isascii() and somaxconn.isdigit():
            assert int(line.removeprefix("backlog=")) <= int(somaxconn)
    if "reuseport" in values(decisions, "listen"):
        assert verdict["reuseport"] == "enable"


def threads(decisions: Decisions, workers: int) -> int:
    """Threads of all workers in the pools that would be written."""
    lines = [s for d in decisions.decisions for s in d.settings if s.directive == "thread_pool"]
    counts = [int(a.removeprefix("threads=")) for s in lines for a in s.args if "threads=" in a]
    return sum(counts) * workers


def violations(decisions: Decisions, s: Situation) -> list[str]:
    """What of the law the decisions on a situation break."""
    found = []
    for d in decisions.decisions:
        found += [f"{d.id}: says harm: {p}" for p in d.predicted if d.settings and says_harm(p)]
        found += [f"{d.id}: too wide: {p}" for p in d.predicted if not is_prediction(p)]
        found += _contradictions(d)
        if d.proposed and not d.next_command:
            found.append(f"{d.id}: proposes without a command that settles it")
        if d.proposed and d.verdict in ("enable", "raise", "lower", "set"):
            found.append(f"{d.id}: both set and proposed")
    if decisions.decisions[0].verdict == "enable":
        found += _pools(s)
    found += _quic(decisions, s) + _streams(decisions, s)
    if threads(decisions, s.workers) > MAX_THREADS_ALL_WORKERS:
        found.append(f"{threads(decisions, s.workers)} threads")
    return found + _values([line for d in decisions.decisions for line in d.settings])


def _pools(s: Situation) -> list[str]:
    """What speaks against pools that were enabled."""
    found = []
    assert s.blocking_inputs is not None
    # A network's file system may stall at any speed.
    is_sure = pools_lose_less(s) or s.network_filesystem is not None
    if s.seen.blocked.value is None and flips_on_assumptions(s) and not is_sure:
        found.append("thread-pools: enabled on an assumption that could flip it")
    if s.facts.nginx.flags == []:
        found.append("thread-pools: enabled for a build that nobody knows")
    if all(p.filesystem == "tmpfs" for p in s.facts.storage.paths):
        found.append("thread-pools: enabled for files in memory")
    return found


def _quic(decisions: Decisions, s: Situation) -> list[str]:
    """What speaks against HTTP/3 where it was enabled, and lines of it that stand on a guess."""
    d = next(d for d in decisions.decisions if d.id == "http3")
    written = {one.directive: one.args for one in d.settings}
    if not written:
        return []
    found = []
    if not s.site.http3 and s.workload.http_version.provenance == "assumed":
        found.append("http3: enabled for clients that are only assumed")
    if HTTP3 not in s.facts.nginx.flags or s.build.version is None or s.build.version < (1, 25):
        found.append("http3: enabled for a build without it")
    if s.site.tls is None:
        found.append("http3: enabled without a certificate")
    if ("reuseport" in written["listen"]) != (s.workers > 1):
        found.append(f"http3: {written['listen']} with {s.workers} workers")
    trip, sizes = s.workload.round_trip, s.workload.sizes
    size = written.get("http3_stream_buffer_size", ["64k"])[0]
    if size not in {"64k", "128k", "256k", "512k", "1m"}:
        found.append(f"http3: http3_stream_buffer_size {size}")
    if size != "64k" and "assumed" in (trip.provenance, sizes.provenance):
        found.append("http3: a buffer on an assumed round trip or size")
    if "quic_gso" in written and sizes.provenance == "assumed":
        found.append("http3: quic_gso on sizes that are only assumed")
    return found


def _streams(decisions: Decisions, s: Situation) -> list[str]:
    """Locations that are not buffered though nobody named them, and times beyond a day."""
    lines = next(d for d in decisions.decisions if d.id == "streaming").settings
    found = [f"streaming: {one.block}" for one in lines if one.block not in s.site.streams]
    times = [int(a[:-1]) for one in lines for a in one.args if one.directive.endswith("timeout")]
    return found + [f"streaming: {time} s" for time in times if not 60 < time <= 86_400]


def _values(lines: list[Setting]) -> list[str]:
    """Values beyond their bounds."""
    found = ["directio is set" for line in lines if line.directive == "directio"]
    zones = [a for line in lines for a in line.args if a.startswith("keys_zone=")]
    return found + [
        f"{arg}: more than {LARGEST_ZONE_MEBIBYTES}m"
        for arg in zones
        if int(arg.rpartition(":")[2][:-1]) > LARGEST_ZONE_MEBIBYTES
    ]


def _contradictions(d: Decision) -> list[str]:
    """Texts that say otherwise than the decision does."""
    found = []
    text = d.summary.lower()
    if d.settings and d.verdict == "enable" and "left off" in text:
        found.append(f"{d.id}: {d.verdict} and {d.summary!r}")
    if d.verdict == "disable" and d.proposed:
        found.append(f"{d.id}: disabled and proposed")
    texts = [d.summary, *(line.reason for line in [*d.settings, *d.proposed])]
    found += [f"{d.id}: no number: {t!r}" for t in texts if re.search(r"\b(inf|nan)\b", t)]
    found += [f"{d.id}: threads for nothing: {t!r}" for t in texts if re.search(r"\b0 cold", t)]
    if not all(math.isfinite(x) for p in d.predicted for x in (p.low, p.expected, p.high)):
        found.append(f"{d.id}: {d.predicted}")
    return found


@pytest.mark.long
def test_the_law_holds_everywhere() -> None:
    rng = dice("law")
    broken: list[str] = []
    pooled = held = quic = 0
    for number in range(COUNT):
        facts, workload, given = drawn(rng)
        decisions = decide(facts, workload, site=given)
        found = violations(decisions, situation_of(facts, workload, site=given))
        check_settings(decisions)
        check_agreement(decisions, facts)
        broken += [f"situation {number}: {one}" for one in found]
        pools = decisions.decisions[0]
        pooled += pools.verdict == "enable"
        held += bool(pools.proposed)
        quic += any(d.id == "http3" and d.verdict == "enable" for d in decisions.decisions)
    assert not broken, "\n".join([REPEAT, *broken[:20]])
    # The grid reaches every answer, or it holds nothing.
    assert quic > COUNT / 100
    assert pooled > COUNT / 100
    assert held > COUNT / 100


@pytest.mark.long
@each_row(("seed", "number"), [(4101, 53), (4101, 1376), (4103, 2311)])
def test_nothing_rests_on_pools_that_are_only_proposed(seed: int, number: int) -> None:
    """Fewer files, as assumed, need no pools; pools would do harm; the load of two is assumed."""
    rng = random.Random(f"{seed} law")
    facts, workload, given = [drawn(rng) for _ in range(number + 1)][-1]
    decisions = decide(facts, workload, site=given)
    assert not violations(decisions, situation_of(facts, workload, site=given))
    check_agreement(decisions, facts)
    assert decisions.decisions[0].proposed


@each_row(("seed", "number"), [(4101, 53), *((SEED, n) for n in range(draws(20, 200)))])
def test_whatever_is_not_known_settings_are_bounded_and_the_same_again(
    seed: int, number: int
) -> None:
    rng = random.Random(f"{seed} not known {number}")
    facts, workload, given = drawn(rng)
    facts, workload = forgetful(rng, facts), forgetful(rng, workload)
    decisions = decide(facts, workload, site=given)
    check_settings(decisions)
    check_agreement(decisions, facts)
    assert encode(decisions) == encode(decide(facts, workload, site=given))
    assert encode(msgspec.json.decode(encode(decisions), type=Decisions)) == encode(decisions)
    complete = complete_site(given, facts, workload.kind)
    assert complete_site(complete, facts, workload.kind) == complete
    if len(complete.roots) <= MOST_IN_A_CHAIN or complete.root_prefixes:
        text = emit_decided(decisions, complete)
        assert "$disk" not in text or "split_clients" in text
    for decision in decisions.decisions:
        assert decision.summary
        is_plain = decision.verdict in ("not_applicable", "keep") or decision.id == "backlog"
        assert decision.flips_when or is_plain
        for p in decision.predicted:
            assert 0 <= p.low <= p.expected <= p.high < math.inf, p


@each_row("number", range(draws(20, 400)))
def test_more_data_never_makes_pools_pay_less(number: int) -> None:
    """Where blocking pays for pools with some data, it does with more of the same."""
    facts, workload, given = drawn(dice(f"more data {number}"))
    s = situation_of(facts, workload, site=given)
    if s.blocking_inputs is None or s.dataset_bytes.value is None:
        return
    pays = []
    for factor in (1, 2, 4, 8):
        moved = s.inputs_with_dataset(s.dataset_bytes.value * factor)
        assert moved is not None
        pays.append(predict(moved).pools_pay)
    assert pays == sorted(pays), f"{REPEAT}: {pays}"


def test_the_law_sees_what_breaks_it() -> None:
    """The checks themselves: a harm, a range too wide."""
    slower = Predicted(metric="ratio(hot.requests_per_second)", low=0.3, expected=0.389, high=0.5)
    assert says_harm(slower)
    assert says_harm(Predicted(metric="ratio(hot.mean)", low=1, expected=2.1, high=3))
    assert not says_harm(Predicted(metric="ratio(hot.mean)", low=0.1, expected=0.2, high=0.3))
    assert is_prediction(Predicted(metric="x", low=1, expected=2, high=WIDEST))
    assert not is_prediction(Predicted(metric="x", low=1, expected=2, high=WIDEST + 1))
    assert not is_prediction(Predicted(metric="wait", low=0, expected=2, high=3, unit="s"))


def test_a_site_in_memory_gets_no_pools() -> None:
    facts = host(disk_class="hdd")
    places = [
        PathStorage(
            path="/srv/1", mount_point="/srv/1", filesystem="tmpfs", size_bytes=400 * GIBIBYTE
        )
    ]
    facts = msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, paths=places)
    )
    pools = decide(facts, load(cold_peak=200), site=site()).decisions[0]
    assert pools.verdict == "disable"
    assert "tmpfs" in pools.summary
    assert "--disks" not in pools.next_command  # there is none to measure


def test_the_one_tree_that_was_scanned_is_the_root() -> None:
    scanned = msgspec.structs.replace(host(), datasets=[Dataset(path="/srv/1")])
    assert complete_site(Site(), scanned, "static").roots == ["/srv/1"]
    assert complete_site(Site(roots=["/own"]), scanned, "static").roots == ["/own"]
    two = msgspec.structs.replace(scanned, datasets=[*scanned.datasets, Dataset(path="/srv/2")])
    assert complete_site(Site(), two, "static").roots == Site().roots


@each_row(
    ("disks", "cpus", "each"),
    [(12, 16, 10), (12, 48, 8), (36, 16, 8), (40, 16, 8), (40, 256, 8), (3, 512, 8)],
)
def test_each_disk_has_a_pool_with_threads_enough(disks: int, cpus: int, each: int) -> None:
    facts = host(cpus=cpus, disks=disks)
    roots = [f"/srv/{n}" for n in range(1, disks + 1)]
    decisions = decide(
        facts,
        load("media", peak=4000, cold_peak=3000),
        site=site(roots=roots, root_prefixes=[f"/{n}/" for n in range(disks)]),
    )
    assert decisions.decisions[0].verdict == "enable"
    lines = [s for d in decisions.decisions for s in d.settings]
    said = next(s.args[0] for s in lines if s.directive == "worker_processes")
    workers = cpus if said == "auto" else int(said)
    assert threads(decisions, workers) <= MAX_THREADS_ALL_WORKERS
    apart = next(one for one in decisions.decisions if one.id == "per-disk-pools")
    assert apart.verdict == "enable"
    assert f"One pool of {each} threads" in apart.summary


def test_an_unknown_build_gets_a_proposal() -> None:
    facts = msgspec.structs.replace(host(), nginx=nginx(flags=[]))
    pools = decide(facts, load(cold_peak=200), site=site()).decisions[0]
    assert (pools.verdict, pools.settings) == ("not_enough_evidence", [])
    assert [s.directive for s in pools.proposed] == ["aio"]
    assert "--with-threads" in pools.summary
