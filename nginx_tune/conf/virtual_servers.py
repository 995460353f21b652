"""Selection of the server for a host, by nginx's rules; sample hosts and paths for patterns.

Source: ngx_http_find_virtual_server in src/http/ngx_http_request.c; ngx_http_server_names and
        ngx_http_add_server in src/http/ngx_http.c; ngx_http_core_server_name.

Samples are made from a pattern, one or more for each of its alternatives. ``sample_uris`` supports
the part of pcre2pattern(3) that patterns of paths use. Each sample is matched against the pattern,
so a pattern that is read wrongly gives no sample.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import PortCuts, SocketName, names_default, socket_name
from nginx_tune.conf.locations import compiled_pattern, name_score, normalised
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.tree import ConfTree

UNSAID = "80"
"""The port of a server without ``listen``, if root starts nginx. Source: ngx_http_add_listen."""
NOBODY = "nobody-names-this.invalid"
_ANY_LABEL = "any-other"


class Answering(NamedTuple):
    """The server for a host, and the name by which it was chosen."""

    server: Directive
    name: str | None
    """Its name that matches the host, as written; None for the default server."""


@dataclass
class VirtualServers:
    """The servers of an address in the order met."""

    socket: SocketName
    is_quic: bool
    servers: list[Directive] = field(default_factory=list)
    named_default: Directive | None = None
    """The server with ``default_server``."""
    takes_ipv4: bool = False
    """True for an IPv6 wildcard that also accepts IPv4."""

    @property
    def address(self) -> str:
        """``HOST:PORT`` with ``*`` for every IPv4 address, ``[::]:PORT``, or ``unix:PATH``."""
        return str(self.socket)

    @property
    def default(self) -> Directive:
        """The server for a host that no name matches."""
        return self.named_default or self.servers[0]

    def choose(self, host: str) -> Answering:
        """The server for a host: by exact name, longest wildcard, first pattern, or default."""
        host = host.lower().rstrip(".")
        if host in self._exact:
            return self._exact[host]
        best: tuple[int, int] = (0, 0)
        found = Answering(self.default, None)
        for answering in self._others:
            score = name_score((answering.name or "").lower(), host, answering.name or "")
            if (
                score is not None and score > best
            ):  # nginx ignores later servers with an equal score
                best, found = score, answering
        return found

    @cached_property
    def _exact(self) -> dict[str, Answering]:
        found: dict[str, Answering] = {}
        for answering in self._taken:
            name = (answering.name or "").lower()
            if not _is_pattern(name):
                found[name] = answering
            elif name.startswith("."):
                found[name[1:]] = answering
        return found

    @cached_property
    def _others(self) -> list[Answering]:
        return [answering for answering in self._taken if _is_pattern(answering.name or "")]

    @cached_property
    def _taken(self) -> list[Answering]:
        """The names, without those that nginx ignores because they conflict with an earlier one.

        Source: ngx_hash_add_key: ``.name`` conflicts with ``name`` and with ``*.name``, in any
        order.
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
    """The addresses of a tree with their servers, including servers without ``listen``."""
    listens = [
        (server, line, socket_name(line.value if line else UNSAID))
        for _, server in servers(tree)
        for line in _listens(server)
    ]
    cuts = PortCuts([name for _, _, name in listens])
    found: dict[tuple[SocketName, bool], VirtualServers] = {}
    for server, line, name in listens:
        options = line.args[1:] if line else ()
        for piece in (name,) if name.first == name.last else cuts.pieces(name):
            key = (piece, "quic" in options)
            one = found.setdefault(key, VirtualServers(*key))
            if server not in one.servers[-1:]:
                one.servers.append(server)
            one.takes_ipv4 |= "ipv6only=off" in options
            if line and names_default(line) and one.named_default is None:
                one.named_default = server
    return list(found.values())


def default_servers(tree: ConfTree) -> dict[Directive, str]:
    """The default servers, each with one address for which it is the default.

    Source: ngx_http_add_addresses, ngx_http_add_server.
    """
    found: dict[Directive, str] = {}
    for server in virtual_servers(tree):
        found.setdefault(server.default, server.address)
    return found


def _listens(server: Directive) -> Sequence[Directive | None]:
    """The server's ``listen`` lines with arguments; [None] if there are none."""
    lines = (server.block or Block([])).all("listen")
    return [line for line in lines if line.args] or [None]


def names_of(server: Directive) -> list[str]:
    """The names of a server as written; the empty name if it has none."""
    lines = (server.block or Block([])).all("server_name")
    return [name for line in lines for name in line.args] or [""]


