"""Losses of the baseline's clients, and the candidate's servers that answer them instead.

A candidate that is faster because it serves less is no better. Both trees show which server a
client reaches; requests show what that server answers (``experiment/survey.py``).

A host that no server names still gets an answer: from the default server of its address, or from
that of a wildcard address. If that server serves other hosts in the baseline, the content is lost.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import PortCuts, SocketName, socket_name
from nginx_tune.conf.locations import name_score
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.virtual_servers import (
    NOBODY,
    Answering,
    VirtualServers,
    names_of,
    sample_hosts,
    virtual_servers,
)
from nginx_tune.experiment.operations import Response, answer_clause

_DEFAULT = "80"
"""The port of a server without ``listen``, if root starts nginx. Source: ngx_http_add_listen."""
_OK = 200
_GATEWAY = frozenset({502, 504})
"""Statuses for an upstream that does not answer, or not in time."""


SuccessorKind = Literal["files", "passed", "own"]
"""The source of an answer: a file, another server, or the configuration itself."""


class _Socket(NamedTuple):
    name: SocketName
    is_quic: bool
    is_tls: bool
    is_proxied: bool
    is_both: bool
    """True for an IPv6 wildcard that takes IPv4 too."""


def lost_listeners(baseline: ConfTree, candidate: ConfTree) -> list[str]:
    """The baseline's addresses at which the candidate no longer answers clients as before."""
    before, after = list(_sockets(baseline)), list(_sockets(candidate))
    # The variants may split port ranges differently.
    cuts = PortCuts([socket.name for socket in (*before, *after)])
    before, after = _cut(before, cuts), _cut(after, cuts)
    lost: dict[str, None] = {}
    for socket in before:
        reached = [other for other in after if _reaches(other, socket)]
        what = f"{socket.name}{' (QUIC)' if socket.is_quic else ''}"
        if not reached:
            lost[f"{what}: the candidate does not listen there"] = None
        elif not any(listener.is_tls == socket.is_tls for listener in reached):
            lost[f"{what}: {'without' if socket.is_tls else 'only with'} TLS"] = None
        elif not any(listener.is_proxied == socket.is_proxied for listener in reached):
            word = "without" if socket.is_proxied else "only with"
            lost[f"{what}: {word} the PROXY protocol"] = None
    return list(lost)


def _sockets(tree: ConfTree) -> Iterator[_Socket]:
    for _, server in servers(tree):
        block = server.block or Block([])
        forced = block.first("ssl")
        is_tls = forced is not None and forced.value == "on"
        lines = [line.args for line in block.all("listen") if line.args] or [(_DEFAULT,)]
        for args in lines:
            is_quic = "quic" in args[1:]
            yield _Socket(
                socket_name(args[0]),
                is_quic,
                is_tls or is_quic or "ssl" in args[1:],
                "proxy_protocol" in args[1:],
                "ipv6only=off" in args[1:],
            )


def _cut(sockets: Sequence[_Socket], cuts: PortCuts) -> list[_Socket]:
    return [socket._replace(name=piece) for socket in sockets for piece in cuts.pieces(socket.name)]


def _reaches(theirs: _Socket, socket: _Socket) -> bool:
    """True if clients of ``socket`` reach ``theirs``."""
    if theirs.is_quic != socket.is_quic:
        return False
    if theirs.name == socket.name:
        return socket.is_both <= theirs.is_both
    return is_reached(socket.name, theirs.name, takes_ipv4=theirs.is_both)


def is_reached(wanted: SocketName, theirs: SocketName, *, takes_ipv4: bool) -> bool:
    """True if ``theirs`` is a wildcard that takes connections to the address ``wanted``."""
    if not theirs.is_wildcard or not theirs.meets(wanted):
        return False
    is_ipv6 = wanted.family == "inet6"
    return is_ipv6 == (theirs.family == "inet6") or (takes_ipv4 and not is_ipv6)


