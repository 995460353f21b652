"""The watch over a change: error logs, workers, and canaries (URLs that the operator names).

Canaries are requested before a change, and repeatedly after it. Each request has a single deadline
for name lookup, handshake and body, so a slow trickle of bytes fails too. A socket timeout would
apply to each read separately, and not to the lookup.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from nginx_tune.change.apply.target import generations
from nginx_tune.errors import UsageError
from nginx_tune.host.door import Host
from nginx_tune.host.namespaces import in_network_of
from nginx_tune.nginx.reload.generation import logged_faults
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.workers import Generations, Process, ReloadError, lives

_POLL_SECONDS = 0.25
_GLANCE_SECONDS = 0.02
"""Polling interval, short beside the 100 ms of a reload in which both worker generations serve."""


def watch(
    host: Host,
    master: Process,
    before: frozenset[Process],
    workers: frozenset[Process],
    logs: Logs,
    *,
    canaries: Sequence[Canary],
    seconds: float,
) -> None:
    """Watch for ``seconds``, and then until the last answer of every canary is good.

    Errors: ReloadError that names the fault.
    """
    until = time.monotonic() + seconds
    with _glanced_at(_Lasting(workers)) as lasting:
        while True:
            is_over = time.monotonic() >= until
            now = generations(host, master)
            wrong = logged_faults(logs, master, before, workers | now.serving)
            if wrong:
                raise ReloadError("; ".join(wrong[:3]))
            lasting.check(now)
            asked = [canary for canary in canaries if canary.is_in_doubt or not is_over]
            if not lasting.is_in_doubt:
                ask_together(asked, master, until=until)
                if is_over and not any(canary.is_in_doubt for canary in canaries):
                    return
            left = until - time.monotonic()
            time.sleep(min(_POLL_SECONDS, left) if left > 0 else _POLL_SECONDS)


class _Lasting:
    """The check that no worker dies.

    It asks the kernel, because clients can write text into the logs.

    nginx replaces a dead worker at once, and all workers in a reload. The new workers of a reload
    start while the old workers live; a replacement starts after the death.
    Source: ngx_reap_children(); ngx_master_process_cycle() sleeps 100 ms between the start of the
            new workers and the signal to the old ones.
    """

    def __init__(self, workers: frozenset[Process]) -> None:
        self._workers = workers
        self._known = workers
        self._alive_ticks = 0
        """The last moment at which all workers are known to have lived (clock ticks since boot)."""
        self.is_in_doubt = False
        """True if workers were missing at the last check and the reason is not known yet."""

    def glance(self) -> None:
        """Note the time if all workers live; the only method that is safe in another thread."""
        workers = self._workers
        # The time now, in the unit of process start times. Source: proc_pid_stat(5), starttime.
        ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        # A race with ``check`` can only store an earlier moment.
        if all(map(lives, workers)) and workers is self._workers:
            self._alive_ticks = ticks

    def check(self, now: Generations) -> None:
        """Compare the watched workers with those that live now.

        Errors: ReloadError that names a dead worker. It is raised at the second check: at the first
                check, the replacement may not be recognisable as a worker yet.
        """
        gone = self._workers - now.serving
        fresh = now.serving - self._known
        is_reloaded = bool(gone & now.leaving) or any(
            worker.start_ticks < self._alive_ticks for worker in fresh
        )
        if not gone:
            self.is_in_doubt = False
        elif fresh and is_reloaded:
            self._workers, self._known = fresh, self._known | fresh
            self.is_in_doubt = False
        elif self.is_in_doubt or not now.serving:
            raise ReloadError(f"worker {min(worker.pid for worker in gone)} has ended")
        else:
            self.is_in_doubt = True


@contextlib.contextmanager
def _glanced_at(lasting: _Lasting) -> Iterator[_Lasting]:
    """Call ``glance`` repeatedly in a thread, even while a canary's answer is awaited."""
    is_over = threading.Event()

    def glance() -> None:
        while True:
            lasting.glance()
            if is_over.wait(_GLANCE_SECONDS):
                return

    thread = threading.Thread(target=glance, daemon=True)
    thread.start()
    try:
        yield lasting
    finally:
        is_over.set()
        thread.join()


ANSWER_SECONDS = 10.0
_MOST_BODY_BYTES = 1 << 20
"""Maximum number of bytes of an answer to read: enough to show that it arrives."""
_REQUESTS_BEFORE = 5
_FAILURES = 2
"""Failures in a row that count as an error, since a single request may hit an old worker as it
exits."""
_GOOD = range(200, 400)
_SLOWER_RATIO = 3.0
_SLOWER_SECONDS = 0.2
_LAST = 9
"""The number of last answers whose median is taken."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class _Answer(NamedTuple):
    status: int
    """HTTP status; 0 if there was no answer."""
    seconds: float
    """Time to the end of the answer, or of the part that is read."""
    is_late: bool = False

    @property
    def is_good(self) -> bool:
        return self.status in _GOOD

    def __str__(self) -> str:
        if self.is_late:
            return f"does not answer within {self.seconds:.3g} s"
        return f"answers {self.status}" if self.status else "does not answer"


class Canary:
    """A URL of this nginx that is requested repeatedly, and the time it took before the change."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self._seconds = seconds
        """The slowest of a few answers before the change."""
        self._bad: list[_Answer] = []
        """The bad answers since the last good answer."""
        self._times: list[float] = []

    @property
    def is_in_doubt(self) -> bool:
        """True before the first answer, or if the last answer was bad and must be confirmed."""
        return bool(self._bad) or not self._times

    def ask(self, master: Process, *, by: float) -> None:
        """Send one request; ``by`` is its deadline by the monotonic clock.

        Errors: ReloadError for a late answer, a second bad answer in a row, or answers that are
                much slower than before the change.
        """
        left = min(ANSWER_SECONDS, max(0.0, by - time.monotonic()))
        answer = in_network_of(master.pid, partial(_ask, self.url, left))
        self._bad = [] if answer.is_good else [*self._bad, answer]
        if answer.is_late or len(self._bad) >= _FAILURES:
            how = dict.fromkeys(map(str, self._bad))
            raise ReloadError(f"{self.url} {', then '.join(how)}")
        self._times.append(answer.seconds)
        if len(self._times) < _LAST:
            return
        typical = statistics.median(self._times[-_LAST:])
        if typical > max(self._seconds * _SLOWER_RATIO, self._seconds + _SLOWER_SECONDS):
            raise ReloadError(
                f"{self.url} takes {typical:.3f} s; before the change it took {self._seconds:.3f} s"
            )


