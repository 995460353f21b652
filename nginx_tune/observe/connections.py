"""How many connections each worker took, from a log that says so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

LOG_NAME = "nginx_tune_connections"
LOG_WORDS = ("$pid", " ", "$connection")
"""Format of the log: a line a request; ``$connection`` numbers a server's connections."""


def log_size(log: Path) -> int:
    """Bytes in the log now; 0 when it is not there yet."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def count_connections(log: Path, *, start: int) -> dict[str, int] | None:
    """Connections that each worker served since the log had ``start`` bytes.

    Shape: {process id: connections}; None when there is no log.
    """
    try:
        with log.open("rb") as file:
            file.seek(start)
            lines = file.read().splitlines()
    except OSError:
        return None
    seen = {tuple(line.split()) for line in lines}
    workers = Counter(words[0].decode("ascii", "replace") for words in seen if words)
    return dict(sorted(workers.items()))
