"""Modelled disks as fio and the disk probe see them."""

import contextlib
import errno
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loop_disks import MIB, make_data, run_fio
from started import until
from tiers import ALL, draws

from nginx_tune.documents.facts_storage import Curve
from nginx_tune.documents.lab import DiskModel
from nginx_tune.nginx.lab.building import ModelledFile
from nginx_tune.nginx.lab.disk_models import (
    predict_knee,
    predict_latency_seconds,
    predict_plateau,
    predict_reads_per_second,
)
from nginx_tune.nginx.lab.disks import BDI, Loop, lift_dirty_limit, limit_dirty, run_tool
from nginx_tune.observe.inspect.disk_plan import curve_of, plan_disk
from nginx_tune.observe.inspect.disks import run_disk_probe

pytestmark = pytest.mark.needs("root", "loop", "fuse")

HDD = DiskModel(read_seconds=0.008, spread_ratio=0.5, bytes_per_second=160e6, sequential_seconds=0)
SSD = DiskModel(read_seconds=0.008, channels=8, bytes_per_second=400e6)
"""Slow for an SSD, so that a busy machine's own delays stay small beside a read."""
TRIES = 6
"""Others may use this machine, and delay reads; nothing makes them faster than the model. So what
a modelled disk does shows in the best of some tries."""


@pytest.fixture
def _ahead() -> Iterator[None]:
    """Who reads comes before ordinary processes, as the disk does: the disk is what is measured."""
    with contextlib.suppress(OSError):  # a container may forbid it
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    yield
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("disk") / "data.img", 64 * MIB)


@contextlib.contextmanager
def attached(
    image: Path, directory: Path, model: DiskModel, *, writable: bool = False
) -> Iterator[tuple[str, ModelledFile]]:
    """A loop device on a modelled file, and the file; the model is off."""
    point = directory / "disk"
    file = ModelledFile(image, point, model, seed=1, writable=writable)
    try:
        with Loop(str(point), writable=writable) as loop:
            yield loop.device, file
    finally:
        file.close()
        run_tool("umount", "--lazy", str(point))


@pytest.mark.needs("fio")
@pytest.mark.alone  # compares times
@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize("model", [HDD, SSD], ids=["hdd", "ssd"])
def test_fio_sees_the_model(model: DiskModel, data: Path, tmp_path: Path) -> None:
    """Nothing makes reads faster than the model; only a quiet machine makes them no slower."""
    depths = tuple(dict.fromkeys((1, model.channels, 4 * model.channels)))
    expected = {d: predict_reads_per_second(model, 4096, d) for d in depths}
    best = dict.fromkeys(depths, 0.0)
    with attached(data, tmp_path, model) as (device, file):
        file.switch(on=True)
        for _ in range(draws(1, TRIES)):
            for depth in depths:
                if best[depth] < 0.9 * expected[depth]:
                    seen = run_fio(device, read_bytes=4096, depth=depth, seconds=0.5)
                    best[depth] = max(best[depth], seen.reads_per_second)
    assert all(0 < best[depth] <= 1.15 * expected[depth] for depth in depths), (best, expected)
    if ALL:
        assert best == pytest.approx(expected, rel=0.15)
        knee = best[depths[-1]] / best[1]
        assert knee == pytest.approx(predict_knee(model, 4096), rel=0.15)


@pytest.mark.needs("probe")
@pytest.mark.alone  # compares times
@pytest.mark.usefixtures("_ahead")
def test_the_disk_probe_finds_the_knee(data: Path, tmp_path: Path) -> None:
    # Where reads are delayed, eight readers do not quite fill eight channels.
    found = {SSD.channels, 2 * SSD.channels}
    with attached(data, tmp_path, SSD) as (device, file):
        file.switch(on=True)
        curves = []
        while len(curves) < TRIES and not any(c.knee_depth in found for c in curves):
            plan = plan_disk([device], read_bytes=4096, depth=32, seconds=3)
            curve = curve_of(run_disk_probe(plan), read_bytes=4096, filesystem="", target=device)
            assert isinstance(curve, Curve)
            curves.append(curve)
    assert any(curve.knee_depth in found for curve in curves), curves
    plateau = max(point.reads_per_second for curve in curves for point in curve.points)
    assert plateau == pytest.approx(predict_plateau(SSD, 4096), rel=0.15)
    alone = min(curve.points[0].p50_seconds or 1.0 for curve in curves)
    assert alone == pytest.approx(predict_latency_seconds(SSD, 4096, 1), rel=0.25)


def read_directly(device: str, times: int) -> int:
    """How many of so many reads past the page cache failed with EIO."""
    buffer = mmap.mmap(-1, 4096)  # aligned, as O_DIRECT wants it
    descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT)
    failed = 0
    try:
        for number in range(times):
            try:
                os.preadv(descriptor, [buffer], (number << 17) % (64 * MIB))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                failed += 1
    finally:
        os.close(descriptor)
    return failed


def test_errors_come_at_their_ratio_and_only_when_switched_on(data: Path, tmp_path: Path) -> None:
    model = DiskModel(read_seconds=0.0001, error_ratio=0.1)
    with attached(data, tmp_path, model) as (device, file):
        assert read_directly(device, 300) == 0
        file.switch(on=True)
        failed = read_directly(device, 400)
        assert 20 <= failed <= 70
        assert read_directly(device, 400) == failed, "what is bad stays bad"
        file.switch(on=False)
        assert read_directly(device, 300) == 0


