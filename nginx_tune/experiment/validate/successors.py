"""Which server of the candidate answers in the place of each of the baseline's; pure.

A host that no server names is answered all the same: by the default server of its address, or by a
wildcard's. Where that one stood there before for others, what was asked for is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import name_score
from nginx_tune.conf.sockets import SocketName
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.virtual_servers import (
    NOBODY,
    Answering,
    VirtualServers,
    names_of,
    sample_hosts,
    virtual_servers,
)
from nginx_tune.experiment.validate.lost import is_reached

_NO_NAMES = frozenset({"", "_", "localhost"})
"""What servers are called that are reached because no other is named."""


class Successors(NamedTuple):
    """Of the baseline's servers."""

    servers: dict[Directive, Directive]
    """What answers in the candidate who asks for the first name of one that is left."""
    hosts: dict[Directive, str]
    """Whom to ask for where the first name of a server is lost and another is not."""
    gone: set[Directive]
    """Servers of the baseline of which no name is left."""
    lost: list[str]
    """Names that fall to a server that they were kept from before."""


def find_successors(baseline: ConfTree, candidate: ConfTree) -> Successors:
    """What answers in the candidate for each address and name of the baseline."""
    there = virtual_servers(candidate)
    found: dict[Directive, dict[str, Directive]] = {}
    firm: dict[Directive, Directive] = {}
    missing: dict[Directive, set[str]] = {}
    lost: dict[tuple[str, str], dict[str, None]] = {}
    for before in virtual_servers(baseline):
        for after in _reached(before, there):
            place = _Place(before, after)
            for server, name, host in _samples(before):
                if reason := place.lost_to(server, host):
                    missing.setdefault(server, set()).add(host)
                    if not _refuses(server):
                        lost.setdefault((before.address, reason), {})[name] = None
                    continue
                other = after.choose(host).server
                found.setdefault(server, {}).setdefault(host, other)
                if place.continues(server, other):
                    firm.setdefault(server, other)
    return Successors(
        {
            server: firm.get(server, next(iter(by_host.values())))
            for server, by_host in found.items()
        },
        {
            server: next(host for host in found[server] if host not in hosts)
            for server, hosts in missing.items()
            if not hosts.issuperset(found.get(server, ()))
        },
        {server for server, hosts in missing.items() if hosts.issuperset(found.get(server, ()))},
        [f"{address}, {', '.join(names)}: {why}" for (address, why), names in lost.items()],
    )


class _Place:
    """An address of the baseline and what a client reaches there in the candidate."""

    def __init__(self, before: VirtualServers, after: VirtualServers) -> None:
        self._before, self._after = before, after
        self._names = {one: _own_names(one) for one in (*before.servers, *after.servers)}
        self._bodies = {one: _body(one) for one in (*before.servers, *after.servers)}

    def continues(self, server: Directive, other: Directive) -> bool:
        """Whether a server of the candidate is one of the baseline: by a name, or by all else."""
        shared = self._names[server] & self._names[other]
        return bool(shared) or self._bodies[server] == self._bodies[other]

    def lost_to(self, server: Directive, host: str) -> str:
        """Why a host of a server is lost; empty where it is not."""
        choice = self._after.choose(host)
        other = choice.server
        if self.continues(server, other) or self._is_named_anew(choice, host):
            return ""
        was_named = self._before.choose(host).name
        if not any(self.continues(one, other) for one in self._before.servers):
            return ""  # no other stood there before: it may be this one with another name
        if was_named is None:
            return f"another default server, {_called(other)}, answers"
        return f"no server names it any more, and {_called(other)} answers"

    def _is_named_anew(self, choice: Answering, host: str) -> bool:
        """Whether the name that takes a host takes it more closely than those its server had.

        A page for all the rest takes the hosts that others give up, and is for none of them;
        the same page by another spelling of its wildcard is no more.
        """
        if choice.name is None:
            return False
        had = [
            score
            for one in self._before.servers
            if self.continues(one, choice.server)
            for name in names_of(one)
            if (score := name_score(name.lower(), host, name)) is not None
        ]
        now = name_score(choice.name.lower(), host, choice.name)
        return now is not None and now > max(had, default=(0, 0))


def _samples(before: VirtualServers) -> Iterator[tuple[Directive, str, str]]:
    """The server, its name as written, and a host that it answers for."""
    for server in before.servers:
        for name in names_of(server):
            for host in sample_hosts(name) if name not in _NO_NAMES else ():
                if before.choose(host).server is server:
                    yield server, name, host
    default = before.default
    if before.named_default is default or not _own_names(default):
        yield default, "any other name", NOBODY


def _reached(before: VirtualServers, there: list[VirtualServers]) -> list[VirtualServers]:
    """What clients of an address come to: the address itself, else a wildcard's."""
    alike = [one for one in there if one.is_quic == before.is_quic]
    own = [one for one in alike if _is_same(one.socket, before.socket)]
    return own or [
        one for one in alike if is_reached(before.socket, one.socket, takes_ipv4=one.takes_ipv4)
    ]


def _is_same(one: SocketName, other: SocketName) -> bool:
    """Whether they are one address, ports of a range being written in other pieces or not."""
    return one == other or (one[:2] == other[:2] and one.meets(other))


def _refuses(server: Directive) -> bool:
    """Whether it stands there to serve nothing: who is not refused any more has lost nothing."""
    block = server.block or Block([])
    whole = [one for one in block.all("location") if one.args == ("/",)]
    levels = [block, *(one.block for one in whole if len(block.all("location")) == 1 and one.block)]
    answers = [line for level in levels for line in level.all("return")]
    rejects = block.first("ssl_reject_handshake")
    return (
        any(line.value.startswith(("4", "5")) for line in answers)
        or any(line.value == "all" for level in levels for line in level.all("deny"))
        or (rejects is not None and rejects.value == "on")
    )


def _own_names(server: Directive) -> frozenset[str]:
    return frozenset(map(str.lower, names_of(server))) - _NO_NAMES


def _called(server: Directive) -> str:
    name = names_of(server)[0]
    return f"that of {name}" if name else "one without a name"


def _body(server: Directive) -> tuple[str, ...]:
    """What it says but for where it is reached."""
    block = server.block or Block([])
    return tuple(_text(one) for one in block if one.name not in {"listen", "server_name"})


def _text(directive: Directive) -> str:
    words = " ".join((directive.name, *map(repr, directive.args)))
    inner = "" if directive.block is None else " ".join(map(_text, directive.block))
    return f"{words} {{{inner}}}" if directive.block is not None else words
