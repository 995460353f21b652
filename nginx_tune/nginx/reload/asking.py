"""Asking one listener, and seeing which process accepted.

What is asked of HTTP never reaches an application or an upstream: a request of HTTP/1.1 without
``Host``, which nginx itself answers with 400; of HTTP/2 without TLS the first frame. Where another
protocol is spoken nothing is said, it counts that a worker accepts.
Source: ngx_http_process_request_header(); RFC 9112 section 3.2, RFC 9113 section 3.4.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from nginx_tune.host.door import Host, attempt
from nginx_tune.nginx.reload.address import AcceptingSocket, where_to_ask
from nginx_tune.nginx.reload.model_process import Process
from nginx_tune.nginx.reload.parse_reload import accepted_inode
from nginx_tune.nginx.reload.workers import held_sockets

_ANSWER_SECONDS = 3.0
_ACCEPT_SECONDS = 2.0
_REQUEST = b"GET / HTTP/1.1\r\nUser-Agent: nginx-tune\r\n"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""A client's beginning, and empty settings."""
_FRAME_HEAD_BYTES = 9
_SETTINGS = 4
_REFUSED_NAME = "unrecognized"
"""ssl_reject_handshake: the worker has spoken."""


class Asked(NamedTuple):
    """What came of asking."""

    who: int | None
    """The process that accepted; null where that cannot be seen."""
    why: str
    """What is wrong; empty when it answered."""
    is_answer: bool
    is_out_of_reach: bool = False
    """It cannot be asked from here: an address that this host does not route to."""


def may_answer(asked: Asked) -> bool:
    """Whether silence says something about the server."""
    return not asked.is_out_of_reach


def ask_place(
    host: Host, place: AcceptingSocket, master: Process, workers: Collection[int] | None = None
) -> Asked:
    """Connect, see who accepts, and have an answer where one can be asked for.

    With ``workers`` only they count. In the network namespace of the caller.
    """
    try:
        with _connected(place) as connection:
            return _ask_on(host, connection, place, master, workers)
    except ConnectionRefusedError:
        return Asked(None, "refuses connections", is_answer=False)
    except TimeoutError:
        return Asked(None, f"does not answer within {_ANSWER_SECONDS:g} s", is_answer=False)
    except ssl.SSLError as error:
        is_answer = _REFUSED_NAME in str(error).lower()
        why = "" if is_answer else f"TLS fails: {error.reason or error}"
        return Asked(None, why, is_answer=is_answer)
    except OSError as error:
        why = error.strerror or str(error)
        out_of_reach = not isinstance(error, ConnectionError) and not place.path
        return Asked(None, why, is_answer=False, is_out_of_reach=out_of_reach)


@contextlib.contextmanager
def _connected(place: AcceptingSocket) -> Iterator[socket.socket]:
    if place.path:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_ANSWER_SECONDS)
        with connection:
            connection.connect(place.path)
            yield connection
        return
    address = (where_to_ask(place.address), place.port)
    with socket.create_connection(address, timeout=_ANSWER_SECONDS) as connection:
        yield connection


def _ask_on(
    host: Host,
    connection: socket.socket,
    place: AcceptingSocket,
    master: Process,
    workers: Collection[int] | None,
) -> Asked:
    if place.speaks == "http":
        connection.sendall(_REQUEST)  # a ``deferred`` listener accepts with the first bytes
    elif place.speaks == "http2":
        connection.sendall(_PREFACE)
    elif place.speaks == "tls":
        return _ask_tls(host, connection, place, master, workers)
    who = None
    if workers is not None and not place.path:
        who = _acceptor(host, connection, master, workers)
        if who is None and place.speaks == "unknown" and _has_ended(connection):
            return Asked(None, "connections end at once: not seen who accepts", is_answer=True)
        if who is None:
            return Asked(None, "no new worker accepts", is_answer=False)
    if place.speaks == "unknown":
        return Asked(who, "", is_answer=True)
    if place.speaks == "http2":
        return _http2_answer(connection, who)
    connection.sendall(b"\r\n")
    return _answer(connection, who)


def _answer(connection: socket.socket, who: int | None) -> Asked:
    said = connection.recv(64)
    is_answer = said.startswith(b"HTTP/")
    why = "" if is_answer else "closes the connection" if not said else "does not speak HTTP"
    return Asked(who, why, is_answer=is_answer)


def _http2_answer(connection: socket.socket, who: int | None) -> Asked:
    said = b""
    while len(said) < _FRAME_HEAD_BYTES and (more := connection.recv(_FRAME_HEAD_BYTES)):
        said += more
    is_answer = len(said) >= _FRAME_HEAD_BYTES and said[3] == _SETTINGS
    why = "" if is_answer else "closes the connection" if not said else "does not speak HTTP/2"
    return Asked(who, why, is_answer=is_answer)


def _ask_tls(
    host: Host,
    connection: socket.socket,
    place: AcceptingSocket,
    master: Process,
    workers: Collection[int] | None,
) -> Asked:
    context = ssl.create_default_context()
    context.check_hostname = False  # who answers is the question, not whether its name is right
    context.verify_mode = ssl.CERT_NONE
    with context.wrap_socket(connection, do_handshake_on_connect=False) as wrapped:
        wrapped.do_handshake()
        who = None
        if workers is not None and not place.path:
            who = _acceptor(host, wrapped, master, workers)
            if who is None:
                return Asked(None, "no new worker accepts", is_answer=False)
        wrapped.sendall(_REQUEST + b"\r\n")
        return _answer(wrapped, who)


def _acceptor(
    host: Host, connection: socket.socket, master: Process, workers: Collection[int]
) -> int | None:
    """The worker that holds the other end; null when none of these has accepted in time."""
    server_port, client_port = connection.getpeername()[1], connection.getsockname()[1]
    until = time.monotonic() + _ACCEPT_SECONDS
    while time.monotonic() < until:
        names = (f"/proc/{master.pid}/net/{table}" for table in ("tcp", "tcp6"))
        tables = [text for name in names if isinstance(text := attempt(host.read_text, name), str)]
        inode = accepted_inode(tables, server_port=server_port, client_port=client_port)
        if inode:
            for pid in workers:
                if inode in held_sockets(pid):
                    return pid
            return None
        if _has_ended(connection):
            return None
        time.sleep(0.01)
    return None


def _has_ended(connection: socket.socket) -> bool:
    """Whether a process accepted it and closed it: a stream whose upstream refuses, say.

    One that waits in a queue that goes is reset instead.
    """
    if isinstance(connection, ssl.SSLSocket) or not select.select([connection], [], [], 0)[0]:
        return False
    return connection.recv(1, socket.MSG_PEEK) == b""
