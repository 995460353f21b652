"""Where a configuration has nginx bind sockets, and what stands in the way of that; pure.

Source: ngx_init_cycle (a socket of the same address is taken over), ngx_open_listening_sockets
        (SO_REUSEADDR always, SO_REUSEPORT with ``reuseport``, IPV6_V6ONLY unless
        ``ipv6only=off``); net/ipv4/inet_connection_sock.c inet_csk_bind_conflict(),
        net/ipv4/udp.c udp_lib_lport_inuse().
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import is_socket_option
from nginx_tune.conf.scopes import http_blocks, servers
from nginx_tune.conf.sockets import SocketName, Wildcards, socket_name
from nginx_tune.conf.tree import ConfTree
from nginx_tune.host.bound_sockets import BoundSocket, Holder
from nginx_tune.host.parse_listeners import Address, canonical

_EVERY = "0.0.0.0"  # noqa: S104  # compared with
_MOST_PORTS = 4096


class Binding(NamedTuple):
    """A socket that nginx makes."""

    kind: Literal["tcp", "udp"]
    address: str
    """A number; of a name nothing is known."""
    port: int
    reuses_port: bool = False
    takes_both: bool = False
    """Of an IPv6 wildcard: IPv4 too."""
    line: Directive | None = None
    """Null for a server that has none."""

    @property
    def name(self) -> str:
        """As nginx says it."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    @property
    def place(self) -> tuple[str, str, int]:
        """By which a reload knows it again."""
        return (self.kind, self.address, self.port)

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every address."""
        return ipaddress.ip_address(self.address).is_unspecified


def bindings_of(tree: ConfTree) -> list[Binding]:
    """The sockets of http, stream and mail, each place once; those of files are left out."""
    found: dict[tuple[str, str, int], Binding] = {}
    for top in (*http_blocks(tree), *(one for one in tree.main if one.name in {"stream", "mail"})):
        for one in _of(top, tree):
            was = found.get(one.place)
            if was is None:
                found[one.place] = one
            else:  # an option of one ``listen`` holds for the socket that they share
                found[one.place] = was._replace(
                    reuses_port=was.reuses_port or one.reuses_port,
                    takes_both=was.takes_both or one.takes_both,
                )
    return list(found.values())


def _of(top: Directive, tree: ConfTree) -> Iterator[Binding]:
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
    for port in name.ports[:_MOST_PORTS]:
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


def _takes_ipv4(address: Address, *, is_both: bool) -> bool:
    return address.is_unspecified and is_both


def may_share(binding: Binding, other: BoundSocket, holder: Holder | None, user_id: int) -> bool:
    """Whether both may stand side by side, as far as is known: in doubt they may."""
    if binding.reuses_port and other.user_id == user_id:
        return holder is None or holder.reuses_port is not False
    if binding.kind == "tcp":  # SO_REUSEADDR helps no socket beside one that listens
        return False
    return holder is None or holder.reuses_address is not False
