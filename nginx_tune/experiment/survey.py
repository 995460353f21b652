"""Single requests to nginx, one at a time, before anything is measured."""

import contextlib
import hashlib
import http.client
import socket
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nginx_tune import __version__
from nginx_tune.documents.loadplan import Target
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.operations import Question, Response, SurveyRequest
from nginx_tune.nginx.instance import start_instance
from nginx_tune.nginx.lab.cgroups import MemoryKills, count_memory_kills
from nginx_tune.nginx.lab.enclosure import STATE, Enclosure
from nginx_tune.nginx.place import Door

_SECONDS = 5.0
_COMPARED_BYTES = 2048
"""Bytes of a body that are compared; with the length, they distinguish two answers."""
_PIECE_BYTES = 1 << 20
_MOST_SILENT = 20
"""Requests without an answer after which the rest are skipped, since each takes seconds."""
_NOT_ASKED = Response(fault="not requested: too many others got no answer", was_asked=False)


def survey(request: SurveyRequest, enclosure: Enclosure) -> list[Response]:
    """The answer to each question, from an nginx started for them.

    Errors: UndecidedError if nginx does not start, or runs out of memory.
    """
    if not request.questions:
        return []
    kills = count_memory_kills(enclosure.join_files)
    try:
        return _survey(request, enclosure)
    finally:
        has_limit = request.memory_bytes is not None
        check_memory(request.variant.name, enclosure.join_files, kills, has_limit=has_limit)


def _survey(request: SurveyRequest, enclosure: Enclosure) -> list[Response]:
    first = request.questions[0].target
    instance = start_instance(
        request.binary,
        Path(request.variant.conf_path),
        stderr_path=STATE / "survey.stderr",
        address=first.unix or (first.address, first.port),
        prefix=request.variant.prefix,
        join_files=enclosure.join_files,
        sandbox=enclosure.prepare([request.binary]),
    )
    answers: list[Response] = []
    try:
        for question in request.questions:
            silent = sum(answer.status is None for answer in answers)
            hangs = silent >= _MOST_SILENT
            answers.append(_NOT_ASKED if hangs else _answer(question, instance.pid))
        return answers
    finally:
        instance.stop()


def _answer(question: Question, pid: int) -> Response:
    target = question.target
    if target.unix is None:
        return _get(target, question.url)
    with contextlib.closing(Door(target.unix, pid)) as door:
        return _get(msgspec.structs.replace(target, unix=door.path), question.url)


def _get(target: Target, url: str) -> Response:
    connection = TargetConnection(target, timeout=_SECONDS)
    try:
        response = connection.get(url)
        length = response.length
        begin = response.read(_COMPARED_BYTES)
        if length is None and response.status == http.client.OK:
            length = _count_body(response, len(begin))
        digest = hashlib.sha256(begin).hexdigest()
        return Response(status=response.status, length_bytes=length, digest=digest)
    except http.client.RemoteDisconnected:
        return Response(fault="the server closes the connection, as with return 444")
    except (OSError, http.client.HTTPException) as error:
        return Response(fault=str(error) or type(error).__name__)
    finally:
        connection.finish()


def _count_body(response: http.client.HTTPResponse, count: int) -> int | None:
    """The length of a body without Content-Length; ``count`` bytes of it are already read.

    None for a body that does not end in time.
    """
    try:
        while piece := response.read(_PIECE_BYTES):
            count += len(piece)
    except (OSError, http.client.HTTPException):
        return None
    return count


AGENT = f"nginx-tune-probe/{__version__}"
"""The User-Agent, the same as in the load (``probes/src/request.rs``)."""
_LOCAL = ("127.0.0.1", 0)
"""The address used for both ends of a unix socket."""


def client_line(own: tuple[str, int], server: tuple[str, int]) -> bytes:
    """The PROXY protocol version 1 header of a connection between two addresses and ports.

    Source: HAProxy's proxy-protocol.txt, section 2.1; nginx reads it since 1.5.12.
    """
    family = "TCP6" if ":" in own[0] else "TCP4"
    return f"PROXY {family} {own[0]} {server[0]} {own[1]} {server[1]}\r\n".encode()


class TargetConnection(http.client.HTTPConnection):
    """A connection to a target, over a unix socket, PROXY protocol or TLS as its listener needs.

    Certificates are not checked: nobody else listens in the sandbox.
    """

    def __init__(self, target: Target, *, timeout: float) -> None:
        """Start the timer: ``timeout``, in seconds, limits the whole life of the connection."""
        super().__init__(target.address or _LOCAL[0], target.port, timeout=timeout)
        self._target = target
        self._watched: socket.socket | None = None
        self._watch = threading.Timer(timeout, self._end)
        self._watch.daemon = True
        self._watch.start()

    def _end(self) -> None:
        """Shut the socket down, which ends a pending read."""
        if self._watched is not None:
            with contextlib.suppress(OSError):
                self._watched.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        """Close the connection and stop its timer."""
        self._watch.cancel()
        self.close()

    def connect(self) -> None:
        """Connect, send a PROXY protocol header if needed, then start TLS."""
        if self._target.unix is None:
            super().connect()
            ends = (self.sock.getsockname(), self.sock.getpeername())
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._target.unix)
            ends = (_LOCAL, _LOCAL)
        if self._target.proxy_protocol is not None:
            self.sock.sendall(client_line(*ends))
        if self._target.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.sock = context.wrap_socket(
                self.sock, server_hostname=self._target.host.partition(":")[0]
            )
        self._watched = self.sock  # the response may take the socket over

    def get(self, url: str) -> http.client.HTTPResponse:
        """The answer to a GET with the load's default headers."""
        self.putrequest("GET", url, skip_host=True, skip_accept_encoding=True)
        for name, value in request_headers(self._target):
            self.putheader(name, value)
        self.endheaders()
        return self.getresponse()


def request_headers(target: Target) -> list[tuple[str, str]]:
    """The load's default headers, in its order."""
    return [("Host", target.host), ("User-Agent", AGENT), ("Accept", "*/*")]


def check_memory(
    variant: str, join_files: Sequence[str | Path], before: MemoryKills, *, has_limit: bool
) -> None:
    """Check that the kernel has killed no process of nginx for lack of memory since ``before``.

    ``has_limit``: true if the lab sets the limit.
    Errors: UndecidedError if it has killed one; this replaces any error being raised.
    """
    now = count_memory_kills(join_files)
    if now.processes <= before.processes:
        return
    of = "the lab's" if has_limit else "its limit of"
    limit = "" if now.limit_bytes is None else f" {now.limit_bytes >> 20} MiB"
    raise UndecidedError(
        f"{variant}: nginx ran out of {of}{limit} of memory, and the kernel killed "
        f"{now.processes - before.processes} of its processes",
        hint="give the lab more (memory_bytes), or nginx fewer workers, smaller zones and buffers",
    ) from None
