"""Plans, targets, refusals and curves of the disk probe, without a disk."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recorded_hosts import facts_bytes
from rows import each_row

from nginx_tune.documents.base import decode
from nginx_tune.documents.facts import Array, Disk, Facts, Layer, PathStorage, Storage
from nginx_tune.documents.facts_storage import Curve, DiskProbe
from nginx_tune.documents.inspection import DiskRun, DiskStepRun
from nginx_tune.documents.measured_class import Latency
from nginx_tune.observe.inspect.disk_plan import (
    curve_of,
    deepest,
    disk_targets,
    plan_disk,
    read_bytes_for,
    refusals,
)
from nginx_tune.observe.inspect.disks import MOST_FILES, ProbedDisks, choose_files
from nginx_tune.observe.inspect.inspection import with_disk_probes
from nginx_tune.report.facts import curve_blocks
from nginx_tune.report.screen import plain_text


def facts_of(name: str) -> Facts:
    return decode(Facts, facts_bytes(name))


# What is done in the time there is.


@each_row("seconds", [2.0, 3.3, 6.0, 10.0, 60.0])
@each_row("depth", [64, 128])
@each_row("read_bytes", [4096, 131_072])
def test_a_plan_fits_into_its_time(seconds: float, depth: int, read_bytes: int) -> None:
    plan = plan_disk(["/f"], read_bytes=read_bytes, depth=depth, seconds=seconds)
    total = sum(step.warmup_seconds + step.seconds for step in plan.steps)
    assert total + plan.open_seconds <= seconds
    assert plan.caps.seconds + plan.open_seconds <= seconds + 1e-9
    assert total >= 0.75 * seconds
    assert plan.steps[0].kind == "sequential"
    sizes = {read_bytes, 4096}
    for size in sizes:
        steps = [s for s in plan.steps if s.kind == "random" and s.read_bytes == size]
        assert [s.depth for s in steps] == [1 << n for n in range(depth.bit_length())]
    assert all(step.seconds > 0 and step.warmup_seconds >= 0 for step in plan.steps)


def test_measured_time_is_whole_turns_of_a_throttle() -> None:
    for step in plan_disk(["/f"], read_bytes=131_072, depth=64, seconds=10.0).steps:
        turns = step.seconds / 0.2
        assert turns == pytest.approx(round(turns))
        assert step.warmup_seconds > 0


@each_row(
    ("size", "read_ahead", "expected"),
    [
        ("readahead", None, 128 << 10),
        ("readahead", 0, 128 << 10),
        ("readahead", 256 << 10, 256 << 10),
        ("readahead", 8 << 20, 512 << 10),
        ("readahead", 4096, 16 << 10),
        ("readahead", 100_001, 98_304),
        ("chunk", 4096, 512 << 10),
        ("tls", 8 << 20, 32 << 10),
    ],
)
def test_a_read_is_as_large_as_nginx_makes_it(
    size: Any, read_ahead: int | None, expected: int
) -> None:
    assert read_bytes_for(size, read_ahead) == expected


def test_parallel_disks_are_asked_deeper() -> None:
    assert [deepest("hdd", 1), deepest("nvme", 1), deepest("hdd", 4)] == [64, 128, 128]


# Which disks, through which files.


def test_disks_of_a_node_are_targets_of_their_own() -> None:
    targets, unfit = disk_targets(facts_of("three-disk-node"), [], read_size="readahead")
    assert unfit == []
    assert len(targets) == 3
    assert all(len(target.disks) == len(target.directories) == 1 for target in targets)
    assert {target.device for target in targets} == {f"/dev/{t.disks[0]}" for t in targets}
    assert all(target.through == "" for target in targets)


def test_an_array_is_measured_as_one() -> None:
    facts = facts_of("raid10-4hdd")
    (target,) = disk_targets(facts, ["/srv/media"], read_size="readahead").targets
    assert target.disks == ("sda", "sdb", "sdc", "sdd")
    assert target.device == "/dev/md10"
    assert target.through == "md10 (raid10)"
    assert (target.depth, target.read_bytes) == (128, 131_072)
    assert refusals([target], facts.storage) == []


def test_two_btrfs_disks_have_no_device_over_both() -> None:
    targets = disk_targets(facts_of("btrfs-two-disks"), [], read_size=65_536).targets
    both = next(target for target in targets if len(target.disks) == 2)
    assert both.device is None
    assert both.read_bytes == 65_536


def test_paths_over_the_same_disk_are_one_target() -> None:
    places = [PathStorage(path=p, leaf_disks=["sda"], stack=["sda1", "sda"]) for p in ("/a", "/b")]
    root = PathStorage(path="/", leaf_disks=["sda"], stack=["sda2", "sda"])
    facts = Facts(storage=Storage(paths=[*places, root], disks=[Disk(name="sda")]))
    (target,) = disk_targets(facts, ["/a", "/b"], read_size="tls").targets
    assert (target.directories, target.device) == (("/a", "/b"), "/dev/sda")
    # Without being asked for, the root file system is not walked.
    (target,) = disk_targets(facts, [], read_size="tls").targets
    assert target.directories == ("/a", "/b")


def test_what_is_no_disk_is_said() -> None:
    storage = Storage(
        paths=[
            PathStorage(path="/dev/shm", filesystem="tmpfs", leaf_disks=["memory"]),
            PathStorage(path="/pool", filesystem="zfs", reason="ZFS does not tell its disks"),
        ],
        disks=[Disk(name="memory", class_="memory", class_reason="tmpfs keeps it in memory")],
    )
    targets, unfit = disk_targets(Facts(storage=storage), [], read_size="tls")
    assert targets == []
    assert [probe.reason for probe in unfit] == [
        "/dev/shm: tmpfs keeps it in memory",
        "/pool: ZFS does not tell its disks",
    ]
    assert ProbedDisks(unfit).reasons_for_none == [probe.reason for probe in unfit]
    assert ProbedDisks([]).reasons_for_none
    assert ProbedDisks([DiskProbe(disks=["a"], curve=_curve())]).reasons_for_none == []


# What is refused.


def _array_host(**changes: Any) -> Facts:
    facts = facts_of("raid10-4hdd")
    arrays = [Array(name="md10", level="raid10", members=4, **changes)]
    return msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, arrays=arrays)
    )


@each_row(
    ("facts", "reasons"),
    [
        pytest.param(_array_host(degraded=0, sync_action="idle"), [], id="sound"),
        pytest.param(_array_host(), [], id="not told"),
        pytest.param(
            _array_host(degraded=1, sync_action="idle"),
            ["md10 is degraded (1 of 4 members)"],
            id="degraded",
        ),
        pytest.param(
            _array_host(degraded=0, sync_action="resync"), ["md10 is busy with resync"], id="resync"
        ),
        pytest.param(
            _array_host(degraded=0, sync_action="check"), ["md10 is busy with check"], id="check"
        ),
    ],
)
def test_arrays_that_are_not_whole_or_not_at_rest_are_refused(
    facts: Facts, reasons: list[str]
) -> None:
    targets = disk_targets(facts, [], read_size="tls").targets
    assert refusals(targets, facts.storage) == reasons


def test_network_volumes_are_refused() -> None:
    facts = facts_of("ebs-volume")
    classes = {disk.name: disk.class_ for disk in facts.storage.disks}
    for target in disk_targets(facts, [], read_size="tls").targets:
        found = refusals([target], facts.storage)
        remote = [name for name in target.disks if classes[name] == "network"]
        assert [reason.split(" is ")[0] for reason in found] == remote
        assert all("is a network volume (" in reason for reason in found)
    assert set(classes.values()) >= {"network", "nvme"}


def test_a_busy_disk_is_refused_and_others_do_not_matter() -> None:
    def storage(ratio: float | None) -> Storage:
        return Storage(
            paths=[PathStorage(path="/a", leaf_disks=["sda"], stack=["sda"])],
            disks=[
                Disk(name="sda", utilisation_ratio=ratio),
                Disk(name="sdb", utilisation_ratio=1.0),
            ],
        )

    targets = disk_targets(Facts(storage=storage(None)), [], read_size="tls").targets
    assert refusals(targets, storage(0.63)) == ["sda is 63 % busy"]
    assert refusals(targets, storage(0.2)) == []
    assert refusals(targets, storage(None)) == []


def test_an_array_below_a_volume_counts() -> None:
    storage = Storage(
        paths=[
            PathStorage(path="/a", leaf_disks=["sda", "sdb"], stack=["dm-0", "md0", "sda", "sdb"])
        ],
        disks=[Disk(name="sda"), Disk(name="sdb")],
        layers=[
            Layer(name="dm-0", kind="linear", lower=["md0"], detail="vg-media"),
            Layer(name="md0", kind="md", lower=["sda", "sdb"], detail="raid1"),
        ],
        arrays=[Array(name="md0", degraded=1), Array(name="md7", degraded=1)],
    )
    (target,) = disk_targets(Facts(storage=storage), [], read_size="tls").targets
    assert target.device == "/dev/dm-0"
    assert target.through == "dm-0 (vg-media), md0 (raid1)"
    assert refusals([target], storage) == ["md0 is degraded (1 of ? members)"]


# From a run to a curve.


def _step(depth: int, *, reads: int = 2000, rate: float | None = None, **changes: Any) -> Any:
    rate = 1000.0 * depth if rate is None else rate
    parts: dict[str, Any] = {
        "kind": "random",
        "read_bytes": 4096,
        "depth": depth,
        "seconds": 1.0,
        "reads": reads,
        "reads_per_second": rate,
        "bytes_per_second": 4096 * rate,
        "interval_reads_per_second": [0.9 * rate, 1.1 * rate] * 2,
        "latency_seconds": Latency(
            count=reads, mean=1e-3, p50=1e-3, p90=2e-3, p99=3e-3, p999=4e-3, max=5e-3
        ),
    }
    return DiskStepRun(**{**parts, **changes})


def _run(*steps: DiskStepRun, **changes: Any) -> DiskRun:
    return DiskRun(**{"steps": list(steps), "bytes": 100, "device_bytes": 100, **changes})


def _curve(*steps: DiskStepRun, **changes: Any) -> Curve:
    run = _run(*(steps or [_step(1), _step(2), _step(4, rate=2000)]), **changes)
    curve = curve_of(run, read_bytes=4096, filesystem="ext4", target="/srv")
    assert isinstance(curve, Curve), curve
    return curve


def test_quantiles_stand_on_ten_reads_beyond_them() -> None:
    points = _curve(_step(1, reads=999), _step(2, reads=1000), _step(4, reads=10_000)).points
    told = [(p.p50_seconds, p.p99_seconds, p.p999_seconds, p.max_seconds) for p in points]
    assert told == [(1e-3, None, None, 5e-3), (1e-3, 3e-3, None, 5e-3), (1e-3, 3e-3, 4e-3, 5e-3)]
    assert points[0].deviation_ratio == pytest.approx(0.1155, abs=1e-3)
    assert points[0].error_ratio == pytest.approx(0.1155 / 2, abs=1e-3)


def test_small_and_sequential_reads_stand_beside_the_others() -> None:
    stream = _step(1, kind="sequential", read_bytes=1 << 20, bytes_per_second=123e6)
    main = [_step(d, read_bytes=131_072) for d in (1, 2, 4)]
    run = _run(stream, *main, _step(1), _step(2), _step(4, rate=2000))
    curve = curve_of(run, read_bytes=131_072, filesystem="ext4", target="")
    assert isinstance(curve, Curve)
    assert curve.sequential_bytes_per_second == 123e6
    assert curve.knee_depth is None
    assert curve.small_reads is not None
    assert curve.small_reads.knee_depth == 2
    assert curve.small_reads.plateau_reads_per_second == 2000


@each_row(
    ("run", "filesystem", "words"),
    [
        pytest.param(_run(_step(1), device_bytes=50), "ext4", "holes, or a cache", id="holes"),
        pytest.param(_run(_step(1, reads=0, rate=0.0)), "ext4", "no read was answered", id="stuck"),
        pytest.param(_run(flags=["interrupted"]), "ext4", "interrupted", id="interrupted"),
    ],
)
def test_numbers_that_are_not_the_disks_make_no_curve(
    run: DiskRun, filesystem: str, words: str
) -> None:
    reason = curve_of(run, read_bytes=4096, filesystem=filesystem, target="")
    assert isinstance(reason, str)
    assert words in reason


def test_what_cannot_be_accounted_is_noted() -> None:
    run = _run(_step(1), device_bytes=0)
    curve = curve_of(run, read_bytes=4096, filesystem="fuse.mergerfs", target="")
    assert isinstance(curve, Curve)
    assert curve.notes[0].startswith("unaccounted: ")
    assert _curve(_step(1), device_bytes=None).notes == []


def test_notes_say_what_to_know() -> None:
    slow = Latency(count=5000, mean=1e-3, p50=1e-4, p90=1e-4, p99=2e-4, p999=0.09, max=0.095)
    notes = _curve(
        _step(1, reads=5000, latency_seconds=slow, outliers=7),
        _step(2, errors=3),
        _step(4, cpu_ratio=0.93),
        _step(8, skipped="each read would wait about 2 s"),
        flags=["small: 96 MiB"],
    ).notes
    assert notes == [
        "small: 96 MiB",
        "errors: 3 reads of 4 KiB at depth 2 failed",
        "cpu: the probe used 93 % of the CPUs for 4 KiB at depth 4, which was the limit",
        "skipped: 4 KiB at depth 8: each read would wait about 2 s",
        "stalls: 7 of 5000 reads of 4 KiB at depth 1 took over ten times the median, up to 95 ms",
    ]


# Into the facts.


def test_a_curve_goes_to_its_disk_and_every_null_keeps_its_reason() -> None:
    facts = facts_of("three-disk-node")
    disks = facts.storage.disks
    probes = [
        DiskProbe(disks=[disks[0].name], curve=_curve()),
        DiskProbe(disks=[disks[1].name], reason="it is late"),
        DiskProbe(disks=[], reason="/pool: not known"),
    ]
    seen = with_disk_probes(facts, probes)
    reasons = {unknown.path: unknown.reason for unknown in seen.unknown}
    assert seen.storage.disks[0].curve == probes[0].curve
    assert "/storage/disks/0/curve" not in reasons
    assert reasons["/storage/disks/1/curve"] == "it is late"
    assert reasons["/storage/disks/2/curve"] == "not measured"
    own = {path: why for path, why in reasons.items() if path.startswith("/storage/disks/0/curve")}
    assert "2000 reads are too few" in own["/storage/disks/0/curve/points/0/p999_seconds"]
    assert all("does not tell" not in why for why in own.values())
    others = {u.path for u in facts.unknown} - {"/storage/disks/0/curve"}
    assert others <= reasons.keys()


def test_an_array_keeps_its_curve_beside_its_disks() -> None:
    facts = facts_of("raid10-4hdd")
    names = ["sda", "sdb", "sdc", "sdd"]
    seen = with_disk_probes(facts, [DiskProbe(disks=names, curve=_curve())])
    assert [shared.disks for shared in seen.storage.shared_curves] == [names]
    assert all(disk.curve is None for disk in seen.storage.disks)
    reasons = {unknown.path: unknown.reason for unknown in seen.unknown}
    assert "sda+sdb+sdc+sdd" in reasons["/storage/disks/0/curve"]
    lines = plain_text(curve_blocks(seen.storage)).splitlines()
    assert lines[0] == "reads     sda+sdb+sdc+sdd, measured (/srv)"
    assert any(line.startswith("  random reads of 4.0 KiB: knee at depth 2: ") for line in lines)
    assert lines[-1].endswith("fewer than 10 reads beyond the quantile")


def test_names_on_the_screen_cannot_steer_the_terminal() -> None:
    curve = msgspec.structs.replace(_curve(), target="\x1b[2J", notes=["\x1b]0;x\x07"])
    storage = Storage(disks=[Disk(name="sd\x1ba", curve=curve)])
    shown = plain_text(curve_blocks(storage))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert curve_blocks(Storage(disks=[Disk(name="sda")])) == []


# Files.


def test_files_are_chosen_by_bytes(tmp_path: Path) -> None:
    chance = random.Random(1)
    for number in range(2 * MOST_FILES):
        with (tmp_path / f"f{number:04d}").open("wb") as file:
            file.truncate(chance.randrange(4096, 20_000))
    with (tmp_path / "large").open("wb") as file:
        file.truncate(100 << 20)
    (tmp_path / "tiny").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "large")
    sample = choose_files([str(tmp_path)], budget_seconds=30)
    names = [Path(path).name for path in sample.paths]
    assert 2 <= len(names) <= MOST_FILES
    assert len(set(names)) == len(names)
    assert "large" in names
    assert not {"tiny", "link"} & set(names)
    assert sample.bytes == sum(Path(path).stat().st_size for path in sample.paths)


def test_a_file_is_its_own_sample_and_nothing_is_none(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_bytes(bytes(8192))
    (tmp_path / b"not-utf8-\xff".decode(errors="surrogateescape")).write_bytes(bytes(8192))
    assert choose_files([str(file)], budget_seconds=5) == ([str(file)], 8192)
    assert choose_files([str(tmp_path)], budget_seconds=5) == ([str(file)], 8192)
    assert choose_files([str(tmp_path / "gone"), *[]], budget_seconds=5) == ([], 0)
    assert choose_files([], budget_seconds=5) == ([], 0)
