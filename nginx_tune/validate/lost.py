"""What clients of the baseline would no longer get from the candidate; pure.

A candidate that answers faster because it answers less is no better one. Where a client connects
to is read from both trees; what a place answers is asked of nginx (``experiment/survey.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nginx_tune.conf.directive import Block
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.sockets import PortCuts, SocketName, socket_name
from nginx_tune.conf.tree import ConfTree
from nginx_tune.experiment.operations import Response

_DEFAULT = "80"
"""Of a server without ``listen``, where root starts nginx. Source: ngx_http_add_listen."""
_GATEWAY = frozenset({502, 504})
"""What nginx says where nothing, or nothing in time, answers in the place of an upstream."""


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
    if not theirs.name.is_wildcard or not theirs.name.meets(socket.name):
        return False
    is_ipv6 = socket.name.family == "inet6"
    return is_ipv6 == (theirs.name.family == "inet6") or (theirs.is_both and not is_ipv6)


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


def is_loaded(answers: Sequence[Response]) -> tuple[int | None, str]:
    """The status that a class expects; None and why not where the arms do not serve it alike."""
    statuses = {one.status for one in answers}
    faults = [one.fault for one in answers if one.fault]
    if faults:
        return None, f"no answer: {faults[0]}"
    if len(statuses) > 1:
        found = " and ".join(str(one.status) for one in answers)
        return None, f"the arms answer {found}"
    status = answers[0].status
    if status is None or not 200 <= status < 400:  # noqa: PLR2004  # served, or sent elsewhere
        return None, f"answers {status}"
    return status, ""
