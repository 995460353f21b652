"""The watch over a change: error logs, workers, and canaries, URLs that the operator names.

Canaries are asked before a change, and again and again behind it. Each question has one deadline
for all of it, names and handshake and body: an answer that comes by drips is none. A timeout of a
socket would be one of each read, and none of looking a name up.
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
"""A small part of the 100 ms for which workers of both generations serve in a reload."""


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
    """Look on for a while, and for one answer more where a canary is in doubt then.

    Errors: ReloadError with what went wrong.
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
            asked = [one for one in canaries if one.is_in_doubt or not is_over]
            if not lasting.is_in_doubt:
                ask_together(asked, master, until=until)
                if is_over and not any(one.is_in_doubt for one in canaries):
                    return
            left = until - time.monotonic()
            time.sleep(min(_POLL_SECONDS, left) if left > 0 else _POLL_SECONDS)


class _Lasting:
    """The watch that workers last, by the kernel's word: no log need be believed (``ClientText``).

    A worker that ends is replaced at once, as all of them are when somebody reloads. But the
    workers of a reload start while those before them live, the replacement of one that has ended
    starts behind its end. Source: ngx_master_process_cycle() sleeps for 100 ms between the start of
    the new ones and the word to the old ones; ngx_reap_children().
    """

    def __init__(self, workers: frozenset[Process]) -> None:
        self._workers = workers
        self._known = workers
        self._alive_ticks = 0
        """The last moment at which all of them are known to have lived."""
        self.is_in_doubt = False
        """True if some had gone at the last look, and it was not seen why."""

    def glance(self) -> None:
        """See whether all of them live; this alone may be done beside what else is asked here."""
        workers, ticks = self._workers, _ticks()
        # A moment of earlier workers may be written behind this: it is only too long ago.
        if all(map(lives, workers)) and workers is self._workers:
            self._alive_ticks = ticks

    def check(self, now: Generations) -> None:
        """Look at them once more.

        Errors: ReloadError that names one that has ended, at the second look: what replaces it may
                not be seen to be a worker at the first.
        """
        gone = self._workers - now.serving
        fresh = now.serving - self._known
        is_reloaded = bool(gone & now.leaving) or any(
            one.start_ticks < self._alive_ticks for one in fresh
        )
        if not gone:
            self.is_in_doubt = False
        elif fresh and is_reloaded:
            self._workers, self._known = fresh, self._known | fresh
            self.is_in_doubt = False
        elif self.is_in_doubt or not now.serving:
            raise ReloadError(f"worker {min(one.pid for one in gone)} has ended")
        else:
            self.is_in_doubt = True


@contextlib.contextmanager
def _glanced_at(lasting: _Lasting) -> Iterator[_Lasting]:
    """Glance all the while, also while a canary is waited for."""
    is_over = threading.Event()

    def glance() -> None:
        lasting.glance()
        while not is_over.wait(_GLANCE_SECONDS):
            lasting.glance()

    thread = threading.Thread(target=glance, daemon=True)
    thread.start()
    try:
        yield lasting
    finally:
        is_over.set()
        thread.join()


