"""Each reader with what a kernel prints, with something odd, and with nothing."""

from collections.abc import Callable
from typing import Any

import machines
import msgspec
import pytest
from machine import Machine
from machines_stacks import ailing_array, container_nginx, san_multipath, zfs_pool
from parts import process
from rows import each_row

from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Cpu, Facts, Link, Network, Storage
from nginx_tune.documents.facts_machine import Listening, ListenSocket
from nginx_tune.documents.inspection import Request
from nginx_tune.errors import UndecidedError
from nginx_tune.host.block_devices import read_array, read_layer
from nginx_tune.host.cpu import with_workers
from nginx_tune.host.door import Gaps, Missing
from nginx_tune.host.kernel import NETWORK_SYSCTLS, read_kernel, read_limits
from nginx_tune.host.memory import read_memory
from nginx_tune.host.mounts import View
from nginx_tune.host.network import add_counters, read_listeners, read_network
from nginx_tune.host.storage import read_storage
from nginx_tune.nginx.processes import find_masters, read_running
from nginx_tune.observe.inspect.facts import _dataset_places
from nginx_tune.observe.inspect.inspection import inspect_host, record_host
from nginx_tune.report.facts import facts_blocks
from nginx_tune.report.screen import plain_text

DM = "/sys/devices/virtual/block/dm-0"
MD = "/sys/devices/virtual/block/md0"


def machine_with(*files: tuple[str, str]) -> Machine:
    machine = Machine()
    for path, text in files:
        machine.write(path, text)
    return machine


@each_row(
    ("files", "directory", "kind", "detail"),
    [
        ([(f"{DM}/dm/uuid", "LVM-abc\n"), (f"{DM}/dm/name", "vg-a\n")], DM, "lvm", "vg-a"),
        ([(f"{DM}/dm/uuid", "LVM-abc-tpool\n")], DM, "thin-pool", ""),
        ([(f"{DM}/dm/uuid", "CRYPT-LUKS2-abc\n"), (f"{DM}/dm/name", "c\n")], DM, "crypt", "c"),
        ([(f"{DM}/dm/uuid", "mpath-3600\n")], DM, "multipath", ""),
        ([(f"{DM}/dm/uuid", "\n")], DM, "dm", ""),
        ([(f"{MD}/md/level", "raid5\n")], MD, "md", "raid5"),
        ([(f"{MD}/size", "1\n")], MD, "md", f"read {MD}/md/level: No such file or directory"),
        ([(f"{MD}/md/level", "\n")], MD, "md", f"{MD}/md/level is empty"),
        ([("/sys/b/bcache0/bcache/cache_mode", "writethrough [writeback]\n")],
         "/sys/b/bcache0", "bcache", "writeback"),
        ([("/sys/b/bcache0/bcache/cache_mode", "?\n"), ("/sys/b/bcache0/bcache/state", "clean\n")],
         "/sys/b/bcache0", "bcache", "?, clean"),
        ([("/sys/b/bcache0/size", "1\n")], "/sys/b/bcache0", "bcache", ""),
        ([("/sys/b/sda/sda1/partition", "1\n")], "/sys/b/sda/sda1", "partition", ""),
        ([("/sys/b/drbd0/size", "1\n")], "/sys/b/drbd0", "stacked", ""),
    ],
)  # fmt: skip
def test_layers(files: list[tuple[str, str]], directory: str, kind: str, detail: str) -> None:
    layer = read_layer(machine_with(*files), directory, ["sda"])
    assert (layer.kind, layer.detail, layer.lower) == (kind, detail, ["sda"])


def test_an_array_that_is_being_rebuilt() -> None:
    facts = inspect_host(*ailing_array())
    (array,) = facts.storage.arrays
    assert (array.level, array.members, array.degraded) == ("raid6", 6, 1)
    assert (array.sync_action, array.sync_done_ratio) == ("recover", 0.25)
    assert {d.name: d.utilisation_ratio for d in facts.storage.disks}["sdf"] == 0.99
    # The cache is under it as much as the disks are.
    assert facts.storage.paths[0].leaf_disks == ["sda", "sdb", "sdc", "sdd", "sde", "sdf", "sdg"]
    assert facts.cpu.threads_per_core == 2
    assert facts.cpu.numa_nodes == 2


