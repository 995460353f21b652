"""Which processes are of a laboratory of nginx-tune: never the host's own, though they run nginx.

Every process of a lab has a mark in its environment. nginx overwrites that memory with its
title (ngx_setproctitle.c), so the mark is looked for in a process's ancestors too. Another user's
environment cannot be read; command lines can: a lab's first process runs a module of ours in a
form that nobody types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from nginx_tune.host.door import HostReadError, Missing
from nginx_tune.host.parse_process import parse_cmdline, parse_parent_pid

ENVIRONMENT_MARK = "NGINX_TUNE_LAB"
"""Set for every process a lab starts: the guard rails and the sweep know our own by it."""

_BY_MODULE = ["-I", "-B", "-c"]
"""The options of ``host.programs.own_module``; the module's name comes behind the code."""
_MODULE = "nginx_tune."


class _Reader(Protocol):
    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""

    def read_text(self, path: str) -> str:
        """Contents of a file as text."""


def is_in_lab(host: _Reader, pid: int) -> bool:
    """Whether a process is of a lab that this one is not in; False where nothing can be read.

    What a process says of itself makes it and its children none of the host's: nobody can hide
    another one's.
    """
    return _is_of_lab(host, pid) and not is_marked(host, "self")


def is_marked(host: _Reader, process: int | str) -> bool:
    """Whether a process or an ancestor of its has the mark."""
    return any(_has_mark(host, one) for one in lineage(host, process))


def lineage(host: _Reader, process: int | str) -> Iterator[int | str]:
    """A process, its parent, and so on up to the first of its namespace."""
    seen: set[int | str] = set()
    while process not in {0, *seen}:
        seen.add(process)
        yield process
        try:
            parent = parse_parent_pid(host.read_text(f"/proc/{process}/stat"))
        except HostReadError:
            return
        if isinstance(parent, Missing):
            return
        process = parent


def _is_of_lab(host: _Reader, pid: int) -> bool:
    return any(_has_mark(host, one) or _runs_module(host, one) for one in lineage(host, pid))


def _has_mark(host: _Reader, process: int | str) -> bool:
    try:
        environment = host.read_bytes(f"/proc/{process}/environ")
    except HostReadError:
        return False
    mark = f"{ENVIRONMENT_MARK}=".encode()
    return any(variable.startswith(mark) for variable in environment.split(b"\0"))


def _runs_module(host: _Reader, process: int | str) -> bool:
    try:
        words = parse_cmdline(host.read_bytes(f"/proc/{process}/cmdline"))
    except HostReadError:
        return False
    # ``unshare … --`` may stand before the interpreter.
    return any(
        words[at : at + 3] == _BY_MODULE and words[at + 4][: len(_MODULE)] == _MODULE
        for at in range(len(words) - 4)
    )
