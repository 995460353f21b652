"""This machine for the collector: files, programs and netlink, without any library.

This file is part of the collector: standard library, Python 3.6.
"""

import fcntl
import os
import socket
import struct
import subprocess
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from nginx_tune.host.kernel import NETWORK_SYSCTLS
from nginx_tune.host.lab_mark import is_in_lab
from nginx_tune.host.parse_elf import version_texts
from nginx_tune.host.programs import find_program, start_program, why_distrusted
from nginx_tune.host.trust import caller_id

_MAX_BYTES = 64 << 20
_SECONDS = 10
_AF_NETLINK, _NETLINK_ROUTE, _NETLINK_SOCK_DIAG = 16, 0, 4
_RTM_GETLINK, _SOCK_DIAG_BY_FAMILY = 18, 20
_DUMP = 0x301
_ERROR, _DONE = 2, 3
_NESTED_MASK = 0x3FFF
_IFNAME, _MTU, _LINK, _QDISC, _MASTER, _OPERSTATE, _LINKINFO, _NETNSID = 3, 4, 5, 6, 10, 16, 18, 37
_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_LOOPBACK = 0x8
_ASKED_KINDS = ("physical", "bond", "team", "vlan", "macvlan", "ipvlan", "bridge")
_CARRIED_KINDS = ("vlan", "macvlan", "macvtap", "ipvlan")
_LISTEN = 1 << 10
_SKMEMINFO, _DROPS = 7, 8

_SIOCETHTOOL = 0x8946
_GSET, _GRINGPARAM, _GCHANNELS = 0x1, 0x10, 0x3C
_OFFLOADS = (("tso", 0x1E), ("gso", 0x23), ("gro", 0x2B), ("sg", 0x18))
"""Source of the numbers above:
include/uapi/linux/{netlink,rtnetlink,if_link,inet_diag,ethtool}.h."""