def test_every_device_of_a_bcachefs_is_found() -> None:
    """All stand in the source of the mount, with colons between."""
    machine = machine_with()
    for n, name in enumerate(("sdb", "sdc", "sdd")):
        disk = f"/sys/devices/pci0000:00/ata{n}/host{n}/target{n}:0:0/{n}:0:0:0/block/{name}"
        machine.write(f"{disk}/queue/rotational", "1\n")
        machine.write(f"{disk}/dev", f"8:{16 * (n + 1)}\n")
        machine.link(f"/sys/class/block/{name}", disk)
        machine.write(f"/dev/{name}", "")
    machine.directories.add("/srv")
    machine.write(
        "/proc/self/mountinfo",
        "28 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 28 0:44 / /srv rw - bcachefs /dev/sdb:/dev/sdc:/dev/sdd rw\n",
    )
    storage, _ = read_storage(machine, ["/srv"])
    assert storage.paths[0].leaf_disks == ["sdb", "sdc", "sdd"]
    assert storage.paths[0].reason == ""


def test_an_array_without_redundancy_has_no_state() -> None:
    machine = machine_with(
        (f"{MD}/md/level", "raid0\n"), (f"{MD}/md/raid_disks", "2\n"),
        (f"{MD}/md/sync_completed", "none\n"),
    )  # fmt: skip
    array, gaps = read_array(machine, MD)
    assert (array.level, array.members, array.degraded) == ("raid0", 2, None)
    assert set(gaps) == {"/degraded", "/sync_action", "/sync_done_ratio"}
    assert set(gaps.values()) == {"raid0 has no redundancy: if a disk fails, it is lost"}
    facts = Facts(storage=Storage(arrays=[array]))
    assert "2 disks without redundancy" in plain_text(facts_blocks(facts))
    assert "not known" not in plain_text(facts_blocks(facts)).partition("md0")[2].partition("\n")[0]


def test_paths_to_one_disk_are_one_disk() -> None:
    facts = inspect_host(*san_multipath())
    storage = facts.storage
    by_path = {path.path: path.leaf_disks for path in storage.paths}
    assert by_path == {
        "/srv/media": ["dm-0", "dm-1"],
        "/srv/private": ["dm-1"],
        "/var/cache/nginx": ["dm-0"],
    }
    assert [(d.name, d.class_, d.paths) for d in storage.disks] == [
        ("dm-0", "network", ["sda", "sdb"]),
        ("dm-1", "network", ["sdc", "sdd"]),
    ]
    kinds = {layer.detail: layer.kind for layer in storage.layers}
    assert kinds["vg0-media"] == "striped"
    assert kinds["vg0-cache"] == "thin"
    assert kinds["private"] == "crypt"
    # Two of the volumes share a disk with the third.
    assert storage.independent_disk_count == 1
    some = inspect_host(san_multipath()[0], Request(paths=["/srv/private", "/var/cache/nginx"]))
    assert some.storage.independent_disk_count == 2


def test_a_pool_of_zfs() -> None:
    facts = inspect_host(*zfs_pool())
    assert facts.storage.paths[0].leaf_disks == ["sda", "sdb", "sdc", "sdd"]
    assert {disk.class_ for disk in facts.storage.disks} == {"hdd"}
    assert facts.memory.arc_bytes == 33012345678
    assert facts.memory.arc_limit_bytes == 34359738368


@each_row("listing", ["", "cannot open 'tank': no such pool\n", "tank\t1T\n\t\x00/dev"])
def test_a_pool_that_cannot_be_listed(listing: str) -> None:
    machine, request = zfs_pool()
    program = machine.programs["/usr/sbin/zpool"]
    machine.programs["/usr/sbin/zpool"] = program._replace(stdout=listing)
    facts = inspect_host(machine, request)
    assert facts.storage.paths[0].leaf_disks == []
    assert "ZFS pool" in facts.storage.paths[0].reason


# An nginx in another mount namespace.


def test_a_container_s_paths_are_followed_through_its_mounts() -> None:
    facts = inspect_host(*container_nginx())
    through_link, own, other, volume = facts.storage.paths
    assert (through_link.leaf_disks, through_link.mount_point) == (["sdb"], "/data/www")
    assert (own.filesystem, own.leaf_disks) == ("overlay", ["sda"])
    assert other.mount_point == "/", "it is not in the container"
    assert (volume.path, volume.leaf_disks) == ("/data/www", ["sdb"])
    assert all(path.seen_by_nginx for path in facts.storage.paths)
    assert facts.storage.independent_disk_count == 2
    html = "/usr/share/nginx/html"
    both = [f"/proc/4711/root{html}", html]
    for is_named, places in ((True, both), (False, both[::-1])):
        machine, _ = container_nginx()
        assert _dataset_places(machine, html, 4711, nginx_first=is_named) == places


