"""What the model makes of a disk's measured curve."""

import math
import random
import statistics
from dataclasses import replace

import pytest
from rows import each_row
from tiers import draws

from nginx_tune.decide.model.disk import TYPICAL, disk_model, disk_models, disks_together
from nginx_tune.documents.facts import Disk, DiskClass
from nginx_tune.documents.facts_storage import Curve, CurvePoint, SharedCurve, Sweep, Volume

KIB = 1 << 10
DEPTHS = [1, 2, 4, 8, 16, 32, 64]


def measured(
    start_seconds: float,
    bytes_per_second: float,
    channels: int,
    *,
    read_bytes: int = 128 * KIB,
    bus_bytes_per_second: float = math.inf,
    stream_bytes_per_second: float | None = None,
) -> Curve:
    """What the probe sees of a disk whose truth is known: channels behind one bus."""

    def sweep(size: int) -> Sweep:
        single = 1 / (start_seconds + size / bytes_per_second)
        rates = [min(min(d, channels) * single, bus_bytes_per_second / size) for d in DEPTHS]
        points = [
            CurvePoint(depth=d, reads_per_second=rate)
            for d, rate in zip(DEPTHS, rates, strict=True)
        ]
        return Sweep(read_bytes=size, points=points, plateau_reads_per_second=rates[-1])

    main = sweep(read_bytes)
    return Curve(
        read_bytes=read_bytes,
        points=main.points,
        plateau_reads_per_second=main.plateau_reads_per_second,
        small_reads=sweep(4 * KIB),
        sequential_bytes_per_second=stream_bytes_per_second or bytes_per_second,
    )


def probed(times: list[float], quantiles: int = 3) -> Curve:
    """What a probe says of reads that took these times, one after the other."""
    ordered = sorted(times)
    count = len(ordered)
    p50, p99, p999 = (ordered[int(q * count)] for q in (0.5, 0.99, 0.999))
    point = CurvePoint(
        depth=1,
        reads_per_second=count / math.fsum(ordered),
        p50_seconds=p50,
        p99_seconds=p99,
        p999_seconds=p999 if quantiles > 2 else None,
        max_seconds=ordered[-1],
        reads=count,
        outliers=sum(time > 10 * p50 for time in ordered),
    )
    return Curve(read_bytes=128 * KIB, points=[point], sequential_bytes_per_second=500e6)


def draw(kind: str, rng: random.Random) -> float:
    """The time of one read."""
    if kind == "one head":
        return 0.008 * rng.uniform(0.5, 1.5)
    if kind == "exponential":
        return rng.expovariate(1 / 0.001)
    if kind == "pauses":
        return 0.0002 + (rng.expovariate(1 / 0.004) if rng.random() < 0.001 else 0.0)
    return 0.0004 * rng.uniform(0.9, 1.1) + (0.2 if rng.random() < 0.0004 else 0.0)


@each_row("kind", ["one head", "exponential", "pauses", "stalls"])
def test_the_spread_of_a_disk_is_that_of_its_reads(kind: str) -> None:
    rng = random.Random(47)
    times = [draw(kind, rng) for _ in range(50_000)]
    true = statistics.pstdev(times) / statistics.fmean(times)
    model = disk_model(Disk(name="d", class_="ssd", curve=probed(times)))
    assert model.spread == pytest.approx(true, rel=0.35)


@each_row(("kind", "stands"), [("pauses", False), ("stalls", True)])
def test_a_disk_that_stands_still_is_told_from_reads_that_take_longer(
    kind: str, *, stands: bool
) -> None:
    rng = random.Random(48)
    model = disk_model(
        Disk(name="d", class_="ssd", curve=probed([draw(kind, rng) for _ in range(50_000)]))
    )
    assert (model.stalls is not None) == stands
    if model.stalls is not None:
        assert model.stalls.seconds == pytest.approx(0.2, rel=0.05)
        assert model.stalls.ratio == pytest.approx(0.2 / 1.2, rel=0.35)


def test_what_is_rare_is_as_the_class_has_it_where_too_few_reads_were_made() -> None:
    times = [draw("pauses", random.Random(1)) for _ in range(2000)]
    model = disk_model(Disk(name="d", class_="ssd", curve=probed(times, quantiles=2)))
    assert model.spread == TYPICAL["ssd"].spread


TRUTHS = [
    pytest.param("hdd", 8e-3, 150e6, 1, math.inf, id="hdd"),
    pytest.param("ssd", 90e-6, 500e6, 8, 540e6, id="sata-ssd"),
    pytest.param("nvme", 80e-6, 2.6e9, 32, 6e9, id="nvme"),
    pytest.param("virtual", 1e-6, 20e6, 1, 20e6, id="throttled-bandwidth"),
]


