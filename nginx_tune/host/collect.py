"""The collector's questions about a machine: all that nginx-tune's readers may ask.

A reader's next question depends on earlier answers. The collector does not repeat that logic: it
asks more broadly, about every block device, every mount's path and every nginx process. A replay
finds its answers among these and ignores the rest.

This file is part of the collector: standard library, Python 3.6.
"""

import argparse
import json
import os
import posixpath
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from nginx_tune import __version__
from nginx_tune.host.collect_here import Here
from nginx_tune.host.kernel import SYSCTLS
from nginx_tune.host.parse_nginx import COMMS, NAMES
from nginx_tune.host.programs import RefusedProgramError
from nginx_tune.host.redaction import escaped, from_bytes, redact_answers
from nginx_tune.host.trust import acts_as_root, foreign_link

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
    """Collects a machine's answers, errors included, by the questions that a replay will ask."""

    def __init__(self, machine: Any) -> None:
        self.answers: Dict[str, Dict[str, Any]] = {}
        self._machine = machine

    def collect(self, paths: List[str], nginx: Optional[str]) -> None:
        """Ask all questions."""
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
        """Ask a question and keep the answer; returns None for an error."""
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001  # any error is the answer
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
            kept = {"value": None, "error": escaped(reason or str(error))}
            if isinstance(error, RefusedProgramError):
                kept["refused"] = escaped(error.why)
            self.answers[escaped(question)] = kept
            return None
        self.answers[escaped(question)] = {"value": to_value(answer), "error": None}
        return answer

    def read(self, path: str) -> Optional[str]:
        """The text of a file."""
        data = self._ask("read " + path, lambda: self._machine.read_bytes(path), from_bytes)
        return None if data is None else data.decode(errors="surrogateescape")

    def list(self, path: str) -> List[str]:
        """The names in a directory."""
        ask = lambda: self._machine.list_dir(path)  # noqa: E731
        return self._ask("list " + path, ask, lambda names: [escaped(n) for n in names]) or []

    def link(self, path: str) -> Optional[str]:
        """The target of a link."""
        target = self._ask("link " + path, lambda: self._machine.read_link(path), escaped)
        return None if target is None else str(target)

    def real(self, path: str) -> Optional[str]:
        """A path with its links resolved."""
        target = self._ask("real " + path, lambda: self._machine.real_path(path), escaped)
        return None if target is None else str(target)

    def device(self, path: str) -> bool:
        """True for an existing path."""
        ask = lambda: self._machine.device_of(path)  # noqa: E731
        return self._ask("device " + path, ask, list) is not None

    def room(self, path: str) -> None:
        """Ask for the size and free space of a path's file system."""
        if "room " + path not in self.answers:
            self._ask("room " + path, lambda: self._machine.room(path), list)

    def run(self, *argv: str) -> Optional[Tuple[int, str, str]]:
        """The exit status, standard output and standard error of a program."""
        answer = self._ask(
            "run " + " ".join(_shell_word(word) for word in argv),
            lambda: self._machine.run(list(argv)),
            lambda run: {"status": run[0], "stdout": escaped(run[1]), "stderr": escaped(run[2])},
        )
        return None if answer is None else (answer[0], answer[1], answer[2])

    def texts(self, path: str) -> None:
        """Ask for the version texts in the file of an nginx program."""
        self._ask("texts " + path, lambda: self._machine.version_texts(path), escaped)

    def program(self, name: str) -> Optional[str]:
        """The path of a program."""
        found = self._ask("program " + name, lambda: self._machine.find_program(name), escaped)
        return None if found is None else str(found)

    def _ask_nginx(self, binary: Optional[str]) -> List[int]:
        """Ask about nginx programs and processes; returns the pids of masters and untitled ones."""
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
            # Only the answer is kept, no environment.
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
        """True if the program of a process may be run; see nginx/binary.py."""
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
        """True for a process with our mounts and root; see nginx/processes.py."""
        asked = [(who, name) for name in ("ns/mnt", "root") for who in (pid, "self")]
        mounts, ours, root, own = (self.link("/proc/{}/{}".format(*words)) for words in asked)
        return mounts == ours and (root is None or own is None or root == own)

    def _ask_frequencies(self) -> None:
        policies = "/sys/devices/system/cpu/cpufreq"
        for name in self.list(policies)[:_MOST_DEVICES]:
            self.read("{}/{}/scaling_governor".format(policies, name))
            self.read("{}/{}/scaling_driver".format(policies, name))

    def _ask_place(self, real: str) -> None:
        """Ask for the NUMA node of a device, or of the bus above it."""
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
        """Ask for limits and usage of the cgroups that a process may be in, and their ancestors."""
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
        """The root, mount point, file system and options of every mount."""
        text = self.read("/proc/{}/mountinfo".format(process)) or ""
        found = []
        for line in text.splitlines():
            before, _, after = line.partition(" - ")
            head, tail = before.split(" "), after.split(" ")
            if len(head) > 4 and len(tail) > 2:
                found.append((_plain(head[3]), _plain(head[4]), tail[0], _plain(tail[2])))
        return found

    def _ask_devices(self) -> None:
        """Ask about every block device, including hidden and stacked ones."""
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
        """Ask about a device, its partitions and the devices under it."""
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
        """Ask under the device's real path, and under /sys/block, where NVMe paths are read."""
        for directory in (real, "/sys/block/" + name):
            for file in _DEVICE_FILES:
                self.read("{}/{}".format(directory, file))
            self.list(directory + "/mq")
        self.list(real + "/slaves")
        self.real("/sys/dev/block/" + (self.read(real + "/dev") or "").strip())
        self.real("/sys/class/block/" + name)
        self._ask_place(real)

    def _ask_paths(self, process: str, root: str, paths: List[str]) -> None:
        """Ask about the given paths, all mount points and all overlay layers."""
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
                    layers += [part.replace("\0", ":") for part in text.split(":") if part]
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
        """Ask about the devices of a mount; the source of a bcachefs lists several devices."""
        for device in source.split(":") if filesystem == "bcachefs" else [source]:
            self.real(_plain(device))

    def _ask_nearest(self, root: str, path: str) -> None:
        """Ask about a path or its nearest existing parent."""
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
        """The path in another root, after following its links one by one."""
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


