"""The arena: a machine of its own, as far as namespaces reach, with victims that are compared.

It is entered by ``unshare``, so that whatever a missing part lets through harms the victims
alone: no process, mount, packet or host name of the real machine is in reach, and what has no
namespace (a cgroup, the file system below ``/srv``) is made for the arena and goes with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from unprivileged import AS_NOBODY

if TYPE_CHECKING:
    from typing_extensions import Self

ENTER = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork",
         "--kill-child=SIGKILL", "--mount-proc", "--propagation", "private", "--"]  # fmt: skip
BASE = Path(os.environ.get("SANDBOX_ARENA", "/srv/nginx-tune-sandbox"))
"""On the root file system, and nowhere that a sandbox has a directory of its own anyway."""
PORT = 4747
FAR = "192.0.2.9"
"""Leads to the arena's own ports, as the way out of a machine leads to others'."""
ABSTRACT = "nginx-tune-victim"
DEVICE_SOCKET = "/dev/nginx-tune-victim"
QUEUE = "/nginx-tune-victim"
IPC_KEY = 4747
KEY = "nginx-tune-victim"
VARIABLE = "NGINX_TUNE_WALLS_SECRET"
"""A variable of the caller's environment."""
_VICTIM_PID = 30_000
"""Far from the ids that processes of a sandbox have in theirs."""
_OLD = b"the operator's\n"
_NAMES = ("old", "unlinked", "truncated", "renamed", *(f"log{n}" for n in range(4)))
_PRIVATE = ("/etc", "/opt")
_GROUPS = Path("/sys/fs/cgroup")
_SETTINGS = ("kernel/core_pattern", "kernel/hostname", "kernel/domainname", "vm/swappiness",
             "net/ipv4/ip_forward", "net/ipv4/ip_nonlocal_bind", "net/core/somaxconn",
             "net/ipv6/ip_nonlocal_bind", "net/ipv4/tcp_migrate_req")  # fmt: skip
_STRAY = ("attacked", "memory-device", "disk-device", "filling", "jail", "disk", "f0")
_MOST_BYTES = 1 << 20
"""Of a file that is compared byte for byte; no victim is larger."""
_libc = ctypes.CDLL(None, use_errno=True)


class Place(NamedTuple):
    """A directory of victims."""

    name: str
    directory: str
    """As it is named in a configuration."""


