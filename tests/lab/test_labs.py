"""``lab list`` and ``lab clean``: only what carries a dead run's mark, and images nobody uses."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab import disks
from nginx_tune.nginx.lab.disks import Contents, obtain_image
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
    assert [image.in_use for image in disks.list_images()] == [True]
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
    monkeypatch.setattr(disks, "CACHE_BYTES", 100 << 20)
    held = [
        obtain_image(Contents({"f": 1 << 20}, seed=seed), tmp_path, progress=lambda _: None)
        for seed in range(3)
    ]
    for age, image in enumerate(held):
        os.utime(image.path, (1000 + age, 1000 + age))
    for image in held[1:]:
        os.close(image.descriptor)
    new = obtain_image(Contents({"f": 30 << 20}, seed=9), tmp_path, progress=lambda _: None)
    left = [image.path for image in disks.list_images()]
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
