"""Losses of the baseline's clients, and the candidate's servers that answer them instead; pure.

A candidate that answers faster because it answers less is no better one. Where a client connects
to is read from both trees; what a place answers is asked of nginx (``experiment/survey.py``).

A host that no server names is answered all the same: by the default server of its address, or by a
wildcard's. Where that one stood there before for others, what was asked for is gone.
"""

from __future__ import annotations

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
"""The address of a server without ``listen``, where root starts nginx: ngx_http_add_listen."""
_OK = 200
_GATEWAY = frozenset({502, 504})
"""Statuses where nothing, or nothing in time, answers in the place of an upstream."""


SuccessorKind = Literal["files", "passed", "own"]
"""The source of an answer: a file, what another server says, or the configuration itself."""


class _Socket(NamedTuple):
    name: SocketName
    is_quic: bool
    is_tls: bool
    is_proxied: bool
    is_both: bool
    """A wildcard of IPv6 takes IPv4 too."""


def lost_listeners(baseline: ConfTree, candidate: ConfTree) -> list[str]:
    """Addresses that clients connect to, where the candidate would not answer them as before."""
    were, there = list(_sockets(baseline)), list(_sockets(candidate))
    # Ranges of ports may be written in other pieces.
    cuts = PortCuts([one.name for one in (*were, *there)])
    were, there = _cut(were, cuts), _cut(there, cuts)
    lost: dict[str, None] = {}
    for socket in were:
        reached = [one for one in there if _reaches(one, socket)]
        what = f"{socket.name}{' (QUIC)' if socket.is_quic else ''}"
        if not reached:
            lost[f"{what}: the candidate does not listen there"] = None
        elif not any(one.is_tls == socket.is_tls for one in reached):
            lost[f"{what}: {'without' if socket.is_tls else 'only with'} TLS"] = None
        elif not any(one.is_proxied == socket.is_proxied for one in reached):
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


def _cut(found: Sequence[_Socket], cuts: PortCuts) -> list[_Socket]:
    return [one._replace(name=piece) for one in found for piece in cuts.pieces(one.name)]


def _reaches(theirs: _Socket, socket: _Socket) -> bool:
    """True if who connects to ``socket`` comes to ``theirs``."""
    if theirs.is_quic != socket.is_quic:
        return False
    if theirs.name == socket.name:
        return socket.is_both <= theirs.is_both
    return is_reached(socket.name, theirs.name, takes_ipv4=theirs.is_both)


def is_reached(wanted: SocketName, theirs: SocketName, *, takes_ipv4: bool) -> bool:
    """True if ``theirs`` is a wildcard that takes what comes to the address ``wanted``."""
    if not theirs.is_wildcard or not theirs.meets(wanted):
        return False
    is_ipv6 = wanted.family == "inet6"
    return is_ipv6 == (theirs.family == "inet6") or (takes_ipv4 and not is_ipv6)


