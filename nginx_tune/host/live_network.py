"""The network of this machine: its links, listening sockets with backlogs, and taken ports.

Links come from netlink, else from sysfs. Sockets come from sock_diag, in a process's network
namespace. Backlogs and drops are facts of the host. Taken ports are read separately, to check a
configuration's ``listen`` lines, without binding any port that others may want.

Source: sock_diag(7); net/ipv4/inet_diag.c inet_diag_msg_attrs_fill().
"""

import contextlib
import ctypes
import errno
import importlib.util
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from nginx_tune.documents.facts import Link, Queues, Rings
from nginx_tune.documents.facts_machine import Listening, ListenSocket
from nginx_tune.host.door import HostReadError
from nginx_tune.host.kernel import NETWORK_SYSCTLS, sysctl_path
from nginx_tune.host.namespaces import in_network_of, is_our_network
from nginx_tune.host.parse_network import parse_socket_link

_IFF_LOOPBACK = 0x8
_ASKED_KINDS = frozenset({"physical", "bond", "team", "vlan", "macvlan", "ipvlan", "bridge"})
"""Kinds of links whose driver may know a speed; container hosts have hundreds of other links."""
_DETAILED_KINDS = frozenset({"physical"})
_OFFLOADS = (
    ("tcp-segmentation-offload", "tso"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
    ("scatter-gather", "sg"),
)
_CARRIED_KINDS = frozenset({"vlan", "macvlan", "macvtap", "ipvlan"})
_CLASS = Path("/sys/class/net")


def read_links() -> list[Link]:
    """All links of this network namespace, sorted by name.

    Errors: HostReadError when neither netlink nor sysfs answers.
    """
    try:
        return _read_netlink()
    except (ImportError, OSError, HostReadError):
        return _read_sysfs()


def _import_pyroute2_by_parts() -> None:
    """Import pyroute2 without its ``__init__``, which imports all of its 163 modules.

    Errors: ImportError when it is not installed.
    """
    spec = importlib.util.find_spec("pyroute2") if "pyroute2" not in sys.modules else None
    if spec is not None:
        sys.modules["pyroute2"] = importlib.util.module_from_spec(spec)  # and never executed


def _read_netlink() -> list[Link]:
    _import_pyroute2_by_parts()
    from pyroute2.ethtool.ethtool import Ethtool  # noqa: PLC0415  # heavy
    from pyroute2.iproute.linux import IPRoute  # noqa: PLC0415
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        try:
            dump = list(stack.enter_context(IPRoute()).get_links())
            ethtool = stack.enter_context(Ethtool())
        except NetlinkError as error:
            raise HostReadError("links", str(error)) from None

        def ask_speed(name: str) -> int | None:
            try:
                return _bits(ethtool.get_link_mode(name).speed)
            except Exception:  # noqa: BLE001  # pyroute2 may raise anything on a driver's answer
                return _sysfs_speed(name)

        lower = _lower_names(dump)
        links = [_link(message, lower, ask_speed) for message in dump]
        detailed = [
            replace(link, **_details(ethtool, link.name)) if link.kind in _DETAILED_KINDS else link
            for link in links
        ]
        return sorted(detailed, key=lambda link: link.name)


def _details(ethtool: Any, name: str) -> dict[str, Any]:
    """The driver's queues, rings and offloads.

    Parts that the driver does not support are left out; pyroute2 raises any kind of error there.
    """
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        rings = ethtool.get_rings(name)
        found["rings"] = Rings(rx=rings.rx or 0, rx_max=rings.rx_max or 0)
    with contextlib.suppress(Exception):
        channels = ethtool.get_channels(name)
        count = (channels.combined_count or 0) + (channels.rx_count or 0)
        found["queues"] = Queues(rx=0, tx=0, rss=count or None)
    with contextlib.suppress(Exception):
        flags = ethtool.get_features(name).offload_flags
        found["offloads"] = {ours: flags[theirs] for theirs, ours in _OFFLOADS if theirs in flags}
    return found


def _lower_names(dump: list[Any]) -> dict[str, list[str]]:
    """The lower links of each link, by IFLA_MASTER and IFLA_LINK."""
    names = {message["index"]: str(message.get_attr("IFLA_IFNAME")) for message in dump}
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for message in dump:
        name = names[message["index"]]
        master = message.get_attr("IFLA_MASTER")
        if master in names:
            found[names[master]].append(name)
        carrier = message.get_attr("IFLA_LINK")
        kind = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND")
        # A carrier's index in another namespace would be some other link here.
        if kind in _CARRIED_KINDS and message.get_attr("IFLA_LINK_NETNSID") is None:
            found[name] += [names[carrier]] if carrier in names else []
    return found


def _link(
    message: Any, lower: dict[str, list[str]], ask_speed: Callable[[str], int | None]
) -> Link:
    name = str(message.get_attr("IFLA_IFNAME"))
    kind = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND")
    if kind is None:
        kind = "loopback" if message["flags"] & _IFF_LOOPBACK else "physical"
    state = message.get_attr("IFLA_OPERSTATE")
    return Link(
        name=name,
        kind=str(kind),
        state=str(state).lower() if state else None,
        speed_bits_per_second=ask_speed(name) if kind in _ASKED_KINDS else None,
        mtu=message.get_attr("IFLA_MTU"),
        lower=sorted(lower[name]),
        qdisc=message.get_attr("IFLA_QDISC"),
    )


def _read_sysfs() -> list[Link]:
    try:
        directories = sorted(_CLASS.iterdir())
    except OSError as error:
        raise HostReadError("links", error.strerror or str(error)) from None
    links = []
    for directory in directories:
        name = directory.name
        if not directory.is_dir():
            continue  # bonding_masters is a file
        mtu = _word(directory / "mtu")
        links.append(
            Link(
                name=name,
                kind=_sysfs_kind(directory),
                state=_word(directory / "operstate") or None,
                speed_bits_per_second=_sysfs_speed(name),
                mtu=int(mtu) if mtu.isdecimal() else None,
                lower=sorted(p.name.removeprefix("lower_") for p in directory.glob("lower_*")),
            )
        )
    return links


def _sysfs_kind(directory: Path) -> str | None:
    """The kind from sysfs; None for a veth, which sysfs shows only by the lack of a device."""
    if _word(directory / "type") == "772":
        return "loopback"
    if (directory / "tun_flags").exists():
        return "tun"
    for line in _word(directory / "uevent").split():
        if line.startswith("DEVTYPE="):
            return line.removeprefix("DEVTYPE=")
    return "physical" if (directory / "device").exists() else None


def _sysfs_speed(name: str) -> int | None:
    text = _word(_CLASS / name / "speed")
    return _bits(int(text)) if text.isdecimal() else None


def _bits(megabits: int | None) -> int | None:
    """The speed in bits per second; drivers report 0, -1 or unsigned -1 if it is unknown."""
    return megabits * 10**6 if megabits and 0 < megabits < (1 << 31) else None


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


_TCP_LISTEN = 1 << 10
_SKMEMINFO = 7
_DROPS = 8
"""Index of the drops in INET_DIAG_SKMEMINFO (include/uapi/linux/sock_diag.h)."""


def read_listening(pid: int | None) -> Listening:
    """The listening TCP sockets of a process's network namespace (None: ours).

    Errors: HostReadError when the kernel has no sock_diag, OSError when the namespace may not be
            entered.
    """
    if pid is None or is_our_network(pid):
        return _ask_listening()
    return in_network_of(pid, lambda: replace(_ask_listening(), sysctls=_sysctls()))


def _ask_listening() -> Listening:
    _import_pyroute2_by_parts()
    from pyroute2.netlink.diag import DiagSocket  # noqa: PLC0415  # heavy
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    sockets = []
    try:
        with DiagSocket() as diag:
            diag.bind()
            for family in (socket.AF_INET, socket.AF_INET6):
                sockets += diag.get_sock_stats(
                    family=family, states=_TCP_LISTEN, extensions=1 << (_SKMEMINFO - 1)
                )
    except NetlinkError as error:
        raise HostReadError("listening", f"sock_diag: {error}") from None
    found = sorted(map(_listen_socket, sockets), key=lambda s: (s.port, s.address, s.inode))
    return Listening(sockets=found, somaxconn=_somaxconn())


def _listen_socket(message: Any) -> ListenSocket:
    return ListenSocket(
        address=message["idiag_src"],
        port=message["idiag_sport"],
        inode=message["idiag_inode"],
        backlog=message["idiag_wqueue"],
        accept_queue=message["idiag_rqueue"],
        drops=_drops(message.get_attr("INET_DIAG_SKMEMINFO")),
    )


def _drops(meminfo: str | None) -> int | None:
    """The drops in a memory attribute, given as bytes in the form ``00:1f:…``."""
    data = bytes.fromhex((meminfo or "").replace(":", ""))
    numbers = struct.unpack(f"={len(data) // 4}I", data[: len(data) // 4 * 4])
    return numbers[_DROPS] if len(numbers) > _DROPS else None


def _sysctls() -> dict[str, str]:
    """The sysctls of the calling thread's network namespace; missing sysctls are left out."""
    found = {}
    for name in NETWORK_SYSCTLS:
        with contextlib.suppress(OSError):
            found[name] = Path(sysctl_path(name)).read_text()
    return found


def _somaxconn() -> int | None:
    """``net.core.somaxconn`` of the calling thread's network namespace."""
    try:
        return int(Path("/proc/sys/net/core/somaxconn").read_text())
    except (OSError, ValueError):
        return None


T = TypeVar("T")
_STATES = {"tcp": 1 << 10, "udp": 1 << 7}
"""States of listening sockets: TCP_LISTEN; for UDP TCP_CLOSE, the state of a bound socket without a
peer."""
_PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}
_PIDFD_GETFD = 438
"""The call's number on every architecture but alpha (Linux 5.6)."""
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class BoundSocket(NamedTuple):
    """A listening TCP socket, or a bound UDP socket."""

    kind: Literal["tcp", "udp"]
    address: str
    port: int
    inode: int
    user_id: int
    is_ipv6_only: bool


class Holder(NamedTuple):
    """A process that holds a socket, and the socket's sharing options."""

    pid: int
    name: str
    reuses_address: bool | None = None
    """SO_REUSEADDR; null if unreadable."""
    reuses_port: bool | None = None
    """SO_REUSEPORT."""


def read_bound(pid: int | None) -> list[BoundSocket]:
    """The bound sockets of a process's network namespace (None: ours).

    Errors: HostReadError when the kernel has no sock_diag, OSError when the namespace may not be
            entered.
    """
    return in_network(pid, _ask_bound)


def in_network(pid: int | None, ask: Callable[[], T]) -> T:
    """The result of a function in a process's network namespace (None: ours)."""
    return ask() if pid is None else in_network_of(pid, ask)


def _ask_bound() -> list[BoundSocket]:
    _import_pyroute2_by_parts()
    from pyroute2.netlink.diag import DiagSocket  # noqa: PLC0415  # heavy
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    found: list[BoundSocket] = []
    for kind in ("tcp", "udp"):
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                with DiagSocket() as diag:
                    diag.bind()
                    messages = diag.get_sock_stats(
                        family=family, states=_STATES[kind], protocol=_PROTOCOLS[kind]
                    )
            except NetlinkError as error:
                if kind == "udp" or family == socket.AF_INET6:  # a kernel without udp_diag, IPv6
                    continue
                raise HostReadError("bound sockets", f"sock_diag: {error}") from None
            found += [_bound_socket(kind, message) for message in messages]
    return found


def _bound_socket(kind: Literal["tcp", "udp"], message: Any) -> BoundSocket:
    return BoundSocket(
        kind,
        message["idiag_src"],
        message["idiag_sport"],
        message["idiag_inode"],
        message["idiag_uid"],
        _is_set(message.get_attr("INET_DIAG_SKV6ONLY")),
    )


def _is_set(value: object) -> bool:
    """True if a one-byte attribute, a number or pyroute2's text (``01``), is not zero."""
    return str(value).strip("0: ") not in {"", "None"}


def find_holder(inode: int) -> Holder | None:
    """A process that holds a socket; None if none is visible."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # it ended, or is another user's
            for name in os.listdir(entry / "fd"):  # noqa: PTH208  # names, not paths
                with contextlib.suppress(OSError):
                    target = os.readlink(entry / "fd" / name)  # noqa: PTH115
                    if parse_socket_link(target) == inode:
                        return _holder(int(entry.name), int(name))
    return None


def _holder(pid: int, descriptor: int) -> Holder:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        name = "a process"
    try:
        with _copied(pid, descriptor) as copy:
            address, port = (
                bool(copy.getsockopt(socket.SOL_SOCKET, option))
                for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
            )
    except OSError:
        return Holder(pid, name)
    return Holder(pid, name, address, port)


def _copied(pid: int, descriptor: int) -> socket.socket:
    """A copy of another process's socket, to read its options. Errors: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        copy = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
        if copy < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(process)
    return socket.socket(fileno=copy)


def why_not_here(host: str) -> int | None:
    """The error number if this host cannot bind to an address; None if it may be able to.

    A socket is bound to any free port, without listening. So routes of type ``local`` and
    ``ip_nonlocal_bind`` have the same effect as for nginx.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((host, 0))
    except OSError as error:
        return error.errno if error.errno in _NOT_HERE else None
    return None
