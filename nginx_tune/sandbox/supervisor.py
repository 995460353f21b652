"""The first process of a sandbox: it judges system calls that the filter leaves to it.

New processes and contexts of file AIO are counted, since the kernel has no limit of their own for a
sandbox; every other call that comes here is refused and recorded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
from typing import NoReturn

from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.call_numbers import call_numbers
from nginx_tune.sandbox.limits import HostShare

_MOST_RECORDED = 64
_NEW_NAMESPACES = 0x7E020080
FAILED = 125
"""Exit status of what did not become nginx."""
_SIGNALLED = 128


class Supervisor:
    """Answers what comes from the listener of the filter until its children have ended."""

    def __init__(self, listener: int, record: int, processes: int, share: HostShare) -> None:
        """``record`` is a pipe for refused calls, ``processes`` a descriptor of ``/proc``."""
        self._listener = listener
        self._record = record
        self._processes = processes
        self._numbers = call_numbers(calls.architecture())
        self._most_processes = share.processes
        self._aio_left = share.aio_events
        self._recorded: set[bytes] = set()

    def run(self, child: int) -> NoReturn:
        """Answer calls and collect children; end as ``child`` did, once no other is left."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self._listener, select.POLLIN)
        status = FAILED
        while True:
            # Children first: one may have ended before the signal was caught.
            pid, ended = -1, 0
            with contextlib.suppress(ChildProcessError):
                pid, ended = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                status = os.waitstatus_to_exitcode(ended)
            if pid < 0 or (pid == child and status):
                end_as(status)
            if pid:
                continue
            for number, events in poll.poll():
                if number == woken:
                    os.read(woken, 4096)
                elif events & select.POLLIN:
                    self._answer()
                else:  # nobody is left who could ask
                    poll.unregister(self._listener)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):  # whoever asked has ended
            call = calls.receive_call(self._listener)
            error = self._judge(call)
            if error:
                self._note(call)
            calls.answer_call(self._listener, call, error=error)

    def _judge(self, call: calls.StoppedCall) -> int:
        """The error that a call is answered with; 0 to let it go on."""
        numbers, first = self._numbers, call.arguments[0]
        is_clone = call.number == numbers["clone"]
        if is_clone and first & _NEW_NAMESPACES:
            return errno.EPERM
        if is_clone or call.number in {numbers.get("fork"), numbers.get("vfork")}:
            running = sum(name.isdigit() for name in os.listdir(self._processes))  # noqa: PTH208
            return 0 if running < self._most_processes else errno.EAGAIN
        if call.number == numbers["io_setup"]:
            used = events_taken(first & 0xFFFFFFFF)
            if used > self._aio_left:
                return errno.EAGAIN
            self._aio_left -= used
            return 0
        return errno.EPERM

    def _note(self, call: calls.StoppedCall) -> None:
        words = (call.number, *(one & 0xFFFFFFFF for one in call.arguments[:2]))
        line = b"%d %d %d\n" % words
        if len(self._recorded) < _MOST_RECORDED and line not in self._recorded:
            self._recorded.add(line)
            os.write(self._record, line)


def events_taken(asked: int) -> int:
    """What a context counts for in ``fs.aio-nr``. Source: ioctx_alloc() in fs/aio.c."""
    return max(asked, 4 * (os.cpu_count() or 1)) * 2


def read_refusals(record: int) -> list[str]:
    """The refused calls in a pipe so far, each once, as people know them."""
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


def end_as(status: int) -> NoReturn:
    """End with the exit code of another process, as a shell says a signal."""
    os._exit(status if status >= 0 else _SIGNALLED - status)
