"""Parts that machines are put together from: base system, cgroups, disks, mounts, nginx."""

# ruff: noqa: E501  # what a kernel prints stays on one line

from dataclasses import dataclass

from machine import Machine

from nginx_tune.documents.facts import Link, Queues, Rings
from nginx_tune.documents.facts_machine import Listening, ListenSocket
from nginx_tune.host.door import ProgramResult

SYSCTLS = {
    "fs.nr_open": "1048576",
    "fs.file-max": "9223372036854775807",
    "kernel.io_uring_disabled": "0",
    "kernel.task_delayacct": "0",
    "net.core.default_qdisc": "fq_codel",
    "net.core.netdev_max_backlog": "1000",
    "net.core.rmem_max": "212992",
    "net.core.somaxconn": "4096",
    "net.core.wmem_max": "212992",
    "net.ipv4.ip_local_port_range": "32768\t60999",
    "net.ipv4.ip_local_reserved_ports": "",
    "net.ipv4.tcp_abort_on_overflow": "0",
    "net.ipv4.tcp_available_ulp": "espintcp mptcp",
    "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.tcp_fastopen": "1",
    "net.ipv4.tcp_fin_timeout": "60",
    "net.ipv4.tcp_max_syn_backlog": "4096",
    "net.ipv4.tcp_max_tw_buckets": "262144",
    "net.ipv4.tcp_migrate_req": "0",
    "net.ipv4.tcp_notsent_lowat": "4294967295",
    "net.ipv4.tcp_rmem": "4096\t131072\t6291456",
    "net.ipv4.tcp_slow_start_after_idle": "1",
    "net.ipv4.tcp_syncookies": "1",
    "net.ipv4.tcp_tw_reuse": "2",
    "net.ipv4.tcp_wmem": "4096\t16384\t4194304",
    "vm.dirty_background_bytes": "0",
    "vm.dirty_background_ratio": "10",
    "vm.dirty_bytes": "0",
    "vm.dirty_ratio": "20",
    "vm.min_free_kbytes": "67584",
    "vm.swappiness": "60",
    "vm.vfs_cache_pressure": "100",
}

SINCE = {
    "kernel.io_uring_disabled": (6, 6),
    "kernel.task_delayacct": (5, 14),
    "net.ipv4.tcp_migrate_req": (5, 14),
}
"""Kernels before these have no such sysctl."""

SWAPS_HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"

UPTIME_SECONDS = 864_000
"""Ten days."""
ROOT_CAPABILITIES = "000001ffffffffff"

CPU_MODELS = {
    "Intel(R) Xeon(R) CPU E5645 @ 2.40GHz": (44, 2, "12288 KB", "2394.000"),
    "Intel(R) Xeon(R) CPU E3-1270 v6 @ 3.80GHz": (158, 9, "8192 KB", "3800.000"),
    "Intel(R) Xeon(R) E-2288G CPU @ 3.70GHz": (158, 13, "16384 KB", "3700.000"),
    "Intel Xeon Processor (Cascadelake)": (85, 6, "16384 KB", "2294.608"),
}
"""Model number, stepping, cache and clock by name."""


def base(machine: Machine, *, release: str, cpus: int, model: str, arch: str = "x86_64") -> None:
    """Kernel, sysctls and processors."""
    machine.write("/proc/sys/kernel/ostype", "Linux\n")
    machine.write("/proc/sys/kernel/osrelease", f"{release}\n")
    machine.write("/proc/sys/kernel/arch", f"{arch}\n")
    version = tuple(map(int, release.split(".")[:2]))
    for name, value in SYSCTLS.items():
        if version >= SINCE.get(name, (0, 0)):
            machine.write("/proc/sys/" + name.replace(".", "/"), f"{value}\n")
    if version < (6, 1):
        del machine.files["/proc/sys/kernel/arch"]
        machine.programs["/usr/bin/uname"] = ProgramResult(0, f"{arch}\n", "")
    machine.write(
        "/proc/pressure/io",
        "some avg10=0.00 avg60=0.12 avg300=0.31 total=8123344\n"
        "full avg10=0.00 avg60=0.08 avg300=0.22 total=7001223\n",
    )
    machine.write("/sys/devices/system/cpu/online", f"0-{cpus - 1}\n" if cpus > 1 else "0\n")
    machine.write("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n")
    machine.write("/sys/devices/system/node/online", "0\n")
    machine.write("/sys/devices/system/cpu/isolated", "\n")
    ticks = cpus * UPTIME_SECONDS * 100
    machine.write(
        "/proc/stat",
        f"cpu  {ticks // 20} 0 {ticks // 25} {ticks * 9 // 10} 4321 0 {ticks // 100} 0 0 0\n"
        f"intr 812345\nctxt 912345\nbtime 1760000000\nprocesses 41234\n",
    )
    machine.write("/proc/swaps", SWAPS_HEAD)
    pages = "/sys/kernel/mm/transparent_hugepage"
    machine.write(f"{pages}/enabled", "always [madvise] never\n")
    machine.write(f"{pages}/defrag", "always defer defer+madvise [madvise] never\n")
    machine.write("/proc/sys/net/ipv4/tcp_mem", "769587\t1026117\t1539174\n")
    machine.write("/proc/uptime", f"{UPTIME_SECONDS:.2f} {cpus * UPTIME_SECONDS:.2f}\n")
    machine.sockets[None] = Listening(
        somaxconn=4096,
        sockets=[
            ListenSocket(
                address="0.0.0.0", port=22, inode=2718, backlog=128, accept_queue=0, drops=0
            )
        ],
    )
    machine.programs["/usr/bin/ldd"] = ProgramResult(0, "ldd (GNU libc) 2.36\n", "")
    machine.write("/proc/cpuinfo", "\n".join(_processor(n, cpus, model) for n in range(cpus)))


