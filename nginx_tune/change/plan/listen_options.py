"""On which lines of ``listen`` an option goes: once for a socket, whatever its spellings.

Source: ngx_http_add_addresses ("duplicate listen options"): of all lines of a socket one may give
options of the socket, so that a further one goes on that line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import ListenAddress, is_socket_option, listeners
from nginx_tune.conf.sockets import SocketName, socket_name
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Setting


class ListenOptions(NamedTuple):
    """Where an option of ``listen`` goes, and where it does not."""

    lines: list[Directive]
    """Those that get it, or another value of it; where an address has it already there is none."""
    left: list[str]
    """The addresses that stay as they are, each with the reason."""


def listen_options(wanted: Setting, tree: ConfTree) -> ListenOptions:
    """The lines that a setting of ``listen`` changes; HTTP/2 is for TLS alone.

    An option of the socket is not for those that have none and ride on a wildcard's, which holds
    what is asked for them too; and not where a host name may be the same socket.
    """
    is_quic = is_of_quic(wanted)
    every = [one for one in listeners(tree) if one.is_quic == is_quic]
    option = wanted.args[-1]
    is_of_socket = is_socket_option(option)
    elsewhere = _of_stream_and_mail(tree, is_quic=is_quic) if is_of_socket else []
    left: list[str] = []
    found = _Lines(every, is_of_socket=is_of_socket)
    for one in every:
        if one.is_unix or not (is_quic or one.is_tls or wanted.args != ["http2"]):
            continue
        if is_of_socket and not one.has_socket:
            continue
        has_it = any(has_option(line, option) for line in one.lines)
        why = _why_left(one, elsewhere) if is_of_socket and not has_it else ""
        if why:
            left.append(f"{one.address} stays as it is: {why}")
        else:
            (found.having if has_it else found.lacking).append(one)
    return ListenOptions(*found.chosen(left))


def _why_left(one: ListenAddress, elsewhere: Sequence[tuple[SocketName, Directive]]) -> str:
    """Why no option is written for an address; empty where one may be."""
    if one.maybe is not None:
        return (
            f"{_place(one.maybe)} may be the same socket, for which nginx takes options once, and "
            "a host name is not resolved here"
        )
    same = (line for name, line in elsewhere if name.host == one.socket.host)
    same = (line for line in same if socket_name(line.value).meets(one.socket))
    line = next(same, None)
    return "" if line is None else f"{_place(line)} of another module is the same socket"


def _of_stream_and_mail(tree: ConfTree, *, is_quic: bool) -> list[tuple[SocketName, Directive]]:
    """Their lines of the same protocol, with what they name."""
    return [
        (socket_name(line.value), line)
        for module in ("stream", "mail")
        for part in tree.main.all(module)
        for line in (part.block or Block([])).walk()
        if line.name == "listen" and line.args and ("udp" in line.args[1:]) == is_quic
    ]


class _Lines:
    """Which lines may get an option that some addresses lack and no other is to have."""

    def __init__(self, every: Sequence[ListenAddress], *, is_of_socket: bool) -> None:
        self._is_of_socket = is_of_socket
        self._of: dict[Directive, list[ListenAddress]] = {}
        for one in every:
            for line in one.lines:
                self._of.setdefault(line, []).append(one)
        self.lacking: list[ListenAddress] = []
        self.having: list[ListenAddress] = []

    def chosen(self, left: list[str]) -> tuple[list[Directive], list[str]]:
        """The lines, and what is left: those that were, and what no line can have it for."""
        may = {id(one) for one in (*self.lacking, *self.having)}
        found: dict[Directive, None] = {}
        for one in self.lacking:
            if any(line in found for line in one.lines):
                continue
            own = one.with_options if self._is_of_socket else []
            lines = own or sorted(one.lines, key=lambda line: -len(self._of[line]))
            line = next((line for line in lines if self._is_free(line, may, found)), None)
            if line is not None:
                found[line] = None
        left += [
            f"{one.address} stays as it is: {_place(one.lines[0])} is of other sockets too, which "
            "must not have the option, or have it from another line"
            for one in self.lacking
            if not any(line in found for line in one.lines)
        ]
        return list(found), left

    def _is_free(self, line: Directive, may: set[int], found: dict[Directive, None]) -> bool:
        """Whether all sockets of a line may get the option, and none would get options twice."""
        sockets = self._of[line]
        if not all(id(one) in may for one in sockets):
            return False
        return not self._is_of_socket or not any(
            other is not line and (other in found or other in one.with_options)
            for one in sockets
            for other in one.lines
        )


def is_of_quic(wanted: Setting) -> bool:
    """Whether it is about listeners of QUIC, which take their own options."""
    return wanted.directive == "listen" and wanted.args[:1] == ["quic"]


def has_option(listen: Directive, option: str) -> bool:
    """Whether a ``listen`` has an option; of a number more does as well."""
    name, _, value = option.partition("=")
    for arg in listen.args[1:]:
        own_name, _, own = arg.partition("=")
        if arg == option:
            return True
        if own_name == name and value.isdigit() and own.isdigit():
            return int(own) >= int(value)
    return False


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"