def lost_answer(baseline: Response, candidate: Response, *, has_silent: bool) -> str:
    """The reason why the candidate no longer serves a place of the baseline; empty if it does.

    ``has_silent``: true if some server that nginx asks has no stub, so that a 502 proves nothing.
    """
    if baseline.status is None or not 200 <= baseline.status < 400:  # noqa: PLR2004  # not served
        return ""
    if not candidate.was_asked:
        return ""
    if candidate.status is None:
        return f"{baseline.status} with the baseline, none with the candidate: {candidate.fault}"
    if candidate.status < 400 or (has_silent and candidate.status in _GATEWAY):  # noqa: PLR2004
        return ""
    return f"{baseline.status} with the baseline, {candidate.status} with the candidate"


def lost_content(
    baseline: Response,
    candidate: Response,
    *,
    before: SuccessorKind,
    after: SuccessorKind,
    has_partner: bool,
    has_file: bool = True,
) -> str:
    """The reason why a good answer of the candidate is no replacement; empty if it is.

    Other content of the same kind is a change of the site, not a loss. These are losses:

    - The configuration itself answers in place of a file.
    - A fallback answers, because the candidate lacks the file (``has_file``).
    - The configuration answers in place of an application, or files do because the application's
      location is gone (``has_partner``).
    """
    alike = baseline.digest == candidate.digest and baseline.length_bytes == candidate.length_bytes
    if baseline.status != _OK or candidate.status != _OK or alike:
        return ""
    if before == "files" and after == "own":
        own = f"{_bytes(candidate)} written in the configuration"
        return f"a file with the baseline, {own} with the candidate"
    if before == "files" and after == "files" and not has_file:
        return "a file with the baseline, a fallback with the candidate"
    if before == "passed" and (after == "own" or (after == "files" and not has_partner)):
        what = "an answer from the configuration" if after == "own" else "a file"
        return f"passed on with the baseline, {what} with the candidate"
    return ""


def moved_content(
    baseline: Response, candidate: Response, *, before: SuccessorKind, after: SuccessorKind
) -> str:
    """The reason not to compare a place if only one variant passes it on; otherwise empty."""
    if {before, after} != {"files", "passed"} or baseline.status != candidate.status:
        return ""
    if baseline.digest == candidate.digest:
        return ""
    if before == "files":
        return (
            "files with the baseline, passed on with the candidate. A stub answers there, so it is "
            "unknown whether they exist"
        )
    return "passed on with the baseline (a stub answers), files with the candidate"


def _bytes(answer: Response) -> str:
    return "text" if answer.length_bytes is None else f"{answer.length_bytes} bytes"


def is_loaded(
    answers: Sequence[Response], *, are_files: bool = False, is_empty: bool = False
) -> tuple[int | None, str]:
    """The status to expect from a place; None with the reason if the variants differ.

    ``is_empty``: true for a directory without files, whose refusal needs no explanation.
    """
    statuses = {answer.status for answer in answers}
    faults = [answer.fault for answer in answers if answer.fault]
    if faults:
        return None, f"no answer: {faults[0]}"
    if len(statuses) > 1:
        both = " and ".join(str(answer.status) for answer in answers)
        return None, f"the configurations answer {both}"
    status = answers[0].status
    if status is None or not 200 <= status < 400:  # noqa: PLR2004  # served, or redirected
        return None, f"answers {status}" if is_empty else answer_clause(status)
    lengths = [answer.length_bytes for answer in answers]
    if are_files and len(set(lengths)) > 1 and None not in lengths:
        return (
            None,
            f"the configurations answer {' and '.join(map(str, lengths))} bytes for the same file",
        )
    return status, ""


_NO_NAMES = frozenset({"", "_", "localhost"})
"""Names of servers that clients reach because no other name matches."""


class Successors(NamedTuple):
    """The successors of the baseline's servers."""

    servers: dict[Directive, Directive]
    """The candidate's server that answers its first remaining name, by server of the baseline."""
    hosts: dict[Directive, str]
    """A host name that remains, by server whose first name is lost."""
    gone: set[Directive]
    """The baseline's servers without any remaining name."""
    lost: list[str]
    """Names that are now answered by another of the baseline's servers."""


