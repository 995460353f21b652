"""The machines that the captures in this directory are recorded from, one function each."""

# ruff: noqa: E501  # what a kernel prints stays on one line

from machine import Machine
from parts import (
    Queue,
    base,
    block,
    cgroup_v2,
    ethernet,
    loopback,
    memory,
    mounts,
    nginx,
    partition,
    process,
    running_nginx,
    scsi_disk,
    stacked,
)

from nginx_tune.documents.facts import Dataset, Link, Residency, SizeBucket, Sizes
from nginx_tune.documents.inspection import Request
from nginx_tune.host.door import Room

XEON = "Intel(R) Xeon(R) CPU E3-1270 v6 @ 3.80GHz"
HDD = Queue(rotational=1)
SSD = Queue(rotational=0)
SERVICE = "0::/system.slice/nginx.service\n"
SESSION = "0::/user.slice/user-1000.slice/session-7.scope\n"
GIB_KB = 1 << 20


def systemd(machine: Machine, *, cpus: str) -> None:
    """The cgroups that systemd makes, without limits."""
    for path in ("/system.slice", "/system.slice/nginx.service"):
        cgroup_v2(machine, path)
    for path in (
        "/user.slice",
        "/user.slice/user-1000.slice",
        "/user.slice/user-1000.slice/session-7.scope",
    ):
        cgroup_v2(machine, path)
    machine.write("/sys/fs/cgroup/cpuset.cpus.effective", f"{cpus}\n")
    process(machine, "self", cpus=cpus, cgroup=SESSION)


