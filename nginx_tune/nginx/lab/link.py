"""Clients apart from the server: a network namespace of their own, behind a limited link.

A network namespace belongs to a thread, so what shall run at the clients' end runs in a thread
that has entered it, and what it starts is born there. Nothing has a name that could be left: the
namespace lives as long as the descriptor that holds it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from nginx_tune.documents.lab import LabLink
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.disks import run_tool
from nginx_tune.nginx.lab.mounts import raise_loopback
from nginx_tune.nginx.lab.tcp import read_tcp, set_tcp

SERVER_ADDRESS, CLIENT_ADDRESS = "198.18.0.1", "198.18.0.2"
"""Of the range for measurements (RFC 2544)."""
_SERVER_END, _CLIENT_END = "lab-server", "lab-clients"
_CLONE_NEWNET = 0x40000000
_LEAST_BURST_BYTES = 256 << 10
"""Segments of up to 64 KiB must pass the bucket whole."""
_TURN_SECONDS = 0.004
"""The bucket holds what the rate lets pass in this time: the kernel's clock tick."""
_MOST_WAIT = "50ms"

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace that lives as long as this process.

    ``lo`` is up in it, and TCP is set as in the namespace that it is made from.
    """

    def __init__(self, what_for: str, *, hint: str = "") -> None:
        self._refusal = (f"no network namespace for {what_for}", hint)
        self._descriptor = _in_new_thread(self._make)
        self.name = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        """What ``ip`` knows it by."""

    def run(self, call: Callable[[], T]) -> T:
        """What a call returns when it is made in there."""

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


class ClientSide:
    """The clients' end of a link to this namespace."""

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
        """What a call returns when it is made at the clients' end."""
        return self._namespace.run(call)


def _in_new_thread(call: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


def _raise_end(name: str, address: str) -> None:
    run_tool("ip", "address", "add", f"{address}/30", "dev", name)
    run_tool("ip", "link", "set", name, "up")


def _limit(name: str, link: LabLink) -> None:
    """Bound what leaves an end, and hold it back.

    Source: tc-tbf(8): the burst must hold what the rate gives in one tick of the clock.
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
            hint=f"modprobe sch_{kind}, or leave that of the lab's link out",
        ) from None
