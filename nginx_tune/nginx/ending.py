"""Waiting for a process to end, without looking again and again."""

from __future__ import annotations

import os
import select
import subprocess
from typing import Any


def wait_for_end(process: subprocess.Popen[Any], patience_seconds: float) -> None:
    """Return as soon as a child has ended and is collected.

    ``Popen.wait`` with a time limit sleeps up to 50 ms between its looks.
    Errors: subprocess.TimeoutExpired when it does not end.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # before Linux 5.3, or it was collected
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
