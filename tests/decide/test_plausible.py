"""Numbers that cannot be are taken as not known; those that can be stay as they are."""

import math

import msgspec
from rows import each_row

from nginx_tune.decide.defaults import plausible_facts, plausible_workload
from nginx_tune.documents.facts import Cpu, Dataset, Disk, Facts, Memory, Storage
from nginx_tune.documents.facts_storage import Curve, CurvePoint
from nginx_tune.documents.workload import CurveShare, Popularity, Rate, Workload

IMPOSSIBLE = (-1.0, math.inf, -math.inf, math.nan, 1e30)


@each_row("number", IMPOSSIBLE)
def test_what_a_host_cannot_have_is_not_known(number: float) -> None:
    facts = Facts(
        cpu=Cpu(effective=number, quota_cpus=number),
        memory=Memory(total_bytes=4 << 30),
        storage=Storage(disks=[Disk(name="sda", curve=Curve(read_bytes=4096, points=[
            CurvePoint(depth=1, reads_per_second=number),
        ]))]),
    )  # fmt: skip
    found = plausible_facts(facts)
    assert (found.cpu.effective, found.cpu.quota_cpus) == (None, None)
    assert found.memory.total_bytes == 4 << 30
    assert found.storage.disks[0].curve is None, "without a point it says nothing"


def test_a_host_without_a_cpu_or_memory_is_none() -> None:
    facts = Facts(cpu=Cpu(online=0), memory=Memory(total_bytes=0))
    found = plausible_facts(facts)
    assert (found.cpu.online, found.memory.total_bytes) == (None, None)


def test_what_can_be_stays() -> None:
    facts = Facts(
        cpu=Cpu(online=8, effective=0.5),
        datasets=[Dataset(path="/srv", files=0, bytes=0)],
        storage=Storage(disks=[Disk(name="sda", curve=Curve(read_bytes=4096, points=[
            CurvePoint(depth=1, reads_per_second=100.0), CurvePoint(depth=2, reads_per_second=-1),
        ]))]),
    )  # fmt: skip
    found = plausible_facts(facts)
    assert (found.cpu, found.datasets) == (facts.cpu, facts.datasets)
    curve = found.storage.disks[0].curve
    assert curve is not None
    assert [point.depth for point in curve.points] == [1], "the point that cannot be is left out"


@each_row("number", IMPOSSIBLE)
def test_what_nobody_can_ask_for_is_not_known(number: float) -> None:
    workload = Workload(
        rate=Rate(mean_per_second=number, peak_per_second=50.0),
        popularity=Popularity(exponent=number, curve=[
            CurveShare(requests_ratio=0.5, bytes=10), CurveShare(requests_ratio=1.5, bytes=10),
            CurveShare(requests_ratio=0.5, bytes=0),
        ]),
    )  # fmt: skip
    found = plausible_workload(workload)
    assert (found.rate.mean_per_second, found.rate.peak_per_second) == (None, 50.0)
    assert found.popularity.exponent is None
    assert found.popularity.curve == workload.popularity.curve[:1]
    again = plausible_workload(found)
    assert msgspec.json.encode(again) == msgspec.json.encode(found)