class Arena:
    """Victims of every kind; use as a context manager, in the namespaces of ``ENTER``."""

    def __init__(self, kinds: Sequence[str] = (), *, owner: str = "root") -> None:
        """``kinds`` are directories of victims in each place, all of them the owner's."""
        self._kinds = kinds
        self._owner = owner
        self.places: list[Place] = []
        self.heard: dict[str, int] = {}
        self.packets: list[str] = []
        self.victims: dict[str, subprocess.Popen[bytes]] = {}
        self.groups: list[Path] = []
        self.sockets: list[str] = []
        self._kept: list[socket.socket] = []
        self.without_devices = False
        self.hidden = BASE / "hidden"

    def __enter__(self) -> Self:
        BASE.mkdir(exist_ok=True)
        BASE.chmod(0o755)
        try:
            self._forget_others()
            self._make_places()
            self._make_private()
            self._make_network()
            self._make_ipc()
            self._make_processes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for victim in self.victims.values():
            victim.kill()
            victim.wait()
        for group in self.groups:
            with contextlib.suppress(OSError):
                for inner in group.glob("*/"):
                    inner.rmdir()
                group.rmdir()
        for point in ("ext4", "memory", "overlay", "bind", "over", "u"):
            subprocess.run(["umount", "--lazy", BASE / point], capture_output=True, check=False)
        shutil.rmtree(BASE, ignore_errors=True)

    def _forget_others(self) -> None:
        """Mounts of others, who may remove them meanwhile."""
        for line in Path("/proc/self/mounts").read_text().splitlines()[::-1]:
            point = line.split()[1]
            if point.startswith(("/tmp/", "/var/tmp/")):
                subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)

    def _make_places(self) -> None:
        image = BASE / "image"
        with image.open("wb") as file:
            file.truncate(16 << 20)
        _run("mkfs.ext4", "-q", image)
        for name in (
            "plain",
            "ext4",
            "memory",
            "overlay",
            "bind",
            "bound",
            "target",
            "l",
            "u",
            "w",
        ):
            (BASE / name).mkdir()
        _run("mount", "-o", "loop", image, BASE / "ext4")
        _run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", BASE / "memory")
        _run("mount", "-t", "tmpfs", "tmpfs", BASE / "u")
        for name in ("upper", "work"):
            (BASE / "u" / name).mkdir()
        layers = f"lowerdir={BASE}/l,upperdir={BASE}/u/upper,workdir={BASE}/u/work"
        _run("mount", "-t", "overlay", "-o", layers, "overlay", BASE / "overlay")
        _run("mount", "--bind", BASE / "bound", BASE / "bind")
        (BASE / "link").symlink_to("target")
        for name in ("plain", "ext4", "memory", "overlay", "bind", "link"):
            directory = BASE / name
            _fill(directory)
            for kind in self._kinds:
                (directory / kind).mkdir()
                _fill(directory / kind)
            (directory / "empty").mkdir(mode=0o777)
            (directory / "empty").chmod(0o777)
            os.mkfifo(directory / "host-pipe")
            (directory / "host-pipe").chmod(0o666)
            self._kept_pipe(directory / "host-pipe")
            self.places.append(Place(name, str(directory)))
            self.sockets.append(str(directory / "socket"))
        if self._owner == "nobody":
            for place in self.places:
                root = Path(place.directory).resolve()
                for path in (root, *root.rglob("*")):
                    os.chown(path, AS_NOBODY["user"], AS_NOBODY["group"])
        self.hidden.write_bytes(b"nobody asked for this\n")

    def _kept_pipe(self, path: Path) -> None:
        """A reader, so that whoever may write can; what comes is counted."""
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        threading.Thread(target=self._read_pipe, args=(descriptor, str(path)), daemon=True).start()

    def _read_pipe(self, descriptor: int, name: str) -> None:
        while True:
            try:
                if os.read(descriptor, 4096):
                    self._hear(f"pipe {name}")
            except BlockingIOError:
                time.sleep(0.05)

    def _make_private(self) -> None:
        """Directories of the machine itself that an attack may reach: copies of them."""
        over = BASE / "over"
        over.mkdir()
        _run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", over)
        for number, path in enumerate(_PRIVATE):
            for name in ("upper", "work"):
                (over / f"{name}{number}").mkdir(mode=0o755)
            layers = f"lowerdir={path},upperdir={over}/upper{number},workdir={over}/work{number}"
            _run("mount", "-t", "overlay", "-o", layers, "private", path)
        for path in ("/var/log/nginx", "/var/lib/nginx"):
            Path(path).mkdir(exist_ok=True, parents=True)
            _run("mount", "-t", "tmpfs", "-o", "mode=0777,size=64m", "tmpfs", path)
        names = ("null", "zero", "full", "random", "urandom", "tty", "fuse", "loop-control")
        nodes = [Path("/dev", name) for name in names] + list(Path("/dev").glob("loop[0-9]*"))
        devices = {path: path.stat() for path in nodes if path.exists()}
        _run("mount", "-t", "tmpfs", "-o", "mode=0755,size=4m", "tmpfs", "/dev")
        for path, status in devices.items():
            os.mknod(path, status.st_mode, status.st_rdev)
            path.chmod(stat.S_IMODE(status.st_mode))
        for name in ("shm", "pts", "mqueue"):
            Path("/dev", name).mkdir()
        Path("/dev/fd").symlink_to("/proc/self/fd")
        _run("mount", "-t", "tmpfs", "-o", "mode=1777,size=64m", "tmpfs", "/dev/shm")
        _run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", "/dev/pts")
        Path("/dev/ptmx").symlink_to("pts/ptmx")
        _run("mount", "-t", "mqueue", "mqueue", "/dev/mqueue")
        _run("mount", "-t", "tmpfs", "-o", "mode=0777,size=64m", "tmpfs", "/run")
        for path in ("/dev/shm/victim", "/run/victim", "/var/log/nginx/victim"):
            Path(path).write_bytes(_OLD)
            Path(path).chmod(0o666)
        self.sockets += [DEVICE_SOCKET, "/run/nginx-tune-victim", "/dev/log"]

    def _make_network(self) -> None:
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "route", "add", "local", "default", "dev", "lo", "table", "main")
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        threading.Thread(target=self._sniff, args=(sniffer,), daemon=True).start()
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            inet = socket.socket(socket.AF_INET6, kind)
            inet.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            inet.bind(("::", PORT))
            self._listen(inet, f"port {PORT}")
        abstract = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        abstract.bind(f"\0{ABSTRACT}")
        self._listen(abstract, "abstract socket")
        for number, path in enumerate(self.sockets):
            # Half of them of each kind: system logs are datagrams, everything else streams.
            for kind, name in ((socket.SOCK_STREAM, path), (socket.SOCK_DGRAM, f"{path}-log")):
                one = socket.socket(socket.AF_UNIX, kind)
                one.bind(name)
                Path(name).chmod(0o666)
                self._listen(one, f"socket {number} {name}")
        self.sockets += [f"{path}-log" for path in self.sockets]

    def _listen(self, one: socket.socket, name: str) -> None:
        self._kept.append(one)
        is_stream = one.type == socket.SOCK_STREAM
        if is_stream:
            one.listen(64)
        target = self._accept if is_stream else self._receive
        threading.Thread(target=target, args=(one, name), daemon=True).start()

    def _accept(self, one: socket.socket, name: str) -> None:
        while True:
            client, _ = one.accept()
            self._hear(name)
            client.close()

    def _receive(self, one: socket.socket, name: str) -> None:
        while True:
            one.recv(65536)
            self._hear(name)

    def _hear(self, name: str) -> None:
        self.heard[name] = self.heard.get(name, 0) + 1

    def _sniff(self, sniffer: socket.socket) -> None:
        while True:
            data, address = sniffer.recvfrom(65536)
            # What the kernel sends by itself on a new link is no packet of nginx's.
            if len(data) > 40 and data[0] >> 4 == 6 and data[6] == 58:
                continue
            self.packets.append(f"{address[0]} {data[:40].hex()}")

    def _make_ipc(self) -> None:
        identity = _libc.shmget(IPC_KEY, 4096, 0o1666)
        _libc.msgget(IPC_KEY, 0o1666)
        _libc.shmat.restype = ctypes.c_void_p
        self._shared = (ctypes.c_char * 4096).from_address(_libc.shmat(identity, None, 0))
        self._shared[0:4] = b"mine"
        Path(f"/dev/mqueue{QUEUE}").touch()
        Path(f"/dev/mqueue{QUEUE}").chmod(0o666)

    def _make_processes(self) -> None:
        hierarchies = [_GROUPS / "freezer", _GROUPS / "pids", _GROUPS]
        for hierarchy in hierarchies:
            if (hierarchy / "cgroup.procs").exists():
                group = hierarchy / f"{BASE.name}-victim"
                group.mkdir()
                group.chmod(0o777)
                for file in group.iterdir():
                    with contextlib.suppress(OSError):
                        file.chmod(0o666)
                self.groups.append(group)
        for number, (user, owner) in enumerate((("root", {}), ("nobody", AS_NOBODY))):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(_VICTIM_PID + 100 * number))
            victim = subprocess.Popen(["sleep", "1000"], start_new_session=True, cwd="/", **owner)
            for group in self.groups:
                (group / "cgroup.procs").write_text(str(victim.pid))
            self.victims[user] = victim
        Path("/proc/sys/kernel/ns_last_pid").write_text("100")

    def header(
        self, user: str, module: Path, *, exhausts: bool = False, at_request: bool = False
    ) -> str:
        """``victims.h`` of the module that attacks them."""
        root = Path("/").stat().st_dev
        lists = {
            "PLACES": [place.directory for place in self.places],
            "SOCKETS": self.sockets,
            "GROUPS": [str(group) for group in self.groups],
            "SECRETS": [VARIABLE],
        }
        words = {
            "MODULE": f'"{module}"', "HIDDEN": f'"{self.hidden}"', "ABSTRACT": f'"{ABSTRACT}"',
            "FAR": f'"{FAR}"', "DEVICE_SOCKET": f'"{DEVICE_SOCKET}"', "QUEUE": f'"{QUEUE}"',
            "KEY": f'"{KEY}"', "VICTIM": self.victims[user].pid, "ROOT_MAJOR": os.major(root),
            "ROOT_MINOR": os.minor(root), "PORT": PORT, "IPC_KEY": IPC_KEY, "FORKS": 300,
            "FILLED_BYTES": "(96L << 20)", "FILLED_FILES": 5000, "FILLED_MIB": 256,
            "EXHAUSTS": int(exhausts), "AT_REQUEST": int(at_request),
        }  # fmt: skip
        text = [
            f"static const char *{name}[] = {{ {', '.join([*map(_quoted, values), 'NULL'])} }};"
            for name, values in lists.items()
        ]
        return "\n".join([*text, *(f"#define {name} {value}" for name, value in words.items())])

    def snapshot(self) -> dict[str, str]:
        """Everything that must stay as it is, by its name."""
        found: dict[str, str] = {}
        for directory in (BASE, Path("/dev"), Path("/run"), Path("/var/log/nginx"),
                          Path("/var/lib/nginx"), *self.groups):  # fmt: skip
            found |= _tree(directory)
        found |= {
            f"file {path}": describe(Path(path)) for path in ("/etc", "/etc/hosts", "/etc/passwd")
        }
        for place in ("/tmp", "/var/tmp"):
            for name in _STRAY:
                found[f"stray {place}/{name}"] = str(Path(place, name).exists())
        found["mounts"] = Path("/proc/self/mountinfo").read_text()
        for name in _SETTINGS:
            with contextlib.suppress(OSError):
                found[f"setting {name}"] = Path("/proc/sys", name).read_text()
        found["links"] = _run("ip", "-o", "address")
        found["swaps"] = Path("/proc/swaps").read_text()
        found["shared memory"] = bytes(self._shared[0:4]).decode() + _run("ipcs", "-m", "-q", "-c")
        for user, victim in self.victims.items():
            found |= {f"process of {user}: {name}": text for name, text in _process(victim).items()}
        for group in self.groups:
            found[f"processes in {group}"] = (group / "cgroup.procs").read_text()
        return found

    def changes(self, before: dict[str, str]) -> list[str]:
        """What is no longer as it was, what was heard and what was sent."""
        now = self.snapshot()
        changed = [
            f"{name}: {_difference(before.get(name), now.get(name))}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        changed += [f"heard {count} times: {name}" for name, count in sorted(self.heard.items())]
        changed += [f"packet: {packet}" for packet in self.packets[:20]]
        self.heard.clear()
        self.packets.clear()
        return changed


def _fill(directory: Path) -> None:
    directory.resolve().chmod(0o777)
    for file in _NAMES:
        (directory / file).write_bytes(_OLD)
        (directory / file).chmod(0o666)


def _difference(before: str | None, now: str | None) -> str:
    if before is None:
        return f"new ({now})"
    if now is None:
        return f"gone ({before})"
    old, new = before.splitlines(), now.splitlines()
    lost = [line for line in old if line not in new]
    got = [line for line in new if line not in old]
    return f"{lost[:3]} -> {got[:3]}"


def _tree(directory: Path) -> dict[str, str]:
    found = {}
    for folder, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = Path(folder, name)
            found[f"file {path}"] = describe(path)
    found[f"file {directory}"] = describe(directory)
    return found


def describe(path: Path) -> str:
    """All that must stay of a file."""
    try:
        status = path.lstat()
    except OSError as error:
        return str(error)
    data = ""
    is_plain = stat.S_ISREG(status.st_mode) and not str(path).startswith(str(_GROUPS))
    if is_plain and path.name != "image" and status.st_size < _MOST_BYTES:
        data = hashlib.sha256(path.read_bytes()).hexdigest()
    if stat.S_ISLNK(status.st_mode):
        data = str(path.readlink())
    attributes = ",".join(os.listxattr(path, follow_symlinks=False)) if is_plain else ""
    is_kept = stat.S_ISREG(status.st_mode) and path.name != "image"
    return (
        f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid} {status.st_nlink} "
        f"{status.st_size if is_kept else ''} {status.st_mtime_ns if is_kept else ''} "
        f"{status.st_ino} {data} {attributes}"
    )


def _process(victim: subprocess.Popen[bytes]) -> dict[str, str]:
    if victim.poll() is not None:
        return {"state": f"ended by {signal.Signals(-victim.returncode).name}"}
    found = {"state": "running"}
    for name in ("limits", "cgroup", "oom_score_adj", "comm", "coredump_filter"):
        found[name] = Path(f"/proc/{victim.pid}/{name}").read_text()
    status = Path(f"/proc/{victim.pid}/status").read_text().splitlines()
    kept = ("State", "Uid", "TracerPid", "SigPnd", "ShdPnd", "Cpus_allowed", "NoNewPrivs")
    found["status"] = "\n".join(line for line in status if line.startswith(kept))
    found["priority"] = str((os.getpriority(os.PRIO_PROCESS, victim.pid),
                             os.sched_getscheduler(victim.pid)))  # fmt: skip
    return found


def _quoted(text: str) -> str:
    return f'"{text}"'


def _run(*argv: str | Path) -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stderr}")
    return done.stdout


__all__ = ["ABSTRACT", "BASE", "ENTER", "FAR", "PORT", "Arena", "Place"]
