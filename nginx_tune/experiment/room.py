"""Room for the unix sockets that a configuration listens on, inside the walls.

Where the host's own nginx listens there, or one that was killed left its socket, no other can be
made. In the walls' own layer over the directory it goes; the host keeps its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from nginx_tune.lab import mounts
from nginx_tune.lab.enclosure import Enclosure


def make_room(sockets: Iterable[str], enclosure: Enclosure) -> None:
    """Have no socket at these paths, and directories that take some where there was one."""
    for path in sockets:
        directory = os.path.realpath(os.path.dirname(path))  # noqa: PTH120
        real = Path(directory, os.path.basename(path))  # noqa: PTH119
        if not is_socket(real):
            continue
        for step in (mounts.make_writable, mounts.make_own):
            step(Path(directory))
            try:
                real.unlink()
                break
            except OSError:  # another user's directory: see ``make_own``
                continue
        enclosure.open(directory)


def is_socket(path: Path) -> bool:
    """Whether a socket is there, and not what a link leads to."""
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False
