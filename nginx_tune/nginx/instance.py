"""A scratch nginx: its start in the foreground and in cgroups, its processes, its end."""

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nginx_tune.errors import ConfigurationError, MissingToolError, UndecidedError
from nginx_tune.host.programs import start_program
from nginx_tune.nginx.place import SocketPlace, connect, place_text
from nginx_tune.sandbox.launch import Entrance, Prepared

_FOREGROUND = "daemon off;"
_SOON_SECONDS = 0.5
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""The exit status after SIGKILL: from the kernel, and from the first process of a sandbox."""
_LOOK_SECONDS = 0.002
"""The polling interval; nginx starts in about 10 ms."""
_IDLE_LOOKS = 5
_MOST_SAID = 1 << 20
"""Maximum number of characters of standard error to read, since a module can write without
limit."""
_MASTER = "nginx: master process"
_FOREMOST = -20
"""The lowest nice value."""


class RunningNginx:
    """A running master and its workers."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stderr_path: Path,
        *,
        first: int = 0,
        entrance: Entrance | None = None,
    ) -> None:
        self._process = process
        self._stderr_path = stderr_path
        self._first = first
        self._entrance = entrance
        self._refused: dict[str, None] = {}
        self._master = 0 if first else process.pid

    @property
    def pid(self) -> int:
        """The master's process id; in a sandbox, the master is a child of the first process."""
        if self._first:
            children = _children(self._first)
            if self._master not in children:
                masters = [pid for pid in children if _is_master(pid)]
                self._master = (masters or children or [self._process.pid])[0]
        return self._master

    def stderr(self) -> str:
        """Nginx's standard error so far, up to 2^20 characters."""
        with self._stderr_path.open(errors="replace") as file:
            return file.read(_MOST_SAID)

    def refused_calls(self) -> list[str]:
        """The system calls that the sandbox has refused, each listed once."""
        if self._entrance is not None:
            self._refused |= dict.fromkeys(self._entrance.refusals())
        return list(self._refused)

    def workers(self) -> list[int]:
        """The process ids of the workers, except those that are shutting down."""
        return [pid for pid in _children(self.pid) if _is_worker(pid)]

    def processes(self) -> list[int]:
        """All processes of the server, including the first one of a sandbox."""
        found = [self._first or self._process.pid]
        for pid in found:
            found += [child for child in _children(pid) if child not in found]
        return found

    def masters(self) -> dict[int, dict[int, str]]:
        """The masters, each with the titles of its children; two during a binary upgrade."""
        all_of_it = self.processes()
        families = {pid: {child: _title(child) for child in _children(pid)} for pid in all_of_it}
        found = {
            pid: family
            for pid, family in families.items()
            # If a dynamic loader is on the command line, a master does not show its title.
            if _MASTER in _title(pid) or any(_is_worker(child) for child in family)
        }
        if not found and self.pid in families:
            found[self.pid] = families[self.pid]
        return found

    def inner_ids(self) -> dict[str, str]:
        """The workers' process ids here, by their ids in the sandbox."""
        found = {}
        for pid in self.workers() or [self.pid]:
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
                inner = next(line.split()[-1] for line in lines if line.startswith("NSpid:"))
                found[inner] = str(pid)
        return found

    def has_ended(self) -> bool:
        """True once the first process has ended."""
        return self._process.poll() is not None

    def check(self) -> None:
        """Raise the reason if nginx has ended."""
        if self.has_ended():
            raise _start_error(self.stderr(), self._process.returncode, self.refused_calls())

    def stop(self, *, patience_seconds: float = 5.0) -> None:
        """End nginx by a fast shutdown (SIGTERM), or by SIGKILL after ``patience_seconds``."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            try:
                _wait_for_end(self._process, patience_seconds)
            except subprocess.TimeoutExpired:
                for pid in (self._process.pid, self.pid, *self.workers()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._process.wait()
        self.refused_calls()
        if self._entrance is not None:
            self._entrance.close()


class BareInstance(RunningNginx):
    """A server other than nginx: all children of its first process serve."""

    def workers(self) -> list[int]:
        """The process ids of the children."""
        return _children(self.pid)


_START_SECONDS = 10.0
"""The time for a server to accept and to have its workers."""


def start_bare(
    argv: Sequence[str],
    *,
    stderr_path: Path,
    address: tuple[str, int],
    workers: int,
    cpus: Sequence[int],
) -> BareInstance:
    """Start a server other than nginx and wait until it accepts and has all its workers.

    Errors: UndecidedError with its last message if it ends or does not come up.
    """
    process = _spawn(list(argv), stderr_path, (), cpus, ahead=True, sandbox=None).process
    instance = BareInstance(process, stderr_path)
    deadline = time.monotonic() + _START_SECONDS
    while len(instance.workers()) < workers or not _accepts(address):
        if instance.has_ended() or time.monotonic() > deadline:
            instance.stop()
            reason = _last_line(instance.stderr()) or "no message"
            raise UndecidedError(f"the bare server does not come up: {reason}")
        time.sleep(0.02)
    return instance


def start_instance(
    binary: str,
    conf_path: Path,
    *,
    stderr_path: Path,
    address: SocketPlace,
    prefix: str | None = None,
    join_files: Sequence[Path] = (),
    cpus: Sequence[int] = (),
    ahead: bool = False,
    sandbox: Prepared | None = None,
    stays: bool = True,
) -> RunningNginx:
    """Start nginx and wait until it accepts connections.

    Before nginx runs, it enters the cgroups of ``join_files`` (``cgroup.procs``). ``cpus`` is its
    affinity. ``ahead`` gives it priority if allowed: otherwise the work of other processes would
    show in latencies. ``sandbox`` is None to use none. Without ``stays``, nginx goes to the
    background if its configuration says so; only a sandbox can end it then.
    Errors: ConfigurationError with nginx's message if it rejects the configuration;
            UndecidedError if the port is in use or nginx does not come up.
    """
    for foreground in (["-g", _FOREGROUND], []) if stays else ([],):
        # The second attempt is for a configuration that has a daemon directive itself.
        argv = [binary, "-c", str(conf_path), *(["-p", prefix] if prefix else []), *foreground]
        started = _spawn(argv, stderr_path, join_files, cpus, ahead=ahead, sandbox=sandbox)
        process = started.process
        instance = RunningNginx(
            process, stderr_path, first=started.first, entrance=started.entrance
        )
        try:
            _wait_ready(instance, address)
            if not foreground and sandbox is None:
                _check_stays(instance)
        except ConfigurationError as error:
            if foreground and '"daemon" directive is duplicate' in error.message:
                continue
            if not foreground and process.returncode == 0:
                break  # it went to the background
            raise
        except BaseException:
            instance.stop()
            raise
        return instance
    raise UndecidedError(
        f"{conf_path}: nginx cannot be kept in the foreground, the file says 'daemon on'",
        hint="remove that line, which sets nginx's default",
    )


class _Started(NamedTuple):
    process: subprocess.Popen[bytes]
    first: int
    """The first process of the sandbox; 0 without a sandbox."""
    entrance: Entrance | None


def _spawn(
    argv: list[str],
    stderr_path: Path,
    join_files: Sequence[Path],
    cpus: Sequence[int],
    *,
    ahead: bool,
    sandbox: Prepared | None,
) -> _Started:

    def settle() -> None:
        if cpus:
            os.sched_setaffinity(0, cpus)
        if ahead:
            _go_ahead()

    def join_and_settle() -> None:
        for file in join_files:
            file.write_text("0")
        settle()

    entrance = sandbox and Entrance(sandbox, join_files=join_files, before=settle)
    with stderr_path.open("wb") as stderr:
        try:
            process = start_program(
                argv,
                is_checked=True,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                cwd="/",
                inherits=sandbox is None,
                preexec_fn=entrance.enter if entrance else join_and_settle,  # one thread
            )
            return _Started(process, entrance.finish() if entrance else 0, entrance)
        except FileNotFoundError:
            if entrance is not None:
                entrance.close()
            raise MissingToolError(
                f"{argv[0]}: no such file", hint="install nginx or name it with --nginx"
            ) from None


def _go_ahead() -> None:
    """Give this process priority, within its session's group (sched(7), autogroup) and overall.

    The order among nginx's threads does not change.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_FOREMOST))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _FOREMOST)


