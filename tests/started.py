"""What tests start, and the moments that they wait for.

nginx binds its sockets, then writes its pid file, then starts its workers, and each of these then
takes its limits, its user and its threads: on a busy machine any of it comes long after the one
before. A test that reads at once what comes later fails now and then.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def within(condition: Callable[[], T], seconds: float) -> T:
    """The first true answer of a condition, or its last one in so long."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def until(condition: Callable[[], T]) -> T:
    """The first true answer of a condition; a failure without one in a minute.

    That is no promise of the product: it is long because others may be busy on this machine.
    """
    found = within(condition, 60.0)
    assert found, f"still {found!r} after a minute"
    return found


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def workers_of(master: int) -> list[int]:
    """Those that serve: a worker takes its title when all else of it is ready.

    Source: ngx_worker_process_cycle (src/os/unix/ngx_process_cycle.c).
    """
    found = []
    for pid in children(master):
        with contextlib.suppress(OSError):
            # What a loader runs keeps the loader's own words before its title.
            if b"nginx: worker process\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def reload(master: int) -> None:
    """Have nginx read its files again, until none of the workers before is left and new ones serve.

    The kernel's list of children may miss some while others end.
    """
    before = children(master)
    os.kill(master, signal.SIGHUP)
    until(lambda: workers_of(master) and not any(map(is_alive, before)))


def number_in(pid_file: Path) -> int:
    """The process that a pid file names, once it does: it is made before it is written."""

    def read() -> int:
        with contextlib.suppress(OSError, ValueError):
            return int(pid_file.read_text())
        return 0

    return until(read)


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until what was started listens there."""

    def listens() -> bool:
        _check_runs(process)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    until(listens)


def _check_runs(process: subprocess.Popen[bytes]) -> None:
    ended = process.poll()
    said = process.stderr.read() if ended is not None and process.stderr else b""
    assert ended is None, f"{process.args!r} ended: {said.decode()}"


@contextlib.contextmanager
def serving(argv: Sequence[str | Path], port: int) -> Iterator[None]:
    """An nginx in the foreground that accepts on a port. Ended on leaving."""
    with _started(argv) as process:
        await_port(port, process)
        yield


@contextlib.contextmanager
def running(argv: Sequence[str | Path], workers: int = 1) -> Iterator[int]:
    """An nginx in the foreground when so many workers serve; its master. Ended on leaving."""
    with _started(argv) as process:

        def serves() -> bool:
            _check_runs(process)
            return len(workers_of(process.pid)) >= workers

        until(serves)
        yield process.pid


@contextlib.contextmanager
def _started(argv: Sequence[str | Path]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PATH": f"/usr/sbin:{os.environ['PATH']}"}
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)