def ask_together(canaries: Sequence[Canary], master: Process, *, until: float) -> None:
    """Request all canaries at once, so that slow ones do not add up.

    ``until`` is the end of the watch; an answer may come up to ``ANSWER_SECONDS`` later.
    Errors: those of ``Canary.ask``.
    """
    if not canaries:
        return
    by = until + ANSWER_SECONDS
    with ThreadPoolExecutor(max_workers=len(canaries)) as threads:
        for asked in [threads.submit(canary.ask, master, by=by) for canary in canaries]:
            asked.result()


def check_url(url: str) -> None:
    """Check that a canary is an HTTP URL of ASCII characters.

    Errors: UsageError.
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in _DEFAULT_PORTS and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"--canary {url}: not an http or https URL")
    if not url.isascii():
        raise UsageError(
            f"--canary {url}: a URL has only ASCII characters (RFC 3986)",
            hint="write others as %XX, in a host name as xn--",
        )


def ask_canaries(master: Process, urls: Sequence[str]) -> list[Canary]:
    """Request every URL before the change, and return the canaries.

    Errors: UsageError at the first bad answer: such a canary would prove nothing.
    """
    found = []
    for url in urls:
        slowest = 0.0
        for _ in range(_REQUESTS_BEFORE):
            answer = in_network_of(master.pid, partial(_ask, url, ANSWER_SECONDS))
            if not answer.is_good:
                raise UsageError(f"--canary {url}: {answer} before the change")
            slowest = max(slowest, answer.seconds)
        found.append(Canary(url, slowest))
    return found


def _ask(url: str, seconds: float) -> _Answer:
    began = time.monotonic()
    question = _Question(urlsplit(url), seconds)
    is_answered = question.done.wait(seconds)
    if not is_answered:
        question.cut()
    if question.is_late or not is_answered:
        return _Answer(0, seconds, is_late=True)
    return _Answer(question.status, time.monotonic() - began)


class _Question:
    """One request, in a thread that need not be joined.

    The thread inherits the network namespace of the thread that starts it.
    """

    def __init__(self, parts: SplitResult, seconds: float) -> None:
        self.status = 0
        self.is_late = False
        """True if the socket timed out, which may happen before the waiting thread wakes."""
        self.done = threading.Event()
        self._parts = parts
        self._seconds = seconds
        self._lock = threading.Lock()
        self._plain: socket.socket | None = None
        self._is_cut = False
        threading.Thread(target=self._run, daemon=True).start()

    def cut(self) -> None:
        """End the connection at once, or as soon as it is made."""
        with self._lock:
            self._is_cut = True
            if self._plain is not None:
                with contextlib.suppress(OSError):
                    self._plain.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        # ValueError: a host name that cannot be encoded, or an invalid length.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            try:
                self.status = self._ask()
            except TimeoutError:
                self.is_late = True
        self.done.set()

    def _ask(self) -> int:
        """The status of the answer once it is read.

        Errors: OSError, HTTPException, ValueError.
        """
        parts = self._parts
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = http.client.HTTPConnection(parts.hostname or "", port)
        connection.default_port = _DEFAULT_PORTS[parts.scheme]  # so that Host leaves it out
        with self._spoken_to(port) as spoken, contextlib.closing(connection):
            connection.sock = spoken
            connection.request("GET", target, headers={"User-Agent": "nginx-tune"})
            answer = connection.getresponse()
            body = answer.read(_MOST_BODY_BYTES)
            if len(body) < _MOST_BODY_BYTES and answer.length:
                raise http.client.IncompleteRead(body, answer.length)
            return answer.status

    @contextlib.contextmanager
    def _spoken_to(self, port: int) -> Iterator[socket.socket]:
        """A connection that can be cut, with TLS for https."""
        address = (self._parts.hostname or "", port)
        with socket.create_connection(address, timeout=self._seconds) as plain:
            with self._lock:
                self._plain = plain
                if self._is_cut:
                    raise TimeoutError
            try:
                yield from self._in_protocol(plain)
            finally:
                with self._lock:
                    self._plain = None  # its number may be reused from here on

    def _in_protocol(self, plain: socket.socket) -> Iterator[socket.socket]:
        if self._parts.scheme != "https":
            yield plain
            return
        context = ssl.create_default_context()
        context.check_hostname = False  # the canary only checks that this host's nginx answers
        context.verify_mode = ssl.CERT_NONE
        # A duplicate descriptor: ``cut`` needs the plain one.
        with context.wrap_socket(plain.dup(), server_hostname=self._parts.hostname) as wrapped:
            yield wrapped
