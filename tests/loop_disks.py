"""Disks whose truth is known: loop devices that a cgroup limits."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from own_name import own_name
from tiers import dice

from nginx_tune.nginx.lab.cgroups import LabCgroups
from nginx_tune.nginx.lab.disks import Loop, device_number, run_tool

MIB = 1 << 20


def make_data(path: Path, bytes_: int) -> Path:
    """A file of random bytes whose blocks are on the disk."""
    chance = dice(path.name)
    with path.open("wb") as file:
        for _ in range(bytes_ // MIB):
            file.write(chance.randbytes(MIB))
        file.flush()
        os.fsync(file.fileno())
    return path


@contextlib.contextmanager
def loop_over(image: Path) -> Iterator[str]:
    """A loop device over a file, past the page cache."""
    try:
        with Loop(str(image)) as loop:
            yield loop.device
    finally:
        # The kernel lets go a moment later; what is below must stay until then.
        while run_tool("losetup", "--associated", str(image)).strip():
            time.sleep(0.02)


@contextlib.contextmanager
def limited(
    device: str, *, reads_per_second: int | None = None, bytes_per_second: int | None = None
) -> Iterator[None]:
    """This process and those that it starts read no more from the device than that."""
    group = LabCgroups(f"disk-probe-{own_name()}")
    own = Path("/proc/self/cgroup").read_text()
    group.limit_reads(
        device_number(device), bytes_per_second=bytes_per_second, reads_per_second=reads_per_second
    )
    controller = group.use("blkio")
    home = _home(controller.parent, controller.version, own)
    try:
        for file in group.join_files():
            file.write_text("0")
        yield
    finally:
        (home / "cgroup.procs").write_text("0")
        assert group.remove() == []


def _home(parent: Path, version: int, own: str) -> Path:
    """The group that this process is in now: v1 groups are made below it, v2 at the root."""
    if version == 1:
        return parent
    path = next(line.split(":", 2)[2] for line in own.splitlines() if line.startswith("0::"))
    return parent / path.lstrip("/")


class FioReads(NamedTuple):
    """What fio says of random reads."""

    reads_per_second: float
    p50_seconds: float
    p99_seconds: float


def run_fio(
    device: str, *, read_bytes: int, depth: int, seconds: float, warmup_seconds: float = 0.2
) -> FioReads:
    """The same with fio: so many threads, each with one pread under way."""
    said = subprocess.run(
        ["fio", "--name=reads", f"--filename={device}", "--readonly", "--rw=randread",
         f"--bs={read_bytes}", "--direct=1", "--ioengine=psync", f"--numjobs={depth}", "--thread",
         "--group_reporting", "--time_based", f"--runtime={1000 * seconds:.0f}ms",
         f"--ramp_time={1000 * warmup_seconds:.0f}ms", "--output-format=json"],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    reads = json.loads(said.stdout)["jobs"][0]["read"]
    quantiles = reads["clat_ns"]["percentile"]
    return FioReads(reads["iops"], quantiles["50.000000"] / 1e9, quantiles["99.000000"] / 1e9)
