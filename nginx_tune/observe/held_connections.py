"""How many client connections each worker holds now."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from nginx_tune.host.parse_listeners import parse_socket_link
from nginx_tune.observe.parse_sockets import parse_established

MOST_DESCRIPTORS = 200_000
"""Of all workers together that are looked at: about 2 µs each."""


def count_held(workers: Sequence[int], ports: AbstractSet[int]) -> dict[int, int] | None:
    """Established connections to these ports by worker; None when it cannot be told.

    A connection that is still in the accept queue belongs to nobody and is not counted.
    """
    if not workers or not ports:
        return None
    established: set[int] = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{workers[0]}/net/{table}").read_text(errors="replace")
            established |= parse_established(text, ports)
    left = MOST_DESCRIPTORS
    held = {}
    for worker in workers:
        directory = f"/proc/{worker}/fd"
        try:
            names = os.listdir(directory)  # noqa: PTH208  # many, and only their names
        except OSError:
            return None
        left -= len(names)
        if left < 0:
            return None
        held[worker] = sum(_inode(f"{directory}/{name}") in established for name in names)
    return held


def _inode(path: str) -> int | None:
    try:
        return parse_socket_link(os.readlink(path))  # noqa: PTH115  # as stored
    except OSError:
        return None
