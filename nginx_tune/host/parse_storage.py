"""Mounts, stacked devices, disks and sizes of files, from texts and numbers of the kernel; pure.

``/proc/PID/mountinfo`` shows the mount of a path; device-mapper, md, ZFS and the block layer show
the stacking; bus, model and driver show the kind of a disk. Any number of file sizes fits into a
bounded memory, as powers of two, quantiles and a sample.
"""

import re
from typing import NamedTuple

from nginx_tune.documents.facts import DiskClass, SizeBucket, Sizes
from nginx_tune.documents.facts_storage import NETWORK_FILESYSTEMS
from nginx_tune.host.door import Missing

_OCTAL = re.compile(r"\\([0-7]{3})")
_FIELDS_BEFORE_DASH = 6
_FIELDS_AFTER_DASH = 2


class Mount(NamedTuple):
    """A line of ``/proc/PID/mountinfo``."""

    mount_id: int
    parent_id: int
    device: str
    """``MAJOR:MINOR``; major 0 has no block device."""
    root: str
    """The mounted directory of the file system; not ``/`` for bind mounts."""
    mount_point: str
    filesystem: str
    source: str
    options: dict[str, str]
    """The file system's options, such as ``upperdir``; flags have an empty value."""


def parse_mountinfo(text: str) -> list[Mount]:
    """The mounts in the kernel's order; malformed lines are skipped.

    Source: proc_pid_mountinfo(5).
    """
    return [mount for mount in map(_parse_line, text.splitlines()) if mount is not None]


def _parse_line(line: str) -> Mount | None:
    before, separator, after = line.partition(" - ")
    head, tail = before.split(" "), after.split(" ")
    if not separator or len(head) < _FIELDS_BEFORE_DASH or len(tail) < _FIELDS_AFTER_DASH:
        return None
    if not (head[0].isdecimal() and head[1].isdecimal() and len(head[0] + head[1]) < 40):  # noqa: PLR2004
        return None
    if not re.fullmatch(r"[0-9]{1,9}:[0-9]{1,9}", head[2]) or not head[4].startswith("/"):
        return None
    options = tail[2] if len(tail) > _FIELDS_AFTER_DASH else ""
    return Mount(
        mount_id=int(head[0]),
        parent_id=int(head[1]),
        device=head[2],
        root=_plain(head[3]),
        mount_point=_plain(head[4]),
        filesystem=_plain(tail[0]),
        source=_plain(tail[1]),
        options=_parse_options(options),
    )


def _plain(text: str) -> str:
    """The text with the octal escapes of mangle_path() in fs/seq_file.c decoded."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _parse_options(text: str) -> dict[str, str]:
    found = {}
    # overlayfs escapes commas in paths (fs/overlayfs/params.c).
    for option in re.split(r"(?<!\\),", text):
        name, _, value = option.partition("=")
        if name:
            found[name] = _plain(value)
    return found


def is_inside(path: str, directory: str) -> bool:
    """True for the directory and paths below it (both normal and absolute)."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def mount_of(mounts: list[Mount], path: str) -> Mount | None:
    """The mount of ``path`` (absolute, links resolved).

    Later mounts hide earlier ones, also those below the new mount point. So the tree is walked from
    the root along parent ids. If the list has no root (cut off, odd namespace), the longest mount
    point wins; of equal ones, the last.
    """
    ids = {mount.mount_id for mount in mounts}
    current = next(
        (m for m in mounts if m.mount_point == "/" and m.parent_id not in ids - {m.mount_id}), None
    )
    if current is None:
        around = [mount for mount in mounts if is_inside(path, mount.mount_point)]
        return max(reversed(around), key=lambda m: len(m.mount_point), default=None)
    passed = {current.mount_id}
    while True:
        below = [
            mount
            for mount in mounts
            if mount.parent_id == current.mount_id
            and mount.mount_id not in passed
            and is_inside(path, mount.mount_point)
        ]
        if not below:
            return current
        # The first mount point on the path wins, as for the kernel, and hides siblings further
        # down.
        current = min(reversed(below), key=lambda mount: len(mount.mount_point))
        passed.add(current.mount_id)


_TABLE_LINE = re.compile(r"^(.+?): [0-9]+ [0-9]+ ([\w-]+)", re.MULTILINE)
_DISKSTATS = re.compile(
    r"^ *[0-9]+ +[0-9]+ (\S+) (?:[0-9]{1,20} ){9}([0-9]{1,20})(?: |$)", re.MULTILINE
)


def parse_dm_kind(uuid: str) -> str:
    """The kind of a device-mapper device, by the prefix of its uuid; ``dm`` if unknown.

    Source: the prefixes of lvm2, cryptsetup and multipath-tools.
    """
    uuid = uuid.strip()
    if uuid.startswith("mpath-"):
        return "multipath"
    if uuid.startswith("CRYPT-"):
        return "crypt"
    if uuid.startswith("LVM-"):
        return "thin-pool" if uuid.endswith("-tpool") else "lvm"
    return "dm"


