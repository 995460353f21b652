"""Processes that a test left running: whatever it did, they end."""

import contextlib
import os
import signal
import time
from pathlib import Path

_ROUNDS = 200


def end_all(directory: Path) -> None:
    """Kill every process that names a directory in its command line or has a file below it open.

    A master is named by its configuration, its workers have its log open. What a dying master
    started meanwhile is found by the next look.
    """
    for _ in range(_ROUNDS):
        found = [pid for pid in _others() if _belongs(pid, str(directory))]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    raise AssertionError(f"{found} cannot be ended")


def _others() -> list[int]:
    own = {os.getpid(), os.getppid()}
    there = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in there if pid not in own]


def _belongs(pid: int, directory: str) -> bool:
    """A process that is no zombie: such a one has neither a command line nor files."""
    with contextlib.suppress(OSError):
        if os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes():
            return True
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()).startswith(f"{directory}/"):
                    return True
    return False
