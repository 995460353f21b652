"""A host on which much holds nginx back: the facts that need a large or an ailing machine."""

from machine import Machine
from machines import GIB_KB, SSD, XEON
from msgspec.structs import replace
from parts import (
    SWAPS_HEAD,
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
)

from nginx_tune.documents.facts import Queues, Rings
from nginx_tune.documents.inspection import Request

SERVICE = "0::/system.slice/nginx.service\n"
CPUS = 32


def two_nodes() -> tuple[Machine, Request]:
    """Two sockets, the NIC on one and the disk on the other; a quota, swap, a shaped uplink."""
    machine = Machine()
    base(machine, release="6.8.0-85-generic", cpus=CPUS, model=XEON)
    machine.write("/sys/devices/system/node/online", "0-1\n")
    machine.write("/sys/devices/system/cpu/isolated", "30-31\n")
    machine.write(
        "/proc/stat", "cpu  812345 1200 412345 91234567 81234 0 91234 1912345 0 0\nintr 1\n"
    )
    for cpu in range(CPUS):
        policy = f"/sys/devices/system/cpu/cpufreq/policy{cpu}"
        machine.write(f"{policy}/scaling_governor", "powersave\n" if cpu else "performance\n")
        machine.write(f"{policy}/scaling_driver", "acpi-cpufreq\n")
    memory(machine, total_kb=64 * GIB_KB, free_kb=2 * GIB_KB, cached_kb=20 * GIB_KB)
    machine.files["/proc/meminfo"] = machine.files["/proc/meminfo"].replace(
        "Dirty:              1384 kB", "Dirty:           8388608 kB"
    )
    machine.write(
        "/proc/swaps",
        SWAPS_HEAD
        + "/dev/nvme0n1p3                          partition\t8388604\t\t4194302\t\t-2\n"
        + "/swap\\040file                            file\t\t2097148\t\t0\t\t-3\n"
        + "/dev/zram0                              partition\t4194300\t\t1048576\t\t100\n",
    )
    pages = "/sys/kernel/mm/transparent_hugepage"
    for name in ("enabled", "defrag"):
        machine.write(f"{pages}/{name}", "[always] madvise never\n")
    for path in ("/system.slice", "/system.slice/nginx.service"):
        cgroup_v2(machine, path)
    machine.write("/sys/fs/cgroup/system.slice/nginx.service/cpu.max", "800000 100000\n")
    machine.write(
        "/sys/fs/cgroup/system.slice/nginx.service/cpu.stat",
        "usage_usec 712345678\nuser_usec 412345678\nsystem_usec 300000000\nnr_periods 91234\n"
        "nr_throttled 12345\nthrottled_usec 2123456789\nnr_bursts 0\nburst_usec 0\n",
    )
    process(machine, "self", cpus=f"0-{CPUS - 1}", cgroup="0::/\n")
    disk = "/sys/devices/pci0000:80/0000:80:03.0/nvme/nvme0/nvme0n1"
    block(
        machine, disk, "259:1", 7501476528,
        Queue(rotational=0, nr_requests=1023, queues=8, scheduler="[none] mq-deadline"),
    )  # fmt: skip
    machine.write("/sys/devices/pci0000:80/0000:80:03.0/numa_node", "1\n")
    machine.write("/sys/devices/pci0000:80/0000:80:03.0/nvme/nvme0/transport", "pcie\n")
    machine.write(f"{disk}/device/model", "KIOXIA KCM6XRUL3T84                     \n")
    old = scsi_disk(
        machine, "sdb", "8:16", model="ST8000NM000A-2KE101", terabytes=8.001,
        queue=Queue(rotational=1, scheduler="[none] mq-deadline"), queue_depth=1,
    )  # fmt: skip
    partition(machine, old, 1, "8:17", 15627796480)
    system = scsi_disk(
        machine, "sda", "8:0", model="INTEL SSDSC2KB240G8", terabytes=0.24, queue=SSD
    )
    partition(machine, system, 2, "8:2", 400000000)
    mounts(
        machine,
        "28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw",
        "40 28 259:1 / /srv/media rw,noatime shared:30 - xfs /dev/nvme0n1 rw",
        "41 28 8:17 / /srv/archive rw,noatime shared:31 - ext4 /dev/sdb1 rw",
    )
    loopback(machine)
    ethernet(machine, "ens1", "mlx5_core", megabits=100000, numa_node=0)
    ethernet(machine, "ens2", "igb", megabits=1000, queues=1, numa_node=0)
    _congested(machine)
    nginx(machine, "1.28.0")
    running_nginx(machine, master=812, workers=8, cpus=f"0-{CPUS - 1}", cgroup=SERVICE)
    for name in ("self", "812"):
        machine.write(f"/proc/{name}/net/softnet_stat", "0a1b2c3d 0001e240 000f4240\n" * 4)
        machine.write(
            f"/proc/{name}/net/sockstat", "TCP: inuse 90123 orphan 3 tw 812 alloc 9 mem 1026200\n"
        )
        machine.files[f"/proc/{name}/net/snmp"] = machine.files[f"/proc/{name}/net/snmp"].replace(
            " 3123456 0 ", " 31234567 0 "
        )
        machine.files[f"/proc/{name}/net/netstat"] = (
            "TcpExt: ListenOverflows ListenDrops TCPReqQFullDrop\nTcpExt: 912 1000 44\n"
        )
    machine.write("/proc/sys/net/netfilter/nf_conntrack_count", "251234\n")
    machine.write("/proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
    return machine, Request()


def _congested(machine: Machine) -> None:
    """Interrupts on one CPU and a shaper on the first NIC, lost packets on the second."""
    for name in list(machine.files):
        if name.startswith("/proc/irq/"):
            machine.write(name, "0\n")
    machine.write("/sys/class/net/ens2/statistics/rx_missed_errors", "81234\n")
    first, second = machine.network_links[-2:]
    machine.network_links[-2:] = [
        replace(first, qdisc="htb"),
        replace(
            second,
            rings=Rings(rx=256, rx_max=4096),
            queues=Queues(rx=0, tx=0, rss=1),
            offloads={"gro": False, "gso": False, "sg": False, "tso": False},
        ),
    ]
