"""Disk classes and groups of disks."""

from rows import each_row

from nginx_tune.documents.facts import Disk, PathStorage
from nginx_tune.host.parse_storage import Identity, classify, classify_filesystem
from nginx_tune.host.storage import count_independent


@each_row(
    ("identity", "expected"),
    [
        (Identity("sda", vendor="ATA", model="ST8000NM000A", rotational=True), "hdd"),
        (Identity("sda", vendor="ATA", model="Samsung SSD 870", rotational=False), "ssd"),
        (Identity("sda", vendor="ATA", model="QEMU HARDDISK", rotational=True), "virtual"),
        (Identity("sda", vendor="VMware", model="Virtual disk", rotational=True), "virtual"),
        (Identity("sda", vendor="DELL", model="PERC H730", rotational=True), "unknown"),
        (Identity("sda", vendor="Google", model="PersistentDisk", rotational=True), "network"),
        (Identity("sda", vendor="HGST", model="HUS724020AL"), "unknown"),
        (Identity("sda", rotational=True), "unknown"),
        (
            Identity("sdq", "/sys/devices/platform/host9/session3/target9:0:0/block/sdq",
                     vendor="LIO-ORG", model="disk", rotational=False),
            "network",
        ),
        (
            Identity("sdq", "/sys/devices/pci0/host1/rport-1:0-2/target1:0:0/block/sdq",
                     vendor="PURE", model="FlashArray", rotational=False),
            "network",
        ),
        (Identity("vda", rotational=True), "virtual"),
        (Identity("vda", rotational=False), "virtual"),
        (Identity("xvda", rotational=False), "virtual"),
        (Identity("nvme0n1", model="SAMSUNG MZQL2960", rotational=False), "nvme"),
        (Identity("nvme0n1", model="Exos X20 NVMe", rotational=True), "hdd"),
        (Identity("nvme1n1", model="Amazon Elastic Block Store", rotational=False), "network"),
        (Identity("nvme1n1", model="Amazon EC2 NVMe Instance Storage"), "nvme"),
        (Identity("nvme0n1", model="nvme_card-pd"), "network"),
        (Identity("nvme0n1", model="Linux", transport="tcp"), "network"),
        (Identity("nvme0n1", model="Linux", transport="pcie"), "nvme"),
        (Identity("rbd0", rotational=False), "network"),
        (Identity("nbd3", rotational=True), "network"),
        (Identity("zram0", rotational=False), "memory"),
        (Identity("loop0", rotational=False), "virtual"),
        (Identity("mmcblk0", kind="MMC", rotational=False), "card"),
        (Identity("mmcblk1", kind="SD", rotational=False), "card"),
        (Identity("mmcblk0boot0"), "card"),
        (Identity("dm-3"), "unknown"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.name} {value.model}",
)  # fmt: skip
def test_classes(identity: Identity, expected: str) -> None:
    verdict = classify(identity)
    assert verdict.disk_class == expected
    assert verdict.reason


@each_row("rotational", [True, False, None])
def test_the_rotational_flag_alone_proves_nothing(rotational: bool | None) -> None:
    for name in ("sda", "vda", "xvda", "nbd0", "dm-0", "md0"):
        assert classify(Identity(name, rotational=rotational)).disk_class not in {"hdd", "ssd"}


@each_row(
    ("filesystem", "expected"),
    [
        ("tmpfs", "memory"),
        ("nfs4", "network"),
        ("cifs", "network"),
        ("fuse.sshfs", "network"),
        ("fuse.mergerfs", "unknown"),
        ("virtiofs", "virtual"),
        ("zfs", "unknown"),
        ("ext4", None),
        ("overlay", None),
        ("fuseblk", None),
    ],
)
def test_file_systems_without_a_device(filesystem: str, expected: str | None) -> None:
    verdict = classify_filesystem(filesystem)
    assert (verdict.disk_class if verdict else None) == expected


@each_row(
    ("leaves", "expected"),
    [
        ([["sda"], ["sdb"], ["sdc"]], 3),
        ([["sda"], ["sda"]], 1),
        ([["sda", "sdb"], ["sdb", "sdc"], ["sdd"]], 2),
        ([["sda"], ["sdc"], ["sda", "sdc"]], 1),
        ([["sda"], []], 1),
        ([["memory"]], None),
        ([[]], None),
        ([], None),
    ],
)
def test_paths_that_share_a_leaf_are_one_group(
    leaves: list[list[str]], expected: int | None
) -> None:
    paths = [PathStorage(path=f"/{n}", leaf_disks=names) for n, names in enumerate(leaves)]
    assert count_independent(paths, [Disk(name="memory", class_="memory")]) == expected