def _wait_ready(instance: RunningNginx, address: SocketPlace) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        instance.check()
        with contextlib.suppress(OSError), connect(address, pid=instance.pid, timeout_seconds=1.0):
            instance.check()
            if not _is_binding(instance):
                _wait_workers(instance, deadline)
                return
        if time.monotonic() > deadline:
            raise UndecidedError(
                f"nginx does not accept connections on {place_text(address)}: "
                f"{_last_line(instance.stderr()) or 'no message'}"
            )
        time.sleep(_LOOK_SECONDS)


def _is_binding(instance: RunningNginx) -> bool:
    """True while nginx keeps trying to bind another address, which is in use.

    It exits after five attempts.
    Source: ngx_open_listening_sockets.
    """
    return " bind() to " in instance.stderr() and not _title(instance.pid).startswith(
        "nginx: master process"
    )


def _check_stays(instance: RunningNginx) -> None:
    """Raise if nginx goes to the background, which it does soon after it listens.

    A master that has its title stays in the foreground; without a master process, only time can
    tell. Source: ngx_daemon, called by main() after ngx_init_cycle.
    """
    deadline = time.monotonic() + _SOON_SECONDS
    while not _title(instance.pid).startswith("nginx: master process"):
        instance.check()
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def _wait_workers(instance: RunningNginx, deadline: float) -> None:
    """Wait for the workers, since the kernel accepts connections before they run.

    nginx listens before a master gets its title. A process that sleeps without the title for
    several samples has no master process (``master_process off``), and so no workers.
    """
    before: list[int] = []
    idle_looks = 0
    while time.monotonic() < deadline:
        instance.check()
        title = _title(instance.pid)
        waits = _waits(instance.pid)
        if title.startswith("nginx: master process") or _LOADER.search(title):
            workers = instance.workers()
            # A master computes while it starts workers, and afterwards sleeps until a signal. A
            # child that has not run yet still has its parent's title.
            is_settled = waits and all(_title(child) != title for child in _children(instance.pid))
            if workers and workers == before and is_settled:
                return
            before = workers
        else:
            idle_looks = idle_looks + 1 if waits and not _is_binding(instance) else 0
            if idle_looks == _IDLE_LOOKS:
                return
        time.sleep(_LOOK_SECONDS)
    reason = _last_line(instance.stderr())
    raise UndecidedError(
        "nginx accepts connections but starts no worker" + (f": {reason}" if reason else ""),
        hint="its workers exit as soon as they start: see its error log and the memory limits",
    )


