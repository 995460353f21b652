"""The server of a run or a rehearsal, nginx or a bare stand-in, and its changes.

A change makes nginx load other files or another program. It counts as made once the new worker
generation answers; each listener gets a request as soon as new workers exist.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from nginx_tune.documents.loadplan import Target
from nginx_tune.documents.rehearsal import FirstAnswer, Manner
from nginx_tune.documents.scenario import StandIn
from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.experiment.operations import RehearseRequest, Side
from nginx_tune.experiment.trial import ShownFiles
from nginx_tune.host.door import Host
from nginx_tune.nginx.instance import BareInstance, RunningNginx, start_bare, start_instance
from nginx_tune.nginx.lab.building import OpenLab
from nginx_tune.nginx.lab.enclosure import SEEN, STATE, own_file
from nginx_tune.nginx.lab.raw_accept import WaitingBy, raw_accept_command
from nginx_tune.nginx.place import Door
from nginx_tune.nginx.reload.address import AcceptingSocket, Address
from nginx_tune.nginx.reload.generation import ask_place, await_workers, logged_faults, places_of
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.parse_reload import bad_lines
from nginx_tune.nginx.reload.workers import Generations, Process, ReloadError, lives, process_of

_WAITS: dict[StandIn, WaitingBy] = {"raw-blocking-accept": "blocking", "raw-epoll-accept": "epoll"}


def start_stand_in(
    which: StandIn, *, port: int, workers: int, log: Path, stderr_path: Path, cpus: Sequence[int]
) -> BareInstance:
    """Start a bare server that accepts connections."""
    command = raw_accept_command(
        _WAITS[which], python=sys.executable, port=port, workers=workers, log=log
    )
    return start_bare(
        command, stderr_path=stderr_path, address=("127.0.0.1", port), cpus=cpus, workers=workers
    )


@contextlib.contextmanager
def kernel_settings(values: Mapping[str, str]) -> Iterator[None]:
    """Set sysctls of this network namespace inside the context, and restore them after it.

    Errors: UndecidedError for a sysctl or value that this kernel does not accept.
    """
    before: dict[Path, str] = {}
    try:
        for name, value in values.items():
            path = Path("/proc/sys", *name.split("."))
            try:
                before[path] = path.read_text()
                path.write_text(value)
            except OSError as error:
                raise UndecidedError(
                    f"sysctl {name} = {value}: {error.strerror}",
                    hint="the experiment needs a kernel that has it",
                ) from None
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


@contextlib.contextmanager
def reloading(
    pid: int, conf_path: str, texts: Sequence[str], every_seconds: float
) -> Iterator[None]:
    """Inside the context, write the next text as configuration and reload, at an interval."""
    ended = threading.Event()

    def reload() -> None:
        turn = 0
        while not ended.wait(every_seconds):
            turn += 1
            own_file(conf_path).write_text(texts[turn % len(texts)])
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)

    thread = threading.Thread(target=reload, daemon=True)
    if texts:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if texts:
            thread.join()


_PROGRAM = f"{SEEN}/program/nginx"
"""The link by which nginx is started, since an upgrade runs the program of the same name."""
_WORKER, _LEAVING = "nginx: worker process", "nginx: worker process is"
"""Texts to look for anywhere in a process title: if a dynamic loader starts nginx, the loader's
name comes first, and the end may be cut off."""
_STOP_SECONDS = 5.0
"""The time for a graceful stop, as of Debian's service (``--retry QUIT/5/TERM/5``)."""
_LOOK_SECONDS = 0.005