def collected(machine: Any, paths: List[str], nginx: Optional[str], pid: Optional[int]) -> Any:
    """The capture of a machine with secrets redacted."""
    collector = Collector(machine)
    collector.collect(paths, nginx)
    request: Dict[str, Any] = {
        "paths": [escaped(path) for path in paths],
        "datasets": [],
        "nginx_binary": nginx,
        "pid": pid,
        "link_speeds": {},
    }
    answers, request = redact_answers(collector.answers, request)
    return {
        "schema": "nginx-tune/capture/1",
        "tool_version": __version__,
        "request": request,
        "answers": answers,
    }


def main() -> int:
    """Write the capture; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Record this host for nginx-tune; secrets are redacted. "
        "Then, anywhere: nginx-tune inspect --host FILE"
    )
    parser.add_argument("--path", action="append", default=[], help="a path whose disks matter")
    parser.add_argument("--nginx", help="the nginx executable")
    parser.add_argument("--pid", type=int, help="the nginx master to look at")
    parser.add_argument("-o", "--output", help="write there (mode 0600), not to standard output")
    given = parser.parse_args()
    paths = [os.path.abspath(path) for path in given.path]  # noqa: PTH100
    capture = collected(Here(), paths, given.nginx, given.pid)
    text = json.dumps(capture, indent=2, sort_keys=True) + "\n"
    if given.output is None:
        sys.stdout.write(text)
        return 0
    why = foreign_link(given.output) if acts_as_root() else ""
    if why:
        sys.stderr.write("{}: not written as root: {}\n".format(given.output, why))
        return 2
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(given.output, flags, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
    except OSError as error:
        sys.stderr.write("{}: cannot write: {}\n".format(given.output, error.strerror))
        return 2
    return 0
