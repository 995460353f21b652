"""Where an nginx listens; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import ListenAddress, address_of, port_of
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.tree import ConfTree

_EVERY = ("*", "0.0.0.0")  # noqa: S104  # as configurations have it
_UNSAID_PORTS = (80, 8000)
_ONE_OF_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where to ask
Speaks = Literal["http", "http2", "tls", "unknown"]


class Address(NamedTuple):
    """A ``listen`` of the configuration."""

    host: str
    """``*`` for every address."""
    port: int
    path: str
    """Of a socket file; empty otherwise."""
    speaks: Speaks

    def is_at(self, address: str, port: int) -> bool:
        """Whether it is the listener at an address."""
        return self.port == port and _number(self.host) == ipaddress.ip_address(address)

    def is_named_at(self, port: int) -> bool:
        """Whether it is the listener of a port at whatever a name stands for."""
        return not self.path and self.port == port and _number(self.host) is None


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address of a ``listen``; null for a name."""
    try:
        return ipaddress.ip_address("0.0.0.0" if host == "*" else host.strip("[]"))  # noqa: S104
    except ValueError:
        return None


def where_to_ask(address: str) -> str:
    """The address to connect to for a listening socket: one of this host where it has them all."""
    return _ONE_OF_ALL.get(address, address)


def spoken_at(address: str, port: int, found: Sequence[Address]) -> Speaks:
    """What a listening socket is asked in, by the ``listen`` that its connection is for.

    Where a socket has every address, a ``listen`` of a single one of them holds there before that
    of all: ``listen 127.0.0.1:80 http2`` beside ``listen 80``. What a name stands for is not known.
    Source: ngx_http_init_connection() (by the local address, the wildcard last).
    """
    asked = where_to_ask(address)
    own = next((one for one in found if one.is_at(asked, port)), None)
    own = own or next((one for one in found if one.is_at(address, port)), None)
    if own is None:
        return "unknown"
    is_clear = all(one.speaks == own.speaks for one in found if one.is_named_at(port))
    return own.speaks if is_clear else "unknown"


def lost_addresses(before: Sequence[Address], after: Sequence[Address]) -> list[str]:
    """Where nginx listened and will not, for people; every address stands for each of them."""
    return [
        f"unix:{one.path}" if one.path else f"{one.host}:{one.port}"
        for one in before
        if not any(_covers(other, one) for other in after)
    ]


def _covers(other: Address, one: Address) -> bool:
    if one.path or other.path:
        return one.path == other.path
    is_six = one.host.startswith("[")
    return one.port == other.port and other.host in (
        one.host,
        *(("[::]",) if is_six else _EVERY),
        *(_EVERY if one.host in _EVERY else ()),
    )


class AcceptingSocket(NamedTuple):
    """A listening socket."""

    address: str
    port: int
    path: str
    speaks: Speaks

    @property
    def name(self) -> str:
        """For people."""
        if self.path:
            return f"unix:{self.path}"
        return (
            f"[{self.address}]:{self.port}"
            if ":" in self.address
            else (f"{self.address}:{self.port}")
        )


def unheard(held: Iterable[AcceptingSocket], tree: ConfTree) -> list[str]:
    """The sockets of a running nginx that a configuration would not have, for people.

    Every ``listen`` counts, of http, stream, mail and other modules alike; one that names a host is
    taken for any address of its port. Sockets of files are not looked at.
    Source: ngx_init_cycle closes the listening sockets that the new cycle has not.
    """
    lines = [line for line in tree.main.walk() if line.name == "listen" and line.args]
    # Source: ngx_http_core_server: one that says nothing listens at 80, or at 8000 if not root.
    unsaid = any(not (server.block and server.block.all("listen")) for _, server in servers(tree))
    return [
        one.name
        for one in held
        if not one.path
        and not (unsaid and one.port in _UNSAID_PORTS)
        and not any(_hears(line, one) for line in lines)
    ]


def _hears(line: Directive, socket: AcceptingSocket) -> bool:
    host, _, ports = address_of(line.value).rpartition(":")
    first, _, last = ports.partition("-")
    if not first.isdecimal() or not int(first) <= socket.port <= int(last or first):
        return False
    if host == "*":
        return ":" not in socket.address
    try:
        own = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True
    is_six = ":" in socket.address
    if own.version == 6 and own.is_unspecified:  # noqa: PLR2004
        return is_six or "ipv6only=off" in line.args
    return own == ipaddress.ip_address(socket.address)


def addresses_of(found: Iterable[ListenAddress]) -> list[Address]:
    """Where a configuration's listeners are; a name without a port that is known is left out."""
    return [address for one in found if (address := _address(one)) is not None]


def _address(listener: ListenAddress) -> Address | None:
    speaks = _speaks(listener)
    if listener.is_unix:
        return Address("", 0, listener.address.removeprefix("unix:"), speaks)
    port = port_of(listener.address)
    host = listener.address.rpartition(":")[0]
    return None if port is None else Address(host, port, "", speaks)


def _speaks(listener: ListenAddress) -> Speaks:
    """What can be asked there: with ``http2`` and no TLS nothing else until 1.25.1.

    Source: ngx_http_init_connection(), by version.
    """
    if any("proxy_protocol" in line.args[1:] for line in listener.lines):
        return "unknown"
    if listener.is_tls:
        return "tls"
    return "http2" if listener.is_http2 else "http"
