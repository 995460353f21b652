"""More machines: disks behind SAN paths, an ailing array, a ZFS pool, nginx in a container."""

# ruff: noqa: E501  # what a kernel prints stays on one line

from machine import Machine
from machines import DOCKER_ID, GIB_KB, HDD, SSD, XEON, systemd
from parts import (
    base,
    block,
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

from nginx_tune.documents.facts_machine import Listening, ListenSocket
from nginx_tune.documents.inspection import Request
from nginx_tune.host.door import ProgramResult


def _server(*, cpus: int = 8) -> Machine:
    machine = Machine()
    base(machine, release="6.1.0-40-amd64", cpus=cpus, model=XEON)
    memory(machine, total_kb=64 * GIB_KB, free_kb=8 * GIB_KB, cached_kb=40 * GIB_KB)
    systemd(machine, cpus=f"0-{cpus - 1}")
    loopback(machine)
    ethernet(machine, "eno1", "ixgbe", megabits=10000)
    nginx(machine, "1.28.0")
    return machine


def _system_disk(machine: Machine) -> str:
    disk = scsi_disk(
        machine, "sdz", "65:144", model="INTEL SSDSC2KB240G8", terabytes=0.24, queue=SSD
    )
    partition(machine, disk, 2, "65:146", 400000000)
    return "28 1 65:146 / / rw,relatime shared:1 - ext4 /dev/sdz2 rw"


def _mapped(machine: Machine, number: int, name: str, uuid: str, over: list[str]) -> str:
    directory = stacked(machine, f"dm-{number}", f"253:{number}", over, 800000000)
    machine.write(f"{directory}/dm/name", f"{name}\n")
    machine.write(f"{directory}/dm/uuid", f"{uuid}\n")
    return directory


def san_multipath() -> tuple[Machine, Request]:
    """Two SAN disks, each by two paths; striped, thin and encrypted volumes over them."""
    machine = _server()
    paths = []
    for number, name in enumerate("abcd"):
        directory = (
            f"/sys/devices/pci0000:3a/0000:3b:00.{number % 2}/host{number}/rport-{number}:0-1/"
            f"target{number}:0:0/{number}:0:0:0/block/sd{name}"
        )
        block(machine, directory, f"8:{16 * number}", 2147483648, SSD)
        machine.write(f"{directory}/device/vendor", "PURE    \n")
        machine.write(f"{directory}/device/model", "FlashArray      \n")
        machine.write(f"{directory}/device/queue_depth", "32\n")
        paths.append(directory)
    first = _mapped(machine, 0, "mpatha", "mpath-3624a9370b5b1d2e3f4a5c6d700011a2b", paths[:2])
    second = _mapped(machine, 1, "mpathb", "mpath-3624a9370b5b1d2e3f4a5c6d700011a2c", paths[2:])
    lvm = "LVM-wGt0Q8cV0Gk3Hn2S1aLzRr5bXyUe7TqPmKjNhB6fDcVxZ9"
    media = _mapped(machine, 2, "vg0-media", lvm, [first, second])
    meta = _mapped(machine, 3, "vg0-pool_tmeta", f"{lvm}-tmeta", [first])
    data = _mapped(machine, 4, "vg0-pool_tdata", f"{lvm}-tdata", [first])
    pool = _mapped(machine, 5, "vg0-pool-tpool", f"{lvm}-tpool", [meta, data])
    cache = _mapped(machine, 6, "vg0-cache", lvm, [pool])
    _mapped(machine, 7, "private", "CRYPT-LUKS2-5f0e7c9ab1d24e6f8a3b2c1d0e9f8a7b-private", [second])
    machine.programs["/usr/sbin/dmsetup"] = ProgramResult(
        0,
        "mpatha: 0 2147483648 multipath 0 1 alua 1 1 service-time 0 2 2 8:0 1 1 8:16 1 1 \n"
        "mpathb: 0 2147483648 multipath 0 1 alua 1 1 service-time 0 2 2 8:32 1 1 8:48 1 1 \n"
        "private: 0 2147479552 crypt aes-xts-plain64 :64:logon:cryptsetup:5f0e7c9a-b1d2-4e6f-8a3b-2c1d0e9f8a7b-d0 0 253:1 4096\n"
        "vg0-cache: 0 419430400 thin 253:5 1\n"
        "vg0-media: 0 1677721600 striped 2 128 253:0 2048 253:1 2048\n"
        "vg0-pool-tpool: 0 838860800 thin-pool 253:3 253:4 128 0 0 \n"
        "vg0-pool_tdata: 0 838860800 linear 253:0 838862848\n"
        "vg0-pool_tmeta: 0 212992 linear 253:0 1677723648\n",
        "",
    )
    assert media
    assert cache
    mounts(
        machine,
        _system_disk(machine),
        "40 28 253:2 / /srv/media rw,noatime shared:30 - xfs /dev/mapper/vg0-media rw",
        "41 28 253:6 / /var/cache/nginx rw,noatime shared:31 - xfs /dev/mapper/vg0-cache rw",
        "42 28 253:7 / /srv/private rw,noatime shared:32 - ext4 /dev/mapper/private rw",
    )
    return machine, Request()


def ailing_array() -> tuple[Machine, Request]:
    """A RAID6 that rebuilds a failed member, an SSD as bcache before it; SMT, two NUMA nodes."""
    machine = _server(cpus=32)
    machine.write("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,16\n")
    machine.write("/sys/devices/system/node/online", "0-1\n")
    disks = [
        scsi_disk(
            machine,
            f"sd{name}",
            f"8:{16 * number}",
            model="ST12000NM0008-2H",
            terabytes=12.0,
            queue=HDD,
        )
        for number, name in enumerate("abcdef")
    ]
    array = stacked(machine, "md127", "9:127", disks, 93752688640)
    for name, text in (
        ("level", "raid6\n"),
        ("raid_disks", "6\n"),
        ("degraded", "1\n"),
        ("sync_action", "recover\n"),
        ("sync_completed", "5859543040 / 23438172160\n"),
    ):
        machine.write(f"{array}/md/{name}", text)
    ssd = scsi_disk(machine, "sdg", "8:96", model="SAMSUNG MZ7KM480", terabytes=0.48, queue=SSD)
    cached = stacked(machine, "bcache0", "252:0", [array, ssd], 93752688624)
    machine.write(f"{cached}/bcache/cache_mode", "writethrough [writeback] writearound none\n")
    machine.write(f"{cached}/bcache/state", "dirty\n")
    mounts(
        machine,
        _system_disk(machine),
        "40 28 252:0 / /srv/archive rw,noatime shared:30 - xfs /dev/bcache0 rw",
    )
    machine.activity = {"sda": 0.93, "sdb": 0.91, "sdc": 0.9, "sdd": 0.92, "sde": 0.0, "sdf": 0.99}
    return machine, Request(watch_seconds=1.0)


def zfs_pool() -> tuple[Machine, Request]:
    """A ZFS pool whose disks ``zpool`` tells, and whose cache is the ARC."""
    machine = _server()
    lines = [_system_disk(machine)]
    rows = []
    for number, name in enumerate("abcd"):
        disk = scsi_disk(
            machine,
            f"sd{name}",
            f"8:{16 * number}",
            model="WDC WUH721414ALE6L4",
            terabytes=14.0,
            queue=HDD,
        )
        partition(machine, disk, 1, f"8:{16 * number + 1}", 27344740352)
        machine.link(f"/sys/class/block/sd{name}1", f"../..{disk.removeprefix('/sys')}/sd{name}1")
        rows.append(f"\t/dev/sd{name}1\t12.7T\t-\t-\t-\t-\t-\t-\t-\tONLINE\n")
    machine.programs["/usr/sbin/zpool"] = ProgramResult(
        0,
        "tank\t25.4T\t11.2T\t14.2T\t-\t-\t6%\t44%\t1.00x\tONLINE\t-\n"
        "\tmirror-0\t12.7T\t5.6T\t7.1T\t-\t-\t6%\t44.1%\t-\tONLINE\n"
        + rows[0] + rows[1]
        + "\tmirror-1\t12.7T\t5.6T\t7.1T\t-\t-\t6%\t44.0%\t-\tONLINE\n"
        + rows[2] + rows[3],
        "",
    )  # fmt: skip
    machine.write(
        "/proc/spl/kstat/zfs/arcstats",
        "9 1 0x01 147 39984 4322146377 864000123456789\nname                            type data\n"
        "hits                            4    917264421\nmisses                          4    3312345\n"
        "c                               4    33285996544\nc_min                           4    2147483648\n"
        "c_max                           4    34359738368\nsize                            4    33012345678\n",
    )
    lines.append("40 28 0:44 / /tank/www rw,noatime shared:30 - zfs tank/www rw,xattr,posixacl")
    mounts(machine, *lines)
    return machine, Request()


CONTAINER = 4026532601
CONTAINER_NETWORK = 4026532604


def container_nginx() -> tuple[Machine, Request]:
    """nginx of Alpine in a container, seen from its host.

    An old worker outlives a reload; data comes from a volume on another disk; kTLS is in use.
    """
    machine = _server()
    root, data = (
        scsi_disk(
            machine,
            f"sd{name}",
            f"8:{16 * n}",
            model="SAMSUNG MZ7LH1T9HMLT",
            terabytes=1.92,
            queue=SSD,
        )
        for n, name in enumerate("ab")
    )
    partition(machine, root, 1, "8:1", 3700000000)
    assert data
    cgroup = f"0::/system.slice/docker-{DOCKER_ID}.scope\n"
    running_nginx(
        machine, master=4711, workers=2, cpus="0-3", cgroup=cgroup, arguments="nginx -g daemon off;"
    )
    everything = [4711, 4712, 4713, 4700]
    ages = {4711: 432000, 4712: 600, 4713: 600, 4700: 86400}
    for pid in everything:
        process(
            machine,
            pid,
            cpus="0-3",
            cgroup=cgroup,
            name="nginx",
            uid=0 if pid == 4711 else 101,
            parent=4690 if pid == 4711 else 4711,
            nofile=(1048576, 1048576),
            mount_namespace=CONTAINER,
            network_namespace=CONTAINER_NETWORK,
            age_seconds=ages[pid],
        )
    machine.comms[4700] = "nginx"
    machine.write("/proc/4700/cmdline", "nginx: worker process is shutting down\0")
    machine.write(
        "/proc/4711/maps",
        "5566a0000000-5566a0100000 r-xp 00000000 00:71 99 /usr/sbin/nginx\n"
        "7f0000000000-7f0000080000 r-xp 00000000 00:71 12 /lib/ld-musl-x86_64.so.1\n"
        "7f0000100000-7f0000180000 r-xp 00000000 00:71 31 /lib/libssl.so.3\n",
    )
    machine.write(
        "/proc/4711/net/tls_stat",
        "TlsCurrTxSw                    \t214\nTlsCurrRxSw                    \t0\n"
        "TlsCurrTxDevice                \t0\nTlsTxSw                        \t99120\n",
    )
    overlay = f"/var/lib/docker/overlay2/{DOCKER_ID}"
    for layer in ("/var/lib/docker/overlay2/l/ABCDEF", f"{overlay}/diff"):
        machine.directories.add(layer)
    machine.write(
        "/proc/4711/mountinfo",
        "612 498 0:71 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/ABCDEF,"
        f"upperdir={overlay}/diff,workdir={overlay}/work\n"
        "613 612 0:74 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw\n"
        "614 612 0:75 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755\n"
        "640 612 8:16 /www /data/www ro,relatime - xfs /dev/sdb rw\n",
    )
    # The host has a directory of the same name; with --pid that of nginx is meant.
    machine.directories.add("/usr/share/nginx/html")
    for path in ("", "/data/www", "/usr/share/nginx/html"):
        machine.directories.add(f"/proc/4711/root{path}")
    # Its links are absolute in its own root.
    machine.link("/proc/4711/root/srv", "/data")
    mounts(
        machine,
        "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
        "40 28 8:16 / /mnt/volumes rw,noatime shared:30 - xfs /dev/sdb rw",
    )
    machine.texts["/proc/4711/exe"] = (
        "nginx version: nginx/1.29.3\nbuilt with OpenSSL 3.5.4 30 Sep 2025\n"
        "configure arguments: --prefix=/etc/nginx --sbin-path=/usr/sbin/nginx "
        "--conf-path=/etc/nginx/nginx.conf --pid-path=/run/nginx.pid --with-threads "
        "--with-http_ssl_module --with-http_v2_module\n"
    )
    machine.sockets[4711] = Listening(
        somaxconn=128,
        sockets=[
            ListenSocket(
                address="0.0.0.0", port=80, inode=31415, backlog=128, accept_queue=129, drops=7040
            ),
            ListenSocket(
                address="0.0.0.0", port=80, inode=31416, backlog=128, accept_queue=0, drops=0
            ),
        ],
    )
    return machine, Request(
        pid=4711, paths=["/srv/www", "/usr/share/nginx/html", "/mnt/volumes/www"]
    )


CAPTURES = {
    "san-multipath": san_multipath,
    "ailing-array": ailing_array,
    "zfs-pool": zfs_pool,
    "container-nginx": container_nginx,
}