def test_without_a_pid_only_what_is_not_here_is_looked_for_there() -> None:
    machine, request = container_nginx()
    facts = inspect_host(machine, Request(paths=request.paths))
    seen = {path.path: (path.seen_by_nginx, path.leaf_disks) for path in facts.storage.paths}
    assert seen["/srv/www"] == (True, ["sdb"])
    assert seen["/usr/share/nginx/html"] == (False, ["sda"])
    assert seen["/mnt/volumes"] == (False, ["sdb"])


def test_a_container_that_may_not_be_looked_into() -> None:
    machine, request = container_nginx()
    for path in [path for path in machine.directories if path.startswith("/proc/4711/root")]:
        machine.directories.remove(path)
    del machine.symlinks["/proc/4711/root/srv"]
    facts = inspect_host(machine, request)
    assert not any(path.seen_by_nginx for path in facts.storage.paths)
    reasons = {unknown.path: unknown.reason for unknown in facts.unknown}
    assert reasons["/storage/paths"].startswith("not through the mounts of nginx")


def test_what_a_container_s_nginx_is() -> None:
    nginx = inspect_host(*container_nginx()).nginx
    assert (nginx.version, nginx.libc, nginx.openssl_built) == (
        "1.29.3", "musl", "OpenSSL 3.5.4 30 Sep 2025",
    )  # fmt: skip
    running = nginx.running
    assert running is not None
    assert (running.generations, running.reloaded, running.leaving_workers) == (2, True, 1)
    assert running.ktls_connections == 214
    assert running.other_network_namespace is True
    assert [instance.pid for instance in nginx.instances] == [4711]


def test_a_container_s_network_settings_are_its_own() -> None:
    machine, request = container_nginx()
    before = read_kernel(machine)[0].sysctls
    machine.sockets[4711] = Listening(sysctls={"net.ipv4.tcp_syncookies": "0\n"})
    facts = inspect_host(machine, request)
    # Of what it does not show there is one for all, as of all others before Linux 4.15.
    assert facts.kernel.sysctls == {**before, "net.ipv4.tcp_syncookies": "0"}
    assert "/kernel/sysctls" not in {unknown.path for unknown in facts.unknown}


@each_row("asked", [None, Listening(somaxconn=128)])
def test_a_container_s_network_settings_that_nobody_asked_are_not_the_host_s(
    asked: Listening | None,
) -> None:
    machine, request = container_nginx()
    machine.sockets.pop(4711, None)
    if asked is not None:
        machine.sockets[4711] = asked
    facts = inspect_host(machine, request)
    sysctls = facts.kernel.sysctls
    of_network = {name: value for name, value in sysctls.items() if name in NETWORK_SYSCTLS}
    assert of_network == ({} if asked is None else {"net.core.somaxconn": "128"})
    assert "net.core.rmem_max" in sysctls, "of which there is one for all"
    (why,) = (one.reason for one in facts.unknown if one.path == "/kernel/sysctls")
    assert "a network namespace of its own" in why


def test_a_program_that_cannot_be_read_is_not_taken_for_the_host_s() -> None:
    machine, request = container_nginx()
    machine.texts.clear()
    facts = inspect_host(machine, request)
    assert facts.nginx.binary == "/usr/sbin/nginx"
    assert facts.nginx.version is None
    reasons = {unknown.path: unknown.reason for unknown in facts.unknown}
    assert "process 4711 contains no version" in reasons["/nginx/version"]


def test_a_container_s_links_lead_to_nothing_of_the_host_s() -> None:
    """The kernel follows an absolute link below /proc/PID/root from our root, not from theirs."""
    machine, request = container_nginx()
    machine.write("/etc/shadow", "root:THE-HOSTS;\n")
    machine.write("/proc/4711/root/etc/shadow", "include /etc/more/*;\n")
    machine.write("/proc/4711/root/etc/more/one", "keepalive_timeout 61;\n")
    machine.write("/etc/more/one", "keepalive_timeout 77; # THE-HOSTS\n")
    machine.link("/proc/4711/root/etc/nginx/nginx.conf", "/etc/shadow")
    capture = record_host(machine, request, with_config=True)
    assert b"THE-HOSTS" not in encode(capture)
    assert capture.answers["read /etc/nginx/nginx.conf"].value == "include /etc/more/*;\n"
    assert capture.answers["read /etc/more/one"].value == "keepalive_timeout 61;\n"


