"""The start of a program inside the sandbox, from the fork to nginx.

There are three processes. The caller's fork creates the namespaces and waits. Its child is the
first process of the new PID namespace: it builds the root, starts nginx, answers the system calls
that the filter leaves to it (``Supervisor``) and reaps ended children. The third process drops its
rights and becomes nginx. If either of the first two ends, all three end, since the kernel kills a
PID namespace together with its first process.

The supervisor counts new processes and file-AIO contexts, which the kernel cannot limit for one
sandbox. It refuses and records every other call that it gets.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.host.door import HostReadError, ProgramResult
from nginx_tune.host.program import die_with_parent, run_bounded
from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.confinement import (
    Confinement,
    HostShare,
    drop_all_capabilities,
    drop_capabilities,
    end_first,
    limit_process,
    limit_processes,
    restrict_writes,
    share_of_host,
)
from nginx_tune.sandbox.plan_filter import AUDIT, call_numbers, plan_filter
from nginx_tune.sandbox.root import DEVICES, RootPlan, build_root, plan_root

_NAMESPACES = (
    calls.CLONE_NEWNS
    | calls.CLONE_NEWPID
    | calls.CLONE_NEWIPC
    | calls.CLONE_NEWUTS
    | calls.CLONE_NEWCGROUP
)
_STREAMS = ("/proc/self/fd/1", "/proc/self/fd/2")
"""The paths by which ``/dev/stdout`` and ``/dev/stderr`` are opened."""
FAILED = 125
"""The exit status of a process that did not become nginx."""


class Prepared(NamedTuple):
    """A planned sandbox, for any number of programs."""

    wanted: Confinement
    plan: RootPlan
    filter: bytes | None
    own_filter: bytes | None
    """The first process's filter."""
    share: HostShare
    namespace: int
    """The mount namespace from which the root is built; -1 for the caller's."""


def prepare(wanted: Confinement, *, namespace: int = -1) -> Prepared:
    """Plan a sandbox.

    Errors: UndecidedError if this host lacks a part that the user did not give up.
    """
    machine = calls.architecture()
    filters: tuple[bytes | None, bytes | None] = (None, None)
    if machine in AUDIT:
        numbers = call_numbers(machine)
        filters = (
            plan_filter(
                machine,
                numbers,
                unix_sockets=wanted.uses_unix_sockets,
                file_aio=wanted.uses_file_aio,
                asks=calls.can_supervise(),
            ),
            plan_filter(machine, numbers, asks=False, also_ioctl=calls.NOTIFICATIONS),
        )
    elif "seccomp" not in wanted.weaker:
        raise UndecidedError(
            f"no filter of system calls for {machine}: only the call numbers of "
            f"{' and '.join(AUDIT)} are known",
            hint="--weaker-sandbox seccomp leaves the filter out; the rest of the sandbox stays",
        )
    return Prepared(wanted, plan_root(wanted), *filters, share_of_host(wanted), namespace)