@each_row(("kind", "start", "speed", "channels", "bus"), TRUTHS)
def test_a_measured_disk_is_found_again(
    kind: DiskClass, start: float, speed: float, channels: int, bus: float
) -> None:
    curve = measured(start, speed, channels, bus_bytes_per_second=bus)
    model = disk_model(Disk(name="d", class_=kind, curve=curve))
    # A read of 4 KiB is taken for all start.
    assert model.latency_seconds == pytest.approx(start + 4 * KIB / speed, rel=0.01)
    assert model.read_seconds(128 * KIB) == pytest.approx(start + 128 * KIB / speed, rel=0.05)
    plateau = curve.points[-1].reads_per_second
    assert model.reads_per_second(128 * KIB) == pytest.approx(plateau, rel=0.05)
    # A larger read cannot move more than the bus, or than all channels together.
    most = min(channels * speed, bus)
    assert model.reads_per_second(512 * KIB) * 512 * KIB <= 1.05 * most
    assert model.provenance == "measured"


def test_a_stream_that_contradicts_the_reads_is_not_believed() -> None:
    # A stream at 0.9 GB/s would need 146 µs for 128 KiB; the whole read takes 107 µs.
    curve = measured(60e-6, 2.8e9, 4, stream_bytes_per_second=0.9e9)
    model = disk_model(Disk(name="d", class_="virtual", curve=curve))
    assert model.latency_seconds == pytest.approx(60e-6, rel=0.05)
    assert model.bytes_per_second == pytest.approx(2.8e9, rel=0.05)


def test_without_small_reads_the_stream_tells_the_share_of_the_bytes() -> None:
    curve = Curve(
        read_bytes=128 * KIB,
        points=[CurvePoint(depth=1, reads_per_second=100.0)],
        sequential_bytes_per_second=131_072_000.0,
    )
    model = disk_model(Disk(name="d", class_="hdd", curve=curve))
    assert model.latency_seconds == pytest.approx(0.009)


def test_one_lucky_point_makes_no_heads() -> None:
    rates = [100.0, 100.0, 125.0, 98.0]
    points = [CurvePoint(depth=1 << n, reads_per_second=rate) for n, rate in enumerate(rates)]
    curve = Curve(read_bytes=4096, points=points, plateau_reads_per_second=105.0)
    assert disk_model(Disk(name="d", curve=curve)).heads == pytest.approx(1.05)
    assert disk_model(Disk(name="d", curve=curve)).name == "d"


def test_what_was_measured_as_one_counts_once() -> None:
    disks = [Disk(name=name, class_="hdd") for name in ("sda", "sdb", "sdc")]
    array = SharedCurve(disks=["sda", "sdb"], curve=measured(8e-3, 150e6, 2))
    models = disk_models(disks, [array])
    assert [model.name for model in models] == ["sda+sdb", "sdc"]
    assert models[0].heads == pytest.approx(2)
    assert disks_together(models).heads == pytest.approx(2 + TYPICAL["hdd"].heads)
    # An array of which a disk does not serve these paths says nothing about the others.
    assert [model.name for model in disk_models(disks[1:], [array])] == ["sdb", "sdc"]


def test_several_disks_are_known_as_well_as_the_least_known() -> None:
    declared = replace(TYPICAL["hdd"], provenance="declared")
    measured = replace(TYPICAL["ssd"], provenance="measured")
    assert disks_together([declared, declared]).provenance == "declared"
    assert disks_together([measured, declared]).provenance == "declared"
    assert disks_together([measured, measured]).provenance == "measured"
    assert disks_together([measured, TYPICAL["hdd"], declared]).provenance == "assumed"


def test_a_slow_disk_counts_as_often_as_it_is_asked() -> None:
    fast = replace(TYPICAL["hdd"], latency_seconds=8e-3, bytes_per_second=160e6)
    slow = replace(TYPICAL["hdd"], latency_seconds=80e-3, bytes_per_second=16e6)
    evenly, seldom = disks_together([fast, slow]), disks_together([fast, slow], [10, 1])
    for size in (4096, 1 << 20):
        times = [disk.read_seconds(size) for disk in (fast, slow)]
        assert evenly.read_seconds(size) == pytest.approx(sum(times) / 2)
        assert seldom.read_seconds(size) == pytest.approx((10 * times[0] + times[1]) / 11)
    assert seldom.heads == evenly.heads
    assert disks_together([fast, slow], [0, 0]) == evenly


@each_row("shares", [(1.0, 1.0), (1.0, 250.0), (40.0, 1.0)])
@each_row("read_bytes", [4096.0, 1e6])
def test_reads_of_several_disks_spread_as_drawn(
    shares: tuple[float, float], read_bytes: float
) -> None:
    rng = random.Random(49)
    disks = (TYPICAL["hdd"], replace(TYPICAL["ssd"], spread=0.5))
    times = [
        disk.read_seconds(read_bytes) * rng.gammavariate(1 / disk.spread**2, disk.spread**2)
        for disk in rng.choices(disks, shares, k=draws(50_000, 200_000))
    ]
    both = disks_together(disks, shares)
    true = statistics.pstdev(times) / statistics.fmean(times)
    assert both.read_seconds(read_bytes) == pytest.approx(statistics.fmean(times), rel=0.02)
    assert both.spread_of(read_bytes) == pytest.approx(true, rel=0.05)
    assert both.spread_between_disks(read_bytes) < both.spread_of(read_bytes)


