"""What the collector asks a machine: all that nginx-tune's own readers may want to know of it.

The readers ask what the last answer leads them to. The collector asks more broadly, so that it
needs little of what they know: every block device, every mount's path, every nginx process. A
replay finds its answers among these, and takes the rest for what it is: not asked for.

This file is part of the collector: standard library, Python 3.6.
"""

import posixpath
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from nginx_tune.host.kernel import SYSCTLS
from nginx_tune.host.parse_nginx import COMMS, NAMES
from nginx_tune.host.redaction import escaped, from_bytes

_MOST_DEVICES = 1024
_MOST_DESCRIPTORS = 4096
_MOST_QUEUES = 256
_DEEPEST = 32

_FILES = (
    "/proc/sys/kernel/ostype", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/arch",
    "/proc/pressure/io", "/proc/net/tls_stat", "/proc/sys/net/ipv4/tcp_available_ulp",
    "/proc/modules", "/proc/cpuinfo", "/proc/meminfo", "/proc/uptime",
    "/proc/spl/kstat/zfs/arcstats", "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "/sys/devices/system/node/online", "/sys/devices/system/cpu/isolated", "/proc/stat",
    "/proc/swaps", "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag", "/proc/sys/net/ipv4/tcp_mem",
    "/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max",
)  # fmt: skip
_PROCESS_FILES = (
    "status", "cgroup", "limits", "stat", "mountinfo", "uid_map", "cmdline", "net/netstat",
    "net/tls_stat", "net/snmp", "net/sockstat", "net/softnet_stat",
)  # fmt: skip
_CGROUP_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.max", "memory.high", "memory.stat"),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max", "cpu.stat"),
    "cpuset": ("cpuset.effective_cpus", "cpuset.cpus", "cpuset.cpus.effective"),
}
_DEVICE_FILES = (
    "partition", "size", "dm/uuid", "dm/name", "md/level", "md/raid_disks", "md/degraded",
    "md/sync_action", "md/sync_completed", "bcache/cache_mode", "bcache/state",
    "loop/backing_file", "queue/rotational", "queue/read_ahead_kb", "queue/nr_requests",
    "queue/scheduler", "device/vendor", "device/model",
    "device/transport", "device/type", "device/nvme0/transport", "device/queue_depth",
)  # fmt: skip


