"""What hosts carry, by the model that the decisions are made by."""

from typing import Any

import msgspec
import pytest
from rows import each_row
from situations import (
    GIBIBYTE,
    KIBIBYTE,
    MEBIBYTE,
    dataset,
    host,
    load,
    measured,
    scanned,
    site,
    two_sizes,
)

from nginx_tune.decide.carried import headline
from nginx_tune.decide.engine import situation_of
from nginx_tune.decide.model.answers import AnswerGoal
from nginx_tune.decide.size import HostSizes, Prices, SizeRequest, size_hosts
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.facts import DiskClass, Facts
from nginx_tune.documents.sizing import SizedHost, Sizing
from nginx_tune.documents.workload import CurveShare, Workload
from nginx_tune.errors import UndecidedError

GOAL = AnswerGoal("p99", 0.1)


def four_disks(**named: Any) -> Facts:
    """Four hard disks, measured."""
    return measured(host(disks=4, **named), 0.008, 120e6)


def hosts_for(
    facts: Facts, workload: Workload, *, goal: AnswerGoal | None = GOAL, **asked: Any
) -> HostSizes:
    directories = [place.path for place in facts.storage.paths]
    served = {"cache_dirs": directories} if workload.kind == "cache" else {"roots": directories}
    request = SizeRequest(goal, "p99 <= 100ms" if goal else "", **asked)
    return size_hosts(facts, workload, site=site(**served), request=request)


def files(rate: float | None = 300.0, **named: Any) -> Workload:
    """Files of 256 KiB, 256 GiB of them, some more popular than others."""
    return load(file_bytes=256 * KIBIBYTE, exponent=0.8, peak=None, rate=rate, **named)


def this(sizes: HostSizes) -> SizedHost:
    return sizes.host(0, sizes.memory_bytes)


@each_row(
    ("disk_class", "file_bytes", "memory"),
    [("hdd", 4 * MEBIBYTE, 16), ("hdd", 64 * KIBIBYTE, 64), ("ssd", 32 * KIBIBYTE, 8),
     ("nvme", MEBIBYTE, 512)],
)  # fmt: skip
def test_the_host_itself_is_as_recommend_has_it(
    disk_class: DiskClass, file_bytes: int, memory: int
) -> None:
    facts = host(disks=2, disk_class=disk_class, memory_bytes=memory * GIBIBYTE)
    for rate in (5.0, 400.0, 20_000.0):
        workload = load(file_bytes=file_bytes, exponent=0.7, peak=None, rate=rate)
        found = this(hosts_for(facts, workload, goal=None))
        s = situation_of(facts, workload, site=site(roots=["/srv/1", "/srv/2"]))
        assert s.prediction is not None
        assert found.is_this
        assert found.hit_ratio == pytest.approx(s.prediction.hit_ratio)
        if "serve the load" in headline(s).cannot:
            assert found.verdict == "cannot"


def test_more_memory_and_more_disks_never_carry_less() -> None:
    sizing = hosts_for(four_disks(), files()).sizing()
    width = len(sizing.columns)
    rates = [
        [one.carried_per_second.expected for one in sizing.hosts[n : n + width]]
        for n in range(0, len(sizing.hosts), width)
    ]
    for row in rates:
        assert row[:3] == sorted(row[:3])
    for column in zip(*rates, strict=True):
        assert list(column) == sorted(column)
    assert rates[0][0] > 0
    assert any(one.is_this for one in sizing.hosts)


def test_a_boundary_is_where_the_answer_flips() -> None:
    sizes = hosts_for(four_disks(), files(700.0))
    found = sizes.boundary(0).memory_bytes
    assert found is not None
    assert found.low < found.expected < found.high
    above, below = (sizes.host(0, found.expected * factor) for factor in (1.05, 0.95))
    for one, more in ((above, True), (below, False)):
        assert (one.carried_per_second.expected >= 700.0) == more
    assert sizes.host(0, 1.01 * found.high).verdict == "carries"
    assert sizes.host(0, 0.99 * found.low).verdict == "cannot"


def test_the_cheapest_host_is_the_one_by_the_prices() -> None:
    def cheapest(memory: float, ssd: float) -> tuple[str, SizedHost]:
        prices = Prices(memory / GIBIBYTE, {"hdd": 20.0, "ssd": ssd})
        sizing = hosts_for(four_disks(), files(2000.0), prices=prices).sizing()
        assert sizing.cheapest is not None
        chosen = sizing.hosts[sizing.cheapest]
        carrying = [one.cost for one in sizing.hosts if one.verdict == "carries"]
        assert chosen.cost == min(cost for cost in carrying if cost is not None)
        return sizing.columns[chosen.disks].class_name, chosen

    assert cheapest(memory=10.0, ssd=30.0)[0] == "ssd"
    assert cheapest(memory=0.1, ssd=900.0)[0] == "hdd"


