"""Limits for programs that may hang, write without end or outlive their parent process."""

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable

from nginx_tune.host.door import HostReadError, ProgramResult
from nginx_tune.host.programs import start_program

_MAX_OUTPUT_BYTES = 4 << 20


def run_bounded(
    argv: list[str],
    timeout_seconds: float,
    *,
    is_checked: bool = False,
    enter: Callable[[], None] | None = None,
) -> ProgramResult:
    """Run a program with limits on its time and output (4 MiB); returns its status and output.

    ``is_checked`` is for a program that was checked before the sandbox was entered. ``enter`` is
    called in the child before it becomes the program, which then inherits no environment.
    Errors: HostReadError when it cannot be started, takes longer or writes more.
    Side effects: starts a new session for it, which is killed as a whole.
    """
    question = f"run {' '.join(argv)}"
    try:
        process = start_program(
            argv,
            is_checked=is_checked,
            environment={"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            inherits=enter is None,
            preexec_fn=enter,
        )
    except (OSError, ValueError) as error:
        raise HostReadError(question, getattr(error, "strerror", None) or str(error)) from None
    deadline = time.monotonic() + timeout_seconds
    with process:
        try:
            stdout, stderr = _collect(process, question, deadline)
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _kill(process)
            raise HostReadError(question, "took too long") from None
        except BaseException:
            _kill(process)
            raise
    text = (data.decode(errors="surrogateescape") for data in (stdout, stderr))
    return ProgramResult(status, *text)


def _collect(
    process: subprocess.Popen[bytes], question: str, deadline: float
) -> tuple[bytes, bytes]:
    """Read standard output and standard error until both end."""
    if process.stdout is None or process.stderr is None:
        raise HostReadError(question, "no pipes")
    received: dict[int, bytearray] = {
        process.stdout.fileno(): bytearray(),
        process.stderr.fileno(): bytearray(),
    }
    first, second = received.values()
    with selectors.DefaultSelector() as selector:
        for descriptor in received:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise HostReadError(question, "took too long")
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                received[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
                if len(received[key.fd]) > _MAX_OUTPUT_BYTES:
                    raise HostReadError(question, "writes too much")
    return bytes(first), bytes(second)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (prctl(2)).

    Call it between fork and exec; it is async-signal-safe.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