class Entrance:
    """One start: the steps of the forked child before exec, and of its parent afterwards."""

    def __init__(
        self,
        prepared: Prepared,
        *,
        join_files: Sequence[Path] = (),
        before: Callable[[], None] | None = None,
    ) -> None:
        self._prepared = prepared
        self._join_files = join_files
        self._before = before
        self._result, self._report = os.pipe()
        self._refused, self._refuse = os.pipe()
        self._open = {self._result, self._report, self._refused, self._refuse}

    def enter(self) -> None:
        """Enter the sandbox; returns only in the process that becomes nginx."""
        try:
            self._enter()
        except BaseException as error:  # noqa: BLE001  # no caller would get it
            self._fail(error)

    def _enter(self) -> None:
        # Nothing may be imported from the new root, where nginx may have written before.
        sys.meta_path.clear()
        die_with_parent()
        joins = [os.open(file, os.O_WRONLY | os.O_CLOEXEC) for file in self._join_files]
        if self._before is not None:
            self._before()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        end_first()
        if self._prepared.namespace >= 0:
            calls.enter_mounts(self._prepared.namespace)
        calls.unshare(_NAMESPACES)
        first = os.fork()
        if first:
            os.write(self._report, b"%d\n" % first)
            _close_all()
            _wait_for(first)
        die_with_parent()
        limit_processes(self._prepared.wanted, in_groups=bool(self._join_files))
        build_root(self._prepared.plan)
        ours, theirs = socket.socketpair()
        ruled = os.fork()
        if ruled:
            theirs.close()
            self._be_first(ruled, ours)
        ours.close()
        for descriptor in joins:
            os.write(descriptor, b"0")
            os.close(descriptor)
        self._give_up_rights(theirs)

    def _give_up_rights(self, first: socket.socket) -> None:
        wanted, plan = self._prepared.wanted, self._prepared.plan
        is_root = os.geteuid() == 0
        # The inherited standard input is a device of the host, on a writable mount.
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, 0)
        os.close(null)
        limit_process(wanted, self._prepared.share, is_root=is_root)
        calls.no_new_privileges()
        writable = [*plan.writable, "/dev/shm"]  # noqa: S108  # its own
        files = [*(f"/dev/{name}" for name in DEVICES), *_STREAMS]
        restrict_writes(writable, files)
        drop_capabilities(is_root=is_root, transparent=wanted.transparent)
        listener = self._filter(self._prepared.filter, listens=calls.can_supervise())
        if listener:
            socket.send_fds(first, [b"."], [listener])
            os.close(listener)
        first.close()

    def _filter(self, program: bytes | None, *, listens: bool) -> int:
        if program is None:
            return 0
        try:
            return calls.install_filter(program, listens=listens)
        except OSError as error:
            if "seccomp" in self._prepared.wanted.weaker:
                return 0
            raise UndecidedError(
                f"the kernel refuses a filter of system calls: {error.strerror}",
                hint="--weaker-sandbox seccomp does without",
            ) from None

    def _be_first(self, ruled: int, other: socket.socket) -> NoReturn:
        """Become the namespace's first process: drop rights, hide memory, close most files."""
        calls.hide_memory()
        calls.no_new_privileges()
        drop_all_capabilities()
        processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _close_all({self._refuse, processes, other.fileno()})
        received = socket.recv_fds(other, 1, 1)[1]
        other.close()
        self._filter(self._prepared.own_filter, listens=False)
        if received:
            Supervisor(received[0], self._refuse, processes, self._prepared.share).run(ruled)
        _wait_for(ruled)

    def _fail(self, error: BaseException) -> NoReturn:
        hint = ""
        if isinstance(error, NginxTuneError):
            text, hint = error.message, error.hint
        else:
            place, reason = (getattr(error, name, None) for name in ("filename", "strerror"))
            text = f"{place}: " if place else ""
            text += reason or f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            os.write(self._report, f"!{text}\t{hint}\n".encode(errors="replace"))
        os._exit(FAILED)

    def finish(self) -> int:
        """Wait until nginx runs; returns the first process's id on the host.

        Errors: UndecidedError with the reason if the sandbox could not be made.
        """
        self._close(self._report, self._refuse)
        os.set_blocking(self._refused, False)
        with os.fdopen(self._result, "rb", closefd=False) as pipe:
            lines = pipe.read().decode(errors="replace").splitlines()
        self._close(self._result)
        for line in lines:
            if line.startswith("!"):
                self.close()
                text, _, hint = line[1:].partition("\t")
                raise UndecidedError(f"the sandbox cannot be made: {text}", hint=hint)
        return int(lines[0]) if lines else 0

    def refusals(self) -> list[str]:
        """The names of system calls that were refused since this was last called, each once."""
        return _read_refusals(self._refused) if self._refused in self._open else []

    def close(self) -> None:
        """Close the remaining pipes."""
        self._close(*self._open)

    def _close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            os.close(descriptor)
            self._open.discard(descriptor)


def run_inside(
    argv: list[str], sandbox: Prepared, timeout_seconds: float, *, join_files: Sequence[Path] = ()
) -> tuple[ProgramResult, list[str]]:
    """Run a program in a sandbox; returns its output and the system calls refused to it.

    Errors: HostReadError if it cannot be started or takes too long; UndecidedError if the sandbox
            cannot be made.
    """
    entrance = Entrance(sandbox, join_files=join_files)
    try:
        result = run_bounded(argv, timeout_seconds, is_checked=True, enter=entrance.enter)
    except HostReadError:
        entrance.close()
        raise
    entrance.finish()
    refused = entrance.refusals()
    entrance.close()
    return result, refused


