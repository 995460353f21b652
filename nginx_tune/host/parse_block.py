"""What kind of disk a block device is, from what the kernel says about it."""

from __future__ import annotations

import re
from typing import NamedTuple

from nginx_tune.documents.facts import DiskClass


class Identity(NamedTuple):
    """What the kernel tells about a block device."""

    name: str
    directory: str = ""
    """Its real directory in sysfs: shows the bus it hangs on."""
    vendor: str = ""
    model: str = ""
    transport: str = ""
    """Of an NVMe controller: ``pcie``, ``tcp``, ``rdma``, ``fc``, ``loop``."""
    rotational: bool | None = None
    kind: str = ""
    """``device/type`` of a card: ``MMC`` or ``SD``."""


class Classification(NamedTuple):
    """A disk class and the reason for it."""

    disk_class: DiskClass
    reason: str


_MODELS: tuple[tuple[str, DiskClass, str], ...] = (
    ("Amazon Elastic Block Store", "network", "an EBS volume, whatever its rotational flag says"),
    ("Amazon EC2 NVMe Instance Storage", "nvme", "an instance store on the host"),
    ("nvme_card-pd", "network", "a Google persistent disk"),
    ("nvme_card", "nvme", "a Google local SSD"),
    ("PersistentDisk", "network", "a Google persistent disk"),
    ("EphemeralDisk", "ssd", "a Google local SSD"),
    ("MSFT NVMe Accelerator", "network", "an Azure remote disk"),
    ("Microsoft NVMe Direct Disk", "nvme", "an Azure local disk"),
    ("QEMU", "virtual", "the medium is the hypervisor's"),
    ("VMware Virtual", "virtual", "the medium is the hypervisor's"),
    ("VBOX HARDDISK", "virtual", "the medium is the hypervisor's"),
    ("Msft Virtual Disk", "virtual", "the medium is the hypervisor's"),
    ("Virtual Disk", "virtual", "the medium is the hypervisor's"),
    ("BlockVolume", "network", "a cloud block volume"),
    ("PERC", "unknown", "a RAID controller hides its disks"),
    ("LOGICAL VOLUME", "unknown", "a RAID controller hides its disks"),
    ("ServeRAID", "unknown", "a RAID controller hides its disks"),
    ("MegaRAID", "unknown", "a RAID controller hides its disks"),
    ("MR9", "unknown", "a RAID controller hides its disks"),
)
"""By part of the model (or vendor) string, the first that fits.

Source: the cloud providers' udev rules; inquiry strings of the hypervisors and controllers.
"""

_NAMES: tuple[tuple[str, DiskClass, str], ...] = (
    (r"vd[a-z]+", "virtual", "virtio-blk says rotational=1 for any medium"),
    (r"xvd[a-z]+", "virtual", "a Xen disk says rotational=0 for any medium"),
    (r"(?:nbd|rbd|drbd)\d+|etherd!.*", "network", "a block device over the network"),
    (r"(?:ram|zram|pmem)\d.*", "memory", "a block device in memory"),
    (r"loop\d+", "virtual", "a file served as a block device"),
)
"""By device name: drivers whose rotational flag says nothing."""


def classify(identity: Identity) -> Classification:
    """The class of a leaf disk and why. ``rotational`` alone never proves anything.

    Source: NVMe, SCSI and virtio drivers of Linux set the flag each by a rule of its own.
    """
    for pattern, disk_class, reason in _NAMES:
        if re.fullmatch(pattern, identity.name):
            return Classification(disk_class, reason)
    if re.fullmatch(r"mmcblk\d+(boot\d+|gp\d+)?", identity.name):
        kind = {"MMC": "an eMMC", "SD": "an SD card"}.get(identity.kind, "an SD card or eMMC")
        return Classification("card", f"{kind}: it serves one command or few at a time")
    label = f"{identity.vendor} {identity.model}".strip()
    for part, disk_class, reason in _MODELS:
        if part.lower() in label.lower():
            return Classification(disk_class, f"model '{label}': {reason}")
    if identity.name.startswith("nvme"):
        return _classify_nvme(identity, label)
    if re.search(r"/session\d+/", identity.directory):
        return Classification("network", "an iSCSI session leads to it")
    if "/rport-" in identity.directory:
        return Classification("network", "a Fibre Channel port leads to it")
    if identity.name.startswith("sd") and label:
        return _classify_scsi(identity, label)
    return Classification("unknown", f"nothing known tells what {identity.name} is")


def _classify_nvme(identity: Identity, label: str) -> Classification:
    if identity.transport not in {"", "pcie"}:
        return Classification("network", f"NVMe over {identity.transport}")
    if identity.rotational:
        return Classification("hdd", f"NVMe disk '{label}' that declares itself rotational")
    if not label:
        return Classification("nvme", "an NVMe disk that tells no model")
    return Classification("nvme", f"NVMe model '{label}', no known network volume")


def _classify_scsi(identity: Identity, label: str) -> Classification:
    if identity.rotational is None:
        return Classification(
            "unknown", f"model '{label}', but the kernel gives no rotational flag"
        )
    if identity.rotational:
        return Classification("hdd", f"rotational=1 and model '{label}' is no known virtual disk")
    return Classification(
        "ssd", f"rotational=0 is the disk's own word (VPD page B1); model '{label}'"
    )


_REMOTE_FILESYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "afs", "lustre", "gpfs", "ocfs2_dlmfs",
    "glusterfs", "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone",
    "fuse.gcsfuse", "fuse.mount-s3", "fuse.goofys", "fuse.juicefs", "fuse.ceph-fuse",
    "fuse.blobfuse2", "fuse.davfs", "fuse.curlftpfs", "fuse.cvmfs2", "fuse.seaweedfs",
}  # fmt: skip
_MEMORY_FILESYSTEMS = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_HYPERVISOR_FILESYSTEMS = {"9p", "virtiofs", "vboxsf", "fuse.vmhgfs-fuse"}


def classify_filesystem(filesystem: str) -> Classification | None:
    """The class of what lies under a file system without a block device; None: look deeper."""
    if filesystem in _MEMORY_FILESYSTEMS:
        return Classification("memory", f"{filesystem} keeps its files in memory")
    if filesystem in _REMOTE_FILESYSTEMS:
        return Classification("network", f"{filesystem} is a network file system")
    if filesystem in _HYPERVISOR_FILESYSTEMS:
        return Classification("virtual", f"{filesystem}: the files are the hypervisor's")
    if filesystem == "zfs":
        return Classification("unknown", "the kernel does not tell the disks of a ZFS pool")
    if filesystem == "fuse" or filesystem.startswith("fuse."):
        return Classification("unknown", f"{filesystem}: its files may be local or remote")
    return None