def test_a_title_chooses_nothing_for_a_capture() -> None:
    machine, request = machines.three_disk_node()
    machine.write("/proc/self/status", "Uid:\t0\t0\t0\t0\n")
    master = next(iter(sorted(machine.comms)))
    machine.write(f"/proc/{master}/status", "Uid:\t1000\t1000\t1000\t1000\n")
    machine.write(f"/proc/{master}/cmdline", "nginx: master process nginx -c /etc/shadow\0")
    machine.write("/etc/shadow", "root:THE-HOSTS;\n")
    asked = msgspec.structs.replace(request, pid=master)
    with pytest.raises(UndecidedError, match="its title names it"):
        record_host(machine, asked, with_config=True)
    unasked = record_host(machine, msgspec.structs.replace(request, pid=None), with_config=True)
    assert b"THE-HOSTS" not in encode(unasked)


@each_row(
    ("links", "path", "expected"),
    [
        ({}, "/a/b", "/a/b"),
        ({"/a": "/x"}, "/a/b", "/x/b"),
        ({"/a": "x"}, "/a/b", "/x/b"),
        ({"/a": "../../../x"}, "/a/b", "/x/b"),
        ({"/a": "/y", "/y": "x/"}, "/a/./b", "/x/b"),
        ({"/a": "/a"}, "/a/b", None),
        ({"/a": "a/a"}, "/a", None),
        ({}, "/no/b", None),
        ({}, "/", "/"),
    ],
)
def test_links_are_followed_in_the_other_root(
    links: dict[str, str], path: str, expected: str | None
) -> None:
    machine = Machine()
    root = "/proc/7/root"
    machine.directories |= {root, "/x", "/x/outside"}
    for name in ("/a/b", "/x/b"):
        if not any(name.startswith(link) for link in links):
            machine.directories.add(root + name)
    for name, target in links.items():
        machine.link(root + name, target)
    found = View(machine, [], root).real_path(path)
    assert found == expected if expected else isinstance(found, Missing)


# Processors and limits.


@each_row(
    ("libc", "cpu", "auto", "fitting"),
    [
        ("glibc", Cpu(online=64, cpuset=4, quota_cpus=1.5, effective=1.5), 64, 2),
        ("musl", Cpu(online=64, cpuset=4, quota_cpus=1.5, effective=1.5), 4, 2),
        (None, Cpu(online=8, cpuset=8, effective=8.0), 8, 8),
        ("musl", Cpu(online=8), None, None),
        ("glibc", Cpu(), None, None),
        ("glibc", Cpu(online=1, effective=0.1), 1, 1),
    ],
)
def test_what_auto_becomes(
    libc: str | None, cpu: Cpu, auto: int | None, fitting: int | None
) -> None:
    gaps: Gaps = {}
    found = with_workers(cpu, libc, gaps)
    assert (found.auto_workers, found.fitting_workers) == (auto, fitting)
    assert ("/auto_workers" in gaps) == (auto is None)


@each_row(
    ("capabilities", "users", "expected"),
    [
        ("000001ffffffffff", "0 0 4294967295\n", True),
        ("0000000000000000\nUid:\t1000\t1000\t1000\t1000", "0 0 4294967295\n", None),
        ("0000000000000000\nUid:\t0\t0\t0\t0", "0 0 4294967295\n", False),
        ("000001ffffffffff", "0 100000 65536\n", False),
        ("0000000000000400", "0 0 4294967295\n", False),
        ("0000000001000000", "0 0 4294967295\n", True),
        ("nonsense", "0 0 4294967295\n", None),
        ("000001ffffffffff", None, None),
        (None, None, None),
    ],
)
def test_whether_hard_limits_can_be_raised(
    capabilities: str | None, users: str | None, expected: bool | None
) -> None:
    machine = machine_with(("/proc/self/status", "Name:\tx\n"))
    if capabilities is not None:
        machine.files["/proc/self/status"] += f"CapEff:\t{capabilities}\n"
    if users is not None:
        machine.write("/proc/self/uid_map", users)
    limits, gaps = read_limits(machine)
    assert limits.can_raise is expected
    assert ("/can_raise" in gaps) == (expected is None)


# Memory.


def test_dirty_limits_in_bytes_stand_before_ratios() -> None:
    machine = machine_with(
        ("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 800 kB\nDirty: 3 kB\n"),
        ("/proc/sys/vm/dirty_bytes", "4096\n"),
        ("/proc/sys/vm/dirty_ratio", "20\n"),
        ("/proc/sys/vm/dirty_background_bytes", "0\n"),
        ("/proc/sys/vm/dirty_background_ratio", "10\n"),
    )
    memory, _ = read_memory(machine)
    assert memory.dirty_limit_bytes == 4096
    assert memory.dirty_background_bytes == 80 * 1024
    assert memory.dirty_bytes == 3 * 1024