def test_the_bytes_are_the_images(data: Path, tmp_path: Path) -> None:
    with attached(data, tmp_path, SSD) as (device, _):
        assert Path(device).read_bytes() == data.read_bytes()


def test_a_writable_disk_takes_writes(tmp_path: Path) -> None:
    image = make_data(tmp_path / "own.img", 8 * MIB)
    mount = tmp_path / "mount"
    mount.mkdir()
    run_tool("mkfs.ext4", "-q", "-F", str(image))
    model = DiskModel(read_seconds=0.0005, channels=4)
    with attached(image, tmp_path, model, writable=True) as (device, file):
        run_tool("mount", device, str(mount))
        try:
            file.switch(on=True)
            (mount / "file").write_bytes(b"x" * MIB)
            run_tool("sync", "-f", str(mount))
        finally:
            run_tool("umount", str(mount))
    with Loop(str(image)) as loop:
        run_tool("mount", loop.device, str(mount))
        try:
            assert (mount / "file").read_bytes() == b"x" * MIB
        finally:
            run_tool("umount", str(mount))


def test_a_write_takes_the_time_of_a_read(tmp_path: Path) -> None:
    image = make_data(tmp_path / "own.img", MIB)
    model = DiskModel(read_seconds=0.02, channels=1)
    writes = 10
    with attached(image, tmp_path, model, writable=True) as (device, file):
        file.switch(on=True)
        page = mmap.mmap(-1, 4096)
        page.write(b"y" * 4096)
        descriptor = os.open(device, os.O_RDWR | os.O_DIRECT)
        try:
            started = time.monotonic()
            for number in range(writes):
                os.pwritev(descriptor, [page], number * 8192)
            took = time.monotonic() - started
            file.switch(on=False)
        finally:
            os.close(descriptor)
    assert took >= 0.9 * writes * model.read_seconds
    assert image.read_bytes()[8192 : 8192 + 4096] == b"y" * 4096


def test_writers_wait_at_the_limit_of_what_is_not_written(tmp_path: Path) -> None:
    image = make_data(tmp_path / "own.img", 24 * MIB)
    mount = tmp_path / "mount"
    mount.mkdir()
    run_tool("mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image))
    model = DiskModel(read_seconds=0.0005, channels=1, bytes_per_second=16 * MIB)
    with attached(image, tmp_path, model, writable=True) as (device, file):
        status = Path(device).stat().st_rdev
        number = f"{os.major(status)}:{os.minor(status)}"
        run_tool("mount", device, str(mount))
        try:
            limit_dirty(number, MIB)
            assert (BDI / number / "strict_limit").read_text().strip() == "1"
            file.switch(on=True)
            started = time.monotonic()
            with (mount / "file").open("wb", buffering=0) as target:
                for _ in range(8 * MIB >> 14):
                    target.write(b"x" * (16 << 10))
            took = time.monotonic() - started
            file.switch(on=False)
        finally:
            lift_dirty_limit(number)
            run_tool("umount", str(mount))
        assert (BDI / number / "strict_limit").read_text().strip() == "0"
    assert took >= 0.25  # 8 MiB at 16 MiB a second, less what may wait; in memory it takes 10 ms


@pytest.mark.parametrize("end", ["close", "kill"])
def test_whoever_reads_when_the_server_ends_gets_errors(
    end: str, data: Path, tmp_path: Path
) -> None:
    with attached(data, tmp_path, HDD) as (device, file):
        if end == "close":
            file.close()
        else:
            file._process.kill()
            file._process.wait()
        assert read_directly(device, 3) == 3


HOLDER = """
import subprocess, sys, time
from pathlib import Path
from nginx_tune.documents.lab import DiskModel
from nginx_tune.nginx.lab.disks import Loop
from nginx_tune.nginx.lab.building import ModelledFile

image, point, mount = map(Path, sys.argv[1:])
model = DiskModel(read_seconds=0.001, channels=4, bytes_per_second=1e8)
file = ModelledFile(image, point, model, seed=1, writable=True)
with Loop(str(point)) as loop:
    subprocess.run(["mount", loop.device, mount], check=True)
(mount / "dirty").write_bytes(bytes(4 << 20))
print(loop.device, flush=True)
time.sleep(60)
"""


def test_all_is_let_go_when_the_server_is_the_last_to_end(tmp_path: Path) -> None:
    """Else it would unmount the disk itself as it ends, and wait for its own answers for ever."""
    image, point, mount = (tmp_path / name for name in ("image", "disk", "mount"))
    image.write_bytes(b"")
    os.truncate(image, 64 * MIB)
    run_tool("mkfs.ext4", "-F", "-q", str(image))
    point.touch()
    mount.mkdir()
    with subprocess.Popen(
        ["unshare", "--mount", sys.executable, "-c", HOLDER, image, point, mount],
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        device = Path(holder.stdout.readline().strip())
        holder.kill()  # unshare became it; the server is killed by its end
    backing = Path("/sys/block") / device.name / "loop"
    until(lambda: not backing.exists())
