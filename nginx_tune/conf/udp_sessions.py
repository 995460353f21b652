"""Sessions of datagrams, which are known to the worker that read their first one alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import gives_options
from nginx_tune.conf.sockets import SocketName, Wildcards, socket_name
from nginx_tune.conf.tree import ConfTree


@dataclass
class _Address:
    """One address for datagrams, which several servers may share."""

    lines: list[Directive] = field(default_factory=list)
    kept: Directive | None = None
    """The line of a server there that has sessions of more than one exchange."""

    @property
    def has_options(self) -> bool:
        return any(map(gives_options, self.lines))

    @property
    def has_reuseport(self) -> bool:
        return any("reuseport" in line.args[1:] for line in self.lines)


def sessions_of_one_worker(tree: ConfTree) -> Directive | None:
    """The ``listen`` of datagrams whose sessions more workers would take apart; null for none.

    Workers that share a socket each read whatever datagram comes next, and each looks for its
    session among its own: in several workers a client has several sessions, and upstream as many
    ports, of which the server behind knows only the first (OpenVPN, DTLS, SIP, TFTP). With
    ``reuseport`` each worker has a socket, and the kernel keeps a client's address at one. Nothing
    is taken apart where a server passes nothing on (``return``), or each exchange is a session.

    Source: ngx_event_recvmsg(), ngx_lookup_udp_connection() (the tree of a listener's sessions is
            each worker's own), ngx_clone_listening(); socket(7), SO_REUSEPORT.
    """
    found: dict[SocketName, _Address] = {}
    for stream in tree.main.all("stream"):
        for server in _body(stream).all("server"):
            for line in _body(server).all("listen"):
                if "udp" in line.args[1:]:
                    address = found.setdefault(socket_name(line.value), _Address())
                    address.lines.append(line)
                    if address.kept is None and _keeps_sessions(server, stream):
                        address.kept = line
    for name, one in found.items():
        if one.kept and not any(socket.has_reuseport for socket in _sockets(name, found)):
            return one.kept
    return None


def _sockets(name: SocketName, found: dict[SocketName, _Address]) -> list[_Address]:
    """What is bound for an address: it, or a wildcard that it has no options apart from.

    Source: ngx_stream_optimize_servers() (``bind_wildcard``).
    """
    own = found[name]
    if own.has_options:
        return [own]
    return [one for other, one in found.items() if Wildcards([other]).cover(name)] or [own]


def _keeps_sessions(server: Directive, stream: Directive) -> bool:
    """Whether a client's next datagram belongs with those before it.

    Source: ngx_stream_proxy_test_finalize(): with ``proxy_requests 1`` the next datagram is of
            another session, with at most one answer for each the session ends with the answer.
    """
    if _body(server).first("proxy_pass") is None:
        return False
    requests, responses = (
        _body(server).first(name) or _body(stream).first(name)
        for name in ("proxy_requests", "proxy_responses")
    )
    if requests is not None and requests.value == "1":
        return False
    return responses is None or responses.value not in ("0", "1")


def _body(directive: Directive) -> Block:
    return directive.block if directive.block is not None else Block([])
