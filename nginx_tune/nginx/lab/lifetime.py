"""Processes that end with the one that started them, and a mark that says whose they are."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from pathlib import Path

from nginx_tune.host.lab_mark import ENVIRONMENT_MARK
from nginx_tune.host.lifetime import die_with_parent


def start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; with the pid it names one process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="surrogateescape")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def new_mark() -> str:
    """The mark of what this process starts: its user, id and start, and a random number.

    Anybody can write one; the probe has the kernel confirm it (``probes/src/own_processes.rs``).
    """
    pid = os.getpid()
    return f"{os.geteuid()}-{pid}-{start_time(pid) or 0}-{secrets.token_hex(4)}"


def is_running(pid: int, started: str | None) -> bool:
    """Whether that very process is still there (a pid alone may have been given anew)."""
    return started is not None and start_time(pid) == started


def kill(pid: int, started: str | None) -> None:
    """SIGKILL that very process, if it is still there."""
    if is_running(pid, started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


__all__ = ["ENVIRONMENT_MARK", "die_with_parent", "is_running", "kill", "new_mark", "start_time"]
