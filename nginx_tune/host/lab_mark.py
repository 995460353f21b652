"""Which processes are of a laboratory of nginx-tune: never the host's own, though they run nginx.

Every process of a lab has a mark in its environment. nginx overwrites that memory with its
title (ngx_setproctitle.c), so the mark is looked for in a process's ancestors too. Another user's
environment cannot be read; command lines can: a lab's first process runs a module of ours in a
form that nobody types.

Anybody can give processes of their own a mark: it says what to leave out of the host's, and opens
nothing.

This file is part of the collector: standard library, Python 3.6.
"""

from typing import Any, Iterator, List, Union

ENVIRONMENT_MARK = "NGINX_TUNE_LAB"
"""Set for every process a lab starts; its value is ``nginx.lab.keeper.new_mark``."""

_BY_MODULE = [b"-I", b"-B", b"-c"]
"""The options of ``host.programs.own_module``; the module's name comes behind the code."""
_MODULE = b"nginx_tune."


def is_in_lab(host: Any, pid: int) -> bool:
    """Whether a process is of a lab that this one is not in; False where nothing can be read.

    What a process says of itself makes it and its children none of the host's: nobody can hide
    another one's.
    """
    return _is_of_lab(host, pid) and not is_marked(host, "self")


def is_marked(host: Any, process: Union[int, str]) -> bool:
    """Whether a process or an ancestor of its has the mark."""
    return any(_has_mark(host, one) for one in lineage(host, process))


def lineage(host: Any, process: Union[int, str]) -> Iterator[Union[int, str]]:
    """A process, its parent, and so on up to the first of its namespace."""
    seen: set[Union[int, str]] = set()
    while process not in {0, *seen}:
        seen.add(process)
        yield process
        # Behind the name, which may itself hold brackets, stand the state and the parent.
        words = _read(host, process, "stat").rpartition(b")")[2].split()
        if len(words) < 2 or not words[1].isdigit():
            return
        process = int(words[1])


def _is_of_lab(host: Any, pid: int) -> bool:
    return any(_has_mark(host, one) or _runs_module(host, one) for one in lineage(host, pid))


def _has_mark(host: Any, process: Union[int, str]) -> bool:
    mark = (ENVIRONMENT_MARK + "=").encode()
    variables = _read(host, process, "environ").split(b"\0")
    return any(variable.startswith(mark) for variable in variables)


def _runs_module(host: Any, process: Union[int, str]) -> bool:
    words: List[bytes] = _read(host, process, "cmdline").rstrip(b"\0 ").split(b"\0")
    # ``unshare … --`` may stand before the interpreter.
    return any(
        words[at : at + 3] == _BY_MODULE and words[at + 4][: len(_MODULE)] == _MODULE
        for at in range(len(words) - 4)
    )


def _read(host: Any, process: Union[int, str], name: str) -> bytes:
    """A file of a process below /proc; empty where it cannot be read."""
    try:
        data = host.read_bytes("/proc/{}/{}".format(process, name))
    except Exception:  # noqa: BLE001  # the collector's door raises OSError, the other its own
        return b""
    return bytes(data)