class ScratchServer:
    """An nginx that is started, changed and stopped."""

    def __init__(self, request: RehearseRequest, lab: OpenLab) -> None:
        self._request = request
        self._lab = lab
        self._instance: RunningNginx | None = None
        self._starts = 0
        self._doors: dict[str, Door] = {}
        self._doors_lock = threading.Lock()
        self._over = threading.Event()
        self.master = Process(pid=0, start_ticks=0)
        self.log_begins: dict[str, int] = {}
        """The offset in each error log at the latest start."""

    @property
    def goes_to_the_background(self) -> bool:
        """True for an upgrade, which needs nginx to be a daemon. Source: ngx_signal_handler."""
        return self._request.manner == "upgrade"

    def start(self, side: Side) -> None:
        """Start nginx with a side's configuration and program, and wait until it serves.

        Errors: those of ``start_instance``.
        """
        request = self._request
        program = side.binary
        if self.goes_to_the_background:
            self.point_to(side.binary)
            program = _PROGRAM
        targets = [
            request.plan.target,
            *(class_.target for class_ in request.plan.classes if class_.target),
        ]
        self._lab.enclosure.make_room(filter(None, (target.unix for target in targets)))
        target = request.plan.target
        self._starts += 1
        enclosure = self._lab.enclosure
        self.log_begins = {path: enclosure.written_bytes(path) for path in request.error_logs}
        instance = start_instance(
            program,
            Path(request.variant.conf_path),
            stderr_path=self.stderr_path,
            address=target.unix or (target.address, target.port),
            prefix=request.variant.prefix,
            join_files=[Path(file) for file in request.join_files],
            cpus=request.nginx_cpus,
            sandbox=self._lab.enclosure.prepare([request.old.binary, request.new.binary]),
            stays=not self.goes_to_the_background,
        )
        self._instance = instance
        self._take_master(instance.pid)

    @property
    def stderr_path(self) -> Path:
        """The standard error of the latest start."""
        return STATE / f"rehearsed-{self._starts}.stderr"

    def next_stderr_path(self) -> Path:
        """The standard error of the next start."""
        return STATE / f"rehearsed-{self._starts + 1}.stderr"

    def _take_master(self, pid: int) -> None:
        found = process_of(pid)
        if found is None:
            raise UndecidedError("nginx has ended")
        self.master = found
        self._look_at_doors()

    @staticmethod
    def point_to(binary: str) -> None:
        """Point the link to a program."""
        program = own_file(_PROGRAM)
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(binary)
        fresh.replace(program)

    def reached(self, target: Target) -> str | None:
        """A path by which a target's unix socket is reachable, whichever master listens."""
        path = target.unix
        if path is None:
            return None
        with self._doors_lock:
            if not self._doors:
                threading.Thread(target=self._keep_doors, daemon=True).start()
            if path not in self._doors:
                self._doors[path] = Door(path, self.master.pid)
            return self._doors[path].path

    def _keep_doors(self) -> None:
        """Keep sockets reachable, since nginx may remove or recreate one at any time."""
        while not self._over.wait(_LOOK_SECONDS):
            self._look_at_doors()

    def _look_at_doors(self) -> None:
        with self._doors_lock:
            pid = self.master.pid if lives(self.master) else 0  # no process has id 0
            for door in self._doors.values():
                door.look(pid)

    def close(self) -> None:
        """Stop nginx and close its sockets for good."""
        self.stop()
        self._over.set()
        with self._doors_lock:
            for door in self._doors.values():
                door.close()
            self._doors.clear()

    def reached_path(self, path: str) -> str:
        """A path by which a unix socket of the configuration is reachable."""
        return self.reached(Target(unix=path)) or path

    def open_log(self, path: str) -> int:
        """A descriptor of a log that nginx writes."""
        with self._lab.enclosure.open_written(path) as file:
            return os.dup(file.fileno())

    def refused_calls(self) -> list[str]:
        """The system calls that the sandbox has refused to nginx."""
        return [] if self._instance is None else self._instance.refused_calls()

    def processes(self) -> list[int]:
        """The ids of all of nginx's processes."""
        return [] if self._instance is None else self._instance.processes()

    def look(self) -> Generations:
        """The workers of all masters, serving and shutting down.

        Errors: ReloadError if no master is left.
        """
        families = {} if self._instance is None else self._instance.masters()
        if not families:
            raise ReloadError("nginx has ended")
        titles = {pid: title for family in families.values() for pid, title in family.items()}
        workers = {pid: title for pid, title in titles.items() if _WORKER in title}
        leaving = {pid for pid, title in workers.items() if _LEAVING in title}
        return Generations(_processes(workers.keys() - leaving), _processes(leaving))

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the master."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.master.pid, number)

    def why_no_other_program(self) -> str:
        """The reason why an upgrade would not run the link's program; empty if it would.

        Source: ngx_exec_new_binary runs the program of its own first argument.
        """
        try:
            words = Path(f"/proc/{self.master.pid}/cmdline").read_bytes()
        except OSError:
            return ""
        text = words.replace(b"\0", b" ").decode(errors="replace")
        name = text.partition("nginx: master process ")[2].split(" ")[0]
        if _PROGRAM.startswith(name):  # it may be truncated
            return ""
        return f"it would run {name} again, the program of its start, and not --new-nginx"

    def await_new_master(self, seconds: float, look: Callable[[], object]) -> bool:
        """Wait for the new program's master, and make it the one that gets signals.

        ``look`` is called as soon as the new master has workers.
        """
        old = self.master.pid
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._instance is not None:
            for pid, family in self._instance.masters().items():
                if pid != old and any(_WORKER in title for title in family.values()):
                    self._take_master(pid)
                    look()
                    return True
            time.sleep(_LOOK_SECONDS)
        return False

    def end_slowly(self) -> None:
        """Stop nginx as a service manager does: gracefully, then by force."""
        if self._instance is None:
            return
        self.tell(signal.SIGQUIT)
        until = time.monotonic() + _STOP_SECONDS
        while not self._instance.has_ended() and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        self.stop()

    def stop(self) -> None:
        """Kill nginx."""
        if self._instance is None:
            return
        instance, self._instance = self._instance, None
        if self.goes_to_the_background:
            # There may be two masters, and the sandbox ends only with its first process.
            for pid in instance.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(NginxTuneError):
            instance.stop()


