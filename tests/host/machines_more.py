"""More machines: NVMe paths, network volumes, btrfs, ZFS, bonds, musl, a silent sysfs."""

# ruff: noqa: E501  # what a kernel prints stays on one line

from machine import Machine
from machines import GIB_KB, HDD, SSD, XEON, systemd
from machines_hindered import two_nodes
from machines_stacks import CAPTURES as STACKS
from parts import (
    Queue,
    base,
    block,
    ethernet,
    loopback,
    memory,
    mounts,
    nginx,
    partition,
    running_nginx,
    scsi_disk,
)

from nginx_tune.documents.facts import Link
from nginx_tune.documents.inspection import Request
from nginx_tune.host.door import ProgramResult

NVME = Queue(rotational=0, nr_requests=1023, queues=8, scheduler="[none] mq-deadline")


def _server(release: str = "6.8.0-85-generic") -> Machine:
    machine = Machine()
    base(machine, release=release, cpus=8, model=XEON)
    memory(machine, total_kb=32 * GIB_KB, free_kb=4 * GIB_KB, cached_kb=22 * GIB_KB)
    systemd(machine, cpus="0-7")
    loopback(machine)
    nginx(machine, "1.28.0")
    return machine


def sata_ssd() -> tuple[Machine, Request]:
    """One SATA SSD, partitioned; a service that runs with a CPU and memory limit of systemd."""
    machine = _server()
    disk = scsi_disk(
        machine, "sda", "8:0", model="Samsung SSD 870 EVO 1TB", terabytes=1.0, queue=SSD
    )
    partition(machine, disk, 1, "8:1", 200000000)
    partition(machine, disk, 2, "8:2", 1700000000)
    mounts(
        machine,
        "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
        "40 28 8:2 / /srv rw,relatime shared:30 - ext4 /dev/sda2 rw",
        "41 40 8:2 /export /srv/export\\040files rw,relatime shared:30 - ext4 /dev/sda2 rw",
    )
    ethernet(machine, "eno1", "igb", megabits=1000)
    service = "/sys/fs/cgroup/system.slice/nginx.service"
    machine.write(f"{service}/memory.high", "2147483648\n")
    machine.write(f"{service}/cpu.max", "400000 100000\n")
    running_nginx(
        machine,
        master=812,
        workers=8,
        cpus="0-7",
        cgroup="0::/system.slice/nginx.service\n",
        arguments="/usr/sbin/nginx -c nginx-edge.conf -g daemon on; env TOKEN=hunter2;",
        threads=33,
    )
    return machine, Request()


def nvme_multipath() -> tuple[Machine, Request]:
    """A shared NVMe namespace with two paths: the visible head has no queues of its own."""
    machine = _server()
    head = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"
    block(machine, head, "259:1", 7501476528, None)
    machine.link("/sys/block/nvme0n1", "../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1")
    machine.directories.add(f"{head}/slaves")
    machine.write(f"{head}/queue/rotational", "0\n")
    machine.write(f"{head}/queue/read_ahead_kb", "128\n")
    machine.write(f"{head}/device/model", "KIOXIA KCM6XRUL3T84                     \n")
    for path, controller in enumerate(("0000:3b:00.0/nvme/nvme0", "0000:86:00.0/nvme/nvme1")):
        name = f"nvme0c{path}n1"
        block(
            machine,
            f"/sys/devices/pci0000:3a/{controller}/{name}",
            f"259:{2 + path}",
            7501476528,
            NVME,
        )
        machine.write(f"/sys/devices/pci0000:3a/{controller}/transport", "pcie\n")
    system = scsi_disk(
        machine, "sda", "8:0", model="INTEL SSDSC2KB240G8", terabytes=0.24, queue=SSD
    )
    partition(machine, system, 2, "8:2", 400000000)
    mounts(
        machine,
        "28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw",
        "40 28 259:1 / /srv/media rw,noatime shared:30 - xfs /dev/nvme0n1 rw",
    )
    ethernet(machine, "enp59s0f0np0", "mlx5_core", megabits=100000)
    return machine, Request()


