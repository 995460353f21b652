"""The disk probe on real devices whose truth is known."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from command_line import RunCli
from loop_disks import MIB, limited, loop_over, make_data, run_fio
from needs import lacks
from recorded_hosts import capture_file

from nginx_tune.documents.base import decode
from nginx_tune.documents.facts import Disk, Facts, PathStorage, Storage
from nginx_tune.documents.facts_storage import Curve
from nginx_tune.documents.inspection import DiskPlan, DiskStep
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.storage import read_storage
from nginx_tune.measure.load.probe import RunInterrupted, find_probe
from nginx_tune.observe.inspect.disk_plan import curve_of, plan_disk
from nginx_tune.observe.inspect.disks import measure_disks, run_disk_probe
from nginx_tune.observe.inspect.inspection import with_disk_probes

pytestmark = pytest.mark.needs("probe")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("disk") / "data.img", 96 * MIB)


def probed(device: str, *, depth: int, seconds: float) -> Curve:
    run = run_disk_probe(plan_disk([device], read_bytes=4096, depth=depth, seconds=seconds))
    curve = curve_of(run, read_bytes=4096, filesystem="ext4", target=device)
    assert isinstance(curve, Curve), curve
    return curve


@pytest.mark.alone
@pytest.mark.needs("root", "loop", "blkio", "fio")
def test_a_limited_disk_is_a_plateau_at_its_limit_as_fio_sees_it(data: Path) -> None:
    limit = 200
    with loop_over(data) as device, limited(device, reads_per_second=limit):
        curve = probed(device, depth=8, seconds=4)
        fio = run_fio(device, read_bytes=4096, depth=4, seconds=1)
    assert curve.plateau_reads_per_second == pytest.approx(limit, rel=0.1)
    assert curve.plateau_reads_per_second == pytest.approx(fio.reads_per_second, rel=0.1)
    assert curve.knee_depth is None
    assert curve.knee_reason.startswith("no knee")
    assert "throttled" in curve.knee_reason
    assert len(curve.points) == 4


@pytest.mark.needs("root", "loop")
def test_a_hopelessly_slow_disk_is_not_loaded_deeper(data: Path, tmp_path: Path) -> None:
    plan = DiskPlan(
        paths=[str(data)],
        steps=[DiskStep(read_bytes=4096, depth=depth, seconds=0.2) for depth in (1, 2, 4)],
        most_wait_seconds=1e-9,
    )
    run = run_disk_probe(plan)
    assert [bool(step.skipped) for step in run.steps] == [False, True, True]
    assert "each read would wait about" in run.steps[1].skipped


def leaf_storage(mount: Path, *, watch_seconds: float = 0.0) -> Storage:
    """The storage with loop devices for disks, as the reader sees it."""
    storage, _ = read_storage(
        LiveHost(), [str(mount)], loop_is_leaf=True, watch_seconds=watch_seconds
    )
    return storage


@contextlib.contextmanager
def mounted(tmp_path: Path) -> Iterator[Path]:
    """An ext4 on a loop device with one file of 80 MiB."""
    image = make_data(tmp_path / "disk.img", 128 * MIB)
    mount = tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    with loop_over(image) as device:
        subprocess.run(["mount", device, str(mount)], check=True)
        try:
            make_data(mount / "file", 80 * MIB)
            yield mount
        finally:
            subprocess.run(["umount", str(mount)], check=True)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Somebody else's reads of a file, past the page cache, all the time."""
    plan = DiskPlan(paths=[str(path)], steps=[DiskStep(read_bytes=4096, depth=8, seconds=50)])
    with subprocess.Popen(
        [find_probe(), "disk"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(plan))
        process.stdin.close()
        time.sleep(0.3)
        try:
            yield
        finally:
            process.kill()


@pytest.mark.needs("root", "loop")
def test_a_disk_is_measured_through_its_files_and_a_busy_one_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path) as mount:
        facts = Facts(storage=leaf_storage(mount))
        name = facts.storage.paths[0].leaf_disks[0]
        assert name.startswith("loop")
        told: list[str] = []
        measured = measure_disks(facts, [str(mount)], seconds=2, on_progress=told.append)
        assert [probe.disks for probe in measured.probes] == [[name]]
        assert told[0].startswith(f"{name}: 1/")
        with reading(mount / "file"):
            busy = Facts(storage=leaf_storage(mount, watch_seconds=1.0))
            with pytest.raises(UndecidedError, match=rf"{name} is \d+ % busy") as refused:
                measure_disks(busy, [str(mount)], seconds=2)
            assert refused.value.hint.startswith("--force")
            forced = measure_disks(busy, [str(mount)], seconds=2, force=True)
            assert forced.probes[0].curve is not None
    seen = with_disk_probes(facts, measured.probes)
    curve = next(disk.curve for disk in seen.storage.disks if disk.name == name)
    assert curve is not None
    assert curve.provenance == "measured"
    assert curve.target.startswith("1 file of 80.0 MiB")
    assert [point.depth for point in curve.points] == [1, 2, 4, 8, 16, 32, 64]
    assert curve.small_reads is not None
    assert not any(unknown.path.endswith(f"{name}/curve") for unknown in seen.unknown)


