"""What clients of the baseline would no longer get from the candidate; pure.

A candidate that answers faster because it answers less is no better one. Where a client connects
to is read from both trees; what a place answers is asked of nginx (``experiment/survey.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Block
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.sockets import PortCuts, SocketName, socket_name
from nginx_tune.conf.tree import ConfTree
from nginx_tune.experiment.operations import Response
from nginx_tune.experiment.unserved import said_of

_DEFAULT = "80"
"""Of a server without ``listen``, where root starts nginx. Source: ngx_http_add_listen."""
_OK = 200
_GATEWAY = frozenset({502, 504})
"""What nginx says where nothing, or nothing in time, answers in the place of an upstream."""


Kind = Literal["files", "passed", "own"]
"""What an answer is made of: a file, what another server says, or the configuration itself."""


class _Socket(NamedTuple):
    name: SocketName
    is_quic: bool
    is_tls: bool
    is_proxied: bool
    is_both: bool
    """Whether a wildcard of IPv6 takes IPv4 too."""


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
    """Whether who connects to ``socket`` comes to ``theirs``."""
    if theirs.is_quic != socket.is_quic:
        return False
    if theirs.name == socket.name:
        return socket.is_both <= theirs.is_both
    return is_reached(socket.name, theirs.name, takes_ipv4=theirs.is_both)


def is_reached(wanted: SocketName, theirs: SocketName, *, takes_ipv4: bool) -> bool:
    """Whether ``theirs`` is a wildcard that takes what comes to the address ``wanted``."""
    if not theirs.is_wildcard or not theirs.meets(wanted):
        return False
    is_ipv6 = wanted.family == "inet6"
    return is_ipv6 == (theirs.family == "inet6") or (takes_ipv4 and not is_ipv6)


def lost_answer(baseline: Response, candidate: Response, *, has_silent: bool) -> str:
    """Why the candidate serves a place no longer that the baseline serves; empty where it does.

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
    before: Kind,
    after: Kind,
    has_partner: bool,
    has_file: bool = True,
) -> str:
    """Why an answer that is no error is none in the place of the baseline's; empty where it is.

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


def moved_content(baseline: Response, candidate: Response, *, before: Kind, after: Kind) -> str:
    """Why the arms cannot be compared where only one of them asks another server; empty if so."""
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
    """The status that a class expects; None and why not where the arms do not serve it alike.

    Of a directory without files (``is_empty``) it is no wonder that nothing is served.
    """
    statuses = {one.status for one in answers}
    faults = [one.fault for one in answers if one.fault]
    if faults:
        return None, f"no answer: {faults[0]}"
    if len(statuses) > 1:
        found = " and ".join(str(one.status) for one in answers)
        return None, f"the arms answer {found}"
    status = answers[0].status
    if status is None or not 200 <= status < 400:  # noqa: PLR2004  # served, or sent elsewhere
        return None, f"answers {status}" if is_empty else said_of(status)
    lengths = [one.length_bytes for one in answers]
    if are_files and len(set(lengths)) > 1 and None not in lengths:
        return None, f"the arms answer {' and '.join(map(str, lengths))} bytes for the same file"
    return status, ""