def ebs_volume() -> tuple[Machine, Request]:
    """A network volume that looks like a local NVMe disk, beside one that is local."""
    machine = _server("6.8.0-1029-aws")
    models = (
        "Amazon Elastic Block Store",
        "Amazon Elastic Block Store",
        "Amazon EC2 NVMe Instance Storage",
    )
    for number, model in enumerate(models):
        directory = (
            f"/sys/devices/pci0000:00/0000:00:{4 + number:02x}.0/nvme/nvme{number}/nvme{number}n1"
        )
        block(machine, directory, f"259:{number}", 419430400 * (number + 1), NVME)
        machine.write(f"{directory}/device/model", f"{model:<40}\n")
        machine.write(f"{directory}/device/transport", "pcie\n")
    root = "/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1"
    partition(machine, root, 1, "259:8", 419000000)
    mounts(
        machine,
        "28 1 259:8 / / rw,relatime shared:1 - ext4 /dev/root rw,discard",
        "40 28 259:1 / /data rw,noatime shared:30 - xfs /dev/nvme1n1 rw",
        "41 28 259:2 / /mnt/local rw,noatime shared:31 - xfs /dev/nvme2n1 rw",
        "42 28 0:51 / /mnt/share rw,relatime shared:32 - nfs4 10.20.0.7:/export rw,vers=4.2,addr=10.20.0.7",
    )
    ethernet(machine, "ens5", "ena", megabits=None, mtu=9001)
    return machine, Request(
        paths=["/data/cache", "/mnt/local/cache", "/mnt/share"],
        link_speeds={"ens5": 12_500_000_000},
    )


def btrfs_two_disks() -> tuple[Machine, Request]:
    """One btrfs on two disks, two subvolumes mounted: anonymous devices, one group of disks."""
    machine = _server("6.12.48+deb13-amd64")
    uuid = "6f1c2b7a-93d4-4f0e-8c11-2a9b7c5d3e10"
    disks = [
        scsi_disk(
            machine,
            f"sd{name}",
            f"8:{16 * number}",
            model="WDC WD80EFZX-68UW8N0",
            terabytes=8.001,
            queue=HDD,
        )
        for number, name in enumerate("bc", start=1)
    ]
    for disk in disks:
        name = disk.rpartition("/")[2]
        machine.link(
            f"/sys/fs/btrfs/{uuid}/devices/{name}", "../../../.." + disk.removeprefix("/sys")
        )
        machine.write(f"/dev/{name}", "")
    machine.directories.add("/sys/fs/btrfs/features")
    system = scsi_disk(
        machine, "sda", "8:0", model="KINGSTON SA400S37240G", terabytes=0.24, queue=SSD
    )
    partition(machine, system, 1, "8:1", 460000000)
    mounts(
        machine,
        "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
        "40 28 0:43 /@www /srv/www rw,noatime shared:30 - btrfs /dev/sdb rw,space_cache=v2,subvolid=256,subvol=/@www",
        "41 28 0:43 /@cache /srv/cache rw,noatime shared:31 - btrfs /dev/sdb rw,space_cache=v2,subvolid=257,subvol=/@cache",
    )
    ethernet(machine, "eno1", "igb", megabits=1000)
    return machine, Request()


def zfs() -> tuple[Machine, Request]:
    """A ZFS pool: its disks do not show in sysfs, its data is not in the page cache."""
    machine = _server()
    disk = scsi_disk(machine, "sda", "8:0", model="INTEL SSDSC2KB240G8", terabytes=0.24, queue=SSD)
    partition(machine, disk, 2, "8:2", 400000000)
    mounts(
        machine,
        "28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw",
        "40 28 0:44 / /tank/www rw,noatime shared:30 - zfs tank/www rw,xattr,posixacl",
    )
    ethernet(machine, "eno1", "igb", megabits=1000)
    return machine, Request()


def bond_vlan() -> tuple[Machine, Request]:
    """Two 10-Gbit ports bonded, a VLAN on the bond, a bridge over a virtual machine's tap."""
    machine = _server()
    disk = scsi_disk(
        machine, "sda", "8:0", model="HGST HUS724020AL", terabytes=2.0, queue=HDD, vendor="HGST"
    )
    partition(machine, disk, 1, "8:1", 3900000000)
    mounts(machine, "28 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw")
    for port in ("eno1", "eno2"):
        ethernet(machine, port, "i40e", megabits=10000)
    machine.write("/sys/class/net/bond0/bonding/mode", "802.3ad 4\n")
    for name, kind, speed, lower in (
        ("bond0", "bond", 20 * 10**9, ["eno1", "eno2"]),
        ("bond0.100", "vlan", None, ["bond0"]),
        ("br0", "bridge", 10**10, ["tap0"]),
        ("tap0", "tun", 10**10, []),
    ):
        machine.network_links.append(
            Link(
                name=name, kind=kind, state="up", mtu=1500, speed_bits_per_second=speed, lower=lower
            )
        )
    return machine, Request()


