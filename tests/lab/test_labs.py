"""``lab list``, ``lab clean`` and images: only what a dead run left, and what nobody uses."""

import fcntl
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiers import draws

from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab import images
from nginx_tune.nginx.lab.images import Contents, make_file_system, obtain_image
from nginx_tune.nginx.lab.keeper import start_time

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]


def make_left(place: Path, name: str, *, pid: int, started: str | None) -> Path:
    directory = place / f"nginx-tune-lab-{name}"
    directory.mkdir()
    record = {"mark": f"{pid}-{name}", "pid": pid, "started": started, "cgroups": []}
    (directory / "mark.json").write_text(json.dumps(record))
    (directory / "disk1.img").write_bytes(b"x" * 4096)
    return directory


def test_only_what_a_dead_run_left_is_cleaned(run_cli: RunCli, tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    dead = make_left(tmp_path, "dead", pid=os.getpid(), started="1")
    alive = make_left(tmp_path, "alive", pid=os.getpid(), started=start_time(os.getpid()))
    unmarked = tmp_path / "nginx-tune-lab-other"
    unmarked.mkdir()
    said = run_cli("lab", "list", "-f", "json", env=env)
    assert said.returncode == 0, said.stderr
    states = {run["directory"]: run["state"] for run in json.loads(said.stdout)["runs"]}
    assert states[str(dead)] == "dead"
    assert states[str(alive)] == "running"
    assert str(unmarked) not in states
    shown = run_cli("lab", "list", env=env).stdout
    assert f"lab {dead}: dead, pid {os.getpid()}" in shown
    assert "'nginx-tune lab clean'" in shown
    cleaned = run_cli("lab", "clean", env=env)
    assert cleaned.returncode == 0, cleaned.stderr
    assert f"removed lab {dead}" in cleaned.stdout
    assert (dead.exists(), alive.exists(), unmarked.exists()) == (False, True, True)


def test_a_mark_cannot_name_groups_that_are_not_a_labs(run_cli: RunCli, tmp_path: Path) -> None:
    victim = tmp_path / "nginx-tune-victim"
    victim.mkdir()
    dead = make_left(tmp_path, "dead", pid=os.getpid(), started="1")
    record = json.loads((dead / "mark.json").read_text())
    record["cgroups"] = [str(victim), "/sys/fs/cgroup/../../../tmp/nginx-tune-x"]
    (dead / "mark.json").write_text(json.dumps(record))
    said = run_cli("lab", "clean", env={"TMPDIR": str(tmp_path)})
    assert said.returncode == 0, said.stderr
    assert victim.is_dir()


@pytest.mark.needs("root", "loop")
def test_images_are_made_once_held_and_cleaned(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    env = {"TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    contents = Contents({"a/b.bin": 5000, "c.bin": 1 << 20}, seed=3)
    told: list[str] = []
    first = obtain_image(contents, tmp_path, progress=told.append)
    again = obtain_image(contents, tmp_path, progress=told.append)
    assert first.path == again.path
    assert [image.in_use for image in images.list_images()] == [True]
    status = first.path.stat()
    assert status.st_blocks * 512 >= 0.95 * status.st_size, "real, not sparse"
    kept = run_cli("lab", "clean", "--images", env=env)
    assert kept.returncode == 0
    assert first.path.exists(), "in use"
    os.close(first.descriptor)
    os.close(again.descriptor)
    said = run_cli("lab", "clean", "--images", "-f", "json", env=env)
    assert [image["path"] for image in json.loads(said.stdout)["images"]] == [str(first.path)]
    assert not first.path.exists()
    assert list(tmp_path.glob("*.img")) == []


@pytest.mark.needs("root", "loop")
def test_the_least_used_image_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "CACHE_BYTES", 100 << 20)
    held = [
        obtain_image(Contents({"f": 1 << 20}, seed=seed), tmp_path, progress=lambda _: None)
        for seed in range(3)
    ]
    for age, image in enumerate(held):
        os.utime(image.path, (1000 + age, 1000 + age))
    for image in held[1:]:
        os.close(image.descriptor)
    new = obtain_image(Contents({"f": 30 << 20}, seed=9), tmp_path, progress=lambda _: None)
    left = [image.path for image in images.list_images()]
    assert held[0].path in left, "in use, however old"
    assert held[1].path not in left
    assert new.path in left
    os.close(held[0].descriptor)
    os.close(new.descriptor)


def test_no_room_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    huge = Contents({"f": 1 << 50}, seed=1)
    with pytest.raises(UndecidedError, match=r"MiB needed for an emulated disk, \d+ MiB free"):
        obtain_image(huge, tmp_path, progress=lambda _: None)
    assert list(tmp_path.rglob("*.img")) == []


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
        with images._making(image), lock.open("w") as third:
            try:
                fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                others.append(False)
            else:
                others.append(True)

    waits = threading.Thread(target=make)
    with images._making(image):
        waits.start()
        while openings() < 2:
            time.sleep(0.001)
    waits.join()
    assert others == [False]
