"""The workers of a master, by generation, and the sockets that a process holds."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from nginx_tune.errors import NginxTuneError
from nginx_tune.host.parse_listeners import parse_socket_link
from nginx_tune.nginx.reload.process import Process


class ReloadError(NginxTuneError):
    """The new configuration does not serve, or not as it is written."""


class OldServeError(ReloadError):
    """No new worker has come, and nothing was logged: perhaps nobody reloaded."""


class Generations(NamedTuple):
    """The workers of a master."""

    serving: frozenset[Process]
    leaving: frozenset[Process]


def held_sockets(pid: int) -> frozenset[int]:
    """Inodes of the sockets that a process holds; none when it is gone."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208  # names, not paths
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                inode = parse_socket_link(target)
                if inode is not None:
                    found.add(inode)
    return frozenset(found)