class Collector:
    """Asks a machine and keeps the answers, refusals too, under nginx-tune's questions."""

    def __init__(self, machine: Any) -> None:
        self.answers: Dict[str, Dict[str, Any]] = {}
        self._machine = machine

    def collect(self, paths: List[str], nginx: Optional[str]) -> None:
        """Ask everything."""
        for path in _FILES:
            self.read(path)
        for name in SYSCTLS:
            self.read("/proc/sys/" + name.replace(".", "/"))
        for option in ("-s", "-r", "-m"):
            self.run("uname", option)
        release = self.read("/proc/sys/kernel/osrelease") or ""
        self.list("/lib/modules/{}/kernel/net".format(release.strip()))
        self.list("/sys/module")
        self._ask_frequencies()
        self.run("ldd", "--version")
        masters = self._ask_nginx(nginx)
        for process in ["self"] + [str(pid) for pid in masters]:
            self._ask_process(process)
        self._ask_devices()
        self._ask_paths("self", "", paths)
        for pid in masters:
            if not self._sees_ours(pid):
                self._ask_paths(str(pid), "/proc/{}/root".format(pid), paths)
        self._ask_network(masters)

    def _ask(self, question: str, ask: Callable[[], Any], to_value: Callable[[Any], Any]) -> Any:
        """The answer; None when there is none."""
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
            self.answers[escaped(question)] = {
                "value": None,
                "error": escaped(reason or str(error)),
            }
            return None
        self.answers[escaped(question)] = {"value": to_value(answer), "error": None}
        return answer

    def read(self, path: str) -> Optional[str]:
        """Contents of a file."""
        data = self._ask("read " + path, lambda: self._machine.read_bytes(path), from_bytes)
        return None if data is None else data.decode(errors="surrogateescape")

    def list(self, path: str) -> List[str]:
        """Names in a directory."""
        ask = lambda: self._machine.list_dir(path)  # noqa: E731
        return self._ask("list " + path, ask, lambda names: [escaped(n) for n in names]) or []

    def link(self, path: str) -> Optional[str]:
        """Target of a link."""
        target = self._ask("link " + path, lambda: self._machine.read_link(path), escaped)
        return None if target is None else str(target)

    def real(self, path: str) -> Optional[str]:
        """A path with its links resolved."""
        target = self._ask("real " + path, lambda: self._machine.real_path(path), escaped)
        return None if target is None else str(target)

    def device(self, path: str) -> bool:
        """Whether a path is there."""
        ask = lambda: self._machine.device_of(path)  # noqa: E731
        return self._ask("device " + path, ask, list) is not None

    def room(self, path: str) -> None:
        """Size and free space of the file system of a path."""
        if "room " + path not in self.answers:
            self._ask("room " + path, lambda: self._machine.room(path), list)

    def run(self, *argv: str) -> Optional[Tuple[int, str, str]]:
        """What a program said."""
        said = self._ask(
            "run " + " ".join(_shell_word(word) for word in argv),
            lambda: self._machine.run(list(argv)),
            lambda said: {
                "status": said[0],
                "stdout": escaped(said[1]),
                "stderr": escaped(said[2]),
            },
        )
        return None if said is None else (said[0], said[1], said[2])

    def texts(self, path: str) -> None:
        """What the file of an nginx program says of its version."""
        self._ask("texts " + path, lambda: self._machine.version_texts(path), escaped)

    def program(self, name: str) -> Optional[str]:
        """Where a program is."""
        found = self._ask("program " + name, lambda: self._machine.find_program(name), escaped)
        return None if found is None else str(found)

    def _ask_nginx(self, binary: Optional[str]) -> List[int]:
        """Programs and processes; the masters, and those without any title, come back."""
        for name in NAMES if binary is None else (binary,):
            found = self.program(name)
            if found is not None:
                self.real(found)
                self.run(found if binary is None else name, "-V")
        self._ask("caller", self._machine.caller, int)
        ask = lambda: self._machine.processes(*COMMS)  # noqa: E731
        pids = self._ask("processes " + " ".join(COMMS), ask, list) or []
        masters = []
        for pid in pids:
            title = self.read("/proc/{}/cmdline".format(pid)) or ""
            for name in ("stat", "limits", "status"):
                self.read("/proc/{}/{}".format(pid, name))
            if re.match(r"[\w-]+: (?!master)", title):
                continue
            masters.append(pid)
            # The answer alone is kept, no environment.
            self._ask("in-lab {}".format(pid), lambda: self._machine.is_in_lab(pid), bool)  # noqa: B023
            binary_link = self.link("/proc/{}/exe".format(pid)) or ""
            self.real(re.sub(r" \(deleted\)$", "", binary_link))
            self._sees_ours(pid)
            if self._is_trusted(pid):
                self.run("/proc/{}/exe".format(pid), "-V")
            else:
                self.texts("/proc/{}/exe".format(pid))
        return masters

    def _is_trusted(self, pid: int) -> bool:
        """Whether the file that a process runs may be run; see nginx/binary.py."""
        users = []
        for process in ("self", str(pid)):
            status = self.read("/proc/{}/status".format(process)) or ""
            match = re.search(r"^Uid:\s+(\d+)\s+\1\s+\1\s+\1$", status, re.MULTILINE)
            users.append(match.group(1) if match else None)
        ours, theirs = users
        same = self._sees_ours(pid)
        question = "distrust /proc/{}/exe".format(pid)
        why = self._ask(question, lambda: self._machine.distrust(question[9:]), escaped)
        caller = str(self.answers["caller"]["value"])
        return same and why == "" and theirs is not None and theirs in {"0", ours, caller}

    def _sees_ours(self, pid: int) -> bool:
        """Whether a process sees our files: no other mounts, no chroot; nginx/processes.py."""
        asked = [(who, name) for name in ("ns/mnt", "root") for who in (pid, "self")]
        mounts, ours, root, own = (self.link("/proc/{}/{}".format(*one)) for one in asked)
        return mounts == ours and (root is None or own is None or root == own)

    def _ask_frequencies(self) -> None:
        policies = "/sys/devices/system/cpu/cpufreq"
        for name in self.list(policies)[:_MOST_DEVICES]:
            self.read("{}/{}/scaling_governor".format(policies, name))
            self.read("{}/{}/scaling_driver".format(policies, name))

    def _ask_place(self, real: str) -> None:
        """The NUMA node of a device, or of the bus above it."""
        while real.startswith("/sys/devices/"):
            if self.read(real + "/numa_node") is not None:
                return
            real = posixpath.dirname(real)

    def _ask_interrupts(self, real: str) -> None:
        for directory in (real, posixpath.dirname(real)):
            numbers = self.list(directory + "/msi_irqs")
            for number in numbers[:_MOST_DEVICES]:
                self.read("/proc/irq/{}/effective_affinity_list".format(number))
            if numbers:
                return

    def _ask_process(self, process: str) -> None:
        for name in _PROCESS_FILES:
            if process != "self" or name != "cmdline":
                self.read("/proc/{}/{}".format(process, name))
        for kind in ("mnt", "net"):
            self.link("/proc/{}/ns/{}".format(process, kind))
        if process != "self":
            self.read("/proc/{}/maps".format(process))
            numbers = [int(n) for n in self.list("/proc/{}/fd".format(process)) if n.isdigit()]
            for number in sorted(numbers)[:_MOST_DESCRIPTORS]:
                self.link("/proc/{}/fd/{}".format(process, number))
        self._ask_cgroups(process)

    def _ask_cgroups(self, process: str) -> None:
        """Limits and usage of every group that a process may be in, and of those above."""
        groups = re.findall(
            r"^\d+:[^:\n]*:(/.*)$", self.read("/proc/{}/cgroup".format(process)) or "", re.MULTILINE
        )
        for root, point, filesystem, options in self._mounts("self"):
            if filesystem not in {"cgroup", "cgroup2"}:
                continue
            words = options.split(",")
            kinds = [k for k in _CGROUP_FILES if filesystem == "cgroup2" or k in words]
            for path in groups:
                inside = path == root or path.startswith(root.rstrip("/") + "/")
                below = path[len(root) :] if root != "/" and inside else path
                if (root != "/" and not inside) or (root == "/" and path.startswith("/..")):
                    below = ""
                directory = (point.rstrip("/") + "/" + below.strip("/")).rstrip("/")
                while True:
                    for kind in kinds:
                        for name in _CGROUP_FILES[kind]:
                            self.read("{}/{}".format(directory, name))
                    if directory in {point, ""}:
                        break
                    directory = directory.rpartition("/")[0]

    def _mounts(self, process: str) -> List[Tuple[str, str, str, str]]:
        """Root, mount point, file system and options of every mount."""
        text = self.read("/proc/{}/mountinfo".format(process)) or ""
        found = []
        for line in text.splitlines():
            before, _, after = line.partition(" - ")
            head, tail = before.split(" "), after.split(" ")
            if len(head) > 4 and len(tail) > 2:
                found.append((_plain(head[3]), _plain(head[4]), tail[0], _plain(tail[2])))
        return found

    def _ask_devices(self) -> None:
        """Every block device, the hidden and the stacked ones too."""
        mounted = re.findall(r" (\d+:\d+) /", self.read("/proc/self/mountinfo") or "")
        paths = ["/sys/block/" + name for name in self.list("/sys/block")[:_MOST_DEVICES]]
        paths += ["/sys/dev/block/" + number for number in mounted if number[:2] != "0:"]
        for uuid in self.list("/sys/fs/btrfs"):
            directory = "/sys/fs/btrfs/{}/devices".format(uuid)
            paths += ["{}/{}".format(directory, name) for name in self.list(directory)]
        for path in paths:
            self._ask_device(path, 0)
        if any(q.endswith("/dm/uuid") and not a["error"] for q, a in self.answers.items()):
            self.run("dmsetup", "table")

    def _ask_device(self, path: str, depth: int) -> None:
        """One device, its partitions and what is under it."""
        real = self.real(path)
        if real is None or depth > _DEEPEST:
            return
        name = posixpath.basename(real)
        if "list {}/slaves".format(real) not in self.answers:
            self._ask_device_files(real, name)
            for part in self.list(real):
                if part.startswith(name):
                    self._ask_device("{}/{}".format(real, part), depth + 1)
        for slave in self.list(real + "/slaves"):
            self._ask_device("{}/slaves/{}".format(real, slave), depth + 1)
        if self.read(real + "/partition") is not None:
            self._ask_device(posixpath.dirname(real), depth + 1)
        backing = self.read(real + "/loop/backing_file")
        if backing is not None:
            self._ask_nearest("", re.sub(r" \(deleted\)$", "", backing.rstrip("\n")))

    def _ask_device_files(self, real: str, name: str) -> None:
        """By its real name, and by the one under which the paths of an NVMe disk are asked."""
        for directory in (real, "/sys/block/" + name):
            for file in _DEVICE_FILES:
                self.read("{}/{}".format(directory, file))
            self.list(directory + "/mq")
        self.list(real + "/slaves")
        self.real("/sys/dev/block/" + (self.read(real + "/dev") or "").strip())
        self.real("/sys/class/block/" + name)
        self._ask_place(real)

    def _ask_paths(self, process: str, root: str, paths: List[str]) -> None:
        """Where paths lie that are asked for, and those of every mount and overlay layer."""
        if root:
            self.device(root + "/")
        mountinfo = self.read("/proc/{}/mountinfo".format(process)) or ""
        layers: List[str] = []
        points = []
        for _, point, _, options in self._mounts(process):
            points.append(point)
            for option in re.split(r"(?<!\\),", options):
                if option.startswith(("upperdir=", "lowerdir=")):
                    text = option.partition("=")[2].replace("\\:", "\0")
                    layers += [one.replace("\0", ":") for one in text.split(":") if one]
        for path in ["/"] + paths + points + layers:  # noqa: RUF005  # Python 3.6
            self._ask_nearest(root, path)
        for layer in layers:
            self.real(layer)
        for filesystem, source in re.findall(r" - (\S+) (\S+) ", mountinfo):
            if source.startswith("/"):
                self._ask_sources(filesystem, source)
            elif filesystem == "zfs" and re.match(r"[A-Za-z][\w.:-]*(/|$)", source):
                self.run("zpool", "list", "-vHPL", source.partition("/")[0])

    def _ask_sources(self, filesystem: str, source: str) -> None:
        """The devices of a mount; a bcachefs names all of its."""
        for device in source.split(":") if filesystem == "bcachefs" else [source]:
            self.real(_plain(device))

    def _ask_nearest(self, root: str, path: str) -> None:
        """A path or, where it is not there, its nearest parent."""
        candidate = posixpath.normpath(path)
        while True:
            found = self._real_below(root, candidate) if root else self.real(candidate)
            parent = posixpath.dirname(candidate)
            if found is not None or parent in {candidate, ""}:
                if found is not None:
                    self.room(root + found)
                return
            candidate = parent

    def _real_below(self, root: str, path: str) -> Optional[str]:
        """The path in another root, its links followed one by one."""
        done = ""
        parts = path.split("/")
        for _ in range(200):
            if not parts:
                there = self.device("{}{}/".format(root, done)) or self.device(root + done)
                return (done or "/") if there else None
            part = parts.pop(0)
            if part in {"", "."}:
                continue
            if part == "..":
                done = posixpath.dirname(done).rstrip("/")
                continue
            target = self.link("{}{}/{}".format(root, done, part))
            if target is None:
                done = "{}/{}".format(done, part)
                continue
            done = "" if target.startswith("/") else done
            parts = target.split("/") + parts
        return None

    def _ask_network(self, masters: List[int]) -> None:
        links = self._ask("links", self._machine.links, lambda links: links) or []
        for link in links:
            directory = "/sys/class/net/{}".format(link["name"])
            self.link(directory + "/device/driver")
            self.read(directory + "/bonding/mode")
            self.read(directory + "/statistics/rx_missed_errors")
            queues = self.list(directory + "/queues")
            for kind, mask in (("rx-", "rps_cpus"), ("tx-", "xps_cpus")):
                for queue in [name for name in queues if name[:3] == kind][:_MOST_QUEUES]:
                    self.read("{}/queues/{}/{}".format(directory, queue, mask))
            real = self.real(directory + "/device") if link["kind"] == "physical" else None
            if real is not None:
                self._ask_place(real)
                self._ask_interrupts(real)
        for pid in [None] + masters:  # noqa: RUF005  # Python 3.6
            ask = lambda pid=pid: self._machine.listening(pid)  # noqa: E731
            found = self._ask("listening {}".format(pid or "self"), ask, lambda found: found)
            for name in ("tcp", "tcp6") if found is None else ():
                self.read("/proc/{}/net/{}".format(pid or "self", name))


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _shell_word(word: str) -> str:
    return word if re.match(r"[\w@%+=:,./-]+$", word, re.ASCII) else "'" + word + "'"
