"""Watching what was changed: error logs, workers, files, and canaries that the operator names."""

from __future__ import annotations

import http.client
import ssl
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from nginx_tune.apply.server import generations
from nginx_tune.errors import UsageError
from nginx_tune.host.door import Host
from nginx_tune.host.namespaces import in_network_of
from nginx_tune.turnover.generation import logged_faults
from nginx_tune.turnover.logs import Logs
from nginx_tune.turnover.process import Process
from nginx_tune.turnover.workers import ReloadError

_POLL_SECONDS = 0.25
_REQUESTS_BEFORE = 5
_FAILURES = 2
"""In a row: one request may meet an old worker's end."""
_GOOD = range(200, 400)
_SLOWER_RATIO = 3.0
_SLOWER_SECONDS = 0.2
_LAST = 9
"""Answers whose median counts."""
_CANARY_SECONDS = 10.0
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Canary(NamedTuple):
    """A URL of this nginx that is asked again and again, and how it answered before."""

    url: str
    seconds: float
    """The slowest of a few answers before the change."""


def _ask(url: str) -> tuple[int, float]:
    """Status and seconds until the whole answer; 0 for none."""
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    host = parts.hostname or ""
    began = time.monotonic()
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False  # it is the host's own server: asked is whether it answers
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            host, port, timeout=_CANARY_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_CANARY_SECONDS)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET", target, headers={"User-Agent": "nginx-tune"})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return 0, time.monotonic() - began
    finally:
        connection.close()
    return answer.status, time.monotonic() - began


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
        ask = partial(_ask, url)
        answers = [in_network_of(master.pid, ask) for _ in range(_REQUESTS_BEFORE)]
        bad = next((status for status, _ in answers if status not in _GOOD), None)
        if bad is not None:
            raise UsageError(f"--canary {url}: {_how(bad)} before the change")
        found.append(Canary(url, max(seconds for _, seconds in answers)))
    return found


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
    """Look on for a while.

    Errors: ReloadError with what went wrong.
    """
    until = time.monotonic() + seconds
    failures = dict.fromkeys(canaries, 0)
    times: dict[Canary, list[float]] = {canary: [] for canary in canaries}
    while True:
        now = generations(host, master)
        wrong = logged_faults(logs, master, before, workers | now.serving)
        if wrong:
            raise ReloadError("; ".join(wrong[:3]))
        gone = workers - now.serving
        if gone and not now.serving - workers:
            raise ReloadError(f"worker {min(one.pid for one in gone)} has ended")
        for canary in canaries:
            status, seconds_taken = in_network_of(master.pid, partial(_ask, canary.url))
            failed = status not in _GOOD
            failures[canary] = failures[canary] + 1 if failed else 0
            if failures[canary] >= _FAILURES:
                raise ReloadError(f"{canary.url} {_how(status)}")
            times[canary].append(seconds_taken)
            _judge_times(canary, times[canary])
        if time.monotonic() >= until:
            return
        time.sleep(min(_POLL_SECONDS, max(0.0, until - time.monotonic())))


def _how(status: int) -> str:
    return f"answers {status}" if status else "does not answer"


def _judge_times(canary: Canary, times: list[float]) -> None:
    if len(times) < _LAST:
        return
    typical = statistics.median(times[-_LAST:])
    if typical > max(canary.seconds * _SLOWER_RATIO, canary.seconds + _SLOWER_SECONDS):
        raise ReloadError(
            f"{canary.url} takes {typical:.3f} s, before the change {canary.seconds:.3f} s"
        )
