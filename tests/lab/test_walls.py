"""The walls on this machine: what is inside stays inside, and nothing is left however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.errors import UndecidedError
from nginx_tune.lab.walls import Walls
from nginx_tune.measure.session import MODULE_INSIDE, Session

LAB = Lab(
    name="test",
    memory_bytes=64 << 20,
    disks=[
        LabDisk(name="disk1", mount="/srv/disk1", bytes_per_second=50 << 20, reads_per_second=400)
    ],
    data=[LabData(disk="disk1", files=4, file_bytes=1 << 20)],
)

pytestmark = pytest.mark.needs("root", "loop", "blkio")


def traces() -> dict[str, object]:
    """What a lab could leave on the machine (of anyone's: so only ours are counted)."""
    loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    return {
        "loops": [line for line in loops.splitlines() if "disk1.img" in line],
        "mounts": [m for m in Path("/proc/mounts").read_text().splitlines() if "/srv/disk1" in m],
        "cgroups": sorted(str(p) for p in Path("/sys/fs/cgroup").rglob("nginx-tune-*")),
        "files": sorted(str(p) for p in Path("/var/tmp").glob("nginx-tune-lab-*")),
    }


@pytest.fixture
def clean() -> Iterator[Callable[[], None]]:
    before = traces()

    def check() -> None:
        deadline = time.monotonic() + 20
        while traces() != before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert traces() == before

    yield check
    check()


def test_the_lab_is_built_limited_and_gone(clean: Callable[[], None]) -> None:
    with Walls(MODULE_INSIDE) as walls:
        session = Session(walls, LAB, binary="/usr/sbin/nginx", covers=["/run", "/var/log"])
        assert [file.bytes for file in session.files["disk1"]] == [1 << 20] * 4
        group = next(Path("/sys/fs/cgroup").rglob(f"nginx-tune-{walls.mark}"))
        assert group.is_dir()
        assert not Path("/srv/disk1").exists(), "the mount is inside the walls only"
    clean()


def test_an_error_inside_is_raised_outside_with_its_words(clean: Callable[[], None]) -> None:
    bad = msgspec.structs.replace(
        LAB, disks=[msgspec.structs.replace(LAB.disks[0], mount="/no-such-place/disk1")]
    )
    with (
        Walls(MODULE_INSIDE) as walls,
        pytest.raises(UndecidedError, match="no existing directory to put it in"),
    ):
        Session(walls, bad, binary="/usr/sbin/nginx", covers=[])
    clean()


HOLD = f"""
import time, msgspec
from nginx_tune.documents.lab import Lab
from nginx_tune.lab.walls import Walls
from nginx_tune.measure.session import Session, MODULE_INSIDE
lab = msgspec.json.decode({msgspec.json.encode(LAB)!r}, type=Lab)
with Walls(MODULE_INSIDE) as walls:
    Session(walls, lab, binary="/usr/sbin/nginx", covers=["/run"])
    print("open", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("after_seconds", [0.12, None])
def test_nothing_is_left_when_the_command_is_killed(
    how: signal.Signals, after_seconds: float | None, clean: Callable[[], None]
) -> None:
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        if after_seconds is None:
            assert process.stdout.readline() == "open\n"
            assert traces()["loops"], "the lab is there"
        else:
            time.sleep(after_seconds)  # somewhere in the middle of building it
        os.kill(process.pid, how)
        process.wait(timeout=30)
    clean()