def parse_dm_table(text: str) -> dict[str, str]:
    """The targets of each device in ``dmsetup table``, joined with ``+``."""
    found: dict[str, list[str]] = {}
    for name, target in _TABLE_LINE.findall(text):
        targets = found.setdefault(name, [])
        if target not in targets:
            targets.append(target)
    return {name: "+".join(targets) for name, targets in found.items()}


def parse_sync_completed(text: str) -> float | Missing:
    """The synchronised share, from ``md/sync_completed``: ``DONE / TOTAL`` sectors, or ``none``."""
    match = re.fullmatch(r"([0-9]{1,20}) / ([0-9]{1,20})", text.strip())
    if match is None:
        return Missing("nothing is being synchronised")
    done, total = int(match[1]), int(match[2])
    return min(1.0, done / total) if total else Missing("nothing is being synchronised")


def parse_zpool_devices(text: str) -> list[str]:
    """The device files of a pool, from ``zpool list -vHPL POOL``, in its order."""
    return list(dict.fromkeys(re.findall(r"^\s*(/dev/[\w./:+-]+)", text, re.MULTILINE)))


def parse_busy_milliseconds(text: str) -> dict[str, int]:
    """The milliseconds with a request in flight, by device, from ``/proc/diskstats``.

    Source: Documentation/admin-guide/iostats.rst, field 10.
    """
    return {name: int(busy) for name, busy in _DISKSTATS.findall(text)}


class Identity(NamedTuple):
    """The kernel's reports on the identity of a block device."""

    name: str
    directory: str = ""
    """The device's real directory in sysfs, which shows its bus."""
    vendor: str = ""
    model: str = ""
    transport: str = ""
    """The transport of an NVMe controller: ``pcie``, ``tcp``, ``rdma``, ``fc``, ``loop``."""
    rotational: bool | None = None
    kind: str = ""
    """``device/type`` of a card: ``MMC`` or ``SD``."""


class Classification(NamedTuple):
    """A disk class and the reason for it."""

    disk_class: DiskClass
    reason: str


