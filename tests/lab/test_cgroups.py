"""Cgroups on a made-up cgroup file system: v1, v2 and hybrid, without touching the host's."""

import os
import subprocess
from pathlib import Path

import pytest
from needs import lacks

from nginx_tune.errors import UndecidedError
from nginx_tune.host import programs
from nginx_tune.nginx.lab import sandbox
from nginx_tune.nginx.lab.cgroups import (
    LabCgroups,
    disable_controller,
    find_controller,
    remove_group,
)

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
    group = LabCgroups("m", root=make_v1(tmp_path), own_groups=V1_GROUPS, before_making=made.append)
    group.limit_memory(201326592)
    group.limit_reads("7:0", bytes_per_second=83886080, reads_per_second=400)
    memory = tmp_path / "memory/box/a/nginx-tune-m"
    block = tmp_path / "blkio/nginx-tune-m"
    assert group.directories == made == [memory, block]
    assert (memory / "memory.limit_in_bytes").read_text() == "201326592"
    assert (block / "blkio.throttle.read_bps_device").read_text() == "7:0 83886080"
    assert (block / "blkio.throttle.read_iops_device").read_text() == "7:0 400"
    assert group.join_files() == [memory / "tasks", block / "tasks"]
    assert group.directory("memory") == memory
    assert group.directory("cpu") is None


def test_v2_group_is_one_directory_below_the_root_with_its_controllers_enabled(
    tmp_path: Path,
) -> None:
    root = make_v2(tmp_path / "cg")
    enabled: list[str] = []
    group = LabCgroups("m", root=root, own_groups=V2_GROUPS, before_enabling=enabled.append)
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


def test_cpu_time_is_bounded_on_both_versions(tmp_path: Path) -> None:
    old = LabCgroups("m", root=make_v1(tmp_path / "v1"), own_groups="1:cpu:/\n0::/\n")
    (tmp_path / "v1" / "cpu").mkdir()
    old.limit_cpu(1.5)
    directory = tmp_path / "v1" / "cpu" / "nginx-tune-m"
    assert (directory / "cpu.cfs_quota_us").read_text() == "150000"
    assert (directory / "cpu.cfs_period_us").read_text() == "100000"
    new = LabCgroups("m", root=make_v2(tmp_path / "v2"), own_groups=V2_GROUPS)
    new.limit_cpu(0.25)
    assert (tmp_path / "v2" / "nginx-tune-m" / "cpu.max").read_text() == "25000 100000"


