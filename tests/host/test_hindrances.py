"""What of a host holds nginx back: each fact read, each named where it hurts and only there."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from machine import Machine
from machines_hindered import two_nodes
from msgspec.structs import replace
from recorded_hosts import facts_bytes
from rows import each_row

from nginx_tune.decide.hindrances import find_hindrances
from nginx_tune.documents.base import decode
from nginx_tune.documents.facts import Cpu, Facts, Memory, Network, Softnet, Swap, Tcp, Throttled
from nginx_tune.documents.facts_machine import Listener
from nginx_tune.host.cpu import (
    Interrupts,
    read_frequency_driver,
    read_governors,
    read_interrupts,
    read_isolated,
    read_numa_node,
    read_steal_ratio,
    read_throttled,
)
from nginx_tune.host.door import Missing
from nginx_tune.host.network import add_network_use
from nginx_tune.host.parse_network import has_cpus, parse_softnet, parse_tcp_mem, parse_tcp_pages
from nginx_tune.host.parse_proc import parse_swaps
from nginx_tune.observe.inspect.inspection import inspect_host
from nginx_tune.report.facts import facts_blocks
from nginx_tune.report.screen import plain_text

HINDERED = inspect_host(*two_nodes())
NAMED = {one.fact for one in find_hindrances(HINDERED)}


def named(facts: Facts) -> set[str]:
    return {one.fact for one in find_hindrances(facts)}


def test_every_hindrance_of_an_ailing_host_is_named() -> None:
    links = {f"network.links[ens1].{name}" for name in ("qdisc", "interrupt_cpus", "numa_node")}
    links |= {
        f"network.links[ens2].{name}"
        for name in ("missed_packets", "queues", "offloads", "numa_node")
    }
    assert (
        links
        | {
            "cpu.throttled",
            "cpu.steal_ratio",
            "cpu.governors",
            "cpu.isolated",
            "memory.swaps",
            "memory.huge_page_defrag",
            "memory.dirty_bytes",
            "storage.disks[sdb].scheduler",
            "storage.disks[sdb].device_queue_depth",
            "listeners[0.0.0.0:443].drops",
            "network.listen_drops",
            "network.syn_queue_drops",
            "network.tcp.segments_retransmitted",
            "network.tcp.memory_pages",
            "network.softnet",
            "network.conntrack_entries",
        }
        == NAMED
    )
    screen = plain_text(facts_blocks(HINDERED))
    for one in find_hindrances(HINDERED):
        assert f"\n  {one.seen}\n    {one.meaning}; {one.remedy}\n" in screen
        assert one.fact.split(".")[0] in {
            "cpu", "memory", "storage", "network", "listeners[0",
        }  # fmt: skip


def test_a_host_without_facts_is_not_blamed() -> None:
    assert find_hindrances(Facts()) == []
    assert "limits on nginx" not in plain_text(facts_blocks(Facts()))


@each_row("name", ["sata-ssd", "nvme-multipath", "virtio-vm", "alpine", "kvm-guest"])
def test_a_usual_host_is_not_blamed_for_much(name: str) -> None:
    facts = decode(Facts, facts_bytes(name))
    assert named(facts) <= {"network.listen_overflows", "listeners[0.0.0.0:443].drops"}


@each_row(
    ("cpu", "expected"),
    [
        (Cpu(throttled=Throttled(directory="/", periods=1000, throttled_periods=10,
                                 throttled_seconds=1.0)), {"cpu.throttled"}),
        (Cpu(throttled=Throttled(directory="/", periods=1000, throttled_periods=9,
                                 throttled_seconds=9.0)), set()),
        (Cpu(throttled=Throttled(directory="/", periods=99, throttled_periods=99,
                                 throttled_seconds=9.0)), set()),
        (Cpu(steal_ratio=0.0099), set()),
        (Cpu(steal_ratio=0.01), {"cpu.steal_ratio"}),
        (Cpu(governors=["powersave"], frequency_driver="intel_pstate"), set()),
        (Cpu(governors=["powersave"], frequency_driver="amd-pstate-epp"), set()),
        (Cpu(governors=["powersave"], frequency_driver="intel_cpufreq"), {"cpu.governors"}),
        (Cpu(governors=["powersave"]), {"cpu.governors"}),
        (Cpu(governors=["ondemand", "schedutil"]), set()),
        (Cpu(isolated=0, cpuset=4), set()),
        (Cpu(isolated=2, cpuset=4), {"cpu.isolated"}),
    ],
)  # fmt: skip
def test_where_cpus_become_a_hindrance(cpu: Cpu, expected: set[str]) -> None:
    assert named(Facts(cpu=cpu)) == expected


@each_row(
    ("memory", "expected"),
    [
        (Memory(transparent_huge_pages="always", huge_page_defrag="madvise"), set()),
        (Memory(transparent_huge_pages="madvise", huge_page_defrag="always"), set()),
        (Memory(dirty_bytes=99, dirty_background_bytes=100), set()),
        (Memory(dirty_bytes=101, dirty_background_bytes=100), {"memory.dirty_bytes"}),
        (Memory(dirty_bytes=101, dirty_background_bytes=0), set()),
        (Memory(total_bytes=10_000, swaps=[Swap(path="/s", kind="file", size_bytes=10**6,
                                               used_bytes=99)]), set()),
        (Memory(total_bytes=10_000, swaps=[Swap(path="/s", kind="file", size_bytes=10**6,
                                               used_bytes=100)]), {"memory.swaps"}),
    ],
)  # fmt: skip
def test_where_memory_becomes_a_hindrance(memory: Memory, expected: set[str]) -> None:
    assert named(Facts(memory=memory)) == expected


@each_row(
    ("drops", "of_nginx", "expected"),
    [
        (0, True, set()),  # the namespace's count is another's
        (9, True, set()),
        (10, True, {"listeners[*:80].drops"}),
        (None, True, {"network.listen_overflows"}),
        (500, False, {"network.listen_overflows"}),
        (500, None, {"network.listen_overflows"}),
    ],
)
def test_full_queues_are_nginx_s_by_its_own_sockets(
    drops: int | None, of_nginx: bool | None, expected: set[str]
) -> None:
    facts = Facts(
        network=Network(listen_overflows=500, listen_drops=500),
        listeners=[Listener(address="*", port=80, drops=drops, of_nginx=of_nginx)],
    )
    assert named(facts) == expected
    for one in find_hindrances(facts):
        assert ("this network namespace" in one.seen) is one.fact.startswith("network")


@each_row(
    ("network", "expected"),
    [
        (Network(listen_overflows=9, listen_drops=9), set()),
        (Network(listen_overflows=10, listen_drops=10), {"network.listen_overflows"}),
        (Network(listen_drops=10), {"network.listen_drops"}),
        (Network(syn_queue_drops=9), set()),
        (Network(tcp=Tcp(segments_sent=9_999, segments_retransmitted=9_000)), set()),
        (Network(tcp=Tcp(segments_sent=10**6, segments_retransmitted=9_999)), set()),
        (Network(tcp=Tcp(segments_sent=10**6, segments_retransmitted=10**4)),
         {"network.tcp.segments_retransmitted"}),
        (Network(tcp=Tcp(memory_pages=99, memory_pressure_pages=100)), set()),
        (Network(softnet=Softnet(processed=10**6, dropped=10, squeezed=1000)), set()),
        (Network(softnet=Softnet(processed=10**6, dropped=11, squeezed=0)), {"network.softnet"}),
        (Network(softnet=Softnet(processed=10**6, dropped=0, squeezed=1001)), {"network.softnet"}),
        (Network(conntrack_entries=79, conntrack_limit=100), set()),
        (Network(conntrack_entries=80, conntrack_limit=100), {"network.conntrack_entries"}),
        (Network(conntrack_entries=0, conntrack_limit=0), set()),
    ],
)  # fmt: skip
def test_where_the_network_becomes_a_hindrance(network: Network, expected: set[str]) -> None:
    assert named(Facts(network=network)) == expected


@each_row(
    ("longest", "of_nginx", "expected"),
    [(255, True, False), (256, True, True), (511, False, False), (511, None, False)],
)
def test_an_accept_queue_that_is_half_full_now(
    longest: int, of_nginx: bool | None, expected: bool
) -> None:
    one = Listener(
        address="::", port=443, backlog=511, longest_accept_queue=longest, of_nginx=of_nginx
    )
    assert bool(named(Facts(listeners=[one]))) == expected


def test_a_link_that_is_down_is_not_blamed() -> None:
    links = [replace(link, state="down") for link in HINDERED.network.links]
    facts = replace(HINDERED, network=replace(HINDERED.network, links=links))
    assert not any("links" in fact for fact in named(facts))


def test_what_a_larger_ring_would_hold_is_said() -> None:
    remedies = {one.fact: one.remedy for one in find_hindrances(HINDERED)}
    assert remedies["network.links[ens2].missed_packets"] == "ethtool -G ens2 rx 4096 (now 256)"
    link = next(link for link in HINDERED.network.links if link.name == "ens2")
    full = replace(link, rings=None)
    facts = replace(HINDERED, network=replace(HINDERED.network, links=[full]))
    (found,) = [one for one in find_hindrances(facts) if one.fact.endswith("missed_packets")]
    assert found.remedy == "more queues, or interrupts on more CPUs"


# Readers.


def test_the_group_that_was_held_back_longest_counts() -> None:
    machine, _ = two_nodes()
    machine.write("/proc/9/cgroup", "0::/system.slice/nginx.service\n")
    found = read_throttled(machine, "9")
    assert found == Throttled(
        directory="/sys/fs/cgroup/system.slice/nginx.service",
        periods=91234,
        throttled_periods=12345,
        throttled_seconds=2123.456789,
    )
    machine.write(
        "/sys/fs/cgroup/system.slice/cpu.stat",
        "nr_periods 7\nnr_throttled 5\nthrottled_usec 9000000000\n",
    )
    found = read_throttled(machine, "9")
    assert isinstance(found, Throttled)
    assert (found.directory, found.throttled_seconds) == ("/sys/fs/cgroup/system.slice", 9000.0)


def test_throttling_of_version_1() -> None:
    machine = Machine()
    machine.write("/proc/self/cgroup", "1:cpu,cpuacct:/a/b\n0::/\n")
    machine.write(
        "/proc/self/mountinfo",
        "30 22 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
    )
    machine.write(
        "/sys/fs/cgroup/cpu,cpuacct/a/cpu.stat",
        "nr_periods 50\nnr_throttled 20\nthrottled_time 1500000000\n",
    )
    found = read_throttled(machine, "self")
    assert isinstance(found, Throttled)
    assert (found.directory, found.throttled_seconds) == ("/sys/fs/cgroup/cpu,cpuacct/a", 1.5)
    del machine.files["/sys/fs/cgroup/cpu,cpuacct/a/cpu.stat"]
    assert isinstance(read_throttled(machine, "self"), Missing)


def test_steal() -> None:
    machine = Machine()
    assert isinstance(read_steal_ratio(machine), Missing)
    machine.write("/proc/stat", "cpu  50 0 20 100 10 0 0 20 50 0\ncpu0 1\n")
    assert read_steal_ratio(machine) == 0.1
    for odd in ("cpu  0 0 0 0 0 0 0 0\n", "intr 5\n", ""):
        machine.write("/proc/stat", odd)
        assert isinstance(read_steal_ratio(machine), Missing)


def test_frequencies_and_isolated_cpus() -> None:
    machine, _ = two_nodes()
    assert read_governors(machine) == ["performance", "powersave"]
    assert read_frequency_driver(machine) == "acpi-cpufreq"
    assert read_isolated(machine, frozenset({0, 1, 30})) == 1
    assert read_isolated(machine, Missing("")) == 2
    machine.write("/sys/devices/system/cpu/isolated", "\n")
    assert read_isolated(machine, frozenset({0})) == 0
    machine.write("/sys/devices/system/cpu/isolated", "a-b\n")
    for found in (
        read_isolated(machine, frozenset({0})),
        read_governors(Machine()),
        read_frequency_driver(Machine()),
    ):
        assert isinstance(found, Missing)


def test_the_node_of_a_device_is_that_of_the_bus_above_it() -> None:
    machine, _ = two_nodes()
    disk = "/sys/devices/pci0000:80/0000:80:03.0/nvme/nvme0/nvme0n1"
    assert read_numa_node(machine, disk) == 1
    assert isinstance(read_numa_node(machine, "/sys/devices/virtual/block/dm-0"), Missing)
    machine.write("/sys/devices/pci0000:80/0000:80:03.0/numa_node", "-1\n")
    assert read_numa_node(machine, disk) == Missing("the firmware reports no node")
    machine.write("/sys/devices/system/node/online", "0\n")
    assert read_numa_node(machine, disk) == Missing("a host of one node")


def test_interrupts_of_a_virtual_device_are_those_of_its_carrier() -> None:
    machine = Machine()
    pci = "/sys/devices/pci0000:00/0000:00:03.0"
    machine.directories.add(f"{pci}/virtio2")
    for number, cpus in ((37, "0-1"), (38, "1"), (39, "3")):
        machine.write(f"{pci}/msi_irqs/{number}", "msix\n")
        machine.write(f"/proc/irq/{number}/effective_affinity_list", f"{cpus}\n")
    assert read_interrupts(machine, f"{pci}/virtio2") == Interrupts(3, 3)
    for number in (37, 38, 39):
        del machine.files[f"/proc/irq/{number}/effective_affinity_list"]
    found = read_interrupts(machine, f"{pci}/virtio2")
    assert isinstance(found, Interrupts)
    assert isinstance(found.cpus, Missing)
    assert isinstance(read_interrupts(machine, "/sys/devices/virtual/net/lo"), Missing)


def test_connections_are_followed_in_the_namespace_of_the_reader() -> None:
    machine, _ = two_nodes()
    network, gaps = add_network_use(machine, Network(), 812)
    assert (network.conntrack_entries, network.conntrack_limit) == (251234, 262144)
    machine.link("/proc/812/ns/net", "net:[4026539999]")
    network, gaps = add_network_use(machine, Network(), 812)
    assert network.conntrack_entries is None
    assert gaps["/conntrack_limit"] == "nginx is in another network namespace"
    network, gaps = add_network_use(Machine(), Network(), None)
    assert network == Network()
    assert len(gaps) == 9


# Parsers.

SWAPS = """\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/zram0                              partition\t4194300\t\t1024\t\t100
/dev/dm-1                               partition\t999420\t\t0\t\t-2
/swap\\040file                            file\t\t2097148\t\t4\t\t-3
/gone\\040(deleted) file 1 1
"""


def test_swaps() -> None:
    assert [(s.path, s.kind, s.size_bytes, s.used_bytes) for s in parse_swaps(SWAPS)] == [
        ("/dev/zram0", "zram", 4194300 * 1024, 1024 * 1024),
        ("/dev/dm-1", "partition", 999420 * 1024, 0),
        ("/swap file", "file", 2097148 * 1024, 4096),
    ]
    assert parse_swaps("") == []
    assert parse_swaps(SWAPS.splitlines()[0]) == []


def test_softnet_of_old_and_new_kernels() -> None:
    old = "00000010 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000\n"
    new = "0000000f 00000000 00000003" + " 00000000" * 12 + "\n"
    assert parse_softnet(old + new) == Softnet(processed=31, dropped=1, squeezed=5)
    for odd in ("", "\n", "10 20 30\n", "0000000g 00000000 00000000\n", old + "junk"):
        assert isinstance(parse_softnet(odd), Missing)


def test_memory_of_tcp() -> None:
    text = "sockets: used 5\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 3\nUDP: inuse 1 mem 9\n"
    assert parse_tcp_pages(text) == 3
    assert isinstance(parse_tcp_pages("UDP: inuse 1 mem 9\n"), Missing)
    assert parse_tcp_mem("769587\t1026117\t1539174\n") == (769587, 1026117, 1539174)
    for odd in ("", "1 2", "1 2 3 4", "1 2 x", "-1 2 3"):
        assert isinstance(parse_tcp_mem(odd), Missing)


def test_masks() -> None:
    assert [has_cpus(mask) for mask in ("00", "ff\n", "00000000,00000001", "", "0,0", "x")] == [
        False, True, True, False, False, False,
    ]  # fmt: skip


# This machine.


def test_this_kernel_is_understood() -> None:
    for name, parse in (
        ("/proc/net/softnet_stat", parse_softnet),
        ("/proc/net/sockstat", parse_tcp_pages),
    ):
        assert not isinstance(parse(Path(name).read_text()), Missing), name
    sizes = [line.split()[-3] for line in Path("/proc/swaps").read_text().splitlines()[1:]]
    assert [s.size_bytes for s in parse_swaps(Path("/proc/swaps").read_text())] == [
        int(size) * 1024 for size in sizes
    ]


@pytest.mark.needs("root", "ip")
def test_the_discipline_of_a_real_link() -> None:
    script = (
        "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && "
        f"exec {sys.executable} -m nginx_tune inspect -f json"
    )
    said = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    links = {link["name"]: link for link in json.loads(said.stdout)["network"]["links"]}
    assert links["v0"]["qdisc"] == "noqueue"
    assert links["lo"]["interrupts"] is None


@pytest.mark.needs("root", "cgroup-v1")
def test_a_real_quota_is_seen_to_hold_back() -> None:
    """A group of version 1 with a tenth of a CPU, and a process in it that wants a whole one."""
    group = Path(tempfile.mkdtemp(prefix="nginx-tune-test-", dir="/sys/fs/cgroup/cpu"))
    try:
        (group / "cpu.cfs_quota_us").write_text("10000")
        script = (
            f"echo $$ > {group}/cgroup.procs; "
            "timeout 1 sh -c 'while :; do :; done'; "
            f"echo -1 > {group}/cpu.cfs_quota_us; "
            # Among its own processes: where an nginx runs, that one's group is looked at.
            f"unshare --pid --fork --mount-proc {sys.executable} -m nginx_tune inspect -f json"
        )
        said = subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, check=True, timeout=120
        )
        facts = decode(Facts, said.stdout.encode())
        assert facts.cpu.throttled is not None
        assert facts.cpu.throttled.directory == str(group)
        assert facts.cpu.throttled.throttled_periods > 0
    finally:
        group.rmdir()