def _ticks() -> int:
    """Now, as the kernel tells when a process started. Source: proc_pid_stat(5), starttime."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


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
            return f"does not answer within {self.seconds:.3g} s"
        return f"answers {self.status}" if self.status else "does not answer"


class Canary:
    """A URL of this nginx that is asked again and again, and how it answered before."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self._seconds = seconds
        """The slowest of a few answers before the change."""
        self._bad: list[_Answer] = []
        """The last ones, in a row."""
        self._times: list[float] = []

    @property
    def is_in_doubt(self) -> bool:
        """True if it is still to be asked, or its last answer was bad and must be seen again."""
        return bool(self._bad) or not self._times

    def ask(self, master: Process, *, by: float) -> None:
        """Ask once more; the answer is to be there by a moment of the monotonic clock.

        Errors: ReloadError when it is late, bad twice, or slower than it was.
        """
        left = min(ANSWER_SECONDS, max(0.0, by - time.monotonic()))
        answer = in_network_of(master.pid, partial(_ask, self.url, left))
        self._bad = [] if answer.is_good else [*self._bad, answer]
        if answer.is_late or len(self._bad) >= _FAILURES:
            how = dict.fromkeys(str(one) for one in self._bad)
            raise ReloadError(f"{self.url} {', then '.join(how)}")
        self._times.append(answer.seconds)
        if len(self._times) < _LAST:
            return
        typical = statistics.median(self._times[-_LAST:])
        if typical > max(self._seconds * _SLOWER_RATIO, self._seconds + _SLOWER_SECONDS):
            raise ReloadError(
                f"{self.url} takes {typical:.3f} s, before the change {self._seconds:.3f} s"
            )


def ask_together(canaries: Sequence[Canary], master: Process, *, until: float) -> None:
    """Ask each once more, at the same time: slow ones do not add up.

    ``until`` is the end of the watch: one question may end behind it, a second one may not.
    Errors: as those of asking one.
    """
    if not canaries:
        return
    by = until + ANSWER_SECONDS
    with ThreadPoolExecutor(max_workers=len(canaries)) as threads:
        for asked in [threads.submit(one.ask, master, by=by) for one in canaries]:
            asked.result()


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
    """The answers of all canaries as things are.

    Errors: UsageError at the first bad answer: such a one could not tell anything.
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
    """One question, in a thread of its own, which nobody need wait for.

    A thread has the network namespace of the one that starts it.
    """

    def __init__(self, parts: SplitResult, seconds: float) -> None:
        self.status = 0
        self.is_late = False
        """The socket's own clock said so: on a busy host it may before who waits is woken."""
        self.done = threading.Event()
        self._parts = parts
        self._seconds = seconds
        self._lock = threading.Lock()
        self._plain: socket.socket | None = None
        self._is_cut = False
        threading.Thread(target=self._run, daemon=True).start()

    def cut(self) -> None:
        """End the connection, whatever is being read, or as soon as there is one."""
        with self._lock:
            self._is_cut = True
            if self._plain is not None:
                with contextlib.suppress(OSError):
                    self._plain.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        # ValueError: of a host's name that cannot be encoded, or of a length that is none.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            try:
                self.status = self._ask()
            except TimeoutError:
                self.is_late = True
        self.done.set()

    def _ask(self) -> int:
        """Status of a whole answer.

        Errors: OSError, HTTPException, ValueError.
        """
        parts = self._parts
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = http.client.HTTPConnection(parts.hostname or "", port)
        connection.default_port = _DEFAULT_PORTS[parts.scheme]  # else it stands in Host
        with self._spoken_to(port) as spoken, contextlib.closing(connection):
            connection.sock = spoken
            connection.request("GET", target, headers={"User-Agent": "nginx-tune"})
            answer = connection.getresponse()
            said = answer.read(_MOST_BODY_BYTES)
            if len(said) < _MOST_BODY_BYTES and answer.length:
                raise http.client.IncompleteRead(said, answer.length)
            return answer.status

    @contextlib.contextmanager
    def _spoken_to(self, port: int) -> Iterator[socket.socket]:
        """A connection, in TLS if that is asked for, which can be cut."""
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
                    self._plain = None  # its number may be another file's from here on

    def _in_protocol(self, plain: socket.socket) -> Iterator[socket.socket]:
        if self._parts.scheme != "https":
            yield plain
            return
        context = ssl.create_default_context()
        context.check_hostname = False  # it is the host's own server: asked is whether it answers
        context.verify_mode = ssl.CERT_NONE
        # A descriptor of its own: the plain one is what is cut.
        with context.wrap_socket(plain.dup(), server_hostname=self._parts.hostname) as wrapped:
            yield wrapped