class Here:
    """This machine. The methods raise OSError or ValueError."""

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file, without blocking on a FIFO."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            parts: List[bytes] = []
            size = 0
            while size <= _MAX_BYTES:
                part = os.read(descriptor, 1 << 16)
                if not part:
                    return b"".join(parts)
                parts.append(part)
                size += len(part)
        finally:
            os.close(descriptor)
        raise ValueError("larger than {} MiB".format(_MAX_BYTES >> 20))

    def list_dir(self, path: str) -> List[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))  # noqa: PTH208

    def read_link(self, path: str) -> str:
        """The target of a symbolic link."""
        return os.readlink(path)  # noqa: PTH115

    def real_path(self, path: str) -> str:
        """The path with every link resolved; the file must exist."""
        os.stat(path)  # noqa: PTH116
        return os.path.realpath(path)

    def device_of(self, path: str) -> Tuple[int, int]:
        """The device number of a path's file system."""
        number = os.stat(path).st_dev  # noqa: PTH116
        return os.major(number), os.minor(number)

    def room(self, path: str) -> Tuple[int, int]:
        """The size of a path's file system, and the space that an ordinary user can write."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def run(self, argv: Sequence[str]) -> Tuple[int, str, str]:
        """The status, standard output and standard error of a program, run without a shell."""
        process = start_program(
            argv,
            environment={"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise ValueError("took too long")  # noqa: B904
        texts = [data.decode(errors="surrogateescape") for data in (out, err)]
        return process.returncode, texts[0], texts[1]

    def version_texts(self, path: str) -> str:
        """The version texts in the file of an nginx program."""
        return version_texts(self.read_bytes(path))

    def find_program(self, name: str) -> str:
        """The absolute path of a program that may be run."""
        return find_program(name)

    def distrust(self, path: str) -> str:
        """The reason why an untrusted user could write a program; empty if none could."""
        return why_distrusted(path)

    def caller(self) -> int:
        """The id of the calling user."""
        return caller_id()

    def is_in_lab(self, pid: int) -> bool:
        """True for a process of an nginx-tune lab."""
        return is_in_lab(self, pid)

    def processes(self, *names: str) -> List[int]:
        """The ids of the processes with these names."""
        wanted = {name.encode() for name in names}
        found = []
        for entry in os.listdir("/proc"):  # noqa: PTH208
            if entry.isdigit():
                try:
                    comm = self.read_bytes("/proc/{}/comm".format(entry))
                except (OSError, ValueError):
                    continue  # it ended meanwhile
                if comm.rstrip(b"\n") in wanted:
                    found.append(int(entry))
        return sorted(found)

    def links(self) -> List[Dict[str, Any]]:
        """The network links from rtnetlink, with speeds, rings and offloads from ethtool."""
        rows = []
        for data in _dump(_NETLINK_ROUTE, _RTM_GETLINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0)):
            index, flags = struct.unpack_from("=4xiI", data)
            rows.append((index, flags, dict(_attributes(data[16:]))))
        names = {index: _text(attributes[_IFNAME]) for index, _, attributes in rows}
        lower: Dict[str, List[str]] = {name: [] for name in names.values()}
        links = []
        for index, flags, attributes in rows:
            name = names[index]
            info = dict(_attributes(attributes.get(_LINKINFO, b"")))
            kind = _text(info[1]) if 1 in info else None
            master = _number(attributes.get(_MASTER))
            if master in names:
                lower[names[master]].append(name)
            carrier = _number(attributes.get(_LINK))
            if kind in _CARRIED_KINDS and _NETNSID not in attributes and carrier in names:
                lower[name].append(names[carrier])
            kind = kind or ("loopback" if flags & _LOOPBACK else "physical")
            state = attributes.get(_OPERSTATE, b"\0")[0]
            link = {
                "name": name,
                "kind": kind,
                "state": _STATES[state] if state < len(_STATES) else None,
                "mtu": _number(attributes.get(_MTU)),
                "lower": lower[name],
                "qdisc": _text(attributes[_QDISC]) if _QDISC in attributes else None,
                "speed_bits_per_second": _speed(name) if kind in _ASKED_KINDS else None,
            }
            if kind == "physical":
                link.update(_details(name))
            links.append(link)
        for names_below in lower.values():
            names_below.sort()
        return sorted(links, key=lambda link: str(link["name"]))

    def listening(self, pid: Optional[int]) -> Dict[str, Any]:
        """The listening TCP sockets of a process's network namespace, by sock_diag."""
        if pid is None or os.stat("/proc/{}/ns/net".format(pid)).st_ino == _own_network():  # noqa: PTH116
            return _listening()
        result: List[Any] = []  # the answer, or the error

        def enter_and_ask() -> None:
            try:
                _enter(pid)
                result.append(dict(_listening(), sysctls=_network_sysctls()))
            except (OSError, ValueError) as error:
                result.append(error)

        thread = threading.Thread(target=enter_and_ask)
        thread.start()
        thread.join()
        if isinstance(result[0], Exception):
            raise result[0]
        return dict(result[0])


def _own_network() -> int:
    return os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116


def _enter(pid: Optional[int]) -> None:
    import ctypes  # noqa: PLC0415  # not on every Python

    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/{}/ns/net".format(pid), "rb") as file:  # noqa: PTH123
        if libc.setns(file.fileno(), 0x40000000) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _listening() -> Dict[str, Any]:
    found = []
    for family, size in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
        request = struct.pack("=BBBxI48x", family, 6, 1 << (_SKMEMINFO - 1), _LISTEN)
        for data in _dump(_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, request):
            (port,) = struct.unpack_from(">H", data, 4)
            queue, backlog, _, inode = struct.unpack_from("=IIII", data, 56)
            memory = dict(_attributes(data[72:])).get(_SKMEMINFO, b"")
            drops = None
            if len(memory) >= 4 * (_DROPS + 1):
                (drops,) = struct.unpack_from("=I", memory, 4 * _DROPS)
            found.append(
                {
                    "address": socket.inet_ntop(family, data[8 : 8 + size]),
                    "port": port,
                    "inode": inode,
                    "backlog": backlog,
                    "accept_queue": queue,
                    "drops": drops,
                }
            )
    found.sort(key=lambda sock: (sock["port"], sock["address"], sock["inode"]))
    try:
        with open("/proc/sys/net/core/somaxconn") as file:  # noqa: PTH123
            somaxconn: Optional[int] = int(file.read())
    except (OSError, ValueError):
        somaxconn = None
    return {"sockets": found, "somaxconn": somaxconn}


