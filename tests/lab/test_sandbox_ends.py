"""The sandbox on this machine: what is inside stays inside, and nothing is left however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from own_name import own_name
from seen_groups import groups_named
from tiers import REPEAT, dice, draws

from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.operations import MODULE_INSIDE
from nginx_tune.experiment.session import Session
from nginx_tune.nginx.lab.building import contents_of
from nginx_tune.nginx.lab.disks import cache_directory, remove_image
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


def check_clean(pid: int, when: str = "") -> None:
    deadline = time.monotonic() + 30
    while any((found := traces(pid)).values()):
        assert time.monotonic() < deadline, (found, when)
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
        pytest.raises(UndecidedError, match=r"/: nginx writes there and .* is mounted in it"),
    ):
        Session(sandbox, MODELLED, binary="/usr/sbin/nginx", covers=[], overlays=["/"])
    check_clean(os.getpid())


HOLD = """
import sys, time, msgspec
from nginx_tune.documents.lab import Lab
from nginx_tune.nginx.lab.sandbox import Sandbox
from nginx_tune.experiment.operations import MODULE_INSIDE
from nginx_tune.experiment.session import Session
lab = msgspec.json.decode(sys.argv[1], type=Lab)
print("start", flush=True)
with Sandbox(MODULE_INSIDE) as sandbox:
    Session(sandbox, lab, binary="/usr/sbin/nginx", covers=["/run"])
    print("open", flush=True)
    time.sleep(60)
"""
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
MOMENTS = dice("moments of a lab").sample(range(1000), draws(2, 30))
"""Thousandths of the time from the start to the open lab and a bit more."""
GATE = {("limited", "SIGTERM"), ("modelled", "SIGKILL")}
"""Of the open labs those that the gate kills."""


@contextlib.contextmanager
def holding(lab: Lab) -> Iterator[subprocess.Popen[str]]:
    """A process that opens a lab and keeps it."""
    command = [sys.executable, "-c", HOLD, msgspec.json.encode(lab).decode()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("lab", "how"),
    [
        pytest.param(
            lab, how, id=f"{name}-{how.name}",
            marks=() if (name, how.name) in GATE else pytest.mark.thorough,
        )
        for name, lab in (("limited", LAB), ("modelled", MODELLED))
        for how in SIGNALS
    ],
)  # fmt: skip
def test_nothing_is_left_of_an_open_lab_that_is_killed(lab: Lab, how: signal.Signals) -> None:
    with holding(lab) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["start\n", "open\n"]
        assert traces(process.pid)["loops"], "the lab is there"
        os.kill(process.pid, how)
        process.wait(timeout=30)
        check_clean(process.pid)


def test_nothing_is_left_when_it_is_killed_at_random_moments() -> None:
    with holding(MODELLED) as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = time.monotonic()
        process.stdout.readline()
        seconds = 1.2 * (time.monotonic() - started)
    check_clean(process.pid)
    for number, moment in enumerate(MOMENTS):
        remove_image(image())  # so that it is made, moved and attached each time
        with holding(MODELLED) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(moment / 1000 * seconds)
            os.kill(process.pid, SIGNALS[number % 3])
            process.wait(timeout=30)
            check_clean(process.pid, f"{moment} thousandths, {REPEAT}")
