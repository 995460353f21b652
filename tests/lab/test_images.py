"""Images of emulated disks hold what they are made for, and each has one maker at a time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tiers import draws

from nginx_tune.nginx.lab import disks
from nginx_tune.nginx.lab.disks import Contents, make_file_system


@pytest.mark.needs("loop")
@pytest.mark.parametrize("own_directories", [False, True])
def test_every_file_finds_its_inode_and_its_blocks(tmp_path: Path, own_directories: bool) -> None:
    """217 files of 745 KiB had 181 inodes: of many small groups each is rounded down."""
    table = [(1, 1), (24, 4 << 20), (217, 763_047), (50, 16 << 20), (8000, 16384), (20_000, 6000)]
    for files, size in table[: draws(5, 6)]:
        names = [f"d{n}/f" if own_directories else f"f{n}" for n in range(files)]
        contents = Contents(dict.fromkeys(names, size), 1)
        image = tmp_path / f"image-{files}"
        with image.open("wb") as file:  # sparse: only the file system's own blocks are written
            file.truncate(contents.image_bytes)
        make_file_system(contents, image)
        text = subprocess.run(
            ["dumpe2fs", "-h", image], capture_output=True, text=True, check=True
        ).stdout
        image.unlink()
        found = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        assert int(found["Free inodes"]) >= files + contents.directories - 1, (files, size)
        block = int(found["Block size"])
        blocks = files * -(-size // block) + contents.directories
        assert int(found["Free blocks"]) >= blocks, (files, size)


def test_who_waited_for_a_maker_keeps_the_next_one_out(tmp_path: Path) -> None:
    """The maker before removes the lock's file, which the one that waits has open."""
    image, lock = tmp_path / "a.img", tmp_path / "a.lock"
    others: list[bool] = []

    def openings() -> int:
        descriptors = Path("/proc/self/fd").iterdir()
        return sum(os.path.lexists(one) and one.readlink() == lock for one in descriptors)

    def make() -> None:
        with disks._making(image), lock.open("w") as third:
            try:
                fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                others.append(False)
            else:
                others.append(True)

    waits = threading.Thread(target=make)
    with disks._making(image):
        waits.start()
        while openings() < 2:
            time.sleep(0.001)
    waits.join()
    assert others == [False]
