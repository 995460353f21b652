"""The addresses that an nginx listens on, its sockets, and conflicting sockets of others; pure.

Source: ngx_init_cycle (a socket of the same address is taken over), ngx_open_listening_sockets
        (SO_REUSEADDR always, SO_REUSEPORT with ``reuseport``, IPV6_V6ONLY unless
        ``ipv6only=off``); net/ipv4/inet_connection_sock.c inet_csk_bind_conflict(),
        net/ipv4/udp.c udp_lib_lport_inuse().
"""

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
"""The longest port range that is expanded, in ports."""
_ONE_OF_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where to connect
Speaks = Literal["http", "http2", "tls", "unknown"]


class Address(NamedTuple):
    """An address that the configuration listens on."""

    host: str
    """``*`` for all addresses."""
    port: int
    path: str
    """The path of a socket file; empty for an address."""
    speaks: Speaks

    def is_at(self, address: str, port: int) -> bool:
        """True if this is the listener at the given address and port."""
        return self.port == port and _number(self.host) == ipaddress.ip_address(address)

    def is_named_at(self, port: int) -> bool:
        """True if this listener has the given port, at a host given by name."""
        return not self.path and self.port == port and _number(self.host) is None


def _number(host: str) -> IPAddress | None:
    """The address of a ``listen`` as a number; None for a name."""
    try:
        return ipaddress.ip_address("0.0.0.0" if host == "*" else host.strip("[]"))  # noqa: S104
    except ValueError:
        return None


def where_to_ask(address: str) -> str:
    """The address at which to reach a listening socket: loopback for a wildcard."""
    return _ONE_OF_ALL.get(address, address)


def spoken_at(address: str, port: int, found: Sequence[Address]) -> Speaks:
    """The protocol of a listening socket, from the ``listen`` that takes its connections.

    At a wildcard socket, a ``listen`` with a single address takes precedence over one with all
    addresses: ``listen 127.0.0.1:80 http2`` over ``listen 80``. The address of a name is not known.
    Source: ngx_http_init_connection() (by the local address, the wildcard last).
    """
    asked = where_to_ask(address)
    own = next((listen for listen in found if listen.is_at(asked, port)), None)
    own = own or next((listen for listen in found if listen.is_at(address, port)), None)
    if own is None:
        return "unknown"
    is_clear = all(listen.speaks == own.speaks for listen in found if listen.is_named_at(port))
    return own.speaks if is_clear else "unknown"


def lost_addresses(before: Sequence[Address], after: Sequence[Address]) -> list[str]:
    """The addresses that nginx gives up, as text; a wildcard listener covers every address."""
    there = set(map(_socket, after))
    lost: dict[SocketName, None] = {}
    for place in map(_socket, before):
        every = socket_name(f"{'[::]' if place.family == 'inet6' else '*'}:{place.first}")
        if place not in there and (place.family == "unix" or every not in there):
            lost[place] = None
    return list(map(str, lost))


def _socket(address: Address) -> SocketName:
    return socket_name(f"unix:{address.path}" if address.path else f"{address.host}:{address.port}")


class AcceptingSocket(NamedTuple):
    """A listening socket."""

    address: str
    port: int
    path: str
    speaks: Speaks

    @property
    def name(self) -> str:
        """The address as text."""
        if self.path:
            return f"unix:{self.path}"
        return (
            f"[{self.address}]:{self.port}"
            if ":" in self.address
            else (f"{self.address}:{self.port}")
        )


