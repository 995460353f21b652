"""The sandbox on this machine: what is inside stays inside, and nothing is left of it.

How a command may end is in ``test_endings.py``.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from own_name import own_name
from seen_groups import groups_named

from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.operations import MODULE_INSIDE
from nginx_tune.experiment.session import Session
from nginx_tune.nginx.lab.building import contents_of
from nginx_tune.nginx.lab.images import cache_directory, remove_image
from nginx_tune.nginx.lab.sandbox import Sandbox

NAME = f"disk{own_name()}"
MOUNT = f"/srv/{NAME}"
FILES = 4
FILE_BYTES = (1 << 20) + os.getpid()
"""An image of our own among those of others, who may run labs at the same time."""

LAB = Lab(
    name="test",
    memory_bytes=64 << 20,
    disks=[LabDisk(name=NAME, mount=MOUNT, bytes_per_second=50 << 20, reads_per_second=400)],
    data=[LabData(disk=NAME, files=FILES, file_bytes=FILE_BYTES)],
)
MODELLED = msgspec.structs.replace(
    LAB, disks=[LabDisk(name=NAME, mount=MOUNT, kind="modelled", class_name="hdd")]
)

pytestmark = [
    pytest.mark.needs("root", "loop", "blkio", "fuse"),
    pytest.mark.alone,  # compares what is on the machine
]


def image() -> Path:
    return cache_directory() / f"{contents_of(LAB, LAB.disks[0]).key}.img"


def traces(pid: int) -> dict[str, list[str]]:
    """What is on the machine of a lab that a process of this id opened."""
    loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    own = (image().stem, f"/{NAME}.disk", f"/{NAME}.img")
    return {
        "loops": [line for line in loops.splitlines() if any(word in line for word in own)],
        "mounts": [m for m in Path("/proc/mounts").read_text().splitlines() if NAME in m],
        "processes": [p for p in Path("/proc").glob("[0-9]*") if _mentions(p, f"/{NAME}.disk")],
        "cgroups": groups_named(f"nginx-tune-{pid}-"),
        "files": [
            mark.parent
            for mark in Path("/var/tmp").glob("nginx-tune-lab-*/mark.json")
            if _marks(mark, pid)
        ],
    }


def _mentions(process: Path, word: str) -> bool:
    try:
        return word.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def _marks(mark: Path, pid: int) -> bool:
    try:
        return json.loads(mark.read_text())["pid"] == pid
    except (OSError, ValueError):
        return False


def check_clean(pid: int) -> None:
    deadline = time.monotonic() + 30
    while any((found := traces(pid)).values()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.fixture(scope="module", autouse=True)
def _own_image() -> Iterator[None]:
    """The image of these tests is not kept."""
    yield
    remove_image(image())


@pytest.mark.parametrize("lab", [LAB, MODELLED], ids=["limited", "modelled"])
def test_the_lab_is_built_and_gone(lab: Lab) -> None:
    with Sandbox(MODULE_INSIDE) as sandbox:
        session = Session(sandbox, lab, binary="/usr/sbin/nginx", covers=["/run", "/var/log"])
        assert [file.bytes for file in session.files[NAME]] == [FILE_BYTES] * FILES
        assert groups_named(f"nginx-tune-{sandbox.mark}")
        seen = traces(os.getpid())
        assert seen["loops"]
        assert bool(seen["processes"]) is (lab is MODELLED)
        assert not seen["mounts"], "mounts are inside the sandbox only"
        assert not Path(MOUNT).exists()
    check_clean(os.getpid())
    assert image().exists(), "for the next run"


def test_an_error_inside_is_raised_outside_with_its_words() -> None:
    with (
        Sandbox(MODULE_INSIDE) as sandbox,
        pytest.raises(UndecidedError, match=r"/: nginx writes to it, but .* is mounted below it"),
    ):
        Session(sandbox, MODELLED, binary="/usr/sbin/nginx", covers=[], overlays=["/"])
    check_clean(os.getpid())
