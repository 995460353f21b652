"""What one worker alone can do: live streams, sessions of datagrams, timers and modules of Lua."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import gives_options
from nginx_tune.conf.sockets import SocketName, Wildcards, socket_name
from nginx_tune.conf.tree import ConfTree

_LUA = re.compile(r"[a-z_]+_by_lua(?:_block|_file)?")
_AT_START = re.compile(r"init_worker_by_lua(?:_block|_file)?")


class OneWorker(NamedTuple):
    """A line that more workers than one would be wrong for."""

    why: str
    is_broken: bool
    """Clients would be answered wrongly; else its author has to know whether it matters."""


def why_one_worker(tree: ConfTree) -> OneWorker | None:
    """What a configuration of one worker has that more of them would break; null for nothing.

    Source: lua-nginx-module, Data Sharing within an Nginx Worker: each worker loads modules of its
            own and runs ``init_worker_by_lua``; ``lua_shared_dict`` is shared by all.
    """
    if (line := streams_of_one_worker(tree)) is not None:
        return OneWorker(
            f"{_place(line)} is without rtmp_auto_push on, so that a player on another worker than "
            "the stream's sees none",
            is_broken=True,
        )
    if (line := sessions_of_one_worker(tree)) is not None:
        return OneWorker(
            f"{_place(line)} is without reuseport, so that of one client's datagrams each worker "
            "would read some, as sessions of its own",
            is_broken=True,
        )
    if (line := _first(tree, _AT_START)) is not None:
        return OneWorker(
            f"{line.file}:{line.line} {line.name} runs in each worker: its timers would run as "
            "often as there are workers",
            is_broken=False,
        )
    if (line := _first(tree, _LUA)) is not None:
        return OneWorker(
            f"{line.file}:{line.line} {line.name}: what Lua keeps in variables of a module, each "
            "worker would have for itself; only a lua_shared_dict is of all",
            is_broken=False,
        )
    return None


def _first(tree: ConfTree, name: re.Pattern[str]) -> Directive | None:
    return next((one for one in tree.main.walk() if name.fullmatch(one.name)), None)


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"


def streams_of_one_worker(tree: ConfTree) -> Directive | None:
    """The ``rtmp`` block whose players must be on the publisher's worker; null for none.

    Source: nginx-rtmp-module, ngx_rtmp_auto_push_module.c: ``rtmp_auto_push on`` in main passes
            each stream on to the other workers; it is off by default.
    """
    push = tree.main.first("rtmp_auto_push")
    if push is not None and push.value.lower() == "on":
        return None
    return tree.main.first("rtmp")


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
