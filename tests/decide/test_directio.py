"""The decision on direct reads, and its model against a simulated page cache."""

import random
from collections import OrderedDict

import pytest
from rows import each_row
from situations import (
    GIBIBYTE,
    KIBIBYTE,
    MEBIBYTE,
    host,
    lines,
    load,
    nginx,
    scanned,
    site,
    two_sizes,
)
from situations import decide_without_break_evens as decide

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.model.cache import DirectInputs, FileGroup, forecast_direct, zipf_classes
from nginx_tune.decide.model.disk import TYPICAL
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import DiskClass, Facts, SizeBucket
from nginx_tune.documents.workload import Workload


def one(documents: tuple[Facts, Workload], name: str = "directio") -> Decision:
    facts, workload = documents
    return next(d for d in decide(facts, workload, site=site()).decisions if d.id == name)


MIXED = two_sizes(1_000_000, 16 * KIBIBYTE, 4_000, 512 * MEBIBYTE)
"""16 GB of small files in demand, and 2 TB that only pass through memory."""


def test_a_flood_of_large_files_is_kept_from_pushing_out_small_ones() -> None:
    d = one(scanned(MIXED, cache=24 * GIBIBYTE))
    # How popular the large files are is not known: one of them that is hot would turn it.
    assert (d.verdict, lines(d)) == ("not_enough_evidence", [])
    proposed = [" ".join([s.directive, *s.args]) for s in d.proposed]
    assert proposed[0].startswith("directio ")
    assert "output_buffers 2 1m" in proposed
    assert d.next_command.startswith("nginx-tune validate")
    assert lines(one(scanned(MIXED, cache=24 * GIBIBYTE), "output-buffers")) == []
    assert d.risks
    assert d.confidence == "low"


@pytest.mark.long
@each_row("exponent", [0.0, 0.6, 1.1])
@each_row("disk_class", ["hdd", "ssd"])
def test_one_hot_large_file_is_never_staked_on_a_popularity_that_nobody_measured(
    exponent: float, disk_class: DiskClass
) -> None:
    """6,000 files of 16 KiB and 110 of 8 MiB, one of them hot: directio left 8 of 135 requests."""
    tree = two_sizes(6_000, 16 * KIBIBYTE, 110, 8 * MEBIBYTE)
    for cache in (64 * MEBIBYTE, 192 * MEBIBYTE, 512 * MEBIBYTE):
        facts, workload = scanned(tree, cache=cache, exponent=exponent, disk_class=disk_class)
        decisions = decide(facts, workload, site=site())
        assert not any(s.directive == "directio" for d in decisions.decisions for s in d.settings)
        d = next(d for d in decisions.decisions if d.id == "directio")
        assert not d.proposed or d.next_command.startswith("nginx-tune validate")


def test_large_files_that_are_asked_for_again_stay_in_the_page_cache() -> None:
    few = two_sizes(10_000, 16 * KIBIBYTE, 100, 512 * MEBIBYTE)
    d = one(scanned(few, cache=32 * GIBIBYTE, exponent=1.1))
    assert (d.verdict, lines(d)) == ("disable", [])
    assert "times as much" in d.summary


def test_files_of_one_size_have_nothing_to_be_kept_apart() -> None:
    same = [SizeBucket(le_bytes=4 * MEBIBYTE, files=65_536, bytes=256 * GIBIBYTE)]
    d = one(scanned(same))
    assert (d.verdict, lines(d)) == ("disable", [])


def test_sizes_that_nobody_scanned_are_no_evidence() -> None:
    assert one((host(), load())).verdict == "not_enough_evidence"


def test_it_is_not_advised_where_reads_stay_on_the_loop_or_nginx_ignores_it() -> None:
    no_threads = nginx(flags=["--with-http_ssl_module"])
    assert one(scanned(MIXED, nginx=no_threads)).verdict == "not_applicable"
    assert one(scanned(MIXED, kind="cache")).verdict == "not_applicable"
    assert one((host(), Workload(kind="proxy"))).verdict == "not_applicable"


