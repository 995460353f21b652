"""The networks of a lab: clients behind a limited link, and the world beyond the sandbox.

A network namespace belongs to a thread. So a call in another namespace runs in a thread that enters
it, and processes that it starts are born there. A namespace has no name that could be left behind:
it lives as long as the descriptor that holds it.

Beyond the sandbox every address exists, but only stubs answer. They are in the namespace at the far
end of a link, to which all addresses but the host's are routed. So requests to others keep their
address, whatever nginx itself listens on, and still never leave the host.

TCP has the target's settings in each namespace, or else those of a stock kernel, never this
machine's. A new namespace inherits the host's congestion control. Under BBR, which paces, a limited
link and many connections behave differently from CUBIC or Reno.
"""

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from nginx_tune.documents.lab import TCP_SETTINGS, LabLink
from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.nginx.lab.disks import run_tool
from nginx_tune.nginx.lab.enclosure import raise_loopback

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)
SERVER_ADDRESS, CLIENT_ADDRESS = "198.18.0.1", "198.18.0.2"
"""Addresses of the range for measurements (RFC 2544)."""
_SERVER_END, _CLIENT_END = "lab-server", "lab-clients"
_CLONE_NEWNET = 0x40000000
_LEAST_BURST_BYTES = 256 << 10
"""Minimum size of the bucket: segments of up to 64 KiB must fit into it."""
_TURN_SECONDS = 0.004
"""Time that fills the bucket, which is a tick of the kernel's clock."""
_MOST_WAIT = "50ms"


class Namespace:
    """A network namespace that lives as long as this process.

    ``lo`` is up, and TCP has the settings of the parent namespace.
    """

    def __init__(self, what_for: str, *, hint: str = "") -> None:
        self._refusal = (f"no network namespace for {what_for}", hint)
        self._descriptor = _in_new_thread(self._make)
        self.name = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        """The name to give to ``ip``."""

    def run(self, call: Callable[[], T]) -> T:
        """Call a function in the namespace."""

        def enter_and_call() -> T:
            self._check(_libc.setns(self._descriptor, _CLONE_NEWNET))
            return call()

        return _in_new_thread(enter_and_call)

    def _make(self) -> int:
        tcp = read_tcp()
        self._check(_libc.unshare(_CLONE_NEWNET))
        raise_loopback()
        set_tcp(tcp)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def _check(self, status: int) -> None:
        if status != 0:
            message, hint = self._refusal
            raise UndecidedError(f"{message}: {os.strerror(ctypes.get_errno())}", hint=hint)