def unheard(held: Iterable[AcceptingSocket], tree: ConfTree) -> list[str]:
    """The sockets of a running nginx that a configuration would close, as text.

    Every ``listen`` counts, in http, stream, mail and other modules. A named host may be any
    address, so it counts for its port at every address. Socket files are ignored.
    Source: ngx_init_cycle closes the listening sockets that the new cycle lacks.
    """
    lines = [line for line in tree.main.walk() if line.name == "listen" and line.args]
    # A server without ``listen`` has port 80, or 8000 without root. Source: ngx_http_core_server.
    unsaid = any(not (server.block and server.block.all("listen")) for _, server in servers(tree))
    return [
        sock.name
        for sock in held
        if not sock.path
        and not (unsaid and sock.port in _UNSAID_PORTS)
        and not any(_hears(line, sock) for line in lines)
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
    """The addresses of listeners, except those with unknown ports.

    A port range gives one address per port; a range that is too long is left out.
    """
    return [address for listener in found for address in _addresses(listener)]


def _addresses(listener: ListenAddress) -> Iterator[Address]:
    speaks = _speaks(listener)
    name = listener.socket
    if listener.is_unix:
        yield Address("", 0, name.host, speaks)
    elif len(name.ports) <= _MOST_PORTS:
        yield from (Address(name.host, port, "", speaks) for port in name.ports)


def _speaks(listener: ListenAddress) -> Speaks:
    """The protocol to speak there: before 1.25.1, ``http2`` without TLS allows no other.

    Source: ngx_http_init_connection(), by version.
    """
    if any("proxy_protocol" in line.args[1:] for line in listener.lines):
        return "unknown"
    if listener.is_tls:
        return "tls"
    return "http2" if listener.is_http2 else "http"


_EVERY = "0.0.0.0"  # noqa: S104  # for comparison
_MOST_BOUND_PORTS = 4096


class Binding(NamedTuple):
    """A socket that nginx binds."""

    kind: Literal["tcp", "udp"]
    address: str
    """The numeric address."""
    port: int
    reuses_port: bool = False
    takes_both: bool = False
    """True for an IPv6 wildcard that also takes IPv4."""
    line: Directive | None = None
    """The ``listen`` line; None for a server without such a line."""

    @property
    def name(self) -> str:
        """The address as nginx prints it."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    @property
    def place(self) -> tuple[str, str, int]:
        """The key that identifies the socket at a reload."""
        return (self.kind, self.address, self.port)

    @property
    def is_wildcard(self) -> bool:
        """True for a socket that listens on all addresses."""
        return ipaddress.ip_address(self.address).is_unspecified


def bindings_of(tree: ConfTree) -> list[Binding]:
    """The sockets of http, stream and mail, each listed once; socket files are left out."""
    found: dict[tuple[str, str, int], Binding] = {}
    for top in (
        *http_blocks(tree),
        *(binding for binding in tree.main if binding.name in {"stream", "mail"}),
    ):
        for binding in _bindings_in(top, tree):
            was = found.get(binding.place)
            if was is None:
                found[binding.place] = binding
            else:  # an option of one ``listen`` applies to the shared socket
                found[binding.place] = was._replace(
                    reuses_port=was.reuses_port or binding.reuses_port,
                    takes_both=was.takes_both or binding.takes_both,
                )
    return list(found.values())


def _bindings_in(top: Directive, tree: ConfTree) -> Iterator[Binding]:
    by_kind: dict[str, list[Directive]] = {"tcp": [], "udp": []}
    for line in top.block.walk() if top.block else ():
        if line.name == "listen" and line.args:
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
            # An address that a wildcard covers has no socket of its own.
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
    """The socket files that nginx binds, by full path, with their lines."""
    found: dict[str, Directive] = {}
    for line in tree.main.walk():
        if line.name == "listen" and line.value[:5].lower() == "unix:":
            path = line.value[5:]
            if path.startswith("/"):
                found.setdefault(path, line)
    return found


def in_the_way(binding: Binding, taken: Iterable[BoundSocket]) -> list[BoundSocket]:
    """The sockets that overlap with a binding.

    Both can be bound only with the right socket options.
    """
    return [other for other in taken if _overlaps(binding, other)]


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
    """False if the two sockets certainly conflict."""
    if binding.reuses_port and other.user_id == user_id:
        return holder is None or holder.reuses_port is not False
    if binding.kind == "tcp":  # SO_REUSEADDR does not help if another socket listens
        return False
    return holder is None or holder.reuses_address is not False