def find_successors(baseline: ConfTree, candidate: ConfTree) -> Successors:
    """The candidate's server for each address and name of the baseline."""
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
    """An address of the baseline, with the servers that clients reach there in the candidate."""

    def __init__(self, before: VirtualServers, after: VirtualServers) -> None:
        self._before, self._after = before, after
        self._names = {server: _own_names(server) for server in (*before.servers, *after.servers)}
        self._bodies = {server: _body(server) for server in (*before.servers, *after.servers)}

    def continues(self, server: Directive, other: Directive) -> bool:
        """True if ``other`` is the same server, by a shared name or the same other lines."""
        shared = self._names[server] & self._names[other]
        return bool(shared) or self._bodies[server] == self._bodies[other]

    def lost_to(self, server: Directive, host: str) -> str:
        """The reason why a host of a server is lost; empty if it is not lost."""
        choice = self._after.choose(host)
        other = choice.server
        if self.continues(server, other) or self._is_named_anew(choice, host):
            return ""
        was_named = self._before.choose(host).name
        if not any(self.continues(server, other) for server in self._before.servers):
            return ""  # a new server, which may be this one under another name
        if was_named is None:
            return f"another default server, {_description(other)}, answers"
        return f"no server has this name any more, and {_description(other)} answers"

    def _is_named_anew(self, choice: Answering, host: str) -> bool:
        """True if a name matches a host more specifically than all old names of its server.

        A catch-all server takes the hosts that others drop, but does not replace them, however its
        wildcard is spelled.
        """
        if choice.name is None:
            return False
        had = [
            score
            for server in self._before.servers
            if self.continues(server, choice.server)
            for name in names_of(server)
            if (score := name_score(name.lower(), host, name)) is not None
        ]
        now = name_score(choice.name.lower(), host, choice.name)
        return now is not None and now > max(had, default=(0, 0))


def _samples(before: VirtualServers) -> Iterator[tuple[Directive, str, str]]:
    """Each server with each of its names as written, and a host that the name matches."""
    for server in before.servers:
        for name in names_of(server):
            for host in sample_hosts(name) if name not in _NO_NAMES else ():
                if before.choose(host).server is server:
                    yield server, name, host
    default = before.default
    if before.named_default is default or not _own_names(default):
        yield default, "any other name", NOBODY


def _reached(before: VirtualServers, there: list[VirtualServers]) -> list[VirtualServers]:
    """The candidate's servers that clients of an address reach: at the address, else a wildcard."""
    alike = [listener for listener in there if listener.is_quic == before.is_quic]
    own = [listener for listener in alike if _is_same(listener.socket, before.socket)]
    return own or [
        listener
        for listener in alike
        if is_reached(before.socket, listener.socket, takes_ipv4=listener.takes_ipv4)
    ]


def _is_same(one: SocketName, other: SocketName) -> bool:
    """True for the same address, even with port ranges split differently."""
    return one == other or (one[:2] == other[:2] and one.meets(other))


def _refuses(server: Directive) -> bool:
    """True for a server that refuses every request, so that its clients have nothing to lose."""
    block = server.block or Block([])
    whole = [line for line in block.all("location") if line.args == ("/",)]
    levels = [
        block,
        *(level.block for level in whole if len(block.all("location")) == 1 and level.block),
    ]
    answers = [line for level in levels for line in level.all("return")]
    rejects = block.first("ssl_reject_handshake")
    return (
        any(line.value.startswith(("4", "5")) for line in answers)
        or any(line.value == "all" for level in levels for line in level.all("deny"))
        or (rejects is not None and rejects.value == "on")
    )


def _own_names(server: Directive) -> frozenset[str]:
    return frozenset(map(str.lower, names_of(server))) - _NO_NAMES


def _description(server: Directive) -> str:
    name = names_of(server)[0]
    return f"that of {name}" if name else "one without a name"


def _body(server: Directive) -> tuple[str, ...]:
    """The lines of a server other than ``listen`` and ``server_name``."""
    block = server.block or Block([])
    return tuple(_text(line) for line in block if line.name not in {"listen", "server_name"})


def _text(directive: Directive) -> str:
    words = " ".join((directive.name, *map(repr, directive.args)))
    inner = "" if directive.block is None else " ".join(map(_text, directive.block))
    return f"{words} {{{inner}}}" if directive.block is not None else words