def _start_error(stderr: str, status: int, refused: Sequence[str]) -> Exception:
    last = _last_line(stderr) or f"exit status {status}"
    if refused:
        return UndecidedError(
            f"nginx did not start, and the sandbox had refused it {', '.join(refused)}: "
            f"{_first_emerg(stderr) or last}",
            hint="a module that needs more of the kernel than nginx cannot be tested here",
        )
    if "Address already in use" in stderr:
        return UndecidedError(
            f"nginx did not start: {_first_emerg(stderr) or last}",
            hint="free the port or listen on another one",
        )
    if status in _KILLED and not _first_emerg(stderr):
        return UndecidedError(
            "something killed nginx (SIGKILL): short of memory?",
            hint="see dmesg for a process that was killed",
        )
    return ConfigurationError(f"nginx did not start: {_first_emerg(stderr) or last}")


def _first_emerg(stderr: str) -> str:
    return next((_strip(line) for line in stderr.splitlines() if "[emerg]" in line), "")


def _last_line(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return _strip(lines[-1]) if lines else ""


def _strip(line: str) -> str:
    _, bracket, rest = line.partition("[emerg]")
    text = rest if bracket else line
    head, colon, tail = text.strip().partition(": ")
    return tail if colon and head.replace("#", "").isdigit() else text.strip()


def _accepts(address: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0):
        return True
    return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    # The process may end while its threads are listed; a thread may end before it is read.
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in task.read_text().split()]
    return sorted(found)


def _waits(pid: int) -> bool:
    """True if the process sleeps. Source: /proc/PID/stat, proc(5)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] == ["S"]


def _is_master(pid: int) -> bool:
    return _title(pid).startswith("nginx: master process")


def _is_worker(pid: int) -> bool:
    return "nginx: worker process" in _title(pid)


_LOADER = re.compile(r"/ld-(linux|musl)[^/ ]*(?= |$)")
"""The loader's name in a process title; it is there if a dynamic loader started the program."""


def _title(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        return words.decode(errors="replace").strip()
    except OSError:
        return ""


def _wait_for_end(process: subprocess.Popen[Any], patience_seconds: float) -> None:
    """Wait until a child ends, and collect its exit status at once.

    ``Popen.wait`` with a timeout sleeps up to 50 ms between its checks.
    Errors: subprocess.TimeoutExpired after ``patience_seconds``.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # before Linux 5.3, or already collected
        process.wait(timeout=patience_seconds)
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(1000 * patience_seconds):
            raise subprocess.TimeoutExpired(process.args, patience_seconds)
    finally:
        os.close(descriptor)
    process.wait()