@pytest.mark.long
@each_row("cache", [2 * GIBIBYTE, 24 * GIBIBYTE, 400 * GIBIBYTE])
def test_the_stated_page_cache_is_where_the_verdict_flips(cache: int) -> None:
    documents = scanned(MIXED, cache=cache)
    d = one(documents)
    for b in d.break_evens:
        assert b.fact == "memory.page_cache_limit_bytes"
        across = b.value * (1.01 if b.value > b.now else 0.99)
        within = b.value * (0.99 if b.value > b.now else 1.01)
        assert one(scanned(MIXED, cache=int(across))).verdict != d.verdict
        assert one(scanned(MIXED, cache=int(within))).verdict == d.verdict
    assert d.flips_when


def test_following_it_is_quiet_and_what_stands_against_it_is_to_go() -> None:
    facts, workload = scanned(MIXED, cache=24 * GIBIBYTE)
    given = complete_site(site(), facts, workload.kind)
    decisions = decide(facts, workload, site=given)
    again = as_changes(decisions, parse_text(emit_decided(decisions, given)))
    assert [(d.id, d.settings) for d in again.decisions if d.settings] == []
    facts, workload = scanned(two_sizes(10_000, 16 * KIBIBYTE, 100, 512 * MEBIBYTE), exponent=1.1)
    decisions = decide(facts, workload, site=given)
    text = "events {} http { directio 4m; server { listen 80; root /srv/1; aio threads; } }"
    held = as_changes(decisions, parse_text(text))
    assert lines(next(d for d in held.decisions if d.id == "directio")) == ["directio off"]


def simulate(i: DirectInputs, *, direct: bool) -> tuple[float, float]:
    """Hit ratio of small files and the disk's time a request: an LRU list of files by bytes."""
    rng = random.Random(61)
    small, total = int(i.small.files), int(i.small.files + i.large.files)
    is_large = [False] * small + [True] * (total - small)
    rng.shuffle(is_large)
    ranks = [rank**-0.8 for rank in range(1, total + 1)]
    cache: OrderedDict[int, float] = OrderedDict()
    used = disk = hits = asked_small = 0.0
    requests = 60_000
    for number, item in enumerate(rng.choices(range(total), weights=ranks, k=requests)):
        counted = number >= requests // 2
        group = i.large if is_large[item] else i.small
        asked_small += counted and not is_large[item]
        if item in cache:
            cache.move_to_end(item)
            hits += counted and not is_large[item]
            continue
        piece = i.buffer_bytes if direct and is_large[item] else i.turn_bytes
        pieces = max(1, -(-group.mean_bytes // piece))
        disk += counted * pieces * i.disk.read_seconds(group.mean_bytes / pieces)
        if direct and is_large[item]:
            continue
        cache[item] = group.mean_bytes
        used += group.mean_bytes
        while used > 0.9 * i.page_cache_bytes:
            used -= cache.popitem(last=False)[1]
    return hits / asked_small, disk / (requests / 2)


@each_row("cache", [60, 150, 300])
def test_hits_and_work_of_the_disk_are_as_simulated(cache: int) -> None:
    """2000 files of 100 KB and 200 of 4 MB, on a hard disk."""
    i = DirectInputs(
        small=FileGroup(2000.0, 2000 * 100e3),
        large=FileGroup(200.0, 200 * 4e6),
        classes=zipf_classes(2200.0, 0.8),
        page_cache_bytes=cache * 1e6,
        disk=TYPICAL["hdd"],
        turn_bytes=float(256 * KIBIBYTE),
        buffer_bytes=float(MEBIBYTE),
    )
    f = forecast_direct(i)
    together, work = simulate(i, direct=False)
    apart, direct_work = simulate(i, direct=True)
    assert f.hit_ratio == pytest.approx(together, abs=0.05)
    assert f.small_hit_ratio == pytest.approx(apart, abs=0.05)
    assert f.disk_seconds == pytest.approx(work, rel=0.15)
    assert f.direct_disk_seconds == pytest.approx(direct_work, rel=0.15)
