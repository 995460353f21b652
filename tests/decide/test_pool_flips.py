"""Every flip that ``thread-pools`` states, applied: the verdict is what was said."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows import each_row
from situations import (
    GIBIBYTE,
    KIBIBYTE,
    MEBIBYTE,
    dataset,
    decide_without_break_evens,
    host,
    load,
    site,
)
from tiers import draws

from nginx_tune.decide.engine import decide
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.workload import Concurrency, Popularity, Workload

replace = msgspec.structs.replace
STATED: set[str] = set()


def pools(facts: Facts, workload: Workload) -> Decision:
    found = decide(facts, workload, site=site(roots=["/srv/1"])).decisions
    return next(one for one in found if one.id == "thread-pools")


def verdict(facts: Facts, workload: Workload) -> str:
    found = decide_without_break_evens(facts, workload, site=site(roots=["/srv/1"])).decisions
    return next(one.verdict for one in found if one.id == "thread-pools")


def moved(facts: Facts, workload: Workload, fact: str, value: float) -> tuple[Facts, Workload]:
    """As an operator would write it, apart from the product's own way."""
    if fact == "memory.page_cache_limit_bytes":
        memory = replace(facts.memory, page_cache_limit_bytes=round(value))
        return replace(facts, memory=memory), workload
    if fact == "workload.dataset.bytes" and facts.datasets:
        (scan,) = facts.datasets
        files = round((scan.files or 0) * value / (scan.bytes or 1))
        scan = replace(scan, bytes=round(value), files=files)
        return replace(facts, datasets=[scan]), workload
    parts = {
        "workload.dataset.bytes": ("dataset", "bytes"),
        "workload.rate": ("rate", "peak_per_second"),
        "workload.concurrency": ("concurrency", "peak"),
        "workload.concurrency.cold_peak": ("concurrency", "cold_peak"),
    }
    part, field = parts[fact]
    number = round(value) if field == "bytes" else value
    changed = replace(getattr(workload, part), **{field: number})
    return facts, replace(workload, **{part: changed})


def assert_flips(facts: Facts, workload: Workload) -> None:
    now = pools(facts, workload)
    for b in now.break_evens:
        STATED.add(now.verdict)
        up = b.value > b.now
        past = b.value * (1.001 if up else 1 / 1.001)
        there = verdict(*moved(facts, workload, b.fact, past))
        assert there == (b.above if up else b.below), b
        assert there != now.verdict, b
        assert any(text.startswith(f"{b.fact}: ") for text in now.flips_when)


@pytest.mark.long
@each_row("data_gib", [0.5, 17, 36, 300])
@each_row("disk", ["hdd", "ssd", "nvme"])
def test_a_scanned_dataset_of_assumed_popularity(data_gib: float, disk: str) -> None:
    scan = dataset(round(data_gib * GIBIBYTE), 40 * KIBIBYTE)
    facts = host(
        disk_class=disk,  # type: ignore[arg-type]
        page_cache_bytes=23 * GIBIBYTE,
        datasets=[scan],
    )
    assert_flips(facts, Workload())


@settings(
    max_examples=draws(10, 100),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    data_mib=st.integers(64, 1 << 20),
    cache_gib=st.integers(1, 256),
    file_bytes=st.sampled_from([4 * KIBIBYTE, 60_000, MEBIBYTE]),
    disk=st.sampled_from(["hdd", "ssd", "nvme", "network"]),
    scanned=st.booleans(),
    assumed=st.booleans(),
    rate=st.none() | st.floats(1, 50_000),
)
def stated_flips_hold(
    data_mib: int,
    cache_gib: int,
    file_bytes: int,
    disk: str,
    scanned: bool,
    assumed: bool,
    rate: float | None,
) -> None:
    data = data_mib * MEBIBYTE
    facts = host(
        disk_class=disk,  # type: ignore[arg-type]
        memory_bytes=512 * GIBIBYTE,
        page_cache_bytes=cache_gib * GIBIBYTE,
        datasets=[dataset(data, file_bytes)] if scanned else [],
    )
    workload = load(data_bytes=None if scanned else data, file_bytes=file_bytes, rate=rate)
    if assumed:
        workload = replace(workload, popularity=Popularity(), concurrency=Concurrency())
    assert_flips(facts, workload)


@pytest.mark.long
def test_a_stated_flip_is_what_happens() -> None:
    """And flips of every verdict were seen."""
    stated_flips_hold()
    assert {"enable", "disable", "not_enough_evidence"} <= STATED