def test_consumers_are_what_the_page_cache_cannot_have() -> None:
    text = (
        "MemTotal: 1000 kB\nAnonPages: 100 kB\nShmem: 20 kB\nSUnreclaim: 7 kB\n"
        "KernelStack: 1 kB\nHugePages_Total: 3\nHugepagesize: 2048 kB\n"
    )
    machine = machine_with(("/proc/meminfo", text))
    memory, _ = read_memory(machine)
    assert memory.consumers == {
        "anonymous": 100 << 10, "shared": 20 << 10, "kernel": 8 << 10, "huge_pages": 6 << 20,
    }  # fmt: skip


# Network.


def test_queues_and_packets_spread_by_the_kernel() -> None:
    machine = Machine()
    machine.network_links.append(Link(name="eth0", kind="physical", state="up"))
    for number, mask in enumerate(("00000000,00000000", "00000000,0000000f", "garbage")):
        machine.write(f"/sys/class/net/eth0/queues/rx-{number}/rps_cpus", f"{mask}\n")
    machine.directories.add("/sys/class/net/eth0/queues/tx-0")
    network, gaps = read_network(machine, {})
    queues = network.links[0].queues
    assert queues is not None
    assert (queues.rx, queues.tx) == (3, 1)
    assert queues.rps == 1
    assert gaps["/links/0/rings"]


SOCKETS = Listening(
    somaxconn=4096,
    sockets=[
        ListenSocket(address="0.0.0.0", port=80, inode=1, backlog=511, accept_queue=2, drops=3),
        ListenSocket(address="0.0.0.0", port=80, inode=2, backlog=128, accept_queue=9, drops=0),
        ListenSocket(address="::1", port=81),
    ],
)


def test_the_sockets_of_an_address_are_one_listener() -> None:
    machine = Machine()
    machine.link("/proc/7/fd/3", "socket:[2]")
    machine.link("/proc/7/fd/4", "/dev/null")
    shared, single = read_listeners(machine, SOCKETS, 7)[0]
    assert (shared.sockets, shared.backlog, shared.accept_queue) == (2, 128, 11)
    assert (shared.longest_accept_queue, shared.drops, shared.of_nginx) == (9, 3, True)
    assert (single.backlog, single.drops, single.of_nginx) == (None, None, False)


def test_listeners_without_nginx_and_without_sock_diag() -> None:
    listeners, gaps = read_listeners(Machine(), SOCKETS, None)
    assert listeners[0].of_nginx is None
    assert gaps["/0/of_nginx"] == "no nginx is running"
    assert read_listeners(Machine(), Missing("no sock_diag"), 7) == ([], {"": "no sock_diag"})


@each_row(
    ("text", "expected"),
    [
        ("TcpExt: ListenOverflows ListenDrops TCPReqQFullDrop\nTcpExt: 4 5 6\n", (4, 5, 6)),
        ("TcpExt: ListenOverflows ListenDrops\nTcpExt: 4\n", (4, None, None)),
        ("TcpExt: ListenOverflows\nIpExt: 4\n", (None, None, None)),
        ("TcpExt: ListenOverflows\nTcpExt: many\n", (None, None, None)),
        ("", (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_counters_of_listening_sockets(text: str | None, expected: tuple[int | None, ...]) -> None:
    machine = Machine()
    if text is not None:
        machine.write("/proc/7/net/netstat", text)
    network, gaps = add_counters(machine, Network(), SOCKETS, 7)
    assert (network.listen_overflows, network.listen_drops, network.syn_queue_drops) == expected
    assert len(gaps) == expected.count(None)
    assert network.somaxconn == 4096


# Processes of nginx.


def running(change: Callable[[Machine], Any]) -> tuple[Any, Gaps]:
    machine, _ = container_nginx()
    change(machine)
    (master,) = find_masters(machine)
    return read_running(machine, master, [master])


def test_a_worker_that_runs_as_root_has_all_rights() -> None:
    found, _ = running(
        lambda m: process(m, 4712, cpus="0", cgroup="0::/\n", name="nginx", uid=0, parent=4711)
    )
    worker = found.workers[0]
    assert worker.user_id == 0
    assert "sys_admin" in worker.capabilities
    assert "40" not in worker.capabilities
    assert worker.limits == {"processes": 127234, "locked_memory_bytes": 8388608}


def test_a_master_that_may_not_be_looked_at() -> None:
    def hide(machine: Machine) -> None:
        machine.denied |= {"/proc/4711/maps", "/proc/4711/net/tls_stat", "/proc/uptime"}

    found, gaps = running(hide)
    assert found.modules is None
    assert found.ktls_connections is None
    assert found.age_seconds is None
    assert "Permission denied" in gaps["/modules"]
    assert "Permission denied" in gaps["/generations"] or gaps["/generations"]