def _close_all(kept: Collection[int] = ()) -> None:
    """Close all descriptors but ``kept``, so that only nginx holds the caller's pipes open."""
    edge = 0
    for number in sorted(kept):
        os.closerange(edge, number)
        edge = number + 1
    os.closerange(edge, os.sysconf("SC_OPEN_MAX"))


def _wait_for(child: int) -> NoReturn:
    """Reap children until none is left, then exit with the status of ``child``.

    A failed ``child`` ends the wait at once. After a success, others may still run: nginx as a
    daemon does.
    """
    status = FAILED
    while True:
        try:
            pid, ended = os.wait()
        except ChildProcessError:
            break
        except InterruptedError:
            continue
        if pid == child:
            status = os.waitstatus_to_exitcode(ended)
            if status:
                break
    _end_as(status)


_MOST_RECORDED = 64
_NEW_NAMESPACES = 0x7E020080
_SIGNALLED = 128


class Supervisor:
    """Answers the calls that the filter passes on, until the children have ended."""

    def __init__(self, listener: int, record: int, processes: int, share: HostShare) -> None:
        """``record``: a pipe for refused calls; ``processes``: a descriptor of ``/proc``."""
        self._listener = listener
        self._record = record
        self._processes = processes
        self._numbers = call_numbers(calls.architecture())
        self._most_processes = share.processes
        self._aio_left = share.aio_events
        self._recorded: set[bytes] = set()

    def run(self, child: int) -> NoReturn:
        """Answer calls and reap children; once none is left, exit with the status of ``child``."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self._listener, select.POLLIN)
        status = FAILED
        while True:
            # Children first, since one may have ended before the handler was set.
            pid, ended = -1, 0
            with contextlib.suppress(ChildProcessError):
                pid, ended = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                status = os.waitstatus_to_exitcode(ended)
            if pid < 0 or (pid == child and status):
                _end_as(status)
            if pid:
                continue
            for number, events in poll.poll():
                if number == woken:
                    os.read(woken, 4096)
                elif events & select.POLLIN:
                    self._answer()
                else:  # no process is left to make calls
                    poll.unregister(self._listener)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):  # the process has ended
            call = calls.receive_call(self._listener)
            error = self._judge(call)
            if error:
                self._note(call)
            calls.answer_call(self._listener, call, error=error)

    def _judge(self, call: calls.StoppedCall) -> int:
        """The error number for a call; 0 lets it proceed."""
        numbers, first = self._numbers, call.arguments[0]
        is_clone = call.number == numbers["clone"]
        if is_clone and first & _NEW_NAMESPACES:
            return errno.EPERM
        if is_clone or call.number in {numbers.get("fork"), numbers.get("vfork")}:
            running = sum(name.isdigit() for name in os.listdir(self._processes))  # noqa: PTH208
            return 0 if running < self._most_processes else errno.EAGAIN
        if call.number == numbers["io_setup"]:
            used = _events_taken(first & 0xFFFFFFFF)
            if used > self._aio_left:
                return errno.EAGAIN
            self._aio_left -= used
            return 0
        return errno.EPERM

    def _note(self, call: calls.StoppedCall) -> None:
        words = (call.number, *(word & 0xFFFFFFFF for word in call.arguments[:2]))
        line = b"%d %d %d\n" % words
        if len(self._recorded) < _MOST_RECORDED and line not in self._recorded:
            self._recorded.add(line)
            os.write(self._record, line)


def _events_taken(asked: int) -> int:
    """The events that a context takes from ``fs.aio-nr``. Source: ioctx_alloc() in fs/aio.c."""
    return max(asked, 4 * (os.cpu_count() or 1)) * 2


def _read_refusals(record: int) -> list[str]:
    """The names of the refused calls that the pipe holds so far, each once."""
    names = {number: name for name, number in call_numbers(calls.architecture()).items()}
    text = b""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(record, 1 << 16):
            text += piece
    found = []
    for line in text.decode(errors="replace").splitlines():
        number, first, second = map(int, line.split())
        name = names.get(number, f"system call {number}")
        argument = {"fcntl": second, "ioctl": second, "prctl": first, "socket": second}.get(name)
        found.append(name if argument is None else f"{name}({argument})")
    return list(dict.fromkeys(found))


def _end_as(status: int) -> NoReturn:
    """Exit with another process's status; a signal is reported as by a shell (128 + number)."""
    os._exit(status if status >= 0 else _SIGNALLED - status)