def _processes(pids: Collection[int]) -> frozenset[Process]:
    return frozenset(one for pid in pids if (one := process_of(pid)) is not None)


_RETRY_SECONDS = 0.002
_MOST_PLACES = 32
_JOIN_SECONDS = 5.0


class FirstAnswers:
    """The first answer of a new worker generation at each listener, with a thread for each."""

    def __init__(
        self,
        host: Host,
        addresses: Sequence[Address],
        *,
        started: float,
        reached: Callable[[str], str],
        seconds: float,
    ) -> None:
        """``started``: time of the change; ``reached`` maps unix sockets to reachable paths."""
        self._host = host
        self._addresses = addresses
        self._started = started
        self._reached = reached
        self._until = started + seconds
        self._workers: frozenset[Process] = frozenset()
        self._threads: list[threading.Thread] = []
        self._answers: dict[str, FirstAnswer] = {}
        self._over = False

    def see(self, master: Process, workers: Collection[Process]) -> None:
        """Note the new workers; the first workers start the requests."""
        self._workers = frozenset(workers)
        if not workers or self._threads:
            return
        for place in places_of(self._host, master, self._addresses)[:_MOST_PLACES]:
            thread = threading.Thread(target=self._ask, args=(place, master), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _ask(self, place: AcceptingSocket, master: Process) -> None:
        reachable = place._replace(path=self._reached(place.path)) if place.path else place
        while not self._over and time.monotonic() < self._until:
            ours = {worker.pid for worker in self._workers}
            attempt = ask_place(self._host, reachable, master, ours)
            if attempt.is_answer:
                seconds = time.monotonic() - self._started
                self._answers[place.name] = FirstAnswer(
                    listener=place.name, seconds=seconds, is_seen=attempt.who is not None
                )
                return
            self._answers[place.name] = FirstAnswer(listener=place.name, reason=attempt.why)
            if attempt.is_out_of_reach:
                return
            time.sleep(_RETRY_SECONDS)

    def finish(self, *, waits: bool, silent: Collection[str]) -> list[FirstAnswer]:
        """The first answers; ``silent``: listeners that did not answer before the change either."""
        if waits:
            for thread in self._threads:
                thread.join(max(0.0, self._until - time.monotonic()))
        self._over = True
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        return [
            FirstAnswer(listener=value.listener, reason=f"{value.reason}, as before")
            if value.seconds is None and value.listener in silent
            else value
            for value in dict(self._answers).values()
        ]


_TAKE_SECONDS = 12.0
"""The time for a change. nginx retries a failed bind for 2.5 s, with the master blocked."""
_AFTER_FAULT_SECONDS = 1.0
_AFTER_BIND_SECONDS = 4.0
_NEW_MASTER_SECONDS = 8.0
_TAKE_LOOK_SECONDS = 0.02
_IGNORED = 'nginx ignored the signal to upgrade, as it always does with "daemon off"'


class Taken(NamedTuple):
    """The outcome of a change."""

    outcome: Literal["taken", "refused", "down"]
    reason: str = ""
    faults: tuple[str, ...] = ()
    workers: frozenset[Process] = frozenset()


class Taking:
    """A change to a server; ``answers`` is notified of new workers at once."""

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
        """Change the server to a side, in the given manner."""
        if manner == "restart":
            return self._restart(side)
        self._shown.turn_to(side.variant)
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
            lines = bad_lines(self._logs.lines(), ours=None, old=frozenset())
            return Taken("refused", lines[0] if lines else _IGNORED, workers=self._before)
        with contextlib.suppress(ProcessLookupError):
            os.kill(old.pid, signal.SIGWINCH)
        taken = self._await_taken()
        with contextlib.suppress(ProcessLookupError):
            os.kill(old.pid, signal.SIGQUIT)
        return taken

    def _restart(self, side: Side) -> Taken:
        server, logs = self._server, self._logs
        server.end_slowly()
        self._shown.turn_to(side.variant)
        # The new sandbox reuses process ids, so log lines are distinguished by position.
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
        lines = bad_lines(logs.lines()[seen:], ours=None, old=frozenset())
        faults = logs.new_faults(lines, self._before)
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
        """The outcome after a fault, since nginx may serve all the same."""
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
                time.sleep(_TAKE_LOOK_SECONDS)
        except ReloadError as error:
            return Taken("down", f"{fault}; {error.message}")
        if now.serving & self._before:
            return Taken("refused", fault, workers=now.serving)
        return Taken("down", fault)
