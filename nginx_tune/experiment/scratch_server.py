"""An nginx in the sandbox that is changed while it serves."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from nginx_tune.documents.loadplan import Target
from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.experiment.operations import RehearseRequest, Side
from nginx_tune.nginx.instance import RunningNginx, start_instance
from nginx_tune.nginx.lab.mounts import SEEN, STATE, own_file
from nginx_tune.nginx.lab.opened import OpenLab
from nginx_tune.nginx.place import Door
from nginx_tune.nginx.reload.process import Process, lives, process_of
from nginx_tune.nginx.reload.workers import Generations, ReloadError

_PROGRAM = f"{SEEN}/program/nginx"
"""nginx runs its new program by the name that it was started by: here it is a link of ours."""
_WORKER, _LEAVING = "nginx: worker process", "nginx: worker process is"
"""Behind a dynamic loader there is not room for the whole of a title."""
_STOP_SECONDS = 5.0
"""As Debian's service waits for a stop in good order (start-stop-daemon --retry QUIT/5/TERM/5)."""
_LOOK_SECONDS = 0.005


class ScratchServer:
    """One nginx, started, changed and ended."""

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
        """Where the error logs begin to tell of the latest start."""

    @property
    def goes_to_the_background(self) -> bool:
        """Nginx exchanges its program only there. Source: ngx_signal_handler."""
        return self._request.manner == "upgrade"

    def start(self, side: Side) -> None:
        """Start it and wait until it serves.

        Errors: ConfigurationError, UndecidedError as ``start_instance``.
        """
        request = self._request
        program = side.binary
        if self.goes_to_the_background:
            self.point_to(side.binary)
            program = _PROGRAM
        targets = [request.plan.target, *(one.target for one in request.plan.classes if one.target)]
        self._lab.enclosure.make_room(filter(None, (one.unix for one in targets)))
        target = request.plan.target
        self._starts += 1
        enclosure = self._lab.enclosure
        self.log_begins = {path: enclosure.written_bytes(path) for path in request.error_logs}
        instance = start_instance(
            program,
            Path(request.arm.conf_path),
            stderr_path=self.stderr_path,
            address=target.unix or (target.address, target.port),
            prefix=request.arm.prefix,
            join_files=[Path(file) for file in request.join_files],
            cpus=request.nginx_cpus,
            sandbox=self._lab.enclosure.prepare([request.old.binary, request.new.binary]),
            stays=not self.goes_to_the_background,
        )
        self._instance = instance
        self._take_master(instance.pid)

    @property
    def stderr_path(self) -> Path:
        """What the latest start writes to standard error."""
        return STATE / f"rehearsed-{self._starts}.stderr"

    def next_stderr_path(self) -> Path:
        """The same of the next start."""
        return STATE / f"rehearsed-{self._starts + 1}.stderr"

    def _take_master(self, pid: int) -> None:
        found = process_of(pid)
        if found is None:
            raise UndecidedError("nginx has ended")
        self.master = found
        self._look_at_doors()

    @staticmethod
    def point_to(binary: str) -> None:
        """Have the link lead to a program."""
        program = own_file(_PROGRAM)
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(binary)
        fresh.replace(program)

    def reached(self, target: Target) -> str | None:
        """A unix socket of a target as it is reached from here, whatever master there is."""
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
        """Follow nginx, which may take a socket away or make it anew at any time."""
        while not self._over.wait(_LOOK_SECONDS):
            self._look_at_doors()

    def _look_at_doors(self) -> None:
        with self._doors_lock:
            pid = self.master.pid if lives(self.master) else 0  # 0 sees nothing
            for door in self._doors.values():
                door.look(pid)

    def close(self) -> None:
        """End all of it for good."""
        self.stop()
        self._over.set()
        with self._doors_lock:
            for door in self._doors.values():
                door.close()
            self._doors.clear()

    def reached_path(self, path: str) -> str:
        """A unix socket of the configuration as it is reached from here."""
        return self.reached(Target(unix=path)) or path

    def open_log(self, path: str) -> int:
        """Descriptor of a log that it writes."""
        with self._lab.enclosure.open_written(path) as file:
            return os.dup(file.fileno())

    def refused_calls(self) -> list[str]:
        """System calls that the sandbox refused it so far."""
        return [] if self._instance is None else self._instance.refused_calls()

    def processes(self) -> list[int]:
        """All of it."""
        return [] if self._instance is None else self._instance.processes()

    def look(self) -> Generations:
        """The workers of all its masters.

        Errors: ReloadError when no master is left.
        """
        families = {} if self._instance is None else self._instance.masters()
        if not families:
            raise ReloadError("nginx has ended")
        titles = {pid: title for family in families.values() for pid, title in family.items()}
        workers = {pid: title for pid, title in titles.items() if _WORKER in title}
        leaving = {pid for pid, title in workers.items() if _LEAVING in title}
        return Generations(_processes(workers.keys() - leaving), _processes(leaving))

    def tell(self, number: signal.Signals) -> None:
        """A signal to the master."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.master.pid, number)

    def why_no_other_program(self) -> str:
        """Why nginx would not run what the link leads to; empty when it would.

        Source: ngx_exec_new_binary runs what its own first argument names.
        """
        try:
            words = Path(f"/proc/{self.master.pid}/cmdline").read_bytes()
        except OSError:
            return ""
        text = words.replace(b"\0", b" ").decode(errors="replace")
        name = text.partition("nginx: master process ")[2].split(" ")[0]
        if _PROGRAM.startswith(name):  # it may be cut off
            return ""
        return f"it would run {name} again: so what starts it has named it, and not --new-nginx"

    def await_new_master(self, seconds: float, look: Callable[[], object]) -> bool:
        """Wait for the master of another program; it is the one that is told from then on.

        ``look`` is called once it is there.
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
        """As a service is stopped: in good order for a while, then at once."""
        if self._instance is None:
            return
        self.tell(signal.SIGQUIT)
        until = time.monotonic() + _STOP_SECONDS
        while not self._instance.has_ended() and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        self.stop()

    def stop(self) -> None:
        """End all of it."""
        if self._instance is None:
            return
        instance, self._instance = self._instance, None
        if self.goes_to_the_background:
            # Two masters may be there; with its first process all of the sandbox ends.
            for pid in instance.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(NginxTuneError):
            instance.stop()


def _processes(pids: Collection[int]) -> frozenset[Process]:
    return frozenset(one for pid in pids if (one := process_of(pid)) is not None)
