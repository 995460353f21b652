"""Real devices: loops, bind mounts, overlay, memory limits. Mounts live in a namespace that
ends with the test, and with it the loop devices."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rows import each_row

from nginx_tune.documents.base import decode
from nginx_tune.documents.facts import Facts
from nginx_tune.host.cpu import read_cpu
from nginx_tune.host.live import LiveHost
from nginx_tune.host.memory import read_memory
from nginx_tune.host.storage import read_storage

MIB = 1 << 20


def inspect_inside(tmp_path: Path, script: str, *arguments: str) -> Facts:
    """Facts as a process sees them in a mount namespace that the script has prepared."""
    command = f'set -e; cd {tmp_path}; {script}; "$@"'
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh",
         sys.executable, "-m", "nginx_tune", "inspect", "-f", "json", *arguments],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return decode(Facts, said.stdout)


LOOPS = (
    "truncate -s 32M one.img two.img; mkfs.ext4 -q -F one.img; mkfs.ext4 -q -F two.img; "
    "mkdir -p one two; mount -o loop one.img one; mount -o loop two.img two"
)


LAYERS = (
    f"{LOOPS}; mkdir -p one/lower one/data bound over upper work seen upper2 work2 memory two/sub; "
    "mount --bind one/lower bound; echo data > one/lower/file; "
    "mount -t overlay overlay -o lowerdir=$PWD/bound,upperdir=$PWD/upper,workdir=$PWD/work over; "
    "mount -t tmpfs none memory; mount -t tmpfs none two/sub; echo a > two/f; echo b > two/sub/g; "
    "head -c 2097152 /dev/urandom > one/data/hot; head -c 6291456 /dev/urandom > one/data/cold; "
    "mount -t overlay overlay "
    "-o lowerdir=$PWD/one/data,upperdir=$PWD/upper2,workdir=$PWD/work2 seen; sync one/data/cold; "
    f"{sys.executable} -c 'import os, sys; f = os.open(sys.argv[1], 0); "
    "os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)' one/data/cold; cat seen/hot > /dev/null"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layers")


@pytest.fixture(scope="module")
def facts(place: Path) -> Facts:
    """Two loops, a bind mount, overlays and memory, as one run sees them all."""
    paths = ("one", "two", "bound", "over", "memory", "one/not/there/yet")
    arguments = [part for name in paths for part in ("--path", f"{place}/{name}")]
    datasets = [part for name in ("seen", "two") for part in ("--dataset", f"{place}/{name}")]
    return inspect_inside(place, LAYERS, *arguments, *datasets)


@pytest.mark.needs("root", "loop")
def test_two_loops_on_one_disk_are_told_apart_from_it(facts: Facts, place: Path) -> None:
    first, second = facts.storage.paths[:2]
    assert first.stack[0].startswith("loop")
    assert second.stack[0].startswith("loop")
    assert first.stack[0] != second.stack[0]
    # Below the loops: the disk that this very directory is on, counted once.
    below = read_storage(LiveHost(), [str(place)])[0].paths[0]
    assert first.stack[1:] == second.stack[1:] == below.stack
    assert first.leaf_disks == second.leaf_disks == below.leaf_disks
    if below.leaf_disks and below.leaf_disks != ["memory"]:
        assert facts.storage.independent_disk_count == 1


@pytest.mark.needs("root", "loop")
def test_bind_mounts_and_overlays_lead_to_their_layers(facts: Facts, place: Path) -> None:
    bound, over, memory, missing = facts.storage.paths[2:6]
    here = read_storage(LiveHost(), [str(place)])[0].paths[0]
    loop = missing.stack[0]
    assert missing.mount_point == f"{place}/one"
    assert bound.stack[0] == loop
    assert over.filesystem == "overlay"
    assert set(over.stack) == {loop, *here.stack}
    assert over.leaf_disks == here.leaf_disks
    assert memory.leaf_disks == ["memory"]


@pytest.mark.needs("root", "loop")
def test_residency_is_right_through_an_overlay(facts: Facts) -> None:
    """Where cachestat would say zero, mincore is asked."""
    residency = facts.datasets[0].residency
    assert residency.method == "mincore"
    assert residency.trusted
    assert residency.ratio == pytest.approx(0.25, abs=0.02)


@pytest.mark.needs("root", "loop")
def test_another_file_system_below_a_dataset_is_left_out(facts: Facts) -> None:
    dataset = facts.datasets[1]
    assert dataset.files == 1
    assert "other file systems" in dataset.reason


@pytest.mark.needs("root", "loop")
def test_loops_stand_for_disks_in_an_emulated_host(tmp_path: Path) -> None:
    code = (
        "import sys; from nginx_tune.documents.base import encode; "
        "from nginx_tune.host.live import LiveHost; "
        "from nginx_tune.observe.inspect.facts import gather_facts; "
        "facts = gather_facts(LiveHost(), paths=sys.argv[1:], loop_is_leaf=True); "
        "sys.stdout.buffer.write(encode(facts))"
    )
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'set -e; cd {tmp_path}; {LOOPS}; exec "$@"', "sh",
         sys.executable, "-c", code, f"{tmp_path}/one", f"{tmp_path}/two"],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    storage = json.loads(said.stdout)["storage"]
    assert storage["independent_disk_count"] == 2
    leaves = [path["leaf_disks"] for path in storage["paths"][:2]]
    assert leaves == [path["stack"] for path in storage["paths"][:2]]
    assert {disk["class"] for disk in storage["disks"] if disk["name"].startswith("loop")} == {
        "virtual"
    }


@pytest.mark.needs("root", "loop", "addpart")
def test_a_partition_of_a_loop_is_on_the_disk_below(tmp_path: Path) -> None:
    # The kernel is told of the partition; no table is needed. It stays with the loop device
    # until it is taken back.
    script = (
        "truncate -s 64M disk.img; mkdir -p m; "
        "loop=$(losetup --find --show --partscan disk.img); "
        "trap 'umount m; delpart $loop 1; losetup --detach $loop' EXIT; "
        "addpart $loop 1 2048 65536; part=$(basename $loop)p1; "
        "number=$(cat /sys/class/block/$part/dev); mknod part b ${number%:*} ${number#*:}; "
        "mkfs.ext4 -q -F part; mount part m"
    )
    facts = inspect_inside(tmp_path, script, "--path", f"{tmp_path}/m")
    stack = facts.storage.paths[0].stack
    assert stack[0].endswith("p1")
    assert stack[1] == stack[0].removesuffix("p1")
    assert stack[2:] == read_storage(LiveHost(), [str(tmp_path)])[0].paths[0].stack


@pytest.fixture
def limited_group() -> Iterator[Path]:
    """A memory cgroup with a limit on its parent."""
    parent = Path(tempfile.mkdtemp(prefix="nginx-tune-test-", dir="/sys/fs/cgroup/memory"))
    child = parent / "child"
    child.mkdir()
    (parent / "memory.limit_in_bytes").write_text(str(64 * MIB))
    yield child
    child.rmdir()
    parent.rmdir()


@pytest.mark.needs("root", "cgroup-v1")
def test_a_limit_of_an_ancestor_bounds_the_page_cache(limited_group: Path) -> None:
    memory, gaps = read_memory(LiveHost(), cgroup_directory=str(limited_group))
    assert memory.cgroup_version == 1
    assert memory.cgroup_limit_bytes == 64 * MIB
    assert memory.cgroup_limit_path == str(limited_group.parent)
    assert memory.page_cache_limit_bytes is not None
    assert memory.page_cache_limit_bytes <= 64 * MIB
    assert "memory.limit_in_bytes" in memory.page_cache_limit_reason
    assert set(gaps) <= {"/arc_bytes", "/arc_limit_bytes"}


@pytest.mark.needs("root", "cgroup-v1")
def test_the_limit_of_the_own_group_is_found(limited_group: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from nginx_tune.host.live import LiveHost; "
        "from nginx_tune.host.memory import read_memory; "
        "Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid())); "
        "print(read_memory(LiveHost())[0].cgroup_limit_bytes)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(limited_group)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == str(64 * MIB)


def test_affinity_counts() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        cpu = read_cpu(LiveHost())[0]
    finally:
        os.sched_setaffinity(0, allowed)
    assert cpu.cpuset == 1
    assert cpu.effective is not None
    assert cpu.effective <= 1
    assert cpu.online == os.sysconf("SC_NPROCESSORS_ONLN")


TWO_LOOPS = (
    "truncate -s 160M a.img b.img; A=$(losetup --find --show a.img); "
    "B=$(losetup --find --show b.img); mkdir -p m; "
)
"""Two loop devices, which the script that follows must give back when it ends."""


@pytest.mark.needs("root", "loop", "btrfs")
def test_a_btrfs_of_two_devices_stands_on_both(tmp_path: Path) -> None:
    script = (
        f"{TWO_LOOPS} trap 'umount m || true; losetup --detach $A $B' EXIT; "
        "mkfs.btrfs -q -f -m raid1 -d raid0 $A $B >&2; btrfs device scan $A $B >&2; mount $A m; "
        "mkdir m/sub"
    )
    facts = inspect_inside(tmp_path, script, "--path", f"{tmp_path}/m/sub")
    placed = facts.storage.paths[0]
    assert placed.filesystem == "btrfs"
    loops = [name for name in placed.stack if name.startswith("loop")]
    assert len(loops) == 2
    assert placed.leaf_disks == read_storage(LiveHost(), [str(tmp_path)])[0].paths[0].leaf_disks
    assert {layer.kind for layer in facts.storage.layers if layer.name in loops} == {"loop"}


@pytest.mark.needs("root", "loop", "dm")
@each_row(
    ("target", "table"),
    [("linear", "0 204800 linear $A 0"), ("striped", "0 204800 striped 2 128 $A 0 $B 0")],
)
def test_device_mapper_targets_are_told(tmp_path: Path, target: str, table: str) -> None:
    name = f"nginx-tune-test-{tmp_path.stat().st_ino}"
    script = (
        f"{TWO_LOOPS} trap 'umount m || true; dmsetup remove {name}; losetup --detach $A $B' EXIT; "
        f'dmsetup create {name} --table "{table}"; mkfs.ext4 -q /dev/mapper/{name}; '
        f"mount /dev/mapper/{name} m"
    )
    facts = inspect_inside(tmp_path, script, "--path", f"{tmp_path}/m")
    top = facts.storage.paths[0].stack[0]
    (layer,) = [layer for layer in facts.storage.layers if layer.name == top]
    assert (layer.kind, layer.detail) == (target, name)
    assert len(layer.lower) == (2 if target == "striped" else 1)


@pytest.mark.needs("root", "loop", "md")
def test_a_degraded_mirror_is_told(tmp_path: Path) -> None:
    device = "/dev/md/nginx-tune-test"
    script = (
        f"{TWO_LOOPS} "
        f"trap 'umount m || true; mdadm -q --stop {device}; losetup --detach $A $B' EXIT; "
        f"mdadm -q --create {device} --run --level=1 --raid-devices=2 $A missing; "
        f"mkfs.ext4 -q {device}; mount {device} m"
    )
    facts = inspect_inside(tmp_path, script, "--path", f"{tmp_path}/m")
    (array,) = [one for one in facts.storage.arrays if one.name in facts.storage.paths[0].stack]
    assert (array.level, array.members, array.degraded) == ("raid1", 2, 1)