def _processor(number: int, cpus: int, model: str) -> str:
    model_number, stepping, cache, clock = CPU_MODELS[model]
    fields = {
        "processor\t": number,
        "vendor_id\t": "GenuineIntel",
        "cpu family\t": 6,
        "model\t\t": model_number,
        "model name\t": model,
        "stepping\t": stepping,
        "cpu MHz\t\t": clock,
        "cache size\t": cache,
        "physical id\t": 0,
        "siblings\t": cpus,
        "core id\t\t": number,
        "cpu cores\t": cpus,
        "bogomips\t": f"{2 * float(clock):.2f}",
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def memory(machine: Machine, *, total_kb: int, free_kb: int, cached_kb: int) -> None:
    """``/proc/meminfo``; most of the cached pages can be given back."""
    available = free_kb + int(cached_kb * 0.96)
    fields = {
        "MemTotal": total_kb,
        "MemFree": free_kb,
        "MemAvailable": available,
        "Buffers": 51200,
        "Cached": cached_kb,
        "SwapCached": 0,
        "Active": cached_kb // 2,
        "Inactive": cached_kb // 2,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Dirty": 1384,
        "AnonPages": total_kb // 16,
        "Shmem": 10240,
        "SUnreclaim": total_kb // 128,
        "KernelStack": 8192,
        "PageTables": 16384,
    }
    text = "".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in fields.items())
    machine.write("/proc/meminfo", text + "HugePages_Total:       0\nHugepagesize:       2048 kB\n")


def process(
    machine: Machine,
    pid: int | str,
    *,
    cpus: str,
    cgroup: str,
    name: str = "nginx-tune",
    uid: int = 0,
    parent: int = 1,
    threads: int = 1,
    nofile: tuple[int, int] = (1024, 1048576),
    mount_namespace: int = 4026531841,
    network_namespace: int = 4026531840,
    age_seconds: int = 3600,
) -> None:
    """``/proc/PID`` of one process."""
    directory = f"/proc/{pid}"
    number = 2222 if pid == "self" else pid
    capabilities = ROOT_CAPABILITIES if uid == 0 else "0" * 16
    machine.write(f"{directory}/cgroup", cgroup)
    machine.write(
        f"{directory}/status",
        f"Name:\t{name}\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t{number}\nNgid:\t0\n"
        f"Pid:\t{number}\nPPid:\t{parent}\nTracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        f"Gid:\t{uid}\t{uid}\t{uid}\t{uid}\nFDSize:\t64\nThreads:\t{threads}\n"
        f"CapInh:\t0000000000000000\nCapPrm:\t{capabilities}\nCapEff:\t{capabilities}\n"
        f"Cpus_allowed:\tffff\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n",
    )
    started = (UPTIME_SECONDS - age_seconds) * 100
    machine.write(
        f"{directory}/stat",
        f"{number} ({name}) S {parent} {number} {number} 0 -1 4194624 511 0 0 0 21 9 0 0 20 0 "
        f"{threads} 0 {started} 11726848 1520 18446744073709551615 1 1 0 0 0 0 0 1073746048\n",
    )
    machine.write(f"{directory}/uid_map", "         0          0 4294967295\n")
    machine.write(f"{directory}/net/netstat", NETSTAT)
    machine.write(f"{directory}/net/snmp", SNMP)
    machine.write(f"{directory}/net/sockstat", SOCKSTAT)
    machine.write(f"{directory}/net/softnet_stat", SOFTNET)
    machine.link(f"{directory}/ns/net", f"net:[{network_namespace}]")
    machine.write(
        f"{directory}/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max cpu time              unlimited            unlimited            seconds   \n"
        f"Max open files            {nofile[0]:<21}{nofile[1]:<21}files     \n"
        "Max processes             127234               127234               processes \n"
        "Max locked memory         8388608              8388608              bytes     \n",
    )
    machine.link(f"{directory}/ns/mnt", f"mnt:[{mount_namespace}]")


