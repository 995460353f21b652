"""Watching what was changed: error logs, workers, and canaries that the operator names."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nginx_tune.apply.canary import Canary
from nginx_tune.apply.server import generations
from nginx_tune.host.door import Host
from nginx_tune.turnover.generation import logged_faults
from nginx_tune.turnover.logs import Logs
from nginx_tune.turnover.process import Process
from nginx_tune.turnover.workers import Generations, ReloadError

_POLL_SECONDS = 0.25


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
    """Look on for a while; a canary that is in doubt then is asked again.

    Errors: ReloadError with what went wrong.
    """
    until = time.monotonic() + seconds
    lasting = _Lasting(workers, logs)
    while True:
        now = generations(host, master)
        wrong = logged_faults(logs, master, before, workers | now.serving)
        if wrong:
            raise ReloadError("; ".join(wrong[:3]))
        lasting.check(now)
        is_over = time.monotonic() >= until
        for canary in canaries:
            if not is_over or canary.is_in_doubt:
                canary.ask(master)
        if is_over and not lasting.is_in_doubt and not any(c.is_in_doubt for c in canaries):
            return
        left = until - time.monotonic()
        time.sleep(min(_POLL_SECONDS, left) if left > 0 else _POLL_SECONDS)


class _Lasting:
    """Whether workers last. The log need not say how one ended, or be believed (``ClientText``)."""

    def __init__(self, workers: frozenset[Process], logs: Logs) -> None:
        self._workers = workers
        self._logs = logs
        self._missed: frozenset[Process] = frozenset()
        self._is_turned = False

    @property
    def is_in_doubt(self) -> bool:
        """Whether some had gone at the last look, and others not."""
        return bool(self._missed)

    def check(self, now: Generations) -> None:
        """Look at them once more.

        Another reload sends all of them away, once; for a moment some have gone and others not.
        Errors: ReloadError that names one that has ended.
        """
        gone = self._workers - now.serving
        is_said = any(map(self._logs.is_said_to_have_ended, gone))
        if gone == self._workers and now.serving and not self._is_turned and not is_said:
            self._workers, self._missed, self._is_turned = now.serving, frozenset(), True
        elif gone & self._missed or is_said or (gone and not now.serving):
            raise ReloadError(f"worker {min(one.pid for one in gone)} has ended")
        else:
            self._missed = gone