def sample_hosts(name: str) -> Iterator[str]:
    """Hosts that a name matches: a likely one, and one that hardly any other server has.

    Empty for a name with variables, and for a pattern without a known sample.
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
"""Names that no client requests."""


def host_of(server: Directive, reached: Sequence[VirtualServers]) -> str | None:
    """A host for which one of these addresses chooses the server, if possible from a plain name.

    None if no such host is known.
    """
    names = sorted(names_of(server), key=lambda name: name.startswith("~"))
    own = (host for name in names if name not in _NOT_ASKED_FOR for host in sample_hosts(name))
    for host in (*own, "localhost", NOBODY):
        if any(group.choose(host).server is server for group in reached):
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
_KEPT_FOR_ANY = ("any", "1", "12", "123", "1234", "a")


def _of_pattern(text: str) -> Iterator[str]:
    """A host that matches a pattern of a common form: groups, alternatives, letters and digits."""
    pattern = compiled_pattern(text, re.IGNORECASE)
    if pattern is None:
        return
    plain = text
    for what, by in _SIMPLER:
        plain = what.sub(by, plain)
    while (found := _GROUP.sub(lambda match: match[1].partition("|")[0], plain)) != plain:
        plain = found
    for label in _KEPT_FOR_ANY:
        host = plain.partition("|")[0].replace("\0", label).lower()
        host = host if not host.startswith(".") else f"{_ANY_LABEL}{host}"
        host = host if not host.endswith(".") else f"{host}{_ANY_LABEL}"
        if re.fullmatch(r"[a-z0-9_.-]+", host) and pattern.search(host):
            yield host
            return


_MOST = 64
"""Maximum number of samples of a pattern, since the alternatives of several groups multiply."""
_LONGEST = 200
"""Maximum length of a sample: nested repeats multiply as well."""
_WORD = "any"
_CANDIDATES = "a0-_/.A%~+ ,:@"
"""Candidates for a character class, which usually matches one of them."""
_OF_ESCAPE = {"d": "1", "w": "a", "S": "a", "D": "a", "W": "-", "s": " "}
_NO_WIDTH = frozenset("bBAzZG")
_OF_CAPTURE = re.compile(r"\?(?::|P?<\w+>|'\w+'|\|)")
_QUANTIFIER = re.compile(r"(?:([?*+])|\{([0-9]+)(?:,[0-9]*)?\})[?+]?")
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]")
_PLAIN = re.compile(r"/[\w./~+,:@-]*", re.ASCII)


def sample_uris(text: str, *, ignores_case: bool, beneath: str = "/") -> list[list[str]]:
    """Paths that a pattern matches, in a list of forms per alternative; empty if none is known.

    ``beneath`` is the beginning of a path if the pattern leaves it open.
    """
    pattern = compiled_pattern(text, re.IGNORECASE if ignores_case else 0)
    if pattern is None:
        return []
    reader = _Reader(text)
    try:
        made = reader.alternatives()
    except (_UnreadableError, RecursionError):
        return []
    found = []
    for one in dict.fromkeys(made) if reader.is_at_end else ():
        forms = (one, f"{beneath}{_WORD}{one}", f"{beneath}{one}")
        taken = [uri for uri in forms if _is_plain(uri) and pattern.search(uri)]
        if taken:
            found.append(list(dict.fromkeys(taken)))
    return found


def _is_plain(uri: str) -> bool:
    return _PLAIN.fullmatch(uri) is not None and normalised(uri) == uri


class _UnreadableError(Exception):
    """A part of a pattern that is not supported here."""


class _Reader:
    """Reads a pattern from left to right and makes texts that it matches."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def alternatives(self) -> list[str]:
        """Texts that one of the branches matches, up to the closing parenthesis."""
        found = self._branch()
        while self._takes("|"):
            found += self._branch()
        return found[:_MOST]

    def _branch(self) -> list[str]:
        found = [""]
        while not self.is_at_end and self._text[self._at] not in "|)":
            found = _joined(found, self._repeated())
        return found

    def _repeated(self) -> list[str]:
        begin = self._at
        atom = self._atom()
        is_many = self._text[begin : self._at] in {".", r"\w", r"\S"} or (
            self._text[begin] == "[" and atom == ["a"]
        )
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            return atom
        self._at = found.end()
        if found[1] == "?":
            return [*atom, ""]
        if found[1] is not None:
            return [_WORD] if is_many else atom
        count = int(found[2][:4])
        return [one * count for one in atom if len(one) * count <= _LONGEST]

    def _atom(self) -> list[str]:
        char = self._text[self._at]
        if char == "[":
            return [self._of_class()]
        self._at += 1
        if char == "(":
            return self._group()
        if char == "\\":
            return [self._escaped()]
        if char in "^$":
            return [""]
        return ["a" if char == "." else char]

    def _group(self) -> list[str]:
        is_empty = False
        if self._text.startswith("?", self._at):
            found = _OF_CAPTURE.match(self._text, self._at)
            is_empty = found is None  # a lookaround, which the final match checks, or a flag
            self._at = self._at + 1 if found is None else found.end()
        made = self.alternatives()
        if not self._takes(")"):
            raise _UnreadableError
        return [""] if is_empty else made

    def _escaped(self) -> str:
        if self.is_at_end:
            raise _UnreadableError
        char = self._text[self._at]
        self._at += 1
        if char in _NO_WIDTH:
            return ""
        if char in _OF_ESCAPE:
            return _OF_ESCAPE[char]
        if char.isalnum():
            raise _UnreadableError
        return char

    def _of_class(self) -> str:
        found = _CLASS.match(self._text, self._at)
        one = None if found is None else compiled_pattern(found[0], 0)
        if found is None or one is None:
            raise _UnreadableError
        self._at = found.end()
        inside = (*_CANDIDATES, *found[0].strip("[]^"))
        return next((char for char in inside if one.fullmatch(char)), "")

    def _takes(self, char: str) -> bool:
        if not self._text.startswith(char, self._at):
            return False
        self._at += 1
        return True


def _joined(heads: Iterable[str], tails: Iterable[str]) -> list[str]:
    both = (a + b for a, b in product(heads, tails))
    return list(islice((one for one in both if len(one) <= _LONGEST), _MOST))
