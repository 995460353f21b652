"""Every break-even that any decision states: across it the verdict is another, within it is not."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from situations import GIBIBYTE, MEBIBYTE, host, load, nginx, site
from tiers import draws

from nginx_tune.decide.engine import ALL, decide, situation_of
from nginx_tune.decide.pool_plan import plan_pools
from nginx_tune.decide.sensitivity import FLIPS, MOVABLE
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts, Kernel, Link, Network
from nginx_tune.documents.workload import ConnectionReuse, CpuPerRequest, TlsUse, Workload

DECIDE = {each.__name__.removeprefix("decide_").replace("_", "-"): each for each in ALL}
EXAMPLES = settings(
    max_examples=draws(20, 200),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
GIGABITS = Network(links=[Link(name="eth0", speed_bits_per_second=10**10)])
Moved = tuple[Facts, Workload]
replace = msgspec.structs.replace


def _part(name: str, **changes: Any) -> Callable[[Facts, Workload], Moved]:
    def move(facts: Facts, w: Workload) -> Moved:
        return facts, replace(w, **{name: replace(getattr(w, name), **changes)})

    return move


def moved(facts: Facts, workload: Workload, fact: str, value: float) -> Moved:
    """The documents as an operator would change them, written apart from the product's own way."""
    if fact == "memory.page_cache_limit_bytes":
        memory = replace(facts.memory, page_cache_limit_bytes=int(value))
        return replace(facts, memory=memory), workload
    if fact == "workload.dataset.bytes":
        files = max(1, round(value / (workload.sizes.mean_bytes or 1)))
        return _part("dataset", bytes=int(value), files=files)(facts, workload)
    moves = {
        "workload.rate": _part("rate", peak_per_second=value),
        "workload.concurrency": _part("concurrency", peak=value),
        "workload.concurrency.cold_peak": _part("concurrency", cold_peak=value),
        "workload.sizes.mean_bytes": _part("sizes", mean_bytes=value),
        "workload.dataset.files": _part("dataset", files=max(1, round(value))),
        "workload.connection_reuse.requests_per_connection": _part(
            "connection_reuse", requests_per_connection=value
        ),
    }
    return moves[fact](facts, workload)


@st.composite
def situations(draw: st.DrawFn) -> Moved:
    read_ahead = draw(st.sampled_from([None, 131_072, 8 * MEBIBYTE]))
    facts = host(
        cpus=draw(st.sampled_from([1, 4, 16])),
        memory_bytes=1024 * GIBIBYTE,
        page_cache_bytes=draw(st.integers(GIBIBYTE, 512 * GIBIBYTE)),
        disk_class=draw(st.sampled_from(["hdd", "ssd", "nvme", "network"])),
        kernel=Kernel(system="Linux", sysctls={"net.core.somaxconn": "4096"}),
        network=draw(st.sampled_from([Network(), GIGABITS])),
        nginx=nginx(draw(st.sampled_from(["1.18.0", "1.26.3"]))),
    )
    disks = [replace(d, read_ahead_bytes=read_ahead) for d in facts.storage.disks]
    facts = replace(facts, storage=replace(facts.storage, disks=disks))
    workload = load(
        draw(st.sampled_from(["static", "media", "cache"])),
        data_bytes=draw(st.integers(GIBIBYTE, 1024 * GIBIBYTE)),
        file_bytes=draw(st.sampled_from([4096, 60_000, MEBIBYTE, 16 * MEBIBYTE])),
        exponent=draw(st.sampled_from([0.0, 0.8])),
        peak=draw(st.floats(2, 2000)),
        cold_peak=draw(st.none() | st.floats(1, 300)),
        rate=draw(st.none() | st.floats(1, 200_000)),
    )
    cpu = draw(st.sampled_from([None, 20e-6, 200e-6]))
    return facts, replace(
        workload,
        tls=TlsUse(value=draw(st.booleans()), provenance="declared"),
        connection_reuse=ConnectionReuse(
            requests_per_connection=draw(st.sampled_from([1.0, 20.0])), provenance="declared"
        ),
        cpu_per_request=CpuPerRequest(mean_seconds=cpu, stdev_seconds=cpu),
    )


def one(documents: Moved, name: str) -> Decision:
    """A decision by itself, without its break-evens: those are what is held against it."""
    facts, workload = documents
    s = situation_of(facts, workload, site=site(access_log="/var/log/nginx/access.log"))
    return DECIDE[name](s, plan_pools(s))


STATED: set[str] = set()
A_MEAN = "workload.connection_reuse.requests_per_connection"
"""Need not be whole, and a verdict between two others may hold for less than a step of one: at
80,004 requests a second reuseport from 3.73 to 4.00 of them a connection."""
AT_LEAST_ONE = {A_MEAN, "workload.dataset.files", "workload.sizes.mean_bytes"}
"""Less than one is no such number, and counts as not known."""


@EXAMPLES
@given(documents=situations(), data=st.data())
def flips_hold(documents: Moved, data: st.DataObject) -> None:
    facts, workload = documents
    given_site = site(access_log="/var/log/nginx/access.log")
    stated = [
        (d, b)
        for d in decide(facts, workload, site=given_site).decisions
        for b in d.break_evens
        if d.id != "thread-pools"  # test_pool_flips holds those
    ]
    for decision, b in stated:
        # Whole numbers of files: a step past the value is the least that can be moved.
        step = 1.001 if b.value > 5000 or b.fact == A_MEAN else 1.02 + 1 / b.value
        assert b.value > 1 or b.fact not in AT_LEAST_ONE, b
        up = b.value > b.now
        far = b.value * step if up else b.value / step
        near = b.value / step if up else b.value * step
        if b.fact in AT_LEAST_ONE:
            far, near = max(1.0, far), max(1.0, near)
        assert one(moved(facts, workload, b.fact, far), decision.id).verdict != decision.verdict, b
        expected = b.above if up else b.below
        # Just past the value: a little further another verdict may begin.
        past = far if b.fact in AT_LEAST_ONE else b.value * (1.001 if up else 1 / 1.001)
        assert one(moved(facts, workload, b.fact, past), decision.id).verdict == expected, b
        inside = data.draw(st.floats(min(near, b.now), max(near, b.now)), label=b.fact)
        if (near - b.value) * (b.now - b.value) > 0:
            for value in (near, inside):
                again = one(moved(facts, workload, b.fact, value), decision.id)
                assert again.verdict == decision.verdict, (b, value)
        assert any(b.fact in text for text in decision.flips_when)
        STATED.add(decision.id)


@pytest.mark.thorough
@pytest.mark.long
def test_a_break_even_is_where_the_verdict_flips() -> None:
    """And of every decision that moves facts one was seen."""
    flips_hold()
    assert set(FLIPS) <= STATED


def test_every_fact_that_is_moved_has_a_way() -> None:
    assert {fact for flips in FLIPS.values() for fact in flips.facts} <= set(MOVABLE)
