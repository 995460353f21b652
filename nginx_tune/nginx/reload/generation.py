"""The proof that a new worker generation serves, from its processes and not from nginx's reports.

``nginx -s reload`` succeeds even if nginx refuses the configuration and the old workers stay. It
also succeeds if new workers die, or if nobody accepts from a socket. So workers are identified by
process id and start time, and each listener is tried until a new worker accepts.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from nginx_tune.host.door import Host, attempt
from nginx_tune.host.namespaces import in_network_of
from nginx_tune.host.network import ask_listening
from nginx_tune.nginx.reload.address import AcceptingSocket, Address, spoken_at, where_to_ask
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.parse_reload import accepted_inode, bad_lines
from nginx_tune.nginx.reload.workers import (
    Generations,
    OldServeError,
    Process,
    ReloadError,
    held_sockets,
)

_POLL_SECONDS = 0.05
_STABLE_SECONDS = 0.6
"""The time for which workers must not change. A worker that dies at its start is replaced at once,
so a single sample may show it alive."""
_MOST_PLACES = 64
_SEEING_SECONDS = 1.5
"""The time to try to see every worker accept. Under light load, a few workers accept most
connections."""
_RETRIES = 4


class Readiness(NamedTuple):
    """A new worker generation and the signs that it serves."""

    workers: frozenset[Process]
    seen: int
    """Number of workers that were seen to accept."""
    places: list[AcceptingSocket]
    notes: list[str]


def logged_faults(
    logs: Logs, master: Process, before: frozenset[Process], now: frozenset[Process]
) -> list[str]:
    """New emergencies and alerts of the master and the new workers."""
    return _faults(logs.lines(), logs, master, before, now)


def _faults(
    lines: Sequence[bytes],
    logs: Logs,
    master: Process,
    before: frozenset[Process],
    now: frozenset[Process],
) -> list[str]:
    ours = {logs.number_of(process) for process in (master, *now)}
    found = bad_lines(lines, ours=ours, old={logs.number_of(process) for process in before})
    return logs.new_faults(found, before)


def await_workers(
    look: Callable[[], Generations],
    master: Process,
    before: frozenset[Process],
    logs: Logs,
    *,
    seconds: float,
    heeds_logs: bool = True,
) -> frozenset[Process]:
    """Wait for the new workers: until only they serve and have not changed for a while.

    ``look`` returns the present workers. Without ``heeds_logs`` emergencies do not end the wait,
    since an earlier, refused reload may still write them.
    Errors: ReloadError with the reason; OldServeError if only old workers serve and nothing was
            logged.
    """
    until = time.monotonic() + seconds
    last: frozenset[Process] = frozenset()
    since = time.monotonic()
    while True:
        now = look()
        fresh = now.serving - before
        wrong = logged_faults(logs, master, before, fresh)
        if wrong and heeds_logs:
            raise ReloadError("; ".join(wrong[:3]))
        if fresh != last:
            last, since = fresh, time.monotonic()
        if fresh and fresh == now.serving and time.monotonic() - since >= _STABLE_SECONDS:
            return fresh
        if time.monotonic() > until:
            late = [_late(now, before, seconds), *wrong[-2:]]
            doubtful = _faults(logs.doubtful_lines(), logs, master, before, fresh)
            if doubtful and not wrong:
                late.append(f"logged (or part of a client's request): {doubtful[-1]}")
            if not fresh and not wrong and now.serving & before:
                raise OldServeError("; ".join(late))
            raise ReloadError("; ".join(late))
        time.sleep(_POLL_SECONDS)


def _late(now: Generations, before: frozenset[Process], seconds: float) -> str:
    if now.serving & before:
        return f"the old workers still serve {seconds:g} s after the reload"
    return f"no new worker has lasted for {_STABLE_SECONDS:g} s"


def places_of(host: Host, master: Process, addresses: Sequence[Address]) -> list[AcceptingSocket]:
    """The listening sockets of a master, with their protocols."""
    listening = ask_listening(host, master.pid)
    held = held_sockets(master.pid)
    found: dict[tuple[str, int], AcceptingSocket] = {}
    for sock in getattr(listening, "sockets", []):
        if sock.inode in held:
            speaks = spoken_at(sock.address, sock.port, addresses)
            place = AcceptingSocket(sock.address, sock.port, "", speaks)
            found.setdefault((sock.address, sock.port), place)
    unix = [AcceptingSocket("", 0, a.path, a.speaks) for a in addresses if a.path]
    return [*found.values(), *unix]


def ask_before(
    host: Host, master: Process, addresses: Sequence[Address]
) -> frozenset[AcceptingSocket]:
    """The listeners that do not answer before the change and so need not answer after it."""
    places = places_of(host, master, addresses)[:_MOST_PLACES]

    def ask() -> frozenset[AcceptingSocket]:
        return frozenset(place for place in places if not ask_place(host, place, master).is_answer)

    return in_network_of(master.pid, ask)


def see_answers(
    host: Host,
    master: Process,
    workers: frozenset[Process],
    addresses: Sequence[Address],
    silent_before: frozenset[AcceptingSocket],
) -> Readiness:
    """Check that a worker of the new generation answers at every listener.

    Errors: ReloadError that names a listener where none does.
    """
    places = places_of(host, master, addresses)
    notes = [f"{len(places) - _MOST_PLACES} listeners were not asked"] * (
        len(places) > _MOST_PLACES
    )
    if not places:
        notes.append("no listener can be tested: only the new workers were observed")
    seen: set[int] = set()

    def ask_all() -> None:
        for place in places[:_MOST_PLACES]:
            asked = _until_answered(host, place, master, workers)
            if asked.who is not None:
                seen.add(asked.who)
            if not asked.is_answer and place not in silent_before and _may_answer(asked):
                raise ReloadError(f"{place.name}: {asked.why}")
            if asked.is_answer and asked.why:
                notes.append(f"{place.name}: {asked.why}")
            if not asked.is_answer:
                notes.append(f"{place.name}: {asked.why}, as before")
        _see_more(host, places, master, workers, seen)

    in_network_of(master.pid, ask_all)
    return Readiness(workers, len(seen & {worker.pid for worker in workers}), places, notes)


def _until_answered(
    host: Host, place: AcceptingSocket, master: Process, workers: frozenset[Process]
) -> Asked:
    """The answer of a new worker; retried, since both generations may still accept."""
    ours = {worker.pid for worker in workers}
    asked = Asked(None, "not asked", False)
    for _ in range(_RETRIES):
        asked = ask_place(host, place, master, ours)
        if asked.is_answer:
            return asked
        time.sleep(_POLL_SECONDS)
    return asked


def _see_more(
    host: Host,
    places: Sequence[AcceptingSocket],
    master: Process,
    workers: frozenset[Process],
    seen: set[int],
) -> None:
    """Connect until every worker has accepted, or the time is up.

    No request is sent, since it would appear in the operator's access log.
    """
    ours = {worker.pid for worker in workers}
    plain = [place for place in places if not place.path]
    until = time.monotonic() + _SEEING_SECONDS
    while plain and ours - seen and time.monotonic() < until:
        asked = ask_place(host, plain[0]._replace(speaks="unknown"), master, ours)
        if asked.who is None:
            return
        seen.add(asked.who)


_ANSWER_SECONDS = 3.0
_ACCEPT_SECONDS = 2.0
_REQUEST = b"GET / HTTP/1.1\r\nUser-Agent: nginx-tune\r\n"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The client's connection preface with empty settings."""
_FRAME_HEAD_BYTES = 9
_SETTINGS = 4
_REFUSED_NAME = "unrecognized"
"""The TLS alert of ssl_reject_handshake, which counts as an answer of the worker."""