@pytest.mark.needs("root", "loop")
def test_without_files_the_whole_device_is_read(data: Path) -> None:
    with loop_over(data) as device:
        name = Path(device).name
        place = PathStorage(path="/", leaf_disks=[name], stack=[name])
        facts = Facts(storage=Storage(paths=[place], disks=[Disk(name=name)]))
        curve = measure_disks(facts, seconds=2).probes[0].curve
    assert curve is not None
    assert curve.target == f"the whole device {device}"
    gone = msgspec.structs.replace(place, leaf_disks=["nosuch"], stack=["nosuch"])
    (few := data.parent / "few").mkdir()
    (few / "index.html").write_text("a small file")
    for path, said in (("/", "no files were given"), (str(few), "no files of 4096 bytes or more")):
        there = msgspec.structs.replace(gone, path=path)
        facts = Facts(storage=Storage(paths=[there], disks=[Disk(name="nosuch")]))
        (probe,) = measure_disks(facts, seconds=2).probes
        assert probe.curve is None
        assert f": {said}" in probe.reason
        assert ", and /dev/nosuch cannot be opened: No such file or directory" in probe.reason


def test_a_run_that_is_interrupted_gives_what_it_has(data: Path) -> None:
    """Ctrl-C when the first step is done."""
    steps = [DiskStep(read_bytes=4096, depth=depth, seconds=0.2) for depth in (1, 2)]
    long = DiskStep(read_bytes=4096, depth=16, seconds=50)
    plan = DiskPlan(paths=[str(data)], steps=[*steps, long])
    started = time.monotonic()
    with pytest.raises(RunInterrupted) as stopped:
        run_disk_probe(plan, on_progress=lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert time.monotonic() - started < 45
    run = stopped.value.result
    assert run is not None
    curve = curve_of(run, read_bytes=4096, filesystem="ext4", target="")  # type: ignore[arg-type]
    assert isinstance(curve, Curve)
    assert "interrupted" in curve.notes
    assert curve.points[0].depth == 1


def test_a_plan_that_the_probe_refuses_is_a_usage_error(data: Path) -> None:
    with pytest.raises(UsageError, match=r"disk probe: .*steps"):
        run_disk_probe(DiskPlan(paths=[str(data)], steps=[]))
    gone = DiskPlan(paths=["/nowhere"], steps=[DiskStep(read_bytes=4096, seconds=0.1)])
    with pytest.raises(UndecidedError, match="disk probe: /nowhere: No such file"):
        run_disk_probe(gone)


def leaf_is_known(path: Path) -> bool:
    facts = Facts(storage=leaf_storage(path))
    leaves = facts.storage.paths[0].leaf_disks
    classes = {disk.name: disk.class_ for disk in facts.storage.disks}
    return bool(leaves) and all(classes[name] not in {"memory", "network"} for name in leaves)


def test_inspect_puts_the_curve_into_facts_and_capture(
    data: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    if not leaf_is_known(data.parent):
        lacks("known-disk", "the disk under the temporary directory is not known")
    capture = tmp_path / "capture.json"
    said = run_cli(
        "inspect", "--dataset", data.parent, "--disks", "--disk-seconds", "2", "--force",
        "--disk-read", "tls", "--capture", capture, "-f", "json",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert said.stderr == ""
    facts = decode(Facts, said.stdout.encode())
    curves = [disk.curve for disk in facts.storage.disks if disk.curve is not None]
    curves += [shared.curve for shared in facts.storage.shared_curves]
    assert [curve.read_bytes for curve in curves] == [32 << 10]
    assert all(point.reads_per_second > 0 for point in curves[0].points)
    replayed = run_cli("inspect", "--host", capture, "-f", "json")
    assert replayed.stdout == said.stdout
    screen = run_cli("inspect", "--host", capture).stdout
    assert "random reads of 32.0 KiB: " in screen
    assert "\x1b" not in screen


def test_inspect_refuses_a_busy_disk_in_one_line(data: Path, run_cli: RunCli) -> None:
    if not leaf_is_known(data.parent):
        lacks("known-disk", "the disk under the temporary directory is not known")
    with reading(data):
        said = run_cli("inspect", "--dataset", data.parent, "--disks", "--disk-seconds", "2")
    assert said.returncode == 4
    assert said.stdout == ""
    assert "% busy" in said.stderr
    assert "--force" in said.stderr


def test_memory_has_no_curve(run_cli: RunCli) -> None:
    said = run_cli("inspect", "--path", "/dev/shm", "--disks", "-f", "json")
    assert said.returncode == 4
    assert "tmpfs keeps its files in memory" in said.stderr
    facts = decode(Facts, said.stdout.encode())
    reasons = {unknown.path: unknown.reason for unknown in facts.unknown}
    index = [disk.class_ for disk in facts.storage.disks].index("memory")
    assert "in memory" in reasons[f"/storage/disks/{index}/curve"]


def test_disks_are_this_hosts(run_cli: RunCli, tmp_path: Path) -> None:
    host = capture_file("three-disk-node", tmp_path)
    said = run_cli("inspect", "--host", host, "--disks")
    assert said.returncode == 2
    assert "cannot be combined with --host" in said.stderr


def test_ctrl_c_ends_inspect_with_what_was_measured(data: Path) -> None:
    if not leaf_is_known(data.parent):
        lacks("known-disk", "the disk under the temporary directory is not known")
    with subprocess.Popen(
        [sys.executable, "-m", "nginx_tune", "-v", "inspect", "--dataset", str(data.parent),
         "--disks", "--disk-seconds", "30", "--force", "-f", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if b"random" in line:
                break
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert time.monotonic() - asked < 40
    assert process.returncode == 130, stderr
    facts = decode(Facts, stdout)
    curves = [disk.curve for disk in facts.storage.disks if disk.curve is not None]
    curves += [shared.curve for shared in facts.storage.shared_curves]
    assert "interrupted" in curves[0].notes