SNMP = (
    "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets "
    "CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n"
    "Tcp: 1 200 120000 -1 80123 9123456 412 5123 1843 812345678 1612345678 3123456 0 91234 0\n"
)
SOCKSTAT = (
    "sockets: used 2144\nTCP: inuse 1851 orphan 3 tw 812 alloc 1902 mem 4123\n"
    "UDP: inuse 2 mem 1\nUDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n"
)
SOFTNET = "".join(
    f"{packets:08x} 00000000 {squeezed:08x} 00000000 00000000 00000000 00000000 00000000 00000000 "
    f"00000000 00000000 00000000 {cpu:08x} 00000000 00000000\n"
    for cpu, (packets, squeezed) in enumerate(((0x11F2A3B4, 12), (0x0FD10B27, 7)))
)

NETSTAT = (
    "TcpExt: SyncookiesSent SyncookiesRecv TCPTimeouts ListenOverflows ListenDrops TCPReqQFullDrop\n"
    "TcpExt: 0 0 1411 12 15 0\n"
    "IpExt: InNoRoutes InTruncatedPkts InOctets OutOctets\n"
    "IpExt: 0 0 88812345678 912345678901\n"
)


def cgroup_v2(
    machine: Machine,
    path: str,
    *,
    memory_max: str = "max",
    cpu_max: str = "max 100000",
    cpuset: str = "",
    anon: int = 104857600,
    file: int = 1073741824,
) -> None:
    """One directory of a version 2 hierarchy below ``/sys/fs/cgroup``."""
    directory = f"/sys/fs/cgroup{path}"
    machine.write(f"{directory}/memory.max", f"{memory_max}\n")
    machine.write(f"{directory}/memory.high", "max\n")
    machine.write(
        f"{directory}/memory.stat",
        f"anon {anon}\nfile {file}\nkernel 20971520\nkernel_stack 1048576\npagetables 2097152\n"
        f"sec_pagetables 0\npercpu 1024\nsock 4096\nvmalloc 0\nshmem 65536\nfile_mapped 12582912\n"
        f"slab_reclaimable 12582912\nslab_unreclaimable 4194304\nslab 16777216\n",
    )
    machine.write(f"{directory}/cpu.max", f"{cpu_max}\n")
    machine.write(
        f"{directory}/cpu.stat",
        "usage_usec 81234567\nuser_usec 51234567\nsystem_usec 30000000\nnr_periods 0\n"
        "nr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n",
    )
    machine.write(f"{directory}/cpuset.cpus.effective", f"{cpuset}\n")


@dataclass
class Queue:
    """The queue of a block device."""

    rotational: int
    nr_requests: int = 256
    queues: int = 1
    scheduler: str = "none [mq-deadline] kyber bfq"
    read_ahead_kb: int = 128


def block(machine: Machine, directory: str, device: str, sectors: int, queue: Queue | None) -> None:
    """A block device: its directory, its number, its queue and the symlinks to it."""
    name = directory.rpartition("/")[2]
    machine.write(f"{directory}/size", f"{sectors}\n")
    machine.write(f"{directory}/dev", f"{device}\n")
    machine.link(f"/sys/dev/block/{device}", f"../..{directory.removeprefix('/sys')}")
    if queue is None:
        return
    machine.link(f"/sys/block/{name}", f"..{directory.removeprefix('/sys')}")
    machine.directories.add(f"{directory}/slaves")
    machine.write(f"{directory}/queue/rotational", f"{queue.rotational}\n")
    machine.write(f"{directory}/queue/nr_requests", f"{queue.nr_requests}\n")
    machine.write(f"{directory}/queue/scheduler", f"{queue.scheduler}\n")
    machine.write(f"{directory}/queue/read_ahead_kb", f"{queue.read_ahead_kb}\n")
    for number in range(queue.queues):
        machine.write(f"{directory}/mq/{number}/nr_tags", f"{queue.nr_requests}\n")


