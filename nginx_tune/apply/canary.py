"""URLs that the operator names: asked before a change, and again and again behind it.

Each question has one deadline for all of it, names and handshake and body: an answer that comes by
drips is none.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from nginx_tune.errors import UsageError
from nginx_tune.host.namespaces import in_network_of
from nginx_tune.turnover.process import Process
from nginx_tune.turnover.workers import ReloadError

ANSWER_SECONDS = 10.0
_MOST_BODY_BYTES = 1 << 20
"""Enough of an answer to know that it comes."""
_REQUESTS_BEFORE = 5
_FAILURES = 2
"""In a row: one request may meet an old worker's end."""
_GOOD = range(200, 400)
_SLOWER_RATIO = 3.0
_SLOWER_SECONDS = 0.2
_LAST = 9
"""Answers whose median counts."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class _Answer(NamedTuple):
    status: int
    """0 for none."""
    seconds: float
    """Until the whole answer, or as much of it as is read."""
    is_late: bool = False

    @property
    def is_good(self) -> bool:
        return self.status in _GOOD

    def __str__(self) -> str:
        if self.is_late:
            return f"does not answer within {ANSWER_SECONDS:g} s"
        return f"answers {self.status}" if self.status else "does not answer"


class Canary:
    """A URL of this nginx that is asked again and again, and how it answered before."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self._seconds = seconds
        """The slowest of a few answers before the change."""
        self._failures = 0
        self._times: list[float] = []

    @property
    def is_in_doubt(self) -> bool:
        """Whether its last answer was bad, and must be seen again."""
        return self._failures > 0

    def ask(self, master: Process) -> None:
        """Ask once more.

        Errors: ReloadError when it is late, bad twice, or slower than it was.
        """
        answer = in_network_of(master.pid, partial(_ask, self.url))
        self._failures = 0 if answer.is_good else self._failures + 1
        if answer.is_late or self._failures >= _FAILURES:
            raise ReloadError(f"{self.url} {answer}")
        self._times.append(answer.seconds)
        if len(self._times) < _LAST:
            return
        typical = statistics.median(self._times[-_LAST:])
        if typical > max(self._seconds * _SLOWER_RATIO, self._seconds + _SLOWER_SECONDS):
            raise ReloadError(
                f"{self.url} takes {typical:.3f} s, before the change {self._seconds:.3f} s"
            )


def check_url(url: str) -> None:
    """Errors: UsageError for what is no URL of HTTP."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in _DEFAULT_PORTS and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"--canary {url}: no http or https URL")
    if not url.isascii():
        raise UsageError(
            f"--canary {url}: a URL is of ASCII characters (RFC 3986)",
            hint="write others as %XX, and those of a host as xn--",
        )


def ask_canaries(master: Process, urls: Sequence[str]) -> list[Canary]:
    """How they answer as things are.

    Errors: UsageError for one that fails already: it could not tell anything.
    """
    found = []
    for url in urls:
        slowest = 0.0
        for _ in range(_REQUESTS_BEFORE):
            answer = in_network_of(master.pid, partial(_ask, url))
            if not answer.is_good:
                raise UsageError(f"--canary {url}: {answer} before the change")
            slowest = max(slowest, answer.seconds)
        found.append(Canary(url, slowest))
    return found


def _ask(url: str) -> _Answer:
    began = time.monotonic()
    is_cut = threading.Event()
    status = 0
    with contextlib.suppress(OSError, http.client.HTTPException):
        status = _status_of(urlsplit(url), began + ANSWER_SECONDS, is_cut)
    seconds = time.monotonic() - began
    if is_cut.is_set() or seconds >= ANSWER_SECONDS:
        return _Answer(0, seconds, is_late=True)
    return _Answer(status, seconds)


def _status_of(parts: SplitResult, until: float, is_cut: threading.Event) -> int:
    """Status of a whole answer.

    Errors: OSError, HTTPException.
    """
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = http.client.HTTPConnection(parts.hostname or "", port)
    connection.default_port = _DEFAULT_PORTS[parts.scheme]  # else it stands in Host
    with _spoken_to(parts, port, until, is_cut) as spoken, contextlib.closing(connection):
        connection.sock = spoken
        connection.request("GET", target, headers={"User-Agent": "nginx-tune"})
        answer = connection.getresponse()
        said = answer.read(_MOST_BODY_BYTES)
        if len(said) < _MOST_BODY_BYTES and answer.length:
            raise http.client.IncompleteRead(said, answer.length)
        return answer.status


@contextlib.contextmanager
def _spoken_to(
    parts: SplitResult, port: int, until: float, is_cut: threading.Event
) -> Iterator[socket.socket]:
    """A connection, in TLS if that is asked for, which ends at a moment."""
    address, left = (parts.hostname or "", port), max(0.001, until - time.monotonic())
    with socket.create_connection(address, timeout=left) as plain, _cut_at(plain, until, is_cut):
        if parts.scheme != "https":
            yield plain
            return
        context = ssl.create_default_context()
        context.check_hostname = False  # it is the host's own server: asked is whether it answers
        context.verify_mode = ssl.CERT_NONE
        # A descriptor of its own: the plain one is what is cut.
        with context.wrap_socket(plain.dup(), server_hostname=parts.hostname) as wrapped:
            yield wrapped


@contextlib.contextmanager
def _cut_at(plain: socket.socket, until: float, is_cut: threading.Event) -> Iterator[None]:
    """End a connection at a moment, whatever is being read then: a timeout is of one read."""
    done = threading.Event()

    def wait_and_cut() -> None:
        if not done.wait(max(0.0, until - time.monotonic())):
            is_cut.set()
            with contextlib.suppress(OSError):
                plain.shutdown(socket.SHUT_RDWR)

    watch = threading.Thread(target=wait_and_cut, daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()
