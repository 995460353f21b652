"""Which server of an address answers a host: nginx's own choice, over the text of a configuration.

Source: ngx_http_find_virtual_server in src/http/ngx_http_request.c; ngx_http_server_names and
        ngx_http_add_server in src/http/ngx_http.c; ngx_http_core_server_name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import names_default
from nginx_tune.conf.locations import compiled_pattern, name_score
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.sockets import PortCuts, SocketName, socket_name
from nginx_tune.conf.tree import ConfTree

UNSAID = "80"
"""Of a server without ``listen``, where root starts nginx. Source: ngx_http_add_listen."""
NOBODY = "nobody-names-this.invalid"
_ANY_LABEL = "any-other"


class Answering(NamedTuple):
    """The server that answers a host, and why."""

    server: Directive
    name: str | None
    """Its name that the host is taken by, as written; None where it answers for want of another."""


@dataclass
class VirtualServers:
    """The servers of an address in the order met."""

    socket: SocketName
    is_quic: bool
    servers: list[Directive] = field(default_factory=list)
    named_default: Directive | None = None
    """The one that says ``default_server``."""
    takes_ipv4: bool = False
    """Whether it is a wildcard of IPv6 that takes IPv4 too."""

    @property
    def address(self) -> str:
        """``HOST:PORT`` with ``*`` for every IPv4 address, ``[::]:PORT``, or ``unix:PATH``."""
        return str(self.socket)

    @property
    def default(self) -> Directive:
        """What answers where no name matches."""
        return self.named_default or self.servers[0]

    def choose(self, host: str) -> Answering:
        """Exact, the longest ``*.name``, the longest ``name.*``, the first pattern, the default."""
        host = host.lower().rstrip(".")
        if host in self._exact:
            return self._exact[host]
        best: tuple[int, int] = (0, 0)
        found = Answering(self.default, None)
        for one in self._others:
            score = name_score((one.name or "").lower(), host, one.name or "")
            if score is not None and score > best:  # the first of equals: nginx ignores the others
                best, found = score, one
        return found

    @cached_property
    def _exact(self) -> dict[str, Answering]:
        found: dict[str, Answering] = {}
        for one in self._taken:
            name = (one.name or "").lower()
            if not _is_pattern(name):
                found[name] = one
            elif name.startswith("."):
                found[name[1:]] = one
        return found

    @cached_property
    def _others(self) -> list[Answering]:
        return [one for one in self._taken if _is_pattern(one.name or "")]

    @cached_property
    def _taken(self) -> list[Answering]:
        """The names but for those that nginx ignores, as an earlier one is in their way.

        Source: ngx_hash_add_key: ``.name`` is in the way of ``name`` and of ``*.name``, and either
        in its own.
        """
        exact: set[str] = set()
        wild: set[str] = set()
        found = []
        for server in self.servers:
            for name in names_of(server):
                low = name.lower()
                base = low.removeprefix("*").removeprefix(".")
                is_free = True
                if not _is_pattern(low) or low.startswith("."):
                    is_free = base not in exact
                    exact.add(base)
                if _is_pattern(low) and not low.startswith("~") and is_free:
                    key = low if low.endswith(".*") else base
                    is_free = key not in wild
                    wild.add(key)
                if is_free:
                    found.append(Answering(server, name))
        return found


def _is_pattern(name: str) -> bool:
    return name.startswith((".", "*.", "~")) or name.endswith(".*")


def virtual_servers(tree: ConfTree) -> list[VirtualServers]:
    """The addresses of a tree with their servers, those of servers without ``listen`` too."""
    said = [
        (server, line, socket_name(line.value if line else UNSAID))
        for _, server in servers(tree)
        for line in _listens(server)
    ]
    cuts = PortCuts([name for _, _, name in said])
    found: dict[tuple[SocketName, bool], VirtualServers] = {}
    for server, line, name in said:
        options = line.args[1:] if line else ()
        for piece in cuts.pieces(name):
            key = (piece, "quic" in options)
            one = found.setdefault(key, VirtualServers(*key))
            if server not in one.servers[-1:]:
                one.servers.append(server)
            one.takes_ipv4 |= "ipv6only=off" in options
            if line and names_default(line) and one.named_default is None:
                one.named_default = server
    return list(found.values())


def default_servers(tree: ConfTree) -> dict[Directive, str]:
    """The servers that answer for hosts that no server names, each with an address of it.

    Source: ngx_http_add_addresses, ngx_http_add_server.
    """
    found: dict[Directive, str] = {}
    for one in virtual_servers(tree):
        found.setdefault(one.default, one.address)
    return found


def _listens(server: Directive) -> Sequence[Directive | None]:
    """Its lines; none of them is one without words."""
    lines = (server.block or Block([])).all("listen")
    return [line for line in lines if line.args] or [None]


def names_of(server: Directive) -> list[str]:
    """The names of a server as written; the empty one where it has none."""
    lines = (server.block or Block([])).all("server_name")
    return [name for line in lines for name in line.args] or [""]


def sample_hosts(name: str) -> Iterator[str]:
    """Hosts that a name takes: one that somebody may have named, and one that hardly anybody has.

    None for a name that is known when nginx runs, and for a pattern that no sample is known of.
    """
    if name.startswith("~"):
        yield from _of_pattern(name[1:])
    elif name.startswith("*."):
        yield from (f"{label}{name[1:]}" for label in ("www", _ANY_LABEL))
    elif name.startswith("."):
        yield from (name[1:], f"www{name}", f"{_ANY_LABEL}{name}")
    elif name.endswith(".*"):
        yield from (f"{name[:-1]}{label}" for label in ("com", _ANY_LABEL))
    elif "$" not in name:
        yield name


_NOT_ASKED_FOR = frozenset({"", "_"})
"""What stands in the place of a name."""


def host_of(server: Directive, reached: Sequence[VirtualServers]) -> str | None:
    """A host by which a client of these addresses comes to a server, a name before a pattern's.

    None where none is known: whatever were asked, another server would answer.
    """
    names = sorted(names_of(server), key=lambda name: name.startswith("~"))
    own = (host for name in names if name not in _NOT_ASKED_FOR for host in sample_hosts(name))
    for host in (*own, "localhost", NOBODY):
        if any(one.choose(host).server is server for one in reached):
            return host
    return None


_SIMPLER = (
    (re.compile(r"\[\\?([.-])[^\]\w]*\][+*]?"), r"\\\1"),
    (re.compile(r"\(\?(?:P?<\w+>|:|i\))"), "("),
    (re.compile(r"\\[wd][+*]?|\[\^?[^\]]*\][+*]?|\[\^?[^\]]*\]\{[^}]*\}|\.[+*]\??"), "\0"),
    (re.compile(r"\\([.-])"), r"\1"),
    (re.compile(r"[\^$]"), ""),
)
_GROUP = re.compile(r"\(([^()]*)\)(\?|\{[^}]*\}|[+*])?")
_STANDING_FOR_ANY = ("any", "1", "12", "123", "1234", "a")


def _of_pattern(text: str) -> Iterator[str]:
    """Hosts of a pattern as people write them: groups, alternatives, letters and digits."""
    pattern = compiled_pattern(text, re.IGNORECASE)
    if pattern is None:
        return
    plain = text
    for what, by in _SIMPLER:
        plain = what.sub(by, plain)
    while (found := _GROUP.sub(lambda match: match[1].partition("|")[0], plain)) != plain:
        plain = found
    for label in _STANDING_FOR_ANY:
        host = plain.partition("|")[0].replace("\0", label).lower()
        host = host if not host.startswith(".") else f"{_ANY_LABEL}{host}"
        host = host if not host.endswith(".") else f"{host}{_ANY_LABEL}"
        if re.fullmatch(r"[a-z0-9_.-]+", host) and pattern.search(host):
            yield host
            return
