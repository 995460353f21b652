"""The running nginx: its processes, and telling it to read its files again."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from nginx_tune.change.apply import calls
from nginx_tune.errors import UndecidedError
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.nginx.processes import Master, find_masters, find_orphans
from nginx_tune.nginx.reload.process import Process, lives, process_of
from nginx_tune.nginx.reload.workers import Generations, OldServeError, ReloadError

_COMMAND_SECONDS = 60.0


def master_at(host: Host, process: Process) -> Master | None:
    """What the master process is now; null when it is gone."""
    if not lives(process):
        return None
    return next((one for one in find_masters(host) if one.pid == process.pid), None)


def generations(host: Host, process: Process) -> Generations:
    """The workers of a master now.

    Errors: ReloadError when the master is gone.
    """
    master = master_at(host, process)
    if master is None:
        raise ReloadError(f"the nginx master process {process.pid} has ended")
    return Generations(_processes(master.workers), _processes(master.leaving))


def _processes(pids: Sequence[int]) -> frozenset[Process]:
    return frozenset(one for pid in pids if (one := process_of(pid)) is not None)


def orphans(host: Host, master: Process, workers: Collection[int]) -> list[int]:
    """The workers that a master left behind as it was killed: of its session, or known to be its.

    Source: src/os/unix/ngx_daemon.c: a master that is a daemon leads a session of its own.
    """
    found = []
    for pid in find_orphans(host):
        with contextlib.suppress(OSError):
            if pid in workers or os.getsid(pid) == master.pid:
                found.append(pid)
    return found


def tell(host: Host, process: Process, command: Sequence[str]) -> None:
    """Have nginx read its files: by SIGHUP to this very master, or by a command.

    Errors: ReloadError.
    """
    if command:
        try:
            said = host.run(list(command), timeout_seconds=_COMMAND_SECONDS)
        except HostReadError as error:
            raise ReloadError(error.message) from None
        if said.status != 0:
            text = (said.stderr.strip() or "no message").splitlines()[-1]
            raise ReloadError(f"{shlex.join(command)}: status {said.status}: {text}")
        return
    try:
        held = os.pidfd_open(process.pid)
    except OSError as error:
        raise ReloadError(f"process {process.pid}: {error.strerror}") from None
    try:
        # The descriptor is of one process; that it is the right one is asked after it is held.
        if not lives(process):
            raise ReloadError(f"the nginx master process {process.pid} has ended")
        calls.send_signal(held, signal.SIGHUP)
    except OSError as error:
        raise ReloadError(f"process {process.pid}: {error.strerror}") from None
    finally:
        os.close(held)


def unheard(command: Sequence[str], error: OldServeError) -> ReloadError:
    """What is wrong where a command ended well and nothing came of it."""
    if not command:
        return error
    return ReloadError(f"{shlex.join(command)}: ended well, but did not reload: {error.message}")


def is_to_reload(process: Process) -> bool:
    """Whether a SIGHUP waits for a master that is busy, perhaps with an earlier reload.

    It hears signals only between two of them. Source: ngx_master_process_cycle (sigsuspend);
    proc_pid_status(5), SigPnd and ShdPnd: bit N-1 stands for signal N.
    """
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    pending = [line.split()[1] for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(one, 16) & 1 << signal.SIGHUP - 1 for one in pending)


def run_test(host: Host, command: Sequence[str]) -> str:
    """What ``nginx -T`` prints of the files as they are; the target's own judgement.

    Errors: ReloadError with its message when it rejects them, UndecidedError when it cannot run.
    """
    try:
        said = host.run(list(command), timeout_seconds=_COMMAND_SECONDS)
    except HostReadError as error:
        raise UndecidedError(f"{command[0]}: cannot run nginx: {error.reason}") from None
    if said.status != 0:
        lines = [line for line in said.stderr.splitlines() if line.strip()] or ["no message"]
        worst = next((line for line in lines if "[emerg]" in line), lines[0])
        raise ReloadError(worst.removeprefix("nginx: ").strip())
    return said.stdout


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, the signals that end a command wait: what is being put back is put back."""
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