def test_one_disk_has_nothing_between() -> None:
    one = disks_together([TYPICAL["hdd"]])
    assert one.spread_between_disks(4096.0) == 0.0
    assert one.spread_of(4096.0) == TYPICAL["hdd"].spread


@each_row(
    ("kind", "most"),
    [("ssd", 600e6), ("nvme", 3.94e9), ("network", 140e6), ("virtual", 200e6), ("hdd", 300e6)],
)
def test_no_class_of_disk_moves_more_than_its_bus(kind: DiskClass, most: float) -> None:
    """SATA of 6 Gbit/s carries 600 MB/s, PCIe 3.0 x4 3.94 GB/s; eight channels change neither."""
    for read_bytes in (4 * KIB, 128 * KIB, 512 * KIB):
        disk = disk_model(Disk(name="d", class_=kind))
        assert disk.reads_per_second(read_bytes) * read_bytes <= most
        several = disks_together([disk] * 3)
        assert several.reads_per_second(read_bytes) * read_bytes <= 3 * most
        assert several.heads_for(read_bytes) <= 3 * disk.heads * (1 + 1e-9)


EBS = "Amazon Elastic Block Store"
GIB = 1 << 30
VOLUMES = [
    # Amazon EBS User Guide: gp3 3,000 and 125 MiB/s; gp2 three for each GiB, 100 to 16,000.
    (Disk(name="d", class_="network", model=EBS), 3000, 125 * (1 << 20)),
    (Disk(name="d", class_="network", volume=Volume(type="gp2"), size_bytes=GIB), 100, None),
    (
        Disk(name="d", class_="network", volume=Volume(type="gp2"), size_bytes=9000 * GIB),
        16e3,
        None,
    ),
    # What was bought goes before the type's baseline.
    (
        Disk(name="d", class_="network", model=EBS, volume=Volume(reads_per_second=9e3)),
        9000,
        125 * (1 << 20),
    ),
    (
        Disk(
            name="d",
            class_="network",
            volume=Volume(type="io2", reads_per_second=64e3, bytes_per_second=4e9),
        ),
        64e3,
        4e9,
    ),
    # Google: 3,000 and 6 for each GiB, 30 and 6,000 of pd-ssd.
    (
        Disk(name="d", class_="network", model="Google PersistentDisk", size_bytes=500 * GIB),
        6000,
        280 * (1 << 20),
    ),
    (
        Disk(name="d", class_="network", volume=Volume(type="pd-ssd"), size_bytes=100 * GIB),
        9e3,
        None,
    ),
    # Azure: P20 is 512 GiB of 2,300 and 150 MB/s.
    (
        Disk(name="d", class_="network", model="MSFT NVMe Accelerator v1.0", size_bytes=512 * GIB),
        2300,
        150e6,
    ),
    (Disk(name="d", class_="virtual", volume=Volume(type="premium"), size_bytes=GIB), 120, 25e6),
    (
        Disk(name="d", class_="virtual", volume=Volume(type="standard-ssd"), size_bytes=8000 * GIB),
        2000,
        400e6,
    ),
    (Disk(name="d", class_="virtual", volume=Volume(type="standard_hdd")), 500, 60e6),
]


@each_row(("disk", "reads", "size"), VOLUMES)
def test_a_volume_gives_what_its_cloud_documents(
    disk: Disk, reads: float, size: float | None
) -> None:
    model = disk_model(disk)
    assert model.reads_per_second(1.0) == pytest.approx(reads, rel=0.01)
    if size is not None:
        assert model.reads_per_second(64 << 20) * (64 << 20) <= size * 1.001
    assert model.provenance == "assumed", "nobody measured it"


def test_what_was_bought_is_no_matter_of_what_is_plausible() -> None:
    bought = Volume(type="gp3", reads_per_second=6000, bytes_per_second=250e6)
    known = disk_model(Disk(name="d", class_="network", volume=bought))
    assert known.scaled(3).most_reads_per_second == known.most_reads_per_second
    typical = disk_model(Disk(name="d", class_="network"))
    assert typical.scaled(3).most_reads_per_second == typical.most_reads_per_second / 3
    assert typical.scaled(3).bytes_per_second == typical.bytes_per_second / 3


def test_the_disk_that_is_asked_for_most_meets_its_bound_first() -> None:
    bounded = replace(TYPICAL["hdd"], most_bytes_per_second=100e6)
    assert disks_together([bounded, bounded]).most_bytes_per_second == 200e6
    assert disks_together([bounded, bounded], [3, 1]).most_bytes_per_second == pytest.approx(
        133e6, rel=0.01
    )
