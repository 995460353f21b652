"""Where an nginx listens; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import ListenAddress
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.sockets import SocketName, socket_name
from nginx_tune.conf.tree import ConfTree

_UNSAID_PORTS = (80, 8000)
_MOST_PORTS = 1024
"""Of one range that is looked at port by port."""
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
    there = set(map(_socket, after))
    lost: dict[SocketName, None] = {}
    for one in map(_socket, before):
        every = socket_name(f"{'[::]' if one.family == 'inet6' else '*'}:{one.first}")
        if one not in there and (one.family == "unix" or every not in there):
            lost[one] = None
    return list(map(str, lost))


def _socket(one: Address) -> SocketName:
    return socket_name(f"unix:{one.path}" if one.path else f"{one.host}:{one.port}")


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
    name = socket_name(line.value)
    if socket.port not in name.ports:
        return False
    if name.family == "name":
        return True
    is_six = ":" in socket.address
    if name.is_wildcard:
        return is_six == (name.family == "inet6") or (not is_six and "ipv6only=off" in line.args)
    return ipaddress.ip_address(name.host.strip("[]")) == ipaddress.ip_address(socket.address)


def addresses_of(found: Iterable[ListenAddress]) -> list[Address]:
    """Where a configuration's listeners are; what has no port that is known is left out.

    A range of ports is an address each; where it has too many of them it is left out.
    """
    return [address for one in found for address in _addresses(one)]


def _addresses(listener: ListenAddress) -> Iterator[Address]:
    speaks = _speaks(listener)
    name = listener.socket
    if listener.is_unix:
        yield Address("", 0, name.host, speaks)
    elif len(name.ports) <= _MOST_PORTS:
        yield from (Address(name.host, port, "", speaks) for port in name.ports)


def _speaks(listener: ListenAddress) -> Speaks:
    """What can be asked there: with ``http2`` and no TLS nothing else until 1.25.1.

    Source: ngx_http_init_connection(), by version.
    """
    if any("proxy_protocol" in line.args[1:] for line in listener.lines):
        return "unknown"
    if listener.is_tls:
        return "tls"
    return "http2" if listener.is_http2 else "http"