def scsi_disk(
    machine: Machine,
    name: str,
    device: str,
    *,
    model: str,
    vendor: str = "ATA",
    terabytes: float,
    queue: Queue,
    queue_depth: int = 32,
) -> str:
    """A SATA or SAS disk; its directory."""
    index = ord(name[-1]) - ord("a")
    directory = (
        f"/sys/devices/pci0000:00/0000:00:17.0/ata{index + 1}/host{index}/target{index}:0:0/"
        f"{index}:0:0:0/block/{name}"
    )
    block(machine, directory, device, int(terabytes * 1e12) // 512, queue)
    machine.write(f"{directory}/device/vendor", f"{vendor:<8}\n")
    machine.write(f"{directory}/device/model", f"{model[:16]:<16}\n")
    machine.write(f"{directory}/device/queue_depth", f"{queue_depth}\n")
    return directory


def partition(machine: Machine, disk: str, number: int, device: str, sectors: int) -> str:
    """A partition of a disk; its directory."""
    name = disk.rpartition("/")[2]
    infix = "p" if name[-1].isdigit() else ""
    directory = f"{disk}/{name}{infix}{number}"
    machine.write(f"{directory}/partition", f"{number}\n")
    block(machine, directory, device, sectors, None)
    return directory


def stacked(
    machine: Machine,
    name: str,
    device: str,
    over: list[str],
    sectors: int,
    queue: Queue | None = None,
) -> str:
    """An md or dm device over others; its directory."""
    directory = f"/sys/devices/virtual/block/{name}"
    queue = queue or Queue(rotational=1, scheduler="none", nr_requests=128, queues=0)
    block(machine, directory, device, sectors, queue)
    for lower in over:
        back = "../../../.." + lower.removeprefix("/sys/devices")
        machine.link(f"{directory}/slaves/{lower.rpartition('/')[2]}", back)
    return directory


SYSTEM_MOUNTS = """\
22 28 0:21 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
23 28 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
24 28 0:5 / /dev rw,nosuid,relatime shared:2 - devtmpfs udev rw,size=32861084k,nr_inodes=8215271,mode=755
25 24 0:23 / /dev/pts rw,nosuid,noexec,relatime shared:3 - devpts devpts rw,gid=5,mode=620,ptmxmode=000
26 28 0:24 / /run rw,nosuid,nodev,noexec,relatime shared:5 - tmpfs tmpfs rw,size=6578424k,mode=755
27 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
"""


def mounts(machine: Machine, *lines: str, system: str = SYSTEM_MOUNTS) -> None:
    """``/proc/self/mountinfo``; the mount points become directories."""
    text = system + "".join(f"{line}\n" for line in lines)
    machine.write("/proc/self/mountinfo", text)
    for line in text.splitlines():
        machine.directories.add(line.split()[4])


def ethernet(
    machine: Machine,
    name: str,
    driver: str,
    *,
    megabits: int | None,
    kind: str = "physical",
    state: str = "up",
    mtu: int = 1500,
    queues: int = 8,
    numa_node: int = -1,
) -> None:
    """A network link with its driver."""
    directory = f"/sys/class/net/{name}/queues"
    for queue in range(queues):
        machine.write(f"{directory}/rx-{queue}/rps_cpus", "00\n")
        machine.write(f"{directory}/tx-{queue}/xps_cpus", f"{1 << queue:02x}\n")
    number = len(machine.network_links)
    device = f"/sys/devices/pci0000:00/0000:00:{number:02x}.0"
    machine.link(f"/sys/class/net/{name}/device", f"../../..{device.removeprefix('/sys')}")
    machine.link(f"{device}/driver", f"../../../bus/pci/drivers/{driver}")
    machine.write(f"{device}/numa_node", f"{numa_node}\n")
    machine.write(f"/sys/class/net/{name}/statistics/rx_missed_errors", "0\n")
    for queue in range(queues if kind == "physical" else 0):
        interrupt = 40 + 16 * number + queue
        machine.write(f"{device}/msi_irqs/{interrupt}", "msix\n")
        machine.write(f"/proc/irq/{interrupt}/effective_affinity_list", f"{queue}\n")
    machine.network_links.append(
        Link(
            name=name,
            kind=kind,
            state=state,
            mtu=mtu,
            speed_bits_per_second=megabits * 10**6 if megabits else None,
            queues=Queues(rx=0, tx=0, rss=queues),
            rings=Rings(rx=512, rx_max=4096),
            offloads={"gro": True, "gso": True, "sg": True, "tso": True},
            qdisc="mq" if queues > 1 else "fq_codel",
        )
    )


def loopback(machine: Machine) -> None:
    machine.write("/sys/class/net/lo/queues/rx-0/rps_cpus", "00\n")
    machine.directories.add("/sys/class/net/lo/queues/tx-0")
    machine.network_links.append(
        Link(name="lo", kind="loopback", state="unknown", mtu=65536, qdisc="noqueue")
    )


NGINX_ORG = (
    "nginx version: nginx/{version}\n"
    "built by gcc 12.2.0 (Debian 12.2.0-14) \n"
    "built with OpenSSL 3.0.11 19 Sep 2023 (running with OpenSSL 3.0.15 3 Sep 2024)\n"
    "TLS SNI support enabled\n"
    "configure arguments: --prefix=/etc/nginx --sbin-path=/usr/sbin/nginx "
    "--modules-path=/usr/lib/nginx/modules --conf-path=/etc/nginx/nginx.conf "
    "--error-log-path=/var/log/nginx/error.log --http-log-path=/var/log/nginx/access.log "
    "--pid-path=/var/run/nginx.pid --lock-path=/var/run/nginx.lock --user=nginx --group=nginx "
    "--with-compat --with-file-aio --with-threads --with-http_gzip_static_module "
    "--with-http_mp4_module --with-http_realip_module --with-http_secure_link_module "
    "--with-http_slice_module --with-http_ssl_module --with-http_stub_status_module "
    "--with-http_v2_module --with-http_v3_module --with-stream --with-stream_ssl_module "
    "--with-cc-opt='-g -O2 -ffile-prefix-map=/data/builder/debuild/nginx-{version}=. -fPIC' "
    "--with-ld-opt='-Wl,-z,relro -Wl,-z,now -Wl,--as-needed -pie'\n"
)


def nginx(machine: Machine, version: str, *, path: str = "/usr/sbin/nginx") -> None:
    """An installed nginx as nginx.org packages it."""
    machine.programs[path] = ProgramResult(0, "", NGINX_ORG.format(version=version))


MAPS = """\
55d4c1a00000-55d4c1a2c000 r--p 00000000 08:02 1311 /usr/sbin/nginx
55d4c1a2c000-55d4c1b05000 r-xp 0002c000 08:02 1311 /usr/sbin/nginx
55d4c3001000-55d4c3110000 rw-p 00000000 00:00 0 [heap]
7f2a10000000-7f2a10021000 r-xp 00003000 08:02 1420 /usr/lib/nginx/modules/ngx_http_geoip2_module.so
7f2a10400000-7f2a10428000 r--p 00000000 08:02 1207 /usr/lib/x86_64-linux-gnu/libc.so.6
7f2a10600000-7f2a10641000 rw-s 00000000 00:01 2048 /dev/zero (deleted)
"""


def running_nginx(
    machine: Machine,
    *,
    master: int,
    workers: int,
    cpus: str,
    cgroup: str,
    arguments: str = "/usr/sbin/nginx -c /etc/nginx/nginx.conf",
    threads: int = 1,
) -> None:
    """A master and its workers."""
    nofile = (1024, 524288)
    machine.comms[master] = "nginx"
    process(machine, master, cpus=cpus, cgroup=cgroup, name="nginx", nofile=nofile)
    machine.write(f"/proc/{master}/cmdline", f"nginx: master process {arguments}\0")
    machine.write(f"/proc/{master}/maps", MAPS)
    machine.link(f"/proc/{master}/exe", "/usr/sbin/nginx")
    machine.link(f"/proc/{master}/fd/2", "/var/log/nginx/error.log")
    machine.link(f"/proc/{master}/fd/6", "socket:[31415]")
    machine.sockets[master] = Listening(
        somaxconn=4096,
        sockets=[
            ListenSocket(
                address="0.0.0.0", port=22, inode=2718, backlog=128, accept_queue=0, drops=0
            ),
            ListenSocket(
                address="0.0.0.0", port=443, inode=31415, backlog=511, accept_queue=3, drops=15
            ),
        ],
    )
    for pid in range(master + 1, master + 1 + workers):
        machine.comms[pid] = "nginx"
        process(
            machine,
            pid,
            cpus=cpus,
            cgroup=cgroup,
            name="nginx",
            uid=101,
            parent=master,
            nofile=nofile,
            threads=threads,
        )
        machine.write(f"/proc/{pid}/cmdline", "nginx: worker process\0")
        machine.link(f"/proc/{pid}/exe", "/usr/sbin/nginx")