def _network_sysctls() -> Dict[str, str]:
    found = {}
    for name in NETWORK_SYSCTLS:
        try:
            with open("/proc/sys/" + name.replace(".", "/")) as file:  # noqa: PTH123
                found[name] = file.read()
        except OSError:
            continue
    return found


def _dump(protocol: int, kind: int, request: bytes) -> Iterator[bytes]:
    """The payload of each message in the answer to a netlink dump."""
    with socket.socket(_AF_NETLINK, socket.SOCK_RAW, protocol) as asked:
        asked.settimeout(_SECONDS)
        asked.send(struct.pack("=IHHII", 16 + len(request), kind, _DUMP, 1, 0) + request)
        while True:
            data = asked.recv(1 << 18)
            while len(data) >= 16:
                size, answer = struct.unpack_from("=IH", data)
                if answer == _DONE or size < 16:
                    return
                if answer == _ERROR:
                    number = -struct.unpack_from("=i", data, 16)[0]
                    raise OSError(number, os.strerror(number))
                yield data[16:size]
                data = data[size + 3 & ~3 :]


def _attributes(data: bytes) -> Iterator[Tuple[int, bytes]]:
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        if size < 4:
            return
        yield kind & _NESTED_MASK, data[4:size]
        data = data[size + 3 & ~3 :]


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="surrogateescape")


def _number(data: Optional[bytes]) -> Any:
    return struct.unpack("=I", data)[0] if data and len(data) == 4 else None


def _speed(name: str) -> Optional[int]:
    settings = _ethtool(name, _GSET, 10)
    if settings is None:
        try:
            with open("/sys/class/net/{}/speed".format(name)) as file:  # noqa: PTH123
                megabits = int(file.read())
        except (OSError, ValueError):
            return None
    else:
        # struct ethtool_cmd has the speed in two halves.
        megabits = settings[2] & 0xFFFF | (settings[6] & 0xFFFF) << 16
    return megabits * 10**6 if 0 < megabits < 1 << 31 else None


def _details(name: str) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    rings = _ethtool(name, _GRINGPARAM, 8)
    if rings:
        found["rings"] = {"rx_max": rings[0], "rx": rings[4]}
    channels = _ethtool(name, _GCHANNELS, 8)
    if channels:
        found["queues"] = {"rx": 0, "tx": 0, "rss": channels[4] + channels[7] or None}
    offloads = {}
    for word, command in _OFFLOADS:
        value = _ethtool(name, command, 1)
        if value:
            offloads[word] = bool(value[0])
    if offloads:
        found["offloads"] = offloads
    return found


def _ethtool(name: str, command: int, count: int) -> Optional[Tuple[int, ...]]:
    """The driver's numbers for an ethtool command; None when it refuses."""
    import ctypes  # noqa: PLC0415  # not on every Python

    try:
        data = ctypes.create_string_buffer(struct.pack("=I", command), 4 + 4 * count)
        request = struct.pack("@16sP16x", os.fsencode(name)[:15], ctypes.addressof(data))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            fcntl.ioctl(asked.fileno(), _SIOCETHTOOL, request)
    except OSError:
        return None
    return struct.unpack("={}I".format(count), data.raw[4:])
