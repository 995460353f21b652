"""Cgroups on a made-up cgroup file system: v1, v2 and hybrid, without touching the host's."""

from __future__ import annotations

from pathlib import Path

import pytest

from nginx_tune.errors import UndecidedError
from nginx_tune.lab.cgroups import Group, disable_controller, find_controller

V1_GROUPS = "5:memory:/box/a\n7:blkio:/\n1:cpu,cpuacct:/\n0::/\n"
V2_GROUPS = "0::/user.slice/session-1.scope\n"


def make_v1(root: Path) -> Path:
    for directory in ("memory/box/a", "blkio", "cpu,cpuacct"):
        (root / directory).mkdir(parents=True)
    return root


def make_v2(root: Path, *, enabled: str = "cpu memory pids") -> Path:
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (root / "cgroup.subtree_control").write_text(enabled)
    return root


def test_v1_groups_go_below_our_own(tmp_path: Path) -> None:
    made: list[Path] = []
    group = Group("m", root=make_v1(tmp_path), own_groups=V1_GROUPS, before_making=made.append)
    group.limit_memory(201326592)
    group.limit_reads("7:0", bytes_per_second=83886080, reads_per_second=400)
    memory = tmp_path / "memory/box/a/nginx-tune-m"
    block = tmp_path / "blkio/nginx-tune-m"
    assert group.directories == made == [memory, block]
    assert (memory / "memory.limit_in_bytes").read_text() == "201326592"
    assert (block / "blkio.throttle.read_bps_device").read_text() == "7:0 83886080"
    assert (block / "blkio.throttle.read_iops_device").read_text() == "7:0 400"
    assert group.join_files() == [memory / "cgroup.procs", block / "cgroup.procs"]
    assert group.directory("memory") == memory
    assert group.directory("cpu") is None


def test_v2_group_is_one_directory_below_the_root_with_its_controllers_enabled(
    tmp_path: Path,
) -> None:
    root = make_v2(tmp_path / "cg")
    enabled: list[str] = []
    group = Group("m", root=root, own_groups=V2_GROUPS, before_enabling=enabled.append)
    group.limit_memory(1 << 28)
    group.limit_reads("7:0", bytes_per_second=None, reads_per_second=400)
    directory = root / "nginx-tune-m"
    assert group.directories == [directory]
    assert (directory / "memory.max").read_text() == str(1 << 28)
    assert (directory / "memory.swap.max").read_text() == "0"
    assert (directory / "io.max").read_text() == "7:0 riops=400"
    control = root / "cgroup.subtree_control"
    assert control.read_text() == "+io", "memory was on already"
    assert enabled == [f"io {control}"]
    disable_controller(enabled[0])
    assert control.read_text() == "-io", "as it was before"


def test_a_hybrid_host_is_asked_per_controller(tmp_path: Path) -> None:
    make_v1(tmp_path)
    make_v2(tmp_path / "unified", enabled="")
    memory = find_controller("memory", tmp_path, V1_GROUPS)
    only_v2 = find_controller("pids", tmp_path, V1_GROUPS)
    assert memory is not None
    assert (memory.version, memory.parent) == (1, tmp_path / "memory/box/a")
    assert only_v2 is not None
    assert (only_v2.version, only_v2.parent) == (2, tmp_path / "unified")


def test_a_missing_controller_is_named(tmp_path: Path) -> None:
    with pytest.raises(UndecidedError, match="the memory cgroup controller is not on this host"):
        Group("m", root=tmp_path, own_groups="0::/\n").limit_memory(1)


def test_remove_reports_what_would_not_go(tmp_path: Path) -> None:
    group = Group("m", root=make_v1(tmp_path), own_groups=V1_GROUPS)
    group.use("memory")
    assert group.remove() == []
    assert group.directories[0].exists() is False
    group.directories[0].mkdir()
    (group.directories[0] / "busy").mkdir()
    assert group.remove() == group.directories
