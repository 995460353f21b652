"""A change to a running nginx under load and long connections, measured inside the sandbox.

nginx does not report whether a reload took effect. So worker generations are told apart by their
processes, the first answers of new workers are awaited, and the memory of both generations is
sampled.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nginx_tune.documents.loadplan import LoadClass, LoadPlan, Target
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.progress import Progress, Step
from nginx_tune.documents.rehearsal import FirstAnswer, RehearsedReload
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.held_clients import HeldClients
from nginx_tune.experiment.operations import HeldClient, RehearseRequest
from nginx_tune.experiment.scratch_server import (
    FirstAnswers,
    ScratchServer,
    Taking,
    kernel_settings,
)
from nginx_tune.experiment.trial import ShownFiles
from nginx_tune.host.live import LiveHost
from nginx_tune.host.parse_network import parse_netstat
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.measure.proof.rehearsal import split_phases
from nginx_tune.measure.proof.runs import count_refusals
from nginx_tune.measure.proof.workers import with_interference
from nginx_tune.nginx.lab.building import OpenLab
from nginx_tune.nginx.reload.generation import ask_before
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.parse_reload import notable_lines
from nginx_tune.nginx.reload.workers import Process, ReloadError, lives
from nginx_tune.observe.parse_counters import parse_error_log

if TYPE_CHECKING:
    from typing_extensions import Self


_COUNTED = (
    "ListenOverflows", "ListenDrops", "TCPReqQFullDrop", "TCPMigrateReqSuccess",
    "TCPMigrateReqFailure", "EstabResets",
)  # fmt: skip
"""Counters of /proc/net/netstat and /proc/net/snmp."""
_LOOK_SECONDS = 0.01
_SETTLE_SECONDS = 0.3
"""The time to wait for log lines after the last answer."""
_ANSWER_SECONDS = 12.0
"""The time for listeners to answer."""
_ENDED_HERE = "interrupted"
"""The flag of a load that was ended early; a rehearsal always ends its load."""
_SPARE_SECONDS = 60.0
"""Extra length of the load; it is ended when the watch is over."""


def rehearse(
    request: RehearseRequest, lab: OpenLab, shown: ShownFiles, say: Callable[[str], None]
) -> list[RehearsedReload]:
    """Make the change and, if requested, the change back.

    Errors: ConfigurationError, UndecidedError if the old side does not start or the load fails.
    """
    shown.turn_to(request.old.variant)
    server = ScratchServer(request, lab)
    with kernel_settings(request.variant.conduct.sysctls):
        try:
            server.start(request.old)
            turn, total = request.turn_seconds, request.seconds
            text = f"{request.manner}: load on the old configuration, then the change"
            with Ticker(say, text, begins=0.0, ends=turn, total=total):
                forward = _Turn(request, server, shown, is_back=False).run()
            if not request.goes_back or forward.outcome == "refused":
                return [forward]
            text = f"{request.manner}: and back"
            with Ticker(say, text, begins=turn, ends=total, total=total):
                return [forward, _Turn(request, server, shown, is_back=True).run()]
        finally:
            server.close()


class _Turn:
    """A change of the server to its old or new side."""

    def __init__(
        self, request: RehearseRequest, server: ScratchServer, shown: ShownFiles, *, is_back: bool
    ) -> None:
        self._request = request
        self._shown = shown
        self._server = server
        self._is_back = is_back
        sides = (request.old, request.new)
        self._to, self._from = sides if is_back else sides[::-1]
        self._host = LiveHost()

    def run(self) -> RehearsedReload:
        """Start the load and the long connections, change the server, and keep watching."""
        request = self._request
        is_up = bool(_workers(self._server))
        plan = self._reached_plan()
        used_before = _cpu_seconds(self._server.processes())
        with HeldClients(self._reached_clients() if is_up else []) as held, _Load(plan) as load:
            load.wait(plan.warmup_seconds + request.before_seconds)
            turned, changed_unix, ended_unix = self._turn(held)
            load.wait(request.after_seconds)
            tally = held.tally()
            measurement = load.finish()
        used = _cpu_seconds(self._server.processes()) - used_before
        measurement = with_interference(measurement, max(used, 0.0))
        phases = split_phases(measurement, changed_unix=changed_unix, ended_unix=ended_unix)
        classes = measurement.classes.values()
        kinds = dict.fromkeys(kind for item in classes for kind in item.errors)
        failed = {kind: sum(item.errors.get(kind, 0) for item in classes) for kind in kinds}
        return msgspec.structs.replace(
            turned,
            rate_per_second=sum(item.intended for item in classes)
            / (measurement.duration_seconds or math.inf),
            requests=sum(item.requests for item in classes),
            failed={kind: count for kind, count in failed.items() if count},
            limited={
                name: count
                for name, expected in request.variant.limited.items()
                if name in measurement.classes
                and (count := count_refusals(measurement.classes[name], expected))
            },
            unanswered=sum(item.censored for item in classes),
            retried=sum(item.retried for item in classes),
            phases=phases,
            held=tally,
            flags=[flag for flag in measurement.flags if flag != _ENDED_HERE],
            foreign_cpu_ratio=measurement.generator.foreign_cpu_ratio,
        )

    def _turn(self, held: HeldClients) -> tuple[RehearsedReload, float, float]:
        """Make the change; returns its result, the time of its start, and the end of the watch."""
        request, server = self._request, self._server
        before = _workers(server)
        silent = self._silent(before)
        logs = Logs(
            [*request.error_logs, str(server.stderr_path), str(server.next_stderr_path())],
            opening=server.open_log,
            begins=server.log_begins,
        )
        for process in (server.master, *before):
            logs.number_of(process)
        counted, memory_before = _counters(), memory_of(server.processes())
        held.begin_change()
        changed_unix, started = time.time(), time.monotonic()
        answers = FirstAnswers(
            self._host,
            self._to.addresses,
            started=started,
            reached=server.reached_path,
            seconds=_ANSWER_SECONDS,
        )
        try:
            with MemoryWatch(server.processes) as memory, _Drain(before, started) as drain:
                taking = Taking(server, self._shown, logs, before, answers)
                taken = taking.by(request.manner, self._to)
                if taken.outcome != "refused":
                    drain.wait(started + request.drain_seconds - time.monotonic())
                first_answers = answers.finish(waits=taken.outcome == "taken", silent=silent)
            ended_unix, ended = time.time(), time.monotonic()
            time.sleep(_SETTLE_SECONDS)
            lines = logs.lines()
        finally:
            logs.close()
        now = _counters()
        unanswered = _unanswered(first_answers)
        is_down = taken.outcome == "taken" and 0 < len(unanswered) == len(first_answers)
        turned = RehearsedReload(
            manner=request.manner,
            is_back=self._is_back,
            outcome="down" if is_down else taken.outcome,
            reason=taken.reason or "; ".join(unanswered),
            faults=list(taken.faults),
            faults_before=list(logs.seen_before),
            first_answers=first_answers,
            workers_before=len(before),
            workers_after=len(taken.workers),
            drain_seconds=drain.seconds,
            watched_seconds=ended - started,
            workers_left=sum(lives(process) for process in before),
            memory_before_bytes=memory_before,
            memory_peak_bytes=memory.peak_bytes,
            counters={
                name: now[name] - counted[name]
                for name in _COUNTED
                if name in now and name in counted
            },
            log_lines=dict(parse_error_log(lines).levels),
            log_examples=[
                *notable_lines(lines),
                *(f"the sandbox refused nginx {call}" for call in server.refused_calls()),
            ],
        )
        return turned, changed_unix, ended_unix

    def _silent(self, before: frozenset[Process]) -> set[str]:
        """The listeners that do not answer even before the change."""
        plain = [address for address in self._from.addresses if not address.path]
        if not before:
            return set()
        return {socket.name for socket in ask_before(self._host, self._server.master, plain)}

    def _reached_clients(self) -> list[HeldClient]:
        return [
            msgspec.structs.replace(client, target=self._reached(client.target))
            for client in self._request.held
        ]

    def _reached_plan(self) -> LoadPlan:
        request = self._request
        plan = request.plan

        def reached(one: LoadClass) -> LoadClass:
            if one.target is None:
                return one
            return msgspec.structs.replace(one, target=self._reached(one.target))

        classes = [reached(class_) for class_ in plan.classes]
        target = self._reached(plan.target)
        targets = [target, *(class_.target for class_ in classes if class_.target is not None)]
        sockets = sorted({target.unix for target in targets if target.unix is not None})
        seconds = request.before_seconds + request.drain_seconds + request.after_seconds
        return msgspec.structs.replace(
            plan,
            target=target,
            classes=classes,
            duration_seconds=seconds + _SPARE_SECONDS,
            second_histograms=True,
            permit=msgspec.structs.replace(plan.permit, sockets=sockets),
        )

    def _reached(self, target: Target) -> Target:
        return msgspec.structs.replace(target, unix=self._server.reached(target))


class _Load:
    """A context manager that runs the load probe in the background."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._over = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._running: Future[Measurement]

    def __enter__(self) -> Self:
        self._running = self._thread.submit(run_probe, self._plan, is_over=self._over.is_set)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.shutdown()

    def wait(self, seconds: float) -> None:
        """Wait while the load runs.

        Errors: those of ``run_probe``; UndecidedError if the load has already ended.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._running.done():
                self._running.result()
                raise UndecidedError("the load ended before the change was complete")
            time.sleep(_LOOK_SECONDS)

    def finish(self) -> Measurement:
        """End the load; returns its measurement.

        Errors: those of ``run_probe``.
        """
        self._over.set()
        return self._running.result()


class _Drain:
    """The wait for processes to exit, in the background, inside a context manager."""

    def __init__(self, processes: Iterable[Process], started: float) -> None:
        self._left = list(processes)
        self._started = started
        self._over = threading.Event()
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seconds: float | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._left = [process for process in self._left if lives(process)]
            if not self._left:
                self.seconds = time.monotonic() - self._started
                self._gone.set()
                return

    def wait(self, seconds: float) -> None:
        """Wait until the processes have exited, or the time is up."""
        self._gone.wait(max(0.0, seconds))


def _workers(server: ScratchServer) -> frozenset[Process]:
    try:
        now = server.look()
    except ReloadError:
        return frozenset()
    return now.serving | now.leaving


def _unanswered(found: Sequence[FirstAnswer]) -> list[str]:
    """The listeners that should have answered and did not, with the reasons."""
    return [
        f"{client.listener}: {client.reason}"
        for client in found
        if client.seconds is None and not client.reason.endswith("as before")
    ]


def _counters() -> dict[str, int]:
    found: dict[str, int] = {}
    for name in ("netstat", "snmp"):
        found |= parse_netstat(Path(f"/proc/thread-self/net/{name}").read_text())
    return found


_EVERY_SECONDS = 0.1
_KIB = 1024


class MemoryWatch:
    """Samples of the memory of processes, and their peak, inside a context manager."""

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak_bytes: int | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            now = memory_of(self._processes())
            if now is not None and now > (self.peak_bytes or 0):
                self.peak_bytes = now
            if self._ended.wait(_EVERY_SECONDS):
                return


def memory_of(pids: Iterable[int]) -> int | None:
    """Memory of processes in bytes: the sum of their proportional set sizes; None if unreadable.

    Source: proc_pid_smaps_rollup(5).
    """
    sizes = [size for pid in pids if (size := _proportional_bytes(pid)) is not None]
    return sum(sizes) if sizes else None


def _cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of processes and of their children that have ended. Source: proc_pid_stat(5)."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended: its CPU time is now in its parent's
            continue
        ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def _proportional_bytes(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * _KIB
    return None


_TICK_SECONDS = 1.0


class Ticker:
    """Progress reports every second for work of known length, inside a context manager.

    If the work ends early, the progress jumps to its end; if it takes longer, the progress waits
    there.
    """

    def __init__(
        self, say: Progress, text: str, *, begins: float, ends: float, total: float
    ) -> None:
        self._say, self._text = say, text
        self._begins, self._ends, self._total = begins, ends, total
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._tell(0.0, live=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._over.wait(_TICK_SECONDS):
            self._tell(time.monotonic() - started, live=True)

    def _tell(self, seconds: float, *, live: bool) -> None:
        done = min(self._begins + seconds, self._ends)
        self._say(Step(self._text, done=done, total=self._total, unit="s", live=live))
