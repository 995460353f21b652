"""How many connections each worker took, from a log that says so."""

from __future__ import annotations

from collections import Counter
from typing import BinaryIO

LOG_NAME = "nginx_tune_connections"
LOG_WORDS = ("$pid", " ", "$connection")
"""Format of the log: a line a request; ``$connection`` numbers a server's connections."""


def count_connections(log: BinaryIO, *, start: int) -> dict[str, int]:
    """Connections that each worker served since the log had ``start`` bytes.

    Shape: {process id: connections}.
    """
    log.seek(start)
    lines = log.read().splitlines()
    seen = {tuple(line.split()) for line in lines}
    workers = Counter(words[0].decode("ascii", "replace") for words in seen if words)
    return dict(sorted(workers.items()))
