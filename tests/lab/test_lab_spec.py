"""``--lab``: classes, TOML files and facts, as the lab that comes of them."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nginx_tune.cli.inputs import read_lab_plan
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import (
    Dataset,
    Disk,
    Facts,
    Kernel,
    Link,
    Memory,
    Network,
    PathStorage,
    SizeBucket,
    Sizes,
    Storage,
)
from nginx_tune.documents.facts_storage import Curve
from nginx_tune.documents.lab import DiskModel, Lab, LabDisk
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.nginx.lab.building import contents_of
from nginx_tune.nginx.lab.disk_models import (
    predict_curve,
    predict_knee,
    predict_plateau,
    settle_kinds,
)
from nginx_tune.nginx.lab.spec import (
    Shape,
    model_of_curve,
    plan_of_class,
    plan_of_facts,
    plan_of_tables,
    scale_lab,
)

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
MIB, GIB = 1 << 20, 1 << 30
HDD = DiskModel(read_seconds=0.009, spread_ratio=0.6, bytes_per_second=150e6, sequential_seconds=0)
SSD = DiskModel(
    read_seconds=0.0004, channels=6, bytes_per_second=500e6, tail_ratio=0.015, tail_seconds=0.01
)


@pytest.mark.parametrize(("name", "kind"), [("hdd", "modelled"), ("nvme", "limited")])
def test_a_class_is_a_disk_and_a_fifth_of_memory(name: str, kind: str) -> None:
    lab, notes = plan_of_class(name)(Shape("/srv/www", [4 * MIB] * 3))
    assert not notes
    (disk,) = lab.disks
    assert (disk.mount, disk.kind, disk.class_name) == ("/srv/www", kind, name)
    (data,) = lab.data
    assert (data.files, data.file_bytes) == (256, 4 * MIB)
    assert lab.memory_bytes == 192 * MIB


def test_memory_is_a_host_whose_memory_holds_all() -> None:
    lab, _ = plan_of_class("memory")(Shape("/srv/www"))
    assert lab.memory_bytes is None


def test_a_toml_file_leaves_mount_and_data_to_the_site() -> None:
    tables: dict[str, Any] = {
        "name": "x",
        "memory_bytes": 64 * MIB,
        "disks": [{"name": "a", "kind": "modelled", "model": {"read_seconds": 0.01}}],
    }
    lab, _ = plan_of_tables(tables, "lab.toml")(Shape("/srv/www", [1000, 3000]))
    assert lab.disks[0].mount == "/srv/www"
    assert (lab.data[0].disk, lab.data[0].file_bytes) == ("a", 2000)
    assert lab.memory_bytes == 64 * MIB


def test_a_fault_of_a_toml_file_is_named() -> None:
    faults: list[tuple[dict[str, Any], str]] = [
        ({"memory": 1}, "a lab has no 'memory'"),
        ({"disks": [{}]}, "missing required field `name`"),
        ({"disks": [{"name": "a"}, {"name": "b"}]}, "only one mount can be left out"),
        ({"disks": [{"name": "../x"}]}, "not a valid name"),
        ({"disks": [{"name": "a", "mount": "/a/../b"}]}, "not an absolute path"),
        ({"disks": [{"name": "a", "model": {"read_seconds": 1}}]}, "is not kind"),
        (
            {"disks": [{"name": "a", "kind": "modelled", "model": {"read_seconds": -1}}]},
            "disks.model.read_seconds: must be 0 to 60",
        ),
        (
            {"disks": [{"name": "a", "kind": "modelled", "model": {"read_seconds": 0}}]},
            "reads would take no time",
        ),
        ({"disks": [{"name": "a", "dirty_bytes": 1 << 24}]}, "dirty_bytes: only for a writable"),
        (
            {"disks": [{"name": "a", "writable": True, "dirty_bytes": 4096}]},
            "dirty_bytes: only for a writable disk, at least 1048576",
        ),
        ({"memory_bytes": 4096}, "memory_bytes: below"),
        (
            {"tcp": {"net.ipv4.ip_forward": "1"}},
            "tcp.net.ipv4.ip_forward: the lab cannot set this to '1'",
        ),
        (
            {"tcp": {"net.ipv4.tcp_rmem": "4096"}},
            "tcp.net.ipv4.tcp_rmem: the lab cannot set this to '4096'",
        ),
        ({"topology": "ring"}, "Invalid enum value 'ring'"),
        ({"data": [{"disk": "a", "files": 1, "file_bytes": 1}]}, "data: no disk 'a'"),
        (
            {
                "disks": [{"name": "a"}],
                "data": [{"disk": "a", "files": 0, "file_bytes": 0, "sizes": {"/etc/x": 1}}],
            },
            "not a relative path",
        ),
    ]
    for tables, said in faults:
        with pytest.raises(UsageError, match="^lab.toml: .*" + re.escape(said)):
            plan_of_tables(tables, "lab.toml")


def facts_of(*curves: Curve | None, class_name: str = "hdd") -> Facts:
    disks = [
        Disk(name=f"sd{number}", class_=class_name, curve=curve)  # type: ignore[arg-type]
        for number, curve in enumerate(curves)
    ]
    buckets = [
        SizeBucket(le_bytes=65536, files=100_000, bytes=5 * GIB),
        SizeBucket(le_bytes=8 * MIB, files=20_000, bytes=95 * GIB),
    ]
    sizes = Sizes(
        mean_bytes=1.0, p50_bytes=1, p90_bytes=1, p99_bytes=1, max_bytes=1, buckets=buckets
    )
    return Facts(
        memory=Memory(page_cache_limit_bytes=20 * GIB),
        storage=Storage(
            paths=[PathStorage(path="/srv", leaf_disks=[disk.name for disk in disks])], disks=disks
        ),
        network=Network(links=[Link(name="eth0", speed_bits_per_second=10**10)]),
        kernel=Kernel(sysctls={"net.ipv4.tcp_congestion_control": "bbr", "vm.swappiness": "60"}),
        datasets=[Dataset(path="/srv/media", files=120_000, bytes=100 * GIB, sizes=sizes)],
    )


def total(lab: Lab) -> int:
    return sum(sum(contents_of(lab, disk).files.values()) for disk in lab.disks)


@pytest.mark.parametrize("scale", [None, 0.02])
def test_a_scale_model_keeps_the_ratio_and_the_disk(scale: float | None) -> None:
    facts = facts_of(predict_curve(HDD, 128 << 10))
    lab, notes = scale_lab(facts, root="/srv/media", scale=scale)
    assert not notes
    assert lab.memory_bytes is not None
    assert total(lab) / lab.memory_bytes == pytest.approx(5, rel=0.05)
    assert total(lab) == pytest.approx((scale or 0.01) * 100 * GIB, rel=0.05)
    (disk,) = lab.disks
    assert disk.mount == "/srv/media"
    assert disk.model is not None
    assert predict_plateau(disk.model, 4096) == pytest.approx(predict_plateau(HDD, 4096), rel=0.05)
    assert lab.link.bits_per_second == 10**10
    assert lab.tcp == {"net.ipv4.tcp_congestion_control": "bbr"}
    sizes = {item.file_bytes for item in lab.data}
    assert sizes == {5 * GIB // 100_000, 95 * GIB // 20_000}


def test_a_scale_that_leaves_nginx_no_memory_is_raised() -> None:
    lab, notes = scale_lab(facts_of(predict_curve(HDD, 4096)), root="/srv/media", scale=0.001)
    assert lab.memory_bytes == 64 * MIB
    assert "instead of 0.001" in notes[0]


def test_two_disks_that_serve_the_same_files_add_up() -> None:
    curve = predict_curve(HDD, 128 << 10)
    lab, _ = scale_lab(facts_of(curve, curve), root="/srv/media", scale=None)
    model = lab.disks[0].model
    assert model is not None
    assert model.channels == 2
    assert predict_plateau(model, 4096) == pytest.approx(2 * predict_plateau(HDD, 4096), rel=0.05)


def test_without_a_curve_the_class_stands_in_and_is_said() -> None:
    lab, notes = scale_lab(facts_of(None), root="/srv/media", scale=None)
    assert (lab.disks[0].kind, lab.disks[0].model) == ("modelled", None)
    assert "no disk curve in the facts" in notes[0]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (Facts(), "have no dataset"),
        (Facts(datasets=[Dataset(path="/srv", files=1, bytes=1)]), "how much memory"),
    ],
)
def test_facts_that_lack_what_it_takes(facts: Facts, said: str) -> None:
    with pytest.raises(UndecidedError, match=said):
        plan_of_facts(facts, None)(Shape("/srv"))


@pytest.mark.parametrize("model", [HDD, SSD], ids=["hdd", "ssd"])
def test_a_model_is_found_again_in_its_own_curve(model: DiskModel) -> None:
    curve = predict_curve(model, 128 << 10)
    fitted = model_of_curve(curve, "hdd" if model is HDD else "ssd")
    again = predict_curve(fitted, 128 << 10)
    for read_bytes in (4096, 128 << 10):
        assert predict_plateau(fitted, read_bytes) == pytest.approx(
            predict_plateau(model, read_bytes), rel=0.1
        )
        assert predict_knee(fitted, read_bytes) == pytest.approx(
            predict_knee(model, read_bytes), rel=0.1
        )
    for old, new in zip(curve.points[:1], again.points[:1], strict=True):
        assert new.reads_per_second == pytest.approx(old.reads_per_second, rel=0.05)
        assert new.p99_seconds == pytest.approx(old.p99_seconds, rel=0.2)
        assert new.p999_seconds == pytest.approx(old.p999_seconds, rel=0.2)


MODELLED = LabDisk(name="disk1", mount="/srv", kind="modelled")
LIMITED = LabDisk(name="disk1", mount="/srv", bytes_per_second=MIB, reads_per_second=100)


def test_the_next_best_kind_is_taken_and_said() -> None:
    lab, notes = settle_kinds(Lab(disks=[MODELLED]), no_models="no /dev/fuse", no_limits="")
    assert lab.disks[0].kind == "limited"
    assert lab.disks[0].reads_per_second == 125
    assert notes == [
        "disk1 is limited instead of modelled (no /dev/fuse): its curve has a plateau and no knee"
    ]
    lab, notes = settle_kinds(Lab(disks=[LIMITED]), no_models="", no_limits="no blkio")
    assert lab.disks[0].kind == "modelled"
    assert "no blkio" in notes[0]
    fast = msgspec.structs.replace(
        MODELLED, class_name="nvme", model=DiskModel(read_seconds=0.0001, channels=32)
    )
    lab, notes = settle_kinds(Lab(disks=[fast]), no_models="", no_limits="")
    assert "320,000 reads/s are more than" in notes[0]
    assert settle_kinds(Lab(disks=[MODELLED]), no_models="", no_limits="x").notes == []


def test_a_disk_that_cannot_be_had_says_both_reasons() -> None:
    for disk in (MODELLED, LIMITED):
        with pytest.raises(UndecidedError, match=r"neither modelled \(no fuse\) nor limited"):
            settle_kinds(Lab(disks=[disk]), no_models="no fuse", no_limits="no blkio")


def test_the_command_line_names_a_class_a_file_or_facts(tmp_path: Path, run_cli: RunCli) -> None:
    toml, facts = tmp_path / "lab.toml", tmp_path / "facts.json"
    toml.write_text('name = "mine"\n[[disks]]\nname = "disk1"\n')
    facts.write_bytes(encode(facts_of(None)))
    shape = Shape("/srv/media")
    for spec, name in (("hdd", "hdd"), (str(toml), "mine"), (str(facts), "0.01 of a host")):
        plan = read_lab_plan(spec, None)
        assert plan is not None
        assert plan(shape).lab.name.startswith(name)
    assert read_lab_plan(None, None) is None
    with pytest.raises(UsageError, match="--scale needs"):
        read_lab_plan("hdd", 0.1)
    toml.write_text("disks = 3")
    for value in ("nan", "-inf"):
        toml.write_text(f"quota_cpus = {value}")
        with pytest.raises(UsageError, match="not a finite number"):
            read_lab_plan(str(toml), None)
    for place in ("/proc/x", "/sys", "/dev/shm", "/a\\u0000b"):
        toml.write_text(f'[[disks]]\nname = "disk1"\nmount = "{place}"\n')
        with pytest.raises(UsageError, match="not a place for files"):
            read_lab_plan(str(toml), None)
    toml.write_text("disks = 3")
    for spec, said in (("tape", "no lab 'tape'"), (str(toml), "not a lab"), ("no.json", "no.json")):
        run = run_cli("validate", "/dev/null", "--lab", spec)
        assert run.returncode == 2, run.stderr
        assert said in run.stderr
        assert run.stderr.count("\n") == 1