def lost_answer(baseline: Response, candidate: Response, *, has_silent: bool) -> str:
    """The reason why the candidate no longer serves a place of the baseline's; empty where it does.

    ``has_silent``: some server that nginx asks has no stub here, so that 502 says nothing.
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
    """The reason why an answer without error is none in the baseline's place; empty where it is.

    Another text of the same kind is a change of the site. What was a file and is now said by the
    configuration itself is gone, and so is what an application answered: by the configuration, or
    by files where its location is gone (``has_partner``), a fallback's for one. So is a file where
    the one that the candidate would send is not there (``has_file``), and a fallback comes.
    """
    alike = baseline.digest == candidate.digest and baseline.length_bytes == candidate.length_bytes
    if baseline.status != _OK or candidate.status != _OK or alike:
        return ""
    if before == "files" and after == "own":
        return f"a file with the baseline, {_bytes(candidate)} of the candidate's own in its place"
    if before == "files" and after == "files" and not has_file:
        return "a file with the baseline, a fallback in its place with the candidate"
    if before == "passed" and (after == "own" or (after == "files" and not has_partner)):
        what = "an answer of its own" if after == "own" else "a file"
        return f"passed on with the baseline, {what} with the candidate"
    return ""


def moved_content(
    baseline: Response, candidate: Response, *, before: SuccessorKind, after: SuccessorKind
) -> str:
    """The reason not to compare variants of which one asks another server; empty if none."""
    if {before, after} != {"files", "passed"} or baseline.status != candidate.status:
        return ""
    if baseline.digest == candidate.digest:
        return ""
    if before == "files":
        return (
            "files with the baseline, passed on with the candidate: a stub answers, so nothing "
            "tells whether they are there"
        )
    return "passed on with the baseline, where a stub answers, files with the candidate"


def _bytes(answer: Response) -> str:
    return "text" if answer.length_bytes is None else f"{answer.length_bytes} bytes"


def is_loaded(
    answers: Sequence[Response], *, are_files: bool = False, is_empty: bool = False
) -> tuple[int | None, str]:
    """The status that a class expects; None and why not where the variants do not serve it alike.

    Of a directory without files (``is_empty``) it is no wonder that nothing is served.
    """
    statuses = {one.status for one in answers}
    faults = [one.fault for one in answers if one.fault]
    if faults:
        return None, f"no answer: {faults[0]}"
    if len(statuses) > 1:
        found = " and ".join(str(one.status) for one in answers)
        return None, f"the configurations answer {found}"
    status = answers[0].status
    if status is None or not 200 <= status < 400:  # noqa: PLR2004  # served, or sent elsewhere
        return None, f"answers {status}" if is_empty else answer_clause(status)
    lengths = [one.length_bytes for one in answers]
    if are_files and len(set(lengths)) > 1 and None not in lengths:
        return (
            None,
            f"the configurations answer {' and '.join(map(str, lengths))} bytes for the same file",
        )
    return status, ""


_NO_NAMES = frozenset({"", "_", "localhost"})
"""Names of servers that are reached because no other is named."""


class Successors(NamedTuple):
    """The successors of the baseline's servers."""

    servers: dict[Directive, Directive]
    """The server of the candidate that answers for the first name of one that is left."""
    hosts: dict[Directive, str]
    """Whom to ask for where the first name of a server is lost and another is not."""
    gone: set[Directive]
    """Servers of the baseline of which no name is left."""
    lost: list[str]
    """Names that fall to a server that they were kept from before."""


def find_successors(baseline: ConfTree, candidate: ConfTree) -> Successors:
    """The server of the candidate for each address and name of the baseline."""
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
        """True if a server of the candidate is one of the baseline: by a name, or by all else."""
        shared = self._names[server] & self._names[other]
        return bool(shared) or self._bodies[server] == self._bodies[other]

    def lost_to(self, server: Directive, host: str) -> str:
        """The reason why a host of a server is lost; empty where it is not."""
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
        """True if the name that takes a host takes it more closely than those its server had.

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
    """The address that clients of another come to: the address itself, else a wildcard's."""
    alike = [one for one in there if one.is_quic == before.is_quic]
    own = [one for one in alike if _is_same(one.socket, before.socket)]
    return own or [
        one for one in alike if is_reached(before.socket, one.socket, takes_ipv4=one.takes_ipv4)
    ]


def _is_same(one: SocketName, other: SocketName) -> bool:
    """True if they are one address, ports of a range being written in other pieces or not."""
    return one == other or (one[:2] == other[:2] and one.meets(other))


def _refuses(server: Directive) -> bool:
    """True if it stands there to serve nothing: who is not refused any more has lost nothing."""
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
    """All that it says but for where it is reached."""
    block = server.block or Block([])
    return tuple(_text(one) for one in block if one.name not in {"listen", "server_name"})


def _text(directive: Directive) -> str:
    words = " ".join((directive.name, *map(repr, directive.args)))
    inner = "" if directive.block is None else " ".join(map(_text, directive.block))
    return f"{words} {{{inner}}}" if directive.block is not None else words
