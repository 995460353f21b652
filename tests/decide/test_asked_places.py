"""What memory leaves to each disk where one directory is asked far more often than another."""

import random
from collections import OrderedDict

import msgspec
import pytest
from rows import each_row

from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import DataPath, asked_places, reads_by_disk, requests_by_disk
from nginx_tune.documents.facts import Cpu, Dataset, Disk, Facts, Memory, PathStorage, Storage
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import ObjectSizes, Popularity, Rate, ServedData, Workload

FILES, SIZE = 4000, 100_000
PLACES = [DataPath("/srv/archive", ("sda",)), DataPath("/srv/site", ("nvme0n1",))]
DATA = [
    Dataset(path=place.path, bytes=FILES * SIZE, files=FILES, complete=True) for place in PLACES
]
FACTS = Facts(
    cpu=Cpu(online=1, effective=1.0),
    memory=Memory(total_bytes=1 << 33, page_cache_limit_bytes=FILES * SIZE),
    storage=Storage(
        paths=[PathStorage(path=place.path, leaf_disks=list(place.leaf_disks)) for place in PLACES],
        disks=[Disk(name="sda", class_="hdd"), Disk(name="nvme0n1", class_="nvme")],
    ),
    datasets=DATA,
)
ARCHIVE_SHARE = 0.01


def situation(**shares: float) -> Situation:
    workload = Workload(
        kind="static",
        dataset=ServedData(
            bytes=2 * FILES * SIZE,
            files=2 * FILES,
            requests_by_path={f"/srv/{name}": share for name, share in shares.items()},
            provenance="learnt",
        ),
        popularity=Popularity(exponent=0.0, provenance="learnt"),
        sizes=ObjectSizes(mean_bytes=float(SIZE), provenance="learnt"),
        rate=Rate(mean_per_second=500.0, peak_per_second=500.0, provenance="learnt"),
    )
    return Situation(FACTS, workload, Site(roots=[place.path for place in PLACES]))


def inputs(**shares: float) -> BlockingInputs:
    found = situation(**shares).blocking_inputs
    assert found is not None
    return found


def simulated(capacity: float) -> tuple[float, float]:
    """Hits of an LRU list, and of its misses those of the archive."""
    rng, held = random.Random(3), OrderedDict[int, None]()
    hits = misses = of_archive = 0
    for number in range(400_000):
        in_archive = rng.random() < ARCHIVE_SHARE
        file = rng.randrange(FILES) + (FILES if in_archive else 0)
        counts = number > 100_000
        if file in held:
            held.move_to_end(file)
            hits += counts
            continue
        misses += counts
        of_archive += counts and in_archive
        held[file] = None
        if len(held) > capacity:
            held.popitem(last=False)
    return hits / (hits + misses), of_archive / misses


def test_an_archive_that_memory_does_not_hold_gets_most_of_the_reads() -> None:
    """One request in a hundred is for it; the site's files are in memory, its own are not."""
    i = inputs(archive=ARCHIVE_SHARE, site=1 - ARCHIVE_SHARE)
    places = asked_places(PLACES, {"/srv/archive": ARCHIVE_SHARE, "/srv/site": 0.99}, DATA)
    read = reads_by_disk(places, i)
    share = read["sda"] / sum(read.values())
    hits, true_share = simulated(0.9 * FILES * SIZE / i.footprint_bytes)
    assert 1 - i.miss_ratio == pytest.approx(hits, abs=0.02)
    assert share == pytest.approx(true_share, rel=0.1)
    asked = requests_by_disk(PLACES, {"/srv/archive": ARCHIVE_SHARE, "/srv/site": 0.99})
    assert asked["sda"] == ARCHIVE_SHARE
    assert share > 5 * ARCHIVE_SHARE
    by_requests = situation(archive=ARCHIVE_SHARE, site=1 - ARCHIVE_SHARE).disk
    assert i.disk.latency_seconds > 3 * by_requests.latency_seconds


def test_even_requests_leave_even_reads() -> None:
    i = inputs(archive=1.0, site=1.0)
    assert i.disk.latency_seconds == pytest.approx(situation().disk.latency_seconds)
    assert i.miss_ratio == pytest.approx(inputs().miss_ratio)


def test_where_nothing_is_read_the_disks_stand_as_they_are_asked() -> None:
    room = msgspec.structs.replace(FACTS.memory, page_cache_limit_bytes=1 << 40)
    facts = msgspec.structs.replace(FACTS, memory=room)
    one = situation(archive=1.0, site=3.0)
    i = Situation(facts, one.workload, one.site).blocking_inputs
    assert i is not None
    assert i.disk == one.disk


@each_row(
    ("datasets", "shares"),
    [
        ([], {"/srv/archive": 1.0, "/srv/site": 1.0}),
        (DATA[:1], {"/srv/archive": 1.0, "/srv/site": 1.0}),
        ([Dataset(path="/srv", bytes=1, complete=True)], {"/srv/archive": 1.0, "/srv/site": 1.0}),
        (DATA, {"/srv/archive": 1.0}),
        (DATA, {}),
    ],
    ids=["no scan", "one scan", "a scan from above", "one is asked", "nobody knows"],
)
def test_what_is_not_known_of_each_tells_nothing(
    datasets: list[Dataset], shares: dict[str, float]
) -> None:
    assert asked_places(PLACES, shares, datasets) == ()


def test_a_scan_inside_of_a_directory_is_of_the_nearest() -> None:
    places = [DataPath("/srv", ("sda",)), DataPath("/srv/fast", ("nvme0n1",))]
    data = [
        Dataset(path="/srv/slow", bytes=10, complete=True),
        Dataset(path="/srv/other", bytes=5, complete=True),
        Dataset(path="/srv/fast/files", bytes=7, complete=True),
    ]
    found = asked_places(places, {"/srv": 1.0, "/srv/fast": 1.0}, data)
    assert [one.bytes for one in found] == [15, 7]
