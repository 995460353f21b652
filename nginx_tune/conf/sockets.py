"""Which sockets a ``listen`` is for: nginx compares addresses, and one has many spellings.

All who ask whether two lines are for one socket ask here. What a name stands for is not known: the
resolver of the host says so when nginx starts, and one name may be several addresses.

Source: ngx_parse_url, ngx_inet_addr, ngx_inet6_addr, ngx_inet_resolve_host, ngx_cmp_sockaddr
(src/core/ngx_inet.c); inet_aton(3) for numbers that nginx leaves to getaddrinfo(3).
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

USUAL_PORT = 80
_MOST_PORT = 65535
_PORT_DIGITS = 5
_OCTETS = 4
_PART = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*", re.ASCII)
_DIGITS = re.compile(r"\d*", re.ASCII)
_PORT_ONLY = re.compile(r"\d+(?:-\d+)?", re.ASCII)
_ALL_ONES = 0xFFFFFFFF
"""255.255.255.255 is how ngx_inet_addr says that it read no address."""

_MOST_PIECES = 200_000
"""Ranges of ports that overlap are cut where they do; beyond this they are left whole."""

Family = Literal["inet", "inet6", "unix", "name", "unread"]


class SocketName(NamedTuple):
    """What a ``listen`` names, in the one form that all its spellings have."""

    family: Family
    """``name``: a host whose addresses are not known; ``unread``: what nginx would refuse, or a
    mark of a template."""
    host: str
    """``*`` for every IPv4 address, else an address, IPv6 in brackets; the path of a unix socket,
    of which nginx compares the letters; a name in small letters."""
    first: int = 0
    last: int = 0
    """Ports: a range of them, or one. No port of its own has a unix socket."""

    @property
    def is_wildcard(self) -> bool:
        """Whether it is every address of its family."""
        return self.host in ("*", "[::]") and self.family in ("inet", "inet6")

    @property
    def ports(self) -> range:
        """The ports; empty for what has none."""
        return range(self.first, self.last + 1) if self.first else range(0)

    def at(self, first: int, last: int) -> SocketName:
        """The same with other ports."""
        return self._replace(first=first, last=last)

    def meets(self, other: SocketName) -> bool:
        """Whether they have a port in common."""
        return bool(self.first) and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        if self.family == "unix":
            return f"unix:{self.host}"
        if self.family == "unread":
            return self.host
        ports = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.host}:{ports}"


@lru_cache(maxsize=4096)
def socket_name(text: str) -> SocketName:
    """The socket, or with a range of ports the sockets, that the word of a ``listen`` names."""
    if text[:5].lower() == "unix:":
        return SocketName("unix", text[5:])
    if text.startswith("["):
        return _of_inet6(text) or SocketName("unread", text.lower())
    return _of_inet(text) or SocketName("unread", text.lower())


def _of_inet6(text: str) -> SocketName | None:
    host, bracket, rest = text[1:].partition("]")
    address = _inet6(host)
    if not bracket or address is None or rest[:1] not in ("", ":"):
        return None
    ports = _ports(rest[1:]) if rest else (USUAL_PORT, USUAL_PORT)
    return None if ports is None else SocketName("inet6", f"[{address}]", *ports)


def _of_inet(text: str) -> SocketName | None:
    host, colon, port = text.partition(":")
    if "/" in text:
        return None
    if colon:
        ports = _ports(port)
    elif _PORT_ONLY.fullmatch(text):
        host, ports = "*", _ports(text)
    else:
        ports = USUAL_PORT, USUAL_PORT
    if not host or ports is None:
        return None
    if host == "*":
        return SocketName("inet", host, *ports)
    number = _inet(host)
    if number == _ALL_ONES or number is None:
        number = _by_resolver(host)
    if number is None:
        return SocketName("name", host.lower(), *ports)
    return SocketName("inet", str(ipaddress.IPv4Address(number)) if number else "*", *ports)


def _ports(text: str) -> tuple[int, int] | None:
    """A port or a range of them; zeros may stand before (ngx_atoi)."""
    first, dash, last = text.partition("-")
    numbers = _port(first), _port(last if dash else first)
    low, high = numbers
    return None if low is None or high is None or low > high else (low, high)


def _port(text: str) -> int | None:
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit()) or not 0 < len(digits) <= _PORT_DIGITS:
        return None
    return int(digits) if int(digits) <= _MOST_PORT else None


def _inet(text: str) -> int | None:
    """Four decimal numbers as nginx reads them: with zeros before, and none for 0."""
    parts = text.split(".")
    if len(parts) != _OCTETS or not all(map(_DIGITS.fullmatch, parts)):
        return None
    octets = [one.lstrip("0") or "0" for one in parts]
    if any(len(one) > 3 or int(one) > 255 for one in octets):  # noqa: PLR2004  # of an octet
        return None
    return int.from_bytes(bytes(map(int, octets)))


def _by_resolver(text: str) -> int | None:
    """The address that getaddrinfo(3) reads in numbers: fewer than four, octal, hexadecimal."""
    parts = text.split(".")
    if len(parts) > _OCTETS or not all(map(_PART.fullmatch, parts)) or len(text) > 64:  # noqa: PLR2004  # of four numbers
        return None
    numbers = [_c_number(one) for one in parts]
    most = 1 << 8 * (_OCTETS + 1 - len(parts))
    if any(one > 255 for one in numbers[:-1]) or numbers[-1] >= most:  # noqa: PLR2004  # of an octet
        return None
    high = int.from_bytes(bytes([*numbers[:-1], *[0] * (_OCTETS + 1 - len(parts))]))
    return high + numbers[-1]


def _c_number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8 if text.startswith("0") else 10)


def _inet6(text: str) -> str | None:
    """An IPv6 address in its short form; an IPv4 one at its end is read as nginx reads those."""
    head, colon, tail = text.rpartition(":")
    if "." in tail:
        number = _inet(tail)
        if number is None or number == _ALL_ONES:
            return None
        text = f"{head}{colon}{number >> 16:x}:{number & 0xFFFF:x}"
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if address.scope_id is not None:
        return None
    mapped = address.ipv4_mapped  # Python writes it in one way or the other, by its version
    return address.compressed if mapped is None else f"::ffff:{mapped}"


class Wildcards:
    """The wildcards among some sockets, of which there may be thousands."""

    def __init__(self, names: Iterable[SocketName]) -> None:
        found = [one for one in names if one.is_wildcard]
        self._single = {(one.family, one.first) for one in found if one.first == one.last}
        self._ranges = [one for one in found if one.first != one.last]
        self._all = found

    def cover(self, name: SocketName) -> bool:
        """Whether one of them takes what comes to the socket.

        A name may be of IPv4, of IPv6 or both, and is covered by either.
        """
        if name.is_wildcard or not name.first:
            return False
        families = ("inet", "inet6") if name.family == "name" else (name.family,)
        is_one = name.first == name.last
        if is_one and any((family, name.first) in self._single for family in families):
            return True
        others = self._ranges if is_one else self._all
        return any(other.family in families and other.meets(name) for other in others)


class PortCuts:
    """Where the ranges of ports of some lines are cut, so that any two are the same or apart."""

    def __init__(self, names: Sequence[SocketName]) -> None:
        ranges = [one for one in names if one.first != one.last]
        ends = {end for one in names for end in (one.first, one.last + 1)} if ranges else set()
        self._ends = sorted(ends)
        self.are_too_many = sum(len(self._inside(one)) for one in ranges) > _MOST_PIECES
        """Then none is cut."""

    def _inside(self, name: SocketName) -> range:
        """The places of its ends behind its first port."""
        return range(
            bisect_right(self._ends, name.first), bisect_left(self._ends, name.last + 1) + 1
        )

    def pieces(self, name: SocketName) -> Iterator[SocketName]:
        """The parts of a range; what has one port, or none, as it is."""
        if self.are_too_many or name.first == name.last:
            yield name
            return
        first = name.first
        for index in self._inside(name):
            yield name.at(first, self._ends[index] - 1)
            first = self._ends[index]
