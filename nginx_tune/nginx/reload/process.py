"""Processes as they are now."""

from __future__ import annotations

from pathlib import Path

from nginx_tune.nginx.reload.model_process import Process

_ENDED = (b"Z", b"X")


def process_of(pid: int) -> Process | None:
    """A process with its start; null when there is none, or only its end is left to be heard."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in brackets may itself hold brackets; the 22nd field is the start.
    words = text.rpartition(b")")[2].split()
    return None if words[0] in _ENDED else Process(pid=pid, start_ticks=int(words[19]))


def lives(process: Process | None) -> bool:
    """Whether it is still there, and no other one with its number."""
    return process is not None and process_of(process.pid) == process


__all__ = ["Process", "lives", "process_of"]