_MODELS: tuple[tuple[str, DiskClass, str], ...] = (
    ("Amazon Elastic Block Store", "network", "an EBS volume; its rotational flag does not matter"),
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
"""The class by a part of the model (or vendor); the first match counts.

Source: the cloud providers' udev rules; inquiry strings of the hypervisors and controllers.
"""

_NAMES: tuple[tuple[str, DiskClass, str], ...] = (
    (r"vd[a-z]+", "virtual", "virtio-blk says rotational=1 for any medium"),
    (r"xvd[a-z]+", "virtual", "a Xen disk says rotational=0 for any medium"),
    (r"(?:nbd|rbd|drbd)\d+|etherd!.*", "network", "a block device over the network"),
    (r"(?:ram|zram|pmem)\d.*", "memory", "a block device in memory"),
    (r"loop\d+", "virtual", "a file served as a block device"),
)
"""The class by device name, for drivers with a meaningless rotational flag."""


def classify(identity: Identity) -> Classification:
    """The class of a leaf disk and the reason. ``rotational`` alone proves nothing.

    Source: Linux's NVMe, SCSI and virtio drivers each set the flag by a different rule.
    """
    for pattern, disk_class, reason in _NAMES:
        if re.fullmatch(pattern, identity.name):
            return Classification(disk_class, reason)
    if re.fullmatch(r"mmcblk\d+(boot\d+|gp\d+)?", identity.name):
        kind = {"MMC": "an eMMC", "SD": "an SD card"}.get(identity.kind, "an SD card or eMMC")
        return Classification("card", f"{kind}: it serves one command or a few at a time")
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
    return Classification("unknown", f"nothing shows the kind of {identity.name}")


def _classify_nvme(identity: Identity, label: str) -> Classification:
    if identity.transport not in {"", "pcie"}:
        return Classification("network", f"NVMe over {identity.transport}")
    if identity.rotational:
        return Classification("hdd", f"NVMe disk '{label}' that declares itself rotational")
    if not label:
        return Classification("nvme", "an NVMe disk without a model")
    return Classification("nvme", f"NVMe model '{label}', not a known network volume")


def _classify_scsi(identity: Identity, label: str) -> Classification:
    if identity.rotational is None:
        return Classification("unknown", f"model '{label}', but the kernel has no rotational flag")
    if identity.rotational:
        return Classification(
            "hdd", f"rotational=1 and model '{label}' is not a known virtual disk"
        )
    return Classification("ssd", f"the disk reports rotational=0 (VPD page B1); model '{label}'")


_MEMORY_FILESYSTEMS = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_HYPERVISOR_FILESYSTEMS = {"9p", "virtiofs", "vboxsf", "fuse.vmhgfs-fuse"}


def classify_filesystem(filesystem: str) -> Classification | None:
    """The storage class of a file system without a block device; None for any other."""
    if filesystem in _MEMORY_FILESYSTEMS:
        return Classification("memory", f"{filesystem} keeps its files in memory")
    if filesystem in NETWORK_FILESYSTEMS:
        return Classification("network", f"{filesystem} is a network file system")
    if filesystem in _HYPERVISOR_FILESYSTEMS:
        return Classification("virtual", f"{filesystem}: the files belong to the hypervisor")
    if filesystem == "zfs":
        return Classification("unknown", "the kernel does not show the disks of a ZFS pool")
    if filesystem == "fuse" or filesystem.startswith("fuse."):
        return Classification("unknown", f"{filesystem}: its files may be local or remote")
    return None


_MOST_SIZES = 1 << 16
"""Maximum number of distinct sizes to count exactly, in a few megabytes of memory."""
_BITS = 9
"""The leading bits of a size to keep if there are more sizes: exact to 0.2 %."""


class SizeCounter:
    """A counter of sizes in buckets ``(le/2, le]``; empty files are in bucket 0."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self.squares = 0
        """Sum of the squared sizes."""
        self._max_bytes = 0
        self._buckets: dict[int, list[int]] = {}
        self._by_size: dict[int, int] = {}
        """Files by size; if there are too many sizes, by the middle of a span of sizes."""
        self._is_exact = True

    def add(self, size_bytes: int) -> None:
        """Count a file."""
        self.files += 1
        self.bytes += size_bytes
        self.squares += size_bytes * size_bytes
        self._max_bytes = max(self._max_bytes, size_bytes)
        known = size_bytes if self._is_exact else _middle(size_bytes)
        self._by_size[known] = self._by_size.get(known, 0) + 1
        if len(self._by_size) > _MOST_SIZES and self._is_exact:
            self._coarsen()
        # (size - 1).bit_length() is the exponent of the least power of two not below size.
        exponent = (size_bytes - 1).bit_length() if size_bytes else -1
        bucket = self._buckets.get(exponent)
        if bucket is None:
            bucket = self._buckets[exponent] = [0, 0]
        bucket[0] += 1
        bucket[1] += size_bytes

    def sizes(self, scale: float = 1.0) -> Sizes | None:
        """The distribution of sizes.

        The quantile q is a size that a share q of the files does not exceed.

        ``scale`` is the number of files that each counted one represents.
        """
        if not self.files:
            return None
        buckets = [
            SizeBucket(
                le_bytes=1 << exponent if exponent >= 0 else 0,
                files=round(files * scale),
                bytes=round(size * scale),
            )
            for exponent, (files, size) in sorted(self._buckets.items())
        ]
        return Sizes(
            mean_bytes=self.bytes / self.files,
            p50_bytes=self._quantile(0.5),
            p90_bytes=self._quantile(0.9),
            p99_bytes=self._quantile(0.99),
            max_bytes=self._max_bytes,
            buckets=buckets,
        )

    def _coarsen(self) -> None:
        self._is_exact = False
        exact, self._by_size = self._by_size, {}
        for size, files in exact.items():
            middle = _middle(size)
            self._by_size[middle] = self._by_size.get(middle, 0) + files

    def _quantile(self, share: float) -> int:
        seen = 0
        for size, files in sorted(self._by_size.items()):
            seen += files
            if seen >= share * self.files:
                return min(size, self._max_bytes)
        return self._max_bytes


def _middle(size_bytes: int) -> int:
    """The middle of the sizes with the same leading bits."""
    rest = max(0, size_bytes.bit_length() - _BITS)
    return (size_bytes >> rest << rest) + (1 << rest >> 1)


class Sampled(NamedTuple):
    """A file in the sample."""

    path: str
    size_bytes: int
    start_bytes: int
    """The offset of its first byte with all files laid end to end."""


class ByteSample:
    """A sample of files in which each byte of the tree is equally likely.

    All files are thought of as laid end to end, with a mark at each multiple of the stride. The
    files with a mark are kept. The stride is 0 (all files) until the sample is full, and doubles
    each time it is full again. So one walk is enough, and the tree's size need not be known.
    """

    def __init__(self, capacity: int) -> None:
        self.files: list[Sampled] = []
        self.stride_bytes = 0
        self._capacity = capacity
        self._end_bytes = 0

    def add(self, directory: str, name: str, size_bytes: int) -> None:
        """Add a file if it belongs in the sample; an empty file never does."""
        start = self._end_bytes
        self._end_bytes += size_bytes
        if size_bytes and self._holds_mark(start, size_bytes):
            self.files.append(Sampled(directory + name, size_bytes, start))
            while len(self.files) > self._capacity:
                self._thin()

    def _thin(self) -> None:
        self.stride_bytes = 2 * self.stride_bytes or max(1, 2 * self._end_bytes // self._capacity)
        self.files = [
            file for file in self.files if self._holds_mark(file.start_bytes, file.size_bytes)
        ]

    def _holds_mark(self, start_bytes: int, size_bytes: int) -> bool:
        stride = self.stride_bytes
        if not stride:
            return True
        # Marks are in the middle of each stride, so that the first file is not preferred.
        first = start_bytes + stride // 2
        return -(-first // stride) * stride < first + size_bytes

    def weight_bytes(self, file: Sampled) -> int:
        """Bytes of the tree that a sampled file represents: its own, or a stride if larger."""
        return max(file.size_bytes, self.stride_bytes)
