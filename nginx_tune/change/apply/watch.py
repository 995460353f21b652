"""Watching what was changed: error logs, workers, and canaries that the operator names."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence

from nginx_tune.change.apply.canary import Canary, ask_together
from nginx_tune.change.apply.server import generations
from nginx_tune.host.door import Host
from nginx_tune.nginx.reload.generation import logged_faults
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.process import Process, lives
from nginx_tune.nginx.reload.workers import Generations, ReloadError

_POLL_SECONDS = 0.25
_GLANCE_SECONDS = 0.02
"""Of the 100 ms for which a reload has workers of both generations serve, a small part."""


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
    """Whether workers last, by what the kernel says: no log need be believed (``ClientText``).

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
        """Whether some had gone at the last look, and it was not seen why."""

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