def _cached_objects(path: str, resident: float) -> Dataset:
    """A cache disk of a video CDN: 4-MiB slices with nginx's header, small files beside them."""
    mib = 1 << 20
    largest = 4 * mib + 812
    buckets = [
        SizeBucket(le_bytes=mib // 4, files=90_000, bytes=11_000 * mib),
        SizeBucket(le_bytes=2 * mib, files=20_000, bytes=29_000 * mib),
        SizeBucket(le_bytes=8 * mib, files=1_640_000, bytes=1_640_000 * largest),
    ]
    files, size = sum(b.files for b in buckets), sum(b.bytes for b in buckets)
    return Dataset(
        path=path,
        files=files,
        bytes=size,
        sizes=Sizes(
            mean_bytes=size / files,
            p50_bytes=largest,
            p90_bytes=largest,
            p99_bytes=largest,
            max_bytes=largest,
            buckets=buckets,
        ),
        residency=Residency(
            ratio=resident, method="cachestat", trusted=True, coverage_ratio=0.0025
        ),
    )


def three_disk_node() -> tuple[Machine, Request]:
    """A CDN node: three hard disks of their own for the cache, an SSD for the system."""
    machine = Machine()
    base(
        machine,
        release="6.12.48+deb13-amd64",
        cpus=16,
        model="Intel(R) Xeon(R) E-2288G CPU @ 3.70GHz",
    )
    machine.write("/lib/modules/6.12.48+deb13-amd64/kernel/net/tls/tls.ko.xz", "")
    memory(machine, total_kb=64 * GIB_KB - 1324892, free_kb=1210324, cached_kb=60 * GIB_KB)
    systemd(machine, cpus="0-15")
    lines = []
    for number, name in enumerate("abc"):
        filesystem = "xfs" if name == "c" else "ext4"
        device = f"8:{16 * number}"
        scsi_disk(
            machine, f"sd{name}", device, model="ST8000NM000A-2KE101", terabytes=8.001, queue=HDD
        )
        lines.append(
            f"{40 + number} 28 {device} / /cache/disk{number + 1} rw,noatime shared:{30 + number}"
            f" - {filesystem} /dev/sd{name} rw"
        )
    system = scsi_disk(
        machine, "sdd", "8:48", model="INTEL SSDSC2KB240G8", terabytes=0.24, queue=SSD
    )
    partition(machine, system, 1, "8:49", 1048576)
    partition(machine, system, 2, "8:50", 467813680)
    mounts(
        machine,
        "28 1 8:50 / / rw,relatime shared:1 - ext4 /dev/sdd2 rw,errors=remount-ro",
        "39 28 8:49 / /boot/efi rw,relatime shared:29 - vfat /dev/sdd1 rw,fmask=0077,dmask=0077",
        *lines,
    )
    machine.rooms = {
        "/": Room(235_000_000_000, 190_000_000_000),
        "/cache/disk1": Room(7_930_000_000_000, 1_500_000_000_000),
        "/cache/disk2": Room(7_930_000_000_000, 1_510_000_000_000),
        "/cache/disk3": Room(7_960_000_000_000, 1_490_000_000_000),
    }
    loopback(machine)
    ethernet(machine, "eno1", "ixgbe", megabits=10000)
    ethernet(machine, "eno2", "ixgbe", megabits=None, state="down")
    nginx(machine, "1.26.3")
    running_nginx(machine, master=1042, workers=16, cpus="0-15", cgroup=SERVICE)
    for number, resident in enumerate((0.0026, 0.0025, 0.0027), start=1):
        path = f"/cache/disk{number}"
        machine.datasets[path] = _cached_objects(path, resident)
    return machine, Request(datasets=list(machine.datasets))


def raid10_4hdd() -> tuple[Machine, Request]:
    """Four hard disks as one md RAID10: one independent disk, however many spindles."""
    machine = Machine()
    base(machine, release="6.1.0-40-amd64", cpus=24, model="Intel(R) Xeon(R) CPU E5645 @ 2.40GHz")
    memory(machine, total_kb=48 * GIB_KB - 812344, free_kb=912324, cached_kb=44 * GIB_KB)
    systemd(machine, cpus="0-23")
    members = []
    for number, name in enumerate("abcd"):
        disk = scsi_disk(
            machine,
            f"sd{name}",
            f"8:{16 * number}",
            model="ST1000NM0011",
            terabytes=1.0,
            queue=Queue(rotational=1, nr_requests=64),
        )
        members.append(partition(machine, disk, 2, f"8:{16 * number + 2}", 1900000000))
        partition(machine, disk, 1, f"8:{16 * number + 1}", 50000000)
    array = stacked(machine, "md10", "9:10", members, 3800000000)
    machine.write(f"{array}/md/level", "raid10\n")
    mirror = stacked(machine, "md0", "9:0", [m[:-1] + "1" for m in members], 50000000)
    machine.write(f"{mirror}/md/level", "raid1\n")
    mounts(
        machine,
        "28 1 9:0 / / rw,relatime shared:1 - ext4 /dev/md0 rw",
        "40 28 9:10 / /srv/media rw,noatime shared:30 - xfs /dev/md10 rw,attr2,inode64,sunit=1024",
    )
    loopback(machine)
    ethernet(machine, "enp5s0f0", "ixgbe", megabits=10000)
    nginx(machine, "1.24.0")
    return machine, Request()


def lvm_on_md() -> tuple[Machine, Request]:
    """Two logical volumes on one md mirror: both stand on the same two disks."""
    machine = Machine()
    base(machine, release="5.15.0-160-generic", cpus=8, model=XEON)
    machine.write("/proc/sys/net/ipv4/tcp_available_ulp", "espintcp mptcp tls\n")
    memory(machine, total_kb=32 * GIB_KB - 512000, free_kb=20 * GIB_KB, cached_kb=6 * GIB_KB)
    systemd(machine, cpus="0-7")
    disks = [
        scsi_disk(
            machine,
            f"sd{name}",
            f"8:{16 * number}",
            model="SAMSUNG MZ7LH1T9HMLT",
            terabytes=1.92,
            queue=SSD,
        )
        for number, name in enumerate("ab")
    ]
    parts = [partition(machine, d, 3, f"8:{16 * n + 3}", 3700000000) for n, d in enumerate(disks)]
    array = stacked(machine, "md1", "9:1", parts, 3700000000)
    for number, name in enumerate(("root", "www", "cache")):
        volume = stacked(machine, f"dm-{number}", f"253:{number}", [array], 800000000)
        machine.write(f"{volume}/dm/name", f"vg0-{name}\n")
        machine.write(f"{volume}/dm/uuid", "LVM-wGt0Q8cV0Gk3Hn2S1aLzRr5bXyUe7TqPmKjNhB6fDcVxZ9\n")
    mounts(
        machine,
        "28 1 253:0 / / rw,relatime shared:1 - ext4 /dev/mapper/vg0-root rw",
        "41 28 253:1 / /srv/www rw,relatime shared:31 - ext4 /dev/mapper/vg0-www rw",
        "42 28 253:2 / /var/cache/nginx rw,noatime shared:32 - ext4 /dev/mapper/vg0-cache rw",
    )
    loopback(machine)
    ethernet(machine, "eno1", "bnxt_en", megabits=25000)
    nginx(machine, "1.28.0")
    return machine, Request(paths=["/srv/www/example", "/var/cache/nginx/zone"])


def virtio_vm() -> tuple[Machine, Request]:
    """A cloud machine: rotational=1 and no link speed, and neither means anything."""
    machine = Machine()
    base(machine, release="6.8.0-85-generic", cpus=4, model="Intel Xeon Processor (Cascadelake)")
    memory(machine, total_kb=8 * GIB_KB - 203412, free_kb=3 * GIB_KB, cached_kb=4 * GIB_KB)
    systemd(machine, cpus="0-3")
    directory = "/sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vda"
    block(
        machine,
        directory,
        "252:0",
        335544320,
        Queue(rotational=1, nr_requests=256, queues=4, scheduler="[none] mq-deadline"),
    )
    machine.write(f"{directory}/device/vendor", "0x1af4\n")
    partition(machine, directory, 1, "252:1", 333447135)
    mounts(
        machine, "28 1 252:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard,errors=remount-ro"
    )
    loopback(machine)
    ethernet(machine, "eth0", "virtio_net", megabits=None)
    nginx(machine, "1.24.0")
    return machine, Request()


DOCKER_ID = "3f1c0b7de0c84d0d2a7a9d1f3b5c7e9f1a3c5e7092b4d6f8091a2b3c4d5e6f70"


def _container(machine: Machine, cgroup_mounts: list[str]) -> None:
    """What a container sees of its host: all block devices, none of the overlay's layers."""
    disk = "/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1"
    block(
        machine,
        disk,
        "259:0",
        1875385008,
        Queue(rotational=0, nr_requests=1023, queues=8, scheduler="[none] mq-deadline"),
    )
    machine.write(f"{disk}/device/model", "SAMSUNG MZQL2960HCJR-00A07              \n")
    machine.write(f"{disk}/device/transport", "pcie\n")
    partition(machine, disk, 2, "259:2", 1870000000)
    root = f"/var/lib/docker/overlay2/{DOCKER_ID}"
    mounts(
        machine,
        "612 498 0:71 / / rw,relatime master:213 - overlay overlay rw,lowerdir=/var/lib/docker/"
        f"overlay2/l/ABCDEF:/var/lib/docker/overlay2/l/GHIJKL,upperdir={root}/diff,workdir={root}/work",
        "613 612 0:74 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw",
        "614 612 0:75 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755",
        "616 612 0:78 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro",
        *cgroup_mounts,
        "640 612 259:2 /var/lib/docker/volumes/www/_data /srv/www ro,relatime master:1 - ext4 /dev/nvme0n1p2 rw",
        f"641 612 259:2 /var/lib/docker/containers/{DOCKER_ID}/hosts /etc/hosts rw,relatime - ext4 /dev/nvme0n1p2 rw",
        system="",
    )
    loopback(machine)
    machine.network_links.append(
        Link(name="eth0", kind="veth", state="up", mtu=1500, speed_bits_per_second=10**10)
    )
    nginx(machine, "1.27.5")


def container_v1() -> tuple[Machine, Request]:
    """A container on cgroup version 1 whose limit is set one level above it."""
    machine = Machine()
    base(machine, release="5.4.0-216-generic", cpus=8, model=XEON)
    memory(machine, total_kb=32 * GIB_KB, free_kb=12 * GIB_KB, cached_kb=14 * GIB_KB)
    pod = "/kubepods/burstable/pod8a2f8c2e-6f0b-4c43-9d35-0c2b7d1a9e11"
    own = f"{pod}/{DOCKER_ID}"
    lines = [
        f"{hierarchy}:{names}:{own}\n"
        for hierarchy, names in ((9, "memory"), (6, "cpuset"), (4, "cpu,cpuacct"), (3, "blkio"))
    ]
    process(machine, "self", cpus="2-5", cgroup="".join(lines) + f"1:name=systemd:{own}\n")
    memory_root = "/sys/fs/cgroup/memory"
    for path, limit in (
        (memory_root, 9223372036854771712),
        (f"{memory_root}{pod}", 536870912),
        (f"{memory_root}{own}", 9223372036854771712),
    ):
        machine.write(f"{path}/memory.limit_in_bytes", f"{limit}\n")
        machine.write(
            f"{path}/memory.stat",
            "cache 268435456\nrss 100663296\nmapped_file 4194304\nshmem 1048576\n"
            "hierarchical_memory_limit 536870912\ntotal_cache 301989888\n"
            "total_rss 134217728\ntotal_shmem 2097152\ntotal_inactive_file 200000000\n",
        )
    for path, quota in (("", -1), (pod, 250000), (own, -1)):
        machine.write(f"/sys/fs/cgroup/cpu,cpuacct{path}/cpu.cfs_quota_us", f"{quota}\n")
        machine.write(f"/sys/fs/cgroup/cpu,cpuacct{path}/cpu.cfs_period_us", "100000\n")
    machine.write(f"/sys/fs/cgroup/cpuset{own}/cpuset.effective_cpus", "2-5\n")
    _container(
        machine,
        [
            "617 616 0:79 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755",
            "618 617 0:31 / /sys/fs/cgroup/memory ro,relatime master:15 - cgroup cgroup rw,memory",
            "619 617 0:32 / /sys/fs/cgroup/cpuset ro,relatime master:16 - cgroup cgroup rw,cpuset",
            "620 617 0:33 / /sys/fs/cgroup/cpu,cpuacct ro,relatime master:17 - cgroup cgroup rw,cpu,cpuacct",
        ],
    )
    return machine, Request(paths=["/usr/share/nginx/html"])


def container_v2() -> tuple[Machine, Request]:
    """A container on cgroup version 2 with a namespace of its own: its group is the root."""
    machine = Machine()
    base(machine, release="6.8.0-85-generic", cpus=8, model=XEON)
    memory(machine, total_kb=32 * GIB_KB, free_kb=12 * GIB_KB, cached_kb=14 * GIB_KB)
    process(machine, "self", cpus="0-7", cgroup="0::/\n")
    cgroup_v2(
        machine, "", memory_max="1073741824", cpu_max="150000 100000", cpuset="0-7", anon=157286400
    )
    _container(
        machine,
        [
            "617 616 0:29 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime master:9 - cgroup2 cgroup rw,nsdelegate"
        ],
    )
    return machine, Request(paths=["/usr/share/nginx/html"])


CAPTURES = {
    "three-disk-node": three_disk_node,
    "raid10-4hdd": raid10_4hdd,
    "lvm-on-md": lvm_on_md,
    "virtio-vm": virtio_vm,
    "container-v1": container_v1,
    "container-v2": container_v2,
}