def _in_new_thread(call: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


class ClientSide:
    """The clients' end of a link that leads to this namespace."""

    def __init__(self, link: LabLink) -> None:
        self._namespace = Namespace("clients", hint='leave topology = "link" out')
        run_tool(
            "ip", "link", "add", _SERVER_END, "type", "veth",
            "peer", "name", _CLIENT_END, "netns", self._namespace.name,
        )  # fmt: skip
        _raise_end(_SERVER_END, SERVER_ADDRESS)
        _limit(_SERVER_END, link)
        self.run(lambda: _raise_end(_CLIENT_END, CLIENT_ADDRESS))
        self.run(lambda: _limit(_CLIENT_END, link))

    def run(self, call: Callable[[], T]) -> T:
        """Call a function in the namespace of the clients."""
        return self._namespace.run(call)


def _raise_end(name: str, address: str) -> None:
    run_tool("ip", "address", "add", f"{address}/30", "dev", name)
    run_tool("ip", "link", "set", name, "up")


def _limit(name: str, link: LabLink) -> None:
    """Limit and delay the traffic that leaves one end of a link.

    Source: tc-tbf(8): the burst must hold the bytes of one tick of the clock.
    """
    parent = ["root"]
    if link.bits_per_second is not None:
        burst = max(_LEAST_BURST_BYTES, round(link.bits_per_second / 8 * _TURN_SECONDS))
        rate = ["rate", f"{link.bits_per_second}bit", "burst", str(burst), "latency", _MOST_WAIT]
        _shape(name, ["root", "handle", "1:", "tbf", *rate], "tbf")
        parent = ["parent", "1:1"]
    if link.delay_seconds > 0:
        delay = f"{1e6 * link.delay_seconds:.0f}us"
        _shape(name, [*parent, "netem", "delay", delay, "limit", "100000"], "netem")


def _shape(name: str, words: list[str], kind: str) -> None:
    try:
        run_tool("tc", "qdisc", "add", "dev", name, *words)
    except UndecidedError as error:
        if "tc qdisc" not in error.message:
            raise
        raise UndecidedError(
            f"this kernel has no {kind}: {error.message}",
            hint=f"modprobe sch_{kind}, or remove that setting of the lab's link",
        ) from None


_NEAR, _FAR = "198.19.255.1", "198.19.255.2"
"""Addresses of the range for measurements (RFC 2544)."""
_NEAR_6, _FAR_6 = "fdaf::1", "fdaf::2"
_NEAR_END, _FAR_END = "lab-way-out", "lab-outside"


class Outside:
    """The network beyond the sandbox, reached from this namespace."""

    def __init__(self) -> None:
        """Create the network.

        Errors: UndecidedError if the kernel or this user cannot create it.
        """
        self._namespace = Namespace("what lies outside")
        run_tool(
            "ip", "link", "add", _NEAR_END, "type", "veth",
            "peer", "name", _FAR_END, "netns", self._namespace.name,
        )  # fmt: skip
        _raise_end(_NEAR_END, _NEAR)
        run_tool("ip", "route", "add", "default", "via", _FAR)
        self.run(_take_every_address)
        with contextlib.suppress(UndecidedError):  # a kernel without IPv6
            _raise_end_6(_NEAR_END, _NEAR_6)
            run_tool("ip", "-6", "route", "add", "default", "via", _FAR_6, "dev", _NEAR_END)
            self.run(_take_every_address_6)

    def take(self, address: str) -> None:
        """Add an address to the outside network, for answers that must come from that address."""
        if ":" in address:
            words = ["ip", "-6", "address", "add", f"{address}/128", "dev", "lo", "nodad"]
        else:
            words = ["ip", "address", "add", f"{address}/32", "dev", "lo"]
        self.run(lambda: run_tool(*words))

    def run(self, call: Callable[[], T]) -> T:
        """Call a function in the outside network."""
        return self._namespace.run(call)


def open_outside() -> tuple[Outside | None, str]:
    """The network beyond the sandbox; None and the reason if it is impossible."""
    try:
        return Outside(), ""
    except NginxTuneError as error:
        return None, error.message


def _take_every_address() -> None:
    _raise_end(_FAR_END, _FAR)
    # In the main table: there the networks of the links come first, so answers find their way.
    run_tool("ip", "route", "add", "local", "default", "dev", "lo", "table", "main")


def _take_every_address_6() -> None:
    _raise_end_6(_FAR_END, _FAR_6)
    run_tool("ip", "-6", "route", "add", "local", "default", "dev", "lo", "table", "main")


def _raise_end_6(name: str, address: str) -> None:
    # Without duplicate address detection, which would take a second or two.
    run_tool("ip", "-6", "address", "add", f"{address}/126", "dev", name, "nodad")


_CONTROL, _RECEIVE, _SEND = TCP_SETTINGS
_STOCK = {_CONTROL: "cubic", _RECEIVE: "4096 131072 6291456", _SEND: "4096 16384 4194304"}
"""The kernel's defaults on a machine with at least 4 GiB of memory.

Source: Documentation/networking/ip-sysctl.rst; net/ipv4/tcp.c, tcp_init().
"""
_ALWAYS_ALLOWED = "reno"
"""The congestion control that every namespace may choose (net/ipv4/tcp_cong.c, tcp_reno)."""
_KNOWN = "net.ipv4.tcp_available_congestion_control"


def set_tcp(wanted: Mapping[str, str]) -> dict[str, str]:
    """Set TCP in this thread's network namespace, and return the resulting settings by sysctl.

    If a congestion control is not loaded, or namespaces may not choose it
    (``tcp_allowed_congestion_control``), CUBIC replaces it; if CUBIC cannot be set either, Reno
    does.
    """
    values = {**_STOCK, **wanted}
    controls = (values.pop(_CONTROL), _STOCK[_CONTROL], _ALWAYS_ALLOWED)
    for name, value in values.items():
        with contextlib.suppress(OSError):
            _sysctl_file(name).write_text(value)
    # Writing the name of one that is not loaded would make the kernel load a module.
    loaded = _read_sysctl(_KNOWN).split()
    for control in controls:
        if control in loaded:
            with contextlib.suppress(OSError):
                _sysctl_file(_CONTROL).write_text(control)
                break
    return read_tcp()


def read_tcp() -> dict[str, str]:
    """The TCP settings of this thread's network namespace.

    Empty before Linux 4.15: they are the host's, and a namespace has no files for them.
    """
    return {name: value for name in TCP_SETTINGS if (value := " ".join(_read_sysctl(name).split()))}


def differing(held: Mapping[str, str], target: Mapping[str, str], where: str) -> list[str]:
    """Notes on settings that differ from the target's; ``where`` names the target."""
    return [
        f"{name} is {held[name]} in the lab and {value} on {where}"
        for name, value in target.items()
        if name in held and held[name].split() != value.split()
    ]


def _read_sysctl(name: str) -> str:
    try:
        return _sysctl_file(name).read_text()
    except OSError:
        return ""


def _sysctl_file(name: str) -> Path:
    return Path("/proc/sys", *name.split("."))


_SIOCSIFADDR = 0x8916
_LOOPBACK_INDEX = 1


def take_addresses(addresses: Iterable[str]) -> None:
    """Add to ``lo`` the addresses that the host's interfaces have outside the sandbox.

    An address that the kernel refuses is left out; nginx reports it when it binds to it.
    Source: netdevice(7); in6_ifreq of linux/ipv6.h.
    """
    for number, text in enumerate(addresses, start=1):
        address = ipaddress.ip_address(text)
        with contextlib.suppress(OSError):
            if address.version == 4:  # noqa: PLR2004
                _take_ipv4(f"lo:{number}", address.packed)
            else:
                _take_ipv6(address.packed)


def _take_ipv4(alias: str, packed: bytes) -> None:
    """Add an alias of ``lo`` with this address."""
    # struct ifreq: the name, then a sockaddr_in, whose family is in the host's byte order.
    place = struct.pack("=H2x4s8x", socket.AF_INET, packed)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16s16s8x", alias.encode(), place)
        fcntl.ioctl(sock, _SIOCSIFADDR, request)


def _take_ipv6(packed: bytes) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFADDR, struct.pack("=16sIi", packed, 128, _LOOPBACK_INDEX))


_DAYS = 2


class Certificate(NamedTuple):
    """The PEM files of a certificate and its key."""

    certificate: Path
    key: Path


def make_certificate(directory: Path, *, names: list[str]) -> Certificate:
    """Make a certificate on P-256, the most common curve, for names and IP addresses.

    The openssl program makes it: hosts with nginx have that, so no package is needed.
    Errors: MissingToolError without it.
    """
    made = Certificate(directory / "certificate.pem", directory / "certificate.key")
    alternatives = ",".join(
        f"{'IP' if name.replace('.', '').isdigit() else 'DNS'}:{name}" for name in names
    )
    run_tool(
        "openssl", "req", "-x509", "-nodes", "-newkey", "ec",
        "-pkeyopt", "ec_paramgen_curve:P-256", "-days", str(_DAYS),
        "-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={alternatives}",
        "-keyout", str(made.key), "-out", str(made.certificate),
    )  # fmt: skip
    made.key.chmod(0o600)
    return made