def test_another_class_is_named_where_no_number_of_the_own_is_enough() -> None:
    sizing = hosts_for(four_disks(memory_bytes=2 * GIBIBYTE), files(4000.0)).sizing()
    assert sizing.cheapest is not None
    chosen = sizing.hosts[sizing.cheapest]
    assert chosen.verdict == "carries"
    assert sizing.columns[chosen.disks].class_name in {"ssd", "nvme"}
    assert not any(
        one.verdict == "carries" for one in sizing.hosts if sizing.columns[one.disks].is_own
    )


def test_what_is_assumed_widens_the_range_until_it_is_no_prediction() -> None:
    assert this(hosts_for(four_disks(), files(), goal=None)).is_prediction
    guessed = files()
    popularity = msgspec.structs.replace(guessed.popularity, provenance="assumed")
    guessed = msgspec.structs.replace(guessed, popularity=popularity)
    sizing = hosts_for(host(disks=4), guessed).sizing()
    host_itself = next(one for one in sizing.hosts if one.is_this)
    carried = host_itself.carried_per_second
    assert not host_itself.is_prediction
    assert carried.low < carried.expected < carried.high
    assert "--disks" in sizing.next_command
    assert {one.fact for one in sizing.evidence if one.provenance == "assumed"} >= {
        "time of a disk read",
        "workload.popularity.exponent",
    }


def test_a_learnt_curve_is_what_memory_is_held_against() -> None:
    """A tenth of the bytes has nine tenths of the requests: few reach the disks."""
    curve = [CurveShare(requests_ratio=0.9, bytes=26 * GIBIBYTE)]
    learnt = msgspec.structs.replace(
        files().popularity, curve=curve, exponent=0.1, provenance="learnt"
    )
    workload = msgspec.structs.replace(files(), popularity=learnt)
    found = hosts_for(four_disks(), workload)
    assert this(found).hit_ratio > 0.9 > this(hosts_for(four_disks(), files())).hit_ratio
    misses = [one.miss_ratio for one in found.misses()]
    assert misses == sorted(misses, reverse=True)
    assert misses[-1] == 0


def test_a_cache_says_what_its_origin_still_gets() -> None:
    facts = host(disks=2, memory_bytes=32 * GIBIBYTE)
    workload = load("cache", data_bytes=40_000 * GIBIBYTE, file_bytes=MEBIBYTE, exponent=0.9,
                    peak=None, rate=200.0)  # fmt: skip
    sizes = hosts_for(facts, workload)
    few, more, most = (sizes.host(n, sizes.memory_bytes).origin_per_second for n in range(3))
    assert few is not None
    assert more is not None
    assert most is not None
    assert 200 > few > more > most > 0
    unknown = load("cache", data_bytes=None, file_bytes=MEBIBYTE, peak=None, rate=200.0)
    assert this(hosts_for(facts, unknown)).origin_per_second is None


@each_row(
    ("facts", "workload", "said"),
    [
        (host(), load("proxy", data_bytes=None, peak=None, rate=10.0), "proxy"),
        (host(), load(data_bytes=None, peak=None, rate=10.0), "size of the data"),
    ],
)
def test_what_cannot_be_said_is_undecided(facts: Facts, workload: Workload, said: str) -> None:
    with pytest.raises(UndecidedError, match=said):
        this(hosts_for(facts, workload))


def test_a_link_that_binds_is_named_with_the_speed_that_would_do() -> None:
    facts = host(disk_class="nvme", memory_bytes=512 * GIBIBYTE)
    sizing = hosts_for(facts, files(9000.0)).sizing()
    found = next(one for one in sizing.hosts if one.is_this)
    assert (found.binds, found.verdict) == ("link", "cannot")
    assert sizing.least_link_bits_per_second == 25 * 10**9
    assert decode(Sizing, encode(sizing)) == sizing


def test_scanned_sizes_are_looked_at() -> None:
    """Large files among small ones: a tail that their mean size has not."""
    facts, workload = scanned(two_sizes(900_000, 16 * KIBIBYTE, 9_000, 64 * MEBIBYTE))
    tree = dataset(facts.datasets[0].bytes or 0, 656 * KIBIBYTE)
    even = msgspec.structs.replace(facts, datasets=[tree])
    carried = [
        this(hosts_for(one, workload, goal=AnswerGoal("p999", 1.0))).carried_per_second
        for one in (facts, even)
    ]
    assert carried[0] != carried[1]
