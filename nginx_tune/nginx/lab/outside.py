"""What lies beyond the walls: a network in which every address is there, and nothing but stubs.

A network namespace of its own at the far end of a link. Inside the walls it is the way to every
address that is not the host's own, so what a configuration asks of others is asked as it stands,
whatever nginx itself listens on; and it still leads nowhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.nginx.lab.disks import run_tool
from nginx_tune.nginx.lab.link import Namespace

_NEAR, _FAR = "198.19.255.1", "198.19.255.2"
"""Of the range for measurements (RFC 2544)."""
_NEAR_6, _FAR_6 = "fdaf::1", "fdaf::2"
_NEAR_END, _FAR_END = "lab-way-out", "lab-outside"

T = TypeVar("T")


class Outside:
    """The network beyond the walls, reached from this namespace."""

    def __init__(self) -> None:
        """Make it. Errors: UndecidedError where the kernel or this user cannot."""
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
        """Have an address by its name out there, for answers that must come from it."""
        if ":" in address:
            words = ["ip", "-6", "address", "add", f"{address}/128", "dev", "lo", "nodad"]
        else:
            words = ["ip", "address", "add", f"{address}/32", "dev", "lo"]
        self.run(lambda: run_tool(*words))

    def run(self, call: Callable[[], T]) -> T:
        """What a call returns when it is made out there."""
        return self._namespace.run(call)


def open_outside() -> tuple[Outside | None, str]:
    """The network beyond the walls; None and the reason where there can be none."""
    try:
        return Outside(), ""
    except NginxTuneError as error:
        return None, error.message


def _take_every_address() -> None:
    _raise_end(_FAR_END, _FAR)
    # In the table of the links, where their own networks come first: answers find their way.
    run_tool("ip", "route", "add", "local", "default", "dev", "lo", "table", "main")


def _take_every_address_6() -> None:
    _raise_end_6(_FAR_END, _FAR_6)
    run_tool("ip", "-6", "route", "add", "local", "default", "dev", "lo", "table", "main")


def _raise_end(name: str, address: str) -> None:
    run_tool("ip", "address", "add", f"{address}/30", "dev", name)
    run_tool("ip", "link", "set", name, "up")


def _raise_end_6(name: str, address: str) -> None:
    # Without the search for duplicates, which takes a second or two.
    run_tool("ip", "-6", "address", "add", f"{address}/126", "dev", name, "nodad")