class Asked(NamedTuple):
    """The outcome of a request to a listener."""

    who: int | None
    """The process that accepted; None if not known."""
    why: str
    """The reason for no answer; empty if there was one."""
    is_answer: bool
    is_out_of_reach: bool = False
    """True if this host has no route to the address."""


def _may_answer(asked: Asked) -> bool:
    """True if a missing answer is the fault of the server."""
    return not asked.is_out_of_reach


def ask_place(
    host: Host, place: AcceptingSocket, master: Process, workers: Collection[int] | None = None
) -> Asked:
    """Connect, find the process that accepts, and request an answer if possible.

    If ``workers`` is given, only those processes count. Works in the caller's network namespace.
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
        connection.sendall(_REQUEST)  # a ``deferred`` listener accepts at the first bytes
    elif place.speaks == "http2":
        connection.sendall(_PREFACE)
    elif place.speaks == "tls":
        return _ask_tls(host, connection, place, master, workers)
    who = None
    if workers is not None and not place.path:
        who = _acceptor(host, connection, master, workers)
        if who is None and place.speaks == "unknown" and _has_ended(connection):
            return Asked(
                None,
                "connections end at once, so it is unknown which worker accepts",
                is_answer=True,
            )
        if who is None:
            return Asked(None, "no new worker accepts", is_answer=False)
    if place.speaks == "unknown":
        return Asked(who, "", is_answer=True)
    if place.speaks == "http2":
        return _http2_answer(connection, who)
    connection.sendall(b"\r\n")
    return _answer(connection, who)


def _answer(connection: socket.socket, who: int | None) -> Asked:
    data = connection.recv(64)
    is_answer = data.startswith(b"HTTP/")
    why = "" if is_answer else "closes the connection" if not data else "does not speak HTTP"
    return Asked(who, why, is_answer=is_answer)


def _http2_answer(connection: socket.socket, who: int | None) -> Asked:
    data = b""
    while len(data) < _FRAME_HEAD_BYTES and (more := connection.recv(_FRAME_HEAD_BYTES)):
        data += more
    is_answer = len(data) >= _FRAME_HEAD_BYTES and data[3] == _SETTINGS
    why = "" if is_answer else "closes the connection" if not data else "does not speak HTTP/2"
    return Asked(who, why, is_answer=is_answer)


def _ask_tls(
    host: Host,
    connection: socket.socket,
    place: AcceptingSocket,
    master: Process,
    workers: Collection[int] | None,
) -> Asked:
    context = ssl.create_default_context()
    context.check_hostname = False  # only the answer matters, not the name in the certificate
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
    """The worker that holds the other end; None if none of these workers accepts in time."""
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
    """True if a process accepted and closed the connection, like stream when its upstream refuses.

    A connection in the queue of a closed listener is reset instead.
    """
    if isinstance(connection, ssl.SSLSocket) or not select.select([connection], [], [], 0)[0]:
        return False
    return connection.recv(1, socket.MSG_PEEK) == b""
