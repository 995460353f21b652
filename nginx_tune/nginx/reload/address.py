"""The addresses where an nginx listens, the sockets that it binds, and what is in their way; pure.

Source: ngx_init_cycle (a socket of the same address is taken over), ngx_open_listening_sockets
        (SO_REUSEADDR always, SO_REUSEPORT with ``reuseport``, IPV6_V6ONLY unless
        ``ipv6only=off``); net/ipv4/inet_connection_sock.c inet_csk_bind_conflict(),
        net/ipv4/udp.c udp_lib_lport_inuse().
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import (
    ListenAddress,
    SocketName,
    Wildcards,
    is_socket_option,
    socket_name,
)
from nginx_tune.conf.scopes import http_blocks, servers
from nginx_tune.conf.tree import ConfTree
from nginx_tune.host.live_network import BoundSocket, Holder
from nginx_tune.host.parse_network import IPAddress, canonical

_UNSAID_PORTS = (80, 8000)
_MOST_PORTS = 1024
"""The longest range that is looked at port by port."""
_ONE_OF_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where to ask
Speaks = Literal["http", "http2", "tls", "unknown"]


class Address(NamedTuple):
    """A ``listen`` of the configuration."""

    host: str
    """``*`` for every address."""
    port: int
    path: str
    """The path of a socket file; empty otherwise."""
    speaks: Speaks

    def is_at(self, address: str, port: int) -> bool:
        """True for the listener at an address."""
        return self.port == port and _number(self.host) == ipaddress.ip_address(address)

    def is_named_at(self, port: int) -> bool:
        """True for the listener of a port at whatever a name stands for."""
        return not self.path and self.port == port and _number(self.host) is None


def _number(host: str) -> IPAddress | None:
    """The address of a ``listen``; null for a name."""
    try:
        return ipaddress.ip_address("0.0.0.0" if host == "*" else host.strip("[]"))  # noqa: S104
    except ValueError:
        return None


def where_to_ask(address: str) -> str:
    """The address to connect to for a listening socket: one of this host where it has them all."""
    return _ONE_OF_ALL.get(address, address)


def spoken_at(address: str, port: int, found: Sequence[Address]) -> Speaks:
    """The protocol to ask a listening socket in, by the ``listen`` that its connection is for.

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
    """The places that nginx gives up, for people; a listener of all addresses is one of each."""
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
    """The addresses of a configuration's listeners; what has no port that is known is left out.

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
    """The protocol that can be asked there: with ``http2`` and no TLS no other until 1.25.1.

    Source: ngx_http_init_connection(), by version.
    """
    if any("proxy_protocol" in line.args[1:] for line in listener.lines):
        return "unknown"
    if listener.is_tls:
        return "tls"
    return "http2" if listener.is_http2 else "http"


_EVERY = "0.0.0.0"  # noqa: S104  # compared with
_MOST_BOUND_PORTS = 4096


class Binding(NamedTuple):
    """A socket that nginx makes."""

    kind: Literal["tcp", "udp"]
    address: str
    """A number; of a name nothing is known."""
    port: int
    reuses_port: bool = False
    takes_both: bool = False
    """An IPv6 wildcard that takes IPv4 too."""
    line: Directive | None = None
    """Null for a server that has none."""

    @property
    def name(self) -> str:
        """The name that nginx says."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    @property
    def place(self) -> tuple[str, str, int]:
        """The key by which a reload knows it again."""
        return (self.kind, self.address, self.port)

    @property
    def is_wildcard(self) -> bool:
        """True for one that stands for every address."""
        return ipaddress.ip_address(self.address).is_unspecified


def bindings_of(tree: ConfTree) -> list[Binding]:
    """The sockets of http, stream and mail, each place once; those of files are left out."""
    found: dict[tuple[str, str, int], Binding] = {}
    for top in (*http_blocks(tree), *(one for one in tree.main if one.name in {"stream", "mail"})):
        for one in _bindings_in(top, tree):
            was = found.get(one.place)
            if was is None:
                found[one.place] = one
            else:  # an option of one ``listen`` holds for the socket that they share
                found[one.place] = was._replace(
                    reuses_port=was.reuses_port or one.reuses_port,
                    takes_both=was.takes_both or one.takes_both,
                )
    return list(found.values())


def _bindings_in(top: Directive, tree: ConfTree) -> Iterator[Binding]:
    block = top.block
    lines = [] if block is None else [
        one for one in block.walk() if one.name == "listen" and one.args
    ]  # fmt: skip
    by_kind: dict[str, list[Directive]] = {"tcp": [], "udp": []}
    for line in lines:
        by_kind[_kind(line)].append(line)
    if top.name == "http" and any(
        not (server.block and server.block.all("listen")) for _, server in servers(tree)
    ):
        yield Binding("tcp", _EVERY, 80)
    for kind, own in by_kind.items():
        names = [socket_name(line.value) for line in own]
        wildcards = Wildcards(names)
        forced = {
            name
            for name, line in zip(names, own, strict=True)
            if any(map(is_socket_option, line.args[1:]))
        }
        for name, line in zip(names, own, strict=True):
            # What a wildcard takes has no socket of its own.
            if name in forced or not wildcards.cover(name):
                yield from _bindings(kind, name, line)  # type: ignore[arg-type]


def _kind(line: Directive) -> str:
    return "udp" if {"udp", "quic"} & set(line.args[1:]) else "tcp"


def _bindings(kind: Literal["tcp", "udp"], name: SocketName, line: Directive) -> Iterator[Binding]:
    if name.family not in ("inet", "inet6"):
        return
    number = ipaddress.ip_address(_EVERY if name.host == "*" else name.host.strip("[]"))
    for port in name.ports[:_MOST_BOUND_PORTS]:
        yield Binding(
            kind,
            str(number),
            port,
            reuses_port="reuseport" in line.args[1:],
            takes_both="ipv6only=off" in line.args[1:],
            line=line,
        )


def socket_files_of(tree: ConfTree) -> dict[str, Directive]:
    """The socket files that nginx makes, by their full paths."""
    found: dict[str, Directive] = {}
    for line in tree.main.walk():
        if line.name == "listen" and line.value[:5].lower() == "unix:":
            path = line.value[5:]
            if path.startswith("/"):
                found.setdefault(path, line)
    return found


def in_the_way(binding: Binding, taken: Iterable[BoundSocket]) -> list[BoundSocket]:
    """Those whose place overlaps, which only options of both could make them share."""
    return [one for one in taken if _overlaps(binding, one)]


def _overlaps(binding: Binding, other: BoundSocket) -> bool:
    if (binding.kind, binding.port) != (other.kind, other.port):
        return False
    own, theirs = (
        canonical(ipaddress.ip_address(text)) for text in (binding.address, other.address)
    )
    if own.version == theirs.version:
        return own == theirs or own.is_unspecified or theirs.is_unspecified
    if own.version == 6:  # noqa: PLR2004
        return _takes_ipv4(own, is_both=binding.takes_both)
    return _takes_ipv4(theirs, is_both=not other.is_ipv6_only)


def _takes_ipv4(address: IPAddress, *, is_both: bool) -> bool:
    return address.is_unspecified and is_both


def may_share(binding: Binding, other: BoundSocket, holder: Holder | None, user_id: int) -> bool:
    """True when both may stand side by side, as far as is known: in doubt they may."""
    if binding.reuses_port and other.user_id == user_id:
        return holder is None or holder.reuses_port is not False
    if binding.kind == "tcp":  # SO_REUSEADDR helps no socket beside one that listens
        return False
    return holder is None or holder.reuses_address is not False