def test_under_systemd_the_group_goes_into_one_delegated_scope(tmp_path: Path) -> None:
    root = make_v2(tmp_path / "cg", enabled="")
    scope = make_v2(root / "nginx-tune-m.scope", enabled="")
    asked: list[Path] = []

    def delegate(unified: Path) -> Path:
        asked.append(unified)
        return scope

    group = LabCgroups("m", root=root, own_groups=V2_GROUPS, delegate=delegate)
    group.limit_memory(1 << 28)
    group.limit_reads("7:0", bytes_per_second=1000, reads_per_second=None)
    assert asked == [root], "one scope for all"
    assert group.directories == [scope / "nginx-tune-m"]
    assert (root / "cgroup.subtree_control").read_text() == "", "systemd's own"
    assert (scope / "nginx-tune-m" / "io.max").read_text() == "7:0 rbps=1000"
    (scope / "cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(UndecidedError, match="does not delegate the memory controller"):
        LabCgroups("n", root=root, own_groups=V2_GROUPS, delegate=delegate).limit_memory(1)


def find_free_v2() -> tuple[Path, str] | None:
    """The real v2 tree and a controller on it that no v1 hierarchy has taken."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        controllers = root / "cgroup.controllers"
        if controllers.is_file() and controllers.read_text().split():
            return root, controllers.read_text().split()[0]
    return None


@pytest.mark.needs("root")
@pytest.mark.alone  # hands a controller of the host's root on, and takes it back
def test_the_kernel_takes_a_group_below_the_root() -> None:
    """Without systemd: the controller is handed to the root's children, and taken back."""
    free = find_free_v2()
    if free is None or sandbox.has_systemd():
        lacks("cgroup-v2", "no tree with a free controller that is ours to arrange")
    unified, controller = free
    control = unified / "cgroup.subtree_control"
    before = control.read_text().split()
    enabled: list[str] = []
    group = LabCgroups(f"root-{os.getpid()}", before_enabling=enabled.append)
    try:
        used = group.use(controller)
        assert (used.version, used.parent) == (2, unified)
        assert controller in control.read_text().split()
        assert enabled == ([] if controller in before else [f"{controller} {control}"])
        (directory,) = group.directories
        assert (directory / "cgroup.controllers").read_text().split() == control.read_text().split()
        (entry,) = group.join_files()
        member = subprocess.Popen(
            ["sh", "-c", f"echo 0 > {entry} && exec cat /proc/self/cgroup"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert f"0::/{directory.name}\n" in member.communicate()[0], "it entered by itself"
        assert group.remove() == []
        assert not directory.exists()
    finally:
        group.remove()
        for line in enabled:
            disable_controller(line)
    assert control.read_text().split() == before


STUB = """#!/bin/sh
# What systemd-run does for us, by hand: a scope below the root, with a controller handed to it.
for word; do case $word in --unit=*) unit=${word#--unit=};; esac; done
mkdir "$V2_ROOT/$unit" && echo "+$V2_CONTROLLER" >"$V2_ROOT/cgroup.subtree_control" &&
echo $$ >"$V2_ROOT/$unit/cgroup.procs" && exec sleep 60
"""


@pytest.mark.needs("root")
@pytest.mark.alone  # as above
def test_the_kernel_takes_a_group_in_a_scope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = find_free_v2()
    if free is None or sandbox.has_systemd():
        lacks("cgroup-v2", "no tree with a free controller that is ours to arrange")
    unified, controller = free
    stub = tmp_path / "systemd-run"
    stub.write_text(STUB.replace("$V2_ROOT", str(unified)).replace("$V2_CONTROLLER", controller))
    stub.chmod(0o755)
    monkeypatch.setattr(programs, "DIRECTORIES", (str(tmp_path), *programs.DIRECTORIES))
    monkeypatch.setattr(programs, "_vouched", {str(stub)})
    mark = f"test-{os.getpid()}"
    before = (unified / "cgroup.subtree_control").read_text().split()
    noted: list[int] = []
    scopes: list[sandbox.DelegatedScope] = []

    def delegate(root: Path) -> Path:
        scopes.append(sandbox.DelegatedScope(mark, root, noted.append))
        return scopes[0].directory

    group = LabCgroups(mark, delegate=delegate)
    member = None
    try:
        group.use(controller)
        (directory,) = group.directories
        assert directory.parent == unified / f"nginx-tune-{mark}.scope"
        member = subprocess.Popen(["sleep", "60"])
        (directory / "cgroup.procs").write_text(str(member.pid))
        assert (
            f"0::/{directory.relative_to(unified)}"
            in Path(f"/proc/{member.pid}/cgroup").read_text()
        )
        assert group.remove(patience_seconds=0.1) == [directory], "a process is in it"
    finally:
        for held in scopes:
            held.close()
        if member:
            member.kill()
            member.wait()
        assert group.remove() == []
        for directory in (f"nginx-tune-{mark}.scope/holder", f"nginx-tune-{mark}.scope"):
            assert remove_group(unified / directory)
        if controller not in before:
            disable_controller(f"{controller} {unified / 'cgroup.subtree_control'}")


def test_a_missing_controller_is_named(tmp_path: Path) -> None:
    with pytest.raises(UndecidedError, match="the memory cgroup controller is not on this host"):
        LabCgroups("m", root=tmp_path, own_groups="0::/\n").limit_memory(1)


def test_remove_reports_what_would_not_go(tmp_path: Path) -> None:
    group = LabCgroups("m", root=make_v1(tmp_path), own_groups=V1_GROUPS)
    group.use("memory")
    assert group.remove() == []
    assert group.directories[0].exists() is False
    group.directories[0].mkdir()
    (group.directories[0] / "busy").mkdir()
    assert group.remove(patience_seconds=0.1) == group.directories
