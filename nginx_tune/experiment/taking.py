"""Having nginx take other files, or another program, and seeing whether it did."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Literal, NamedTuple

from nginx_tune.documents.rehearsal import Manner
from nginx_tune.errors import NginxTuneError
from nginx_tune.experiment.first_answers import FirstAnswers
from nginx_tune.experiment.operations import Side
from nginx_tune.experiment.scratch_server import ScratchServer
from nginx_tune.experiment.shown_files import ShownFiles
from nginx_tune.nginx.reload.generation import await_workers, logged_faults
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.parse_reload import bad_lines
from nginx_tune.nginx.reload.process import Process
from nginx_tune.nginx.reload.workers import Generations, ReloadError

_TAKE_SECONDS = 12.0
"""A bind that fails is tried again for 2.5 s, with the master blocked."""
_AFTER_FAULT_SECONDS = 1.0
_AFTER_BIND_SECONDS = 4.0
_NEW_MASTER_SECONDS = 8.0
_LOOK_SECONDS = 0.02
_IGNORED = 'nginx ignores the signal for another program: with "daemon off" it always does'


class Taken(NamedTuple):
    """What came of it."""

    outcome: Literal["taken", "refused", "down"]
    reason: str = ""
    faults: tuple[str, ...] = ()
    workers: frozenset[Process] = frozenset()


class Taking:
    """One change of a server; ``answers`` hears of the new workers as soon as they are there."""

    def __init__(
        self,
        server: ScratchServer,
        shown: ShownFiles,
        logs: Logs,
        before: frozenset[Process],
        answers: FirstAnswers,
    ) -> None:
        self._server = server
        self._shown = shown
        self._logs = logs
        self._before = before
        self._answers = answers

    def by(self, manner: Manner, side: Side) -> Taken:
        """Change it to a side."""
        if manner == "restart":
            return self._restart(side)
        self._shown.turn_to(side.arm)
        return self._reload() if manner == "reload" else self._upgrade(side)

    def _look(self) -> Generations:
        now = self._server.look()
        self._answers.see(self._server.master, now.serving - self._before)
        return now

    def _reload(self) -> Taken:
        self._server.tell(signal.SIGHUP)
        return self._await_taken()

    def _upgrade(self, side: Side) -> Taken:
        server, old = self._server, self._server.master
        if why := server.why_no_other_program():
            return Taken("refused", why, workers=self._before)
        server.point_to(side.binary)
        server.tell(signal.SIGUSR2)
        if not server.await_new_master(_NEW_MASTER_SECONDS, self._look):
            said = bad_lines(self._logs.lines(), ours=None, old=frozenset())
            return Taken("refused", said[0] if said else _IGNORED, workers=self._before)
        with contextlib.suppress(ProcessLookupError):
            os.kill(old.pid, signal.SIGWINCH)
        taken = self._await_taken()
        with contextlib.suppress(ProcessLookupError):
            os.kill(old.pid, signal.SIGQUIT)
        return taken

    def _restart(self, side: Side) -> Taken:
        server, logs = self._server, self._logs
        server.end_slowly()
        self._shown.turn_to(side.arm)
        # In its new sandbox nginx has numbers that the old one had: they tell nothing apart.
        seen = len(logs.lines())
        try:
            server.start(side)
            workers = await_workers(
                self._look,
                server.master,
                self._before,
                logs,
                seconds=_TAKE_SECONDS,
                heeds_logs=False,
            )
        except NginxTuneError as error:
            return Taken("down", error.message)
        found = bad_lines(logs.lines()[seen:], ours=None, old=frozenset())
        faults = logs.new_faults(found, self._before)
        return Taken("taken", faults=tuple(faults), workers=workers)

    def _await_taken(self) -> Taken:
        server, logs = self._server, self._logs
        try:
            workers = await_workers(
                self._look, server.master, self._before, logs, seconds=_TAKE_SECONDS
            )
        except ReloadError as error:
            return self._settle(error.message)
        faults = logged_faults(logs, server.master, self._before, workers)
        return Taken("taken", faults=tuple(faults), workers=workers)

    def _settle(self, fault: str) -> Taken:
        """What a fault has come to: nginx may serve all the same."""
        longest = _AFTER_BIND_SECONDS if "bind() to" in fault else _AFTER_FAULT_SECONDS
        until = time.monotonic() + longest
        try:
            while True:
                now = self._look()
                fresh = now.serving - self._before
                if fresh and fresh == now.serving and time.monotonic() > until:
                    faults = logged_faults(self._logs, self._server.master, self._before, fresh)
                    return Taken("taken", faults=tuple(faults) or (fault,), workers=fresh)
                if time.monotonic() > until:
                    break
                time.sleep(_LOOK_SECONDS)
        except ReloadError as error:
            return Taken("down", f"{fault}; {error.message}")
        if now.serving & self._before:
            return Taken("refused", fault, workers=now.serving)
        return Taken("down", fault)