def hybrid_cgroups() -> tuple[Machine, Request]:
    """Memory on cgroup version 1, CPU on version 2: each controller has a version of its own."""
    machine = _server("5.15.0-160-generic")
    machine.write(
        "/proc/self/cgroup",
        "4:memory:/batch/web\n2:blkio:/\n1:name=systemd:/batch/web\n0::/batch.slice/web\n",
    )
    memory_root = "/sys/fs/cgroup/memory"
    for path, limit in (
        ("", 9223372036854771712),
        ("/batch", 4294967296),
        ("/batch/web", 8589934592),
    ):
        machine.write(f"{memory_root}{path}/memory.limit_in_bytes", f"{limit}\n")
        machine.write(
            f"{memory_root}{path}/memory.stat",
            "cache 1073741824\nrss 536870912\nhierarchical_memory_limit 4294967296\n"
            "total_cache 2147483648\ntotal_rss 1073741824\n",
        )
    unified = "/sys/fs/cgroup/unified"
    machine.write(f"{unified}/batch.slice/cpu.max", "300000 100000\n")
    machine.write(f"{unified}/batch.slice/web/cpu.max", "max 100000\n")
    machine.write(f"{unified}/batch.slice/web/cpuset.cpus.effective", "0-5\n")
    disk = scsi_disk(machine, "sda", "8:0", model="INTEL SSDSC2KB240G8", terabytes=0.24, queue=SSD)
    partition(machine, disk, 2, "8:2", 400000000)
    mounts(
        machine,
        "21 28 0:21 / /proc rw - proc proc rw",
        "22 28 0:22 / /sys rw - sysfs sysfs rw",
        "23 22 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs ro,mode=755",
        "24 23 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate",
        "25 23 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw",
        system="",
    )
    ethernet(machine, "eno1", "igb", megabits=1000)
    return machine, Request()


ALPINE = (
    "nginx version: nginx/1.28.0\nbuilt with OpenSSL 3.5.0 8 Apr 2025\nTLS SNI support enabled\n"
    "configure arguments: --prefix=/var/lib/nginx --sbin-path=/usr/sbin/nginx "
    "--modules-path=/usr/lib/nginx/modules --conf-path=/etc/nginx/nginx.conf "
    "--pid-path=/run/nginx/nginx.pid --with-pcre-jit --with-http_ssl_module --with-threads\n"
)


def alpine() -> tuple[Machine, Request]:
    """Alpine in a virtual machine on aarch64: no model name, no systemd, a virtio-scsi disk."""
    machine = Machine()
    base(machine, release="6.12.40-0-virt", cpus=2, model=XEON, arch="aarch64")
    machine.write(
        "/proc/cpuinfo",
        "".join(
            f"processor\t: {n}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm aes pmull sha1\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n"
            for n in range(2)
        ),
    )
    memory(machine, total_kb=2 * GIB_KB, free_kb=GIB_KB, cached_kb=GIB_KB // 2)
    systemd(machine, cpus="0-1")
    machine.write("/proc/self/cgroup", "0::/openrc.nginx\n")
    scsi_disk(
        machine,
        "sda",
        "8:0",
        model="QEMU HARDDISK",
        vendor="QEMU",
        terabytes=0.02,
        queue=HDD,
        queue_depth=128,
    )
    mounts(machine, "28 1 8:0 / / rw,relatime - ext4 /dev/sda rw")
    loopback(machine)
    ethernet(machine, "eth0", "virtio_net", megabits=None)
    machine.programs["/usr/sbin/nginx"] = ProgramResult(0, "", ALPINE)
    musl = "musl libc (aarch64)\nVersion 1.2.5\nDynamic Program Loader\n"
    machine.programs["/usr/bin/ldd"] = ProgramResult(1, "", musl)
    return machine, Request()


def silent_sysfs() -> tuple[Machine, Request]:
    """A locked-down container: no sysfs, no cgroup, no nginx; nearly everything is unknown."""
    machine = Machine()
    base(machine, release="6.6.0-gke", cpus=4, model=XEON)
    for path in [path for path in machine.files if path.startswith("/sys/")]:
        del machine.files[path]
    del machine.sockets[None]
    memory(machine, total_kb=4 * GIB_KB, free_kb=GIB_KB, cached_kb=2 * GIB_KB)
    machine.write("/proc/self/status", "Name:\tnginx-tune\nUid:\t1000\t1000\t1000\t1000\n")
    mounts(machine, "28 1 8:1 / / rw,relatime - ext4 /dev/root rw", system="")
    return machine, Request()


CAPTURES = {
    **STACKS,
    "two-nodes": two_nodes,
    "sata-ssd": sata_ssd,
    "nvme-multipath": nvme_multipath,
    "ebs-volume": ebs_volume,
    "btrfs-two-disks": btrfs_two_disks,
    "zfs": zfs,
    "bond-vlan": bond_vlan,
    "hybrid-cgroups": hybrid_cgroups,
    "alpine": alpine,
    "silent-sysfs": silent_sysfs,
}
