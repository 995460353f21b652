"""One slow disk of three: in an array, or separate with one pool or with a pool for each disk.

    sudo python benchmarks/array_of_disks.py

There are three loop devices, of which one allows nginx only a few reads per second. They are one
btrfs with striped data (RAID 0), or three file systems with a third of the files each. Sixty
clients request random files from one nginx, past the page cache. The tool prints a table in
Markdown. It needs root, nginx with threads, btrfs and the blkio controller of cgroup version 1. The
devices are mounted in a separate mount namespace and are removed at the end.
"""

import contextlib
import ctypes
import http.client
import os
import random
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

NGINX = "/usr/sbin/nginx"
PORT = 18_999
BLKIO = Path("/sys/fs/cgroup/blkio")
FILES = 100
"""Files on each disk."""
FILE_BYTES = 262_144
SLOW_READS = 20
"""Reads per second of the first disk."""
USERS = 60
SECONDS = 8.0
_CLONE_NEWNS = 0x20000

Variant = Literal["array", "one pool", "a pool each"]
VARIANTS: tuple[Variant, ...] = ("array", "one pool", "a pool each")


class Row(NamedTuple):
    """The answers from one disk in a variant; in an array, every file is on all disks."""

    variant: Variant
    disk: str
    answers: int
    median: float
    most: float
    """The 99th percentile in seconds."""


def conf_text(variant: Variant, roots: Sequence[Path], work: Path) -> str:
    """The configuration of a variant."""
    apart = variant == "a pool each"
    pools = "".join(f"thread_pool pool_{n} threads=16; " for n in range(len(roots)) if apart)
    locations = " ".join(
        f"location /{number}/ {{ root {root}; directio 4k;"
        f" aio threads{f'=pool_{number}' if apart else ''}; }}"
        for number, root in enumerate(roots)
    )
    return (
        f"user root; daemon off; worker_processes 1; {pools}error_log {work}/error.log;"
        f" pid {work}/pid; events {{ worker_connections 1024; }} http {{ access_log off;"
        f" server {{ listen 127.0.0.1:{PORT}; {locations} }} }}\n"
    )


def run(*words: object) -> str:
    """Run a program; returns its output."""
    done = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True)
    return done.stdout.strip()


@contextlib.contextmanager
def disks(variant: Variant, work: Path) -> Iterator[tuple[list[Path], str]]:
    """The place of each third of the files, and the slow device, inside the context."""
    with contextlib.ExitStack() as made:
        loops = []
        for number in range(3):
            image = work / f"{number}.img"
            with image.open("wb") as stream:
                stream.truncate(400 << 20)
            made.callback(image.unlink)
            loops.append(run("losetup", "--direct-io=on", "-f", "--show", image))
            made.callback(run, "losetup", "-d", loops[-1])
        groups = [loops] if variant == "array" else [[loop] for loop in loops]
        roots = []
        for number, group in enumerate(groups):
            root = work / f"root{number}"
            root.mkdir()
            made.callback(root.rmdir)
            profiles = ["-d", "raid0", "-m", "raid1"] if len(group) > 1 else []
            run("mkfs.btrfs", "-f", "-q", *profiles, *group)
            run("mount", "-o", ",".join(f"device={one}" for one in group), group[0], root)
            made.callback(run, "umount", root)
            roots.append(root)
        roots *= 3 // len(roots)
        for number, root in enumerate(roots):
            (root / str(number)).mkdir()
            for file in range(FILES):
                (root / str(number) / str(file)).write_bytes(os.urandom(FILE_BYTES))
        os.sync()
        for file in (file for root in set(roots) for file in root.glob("*/*")):
            with file.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield roots, loops[0]


@contextlib.contextmanager
def served(conf: Path, slow: str) -> Iterator[None]:
    """Run nginx with few reads per second from the slow device, inside the context."""
    group = BLKIO / f"nginx-tune-array-{os.getpid()}"
    group.mkdir()
    device = os.stat(slow).st_rdev  # noqa: PTH116  # of a device, by its name
    limit = f"{os.major(device)}:{os.minor(device)} {SLOW_READS}"
    (group / "blkio.throttle.read_iops_device").write_text(limit)
    enter = f"echo $$ > {group}/cgroup.procs && exec {NGINX} -c {conf}"
    nginx = subprocess.Popen(["sh", "-c", enter])
    try:
        wait_until_served()
        yield
    finally:
        nginx.terminate()
        nginx.wait(60)
        group.rmdir()


def wait_until_served() -> None:
    """Wait until nginx accepts connections."""
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 5):
            return
        time.sleep(0.02)
    raise RuntimeError("nginx does not serve")


def ask(seconds: float) -> list[list[float]]:
    """The times of answers by disk."""
    took: list[list[float]] = [[], [], []]
    end = time.monotonic() + seconds

    def user(seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311  # no secret
        while time.monotonic() < end:
            disk = dice.randrange(3)
            begun = time.monotonic()
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", PORT, 60)) as client:
                client.request("GET", f"/{disk}/{dice.randrange(FILES)}")
                if len(client.getresponse().read()) != FILE_BYTES:
                    raise RuntimeError("a body that stops short")
            took[disk].append(time.monotonic() - begun)
            time.sleep(0.05)

    users = [threading.Thread(target=user, args=(seed,)) for seed in range(USERS)]
    for one in users:
        one.start()
    for one in users:
        one.join()
    return took


def rows_of(variant: Variant, took: Sequence[Sequence[float]]) -> list[Row]:
    """The rows of a variant: the slow disk, and the two others."""
    found = []
    for disk, some in (("slow", took[0]), ("the others", [*took[1], *took[2]])):
        ordered = sorted(some)
        at = [ordered[int(len(ordered) * share)] for share in (0.5, 0.99)]
        found.append(Row(variant, disk, len(ordered), *at))
    return found


def table(rows: Sequence[Row]) -> str:
    """Rows as Markdown."""
    lines = ["| three disks as | files of the | answers | median | p99 |", "|---|---|--:|--:|--:|"]
    for row in rows:
        times = f"{row.median * 1e3:,.1f} ms | {row.most * 1e3:,.0f} ms"
        lines.append(f"| {row.variant} | {row.disk} | {row.answers} | {times} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the three variants, and print the table."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mount namespace")
    run("mount", "--make-rprivate", "/")
    rows: list[Row] = []
    for variant in VARIANTS:
        with tempfile.TemporaryDirectory() as directory:
            work = Path(directory)
            with disks(variant, work) as (roots, slow):
                (work / "nginx.conf").write_text(conf_text(variant, roots, work))
                with served(work / "nginx.conf", slow):
                    rows += rows_of(variant, ask(SECONDS))
    print(table(rows))


if __name__ == "__main__":
    main()
