"""The current processes of an nginx: whether they live, their generations, and their sockets."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from nginx_tune.errors import NginxTuneError
from nginx_tune.host.parse_network import parse_socket_link


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process, distinguished from later ones with the same process id."""

    pid: int
    start_ticks: int


_ENDED = (b"Z", b"X")


def process_of(pid: int) -> Process | None:
    """The process with this id; None if there is none, or only a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in brackets may itself contain brackets; the start time is the 22nd field.
    words = text.rpartition(b")")[2].split()
    return None if words[0] in _ENDED else Process(pid=pid, start_ticks=int(words[19]))


def lives(process: Process | None) -> bool:
    """True while this process exists; a later one with the same process id does not count."""
    return process is not None and process_of(process.pid) == process


class ReloadError(NginxTuneError):
    """A new configuration that does not serve as written."""


class OldServeError(ReloadError):
    """A reload that brought no new worker and no log line: perhaps it never happened."""


class Generations(NamedTuple):
    """The workers of a master."""

    serving: frozenset[Process]
    leaving: frozenset[Process]


def held_sockets(pid: int) -> frozenset[int]:
    """The inodes of a process's sockets; empty if the process has ended."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208  # names, not paths
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                inode = parse_socket_link(target)
                if inode is not None:
                    found.add(inode)
    return frozenset(found)
