"""The processes of nginx-tune's labs: they run nginx but do not belong to the host itself.

Every process of a lab has a mark in its environment. nginx overwrites that memory with its title
(ngx_setproctitle.c), so the ancestors of a process are searched too. Another user's environment is
unreadable, but the command line is not: a lab's first process runs a module of nginx-tune with
options that nobody types.

Anyone can set the mark on their own processes; they are then only left out of the host's.

This file is part of the collector: standard library, Python 3.6.
"""

from typing import Any, Iterator, List, Union

ENVIRONMENT_MARK = "NGINX_TUNE_LAB"
"""The variable of every process of a lab; the value is from ``nginx.lab.keeper.new_mark``."""

_BY_MODULE = [b"-I", b"-B", b"-c"]
"""The options of ``host.programs.own_module``, after which the code and the module follow."""
_MODULE = b"nginx_tune."


def is_in_lab(host: Any, pid: int) -> bool:
    """True for a process of a lab, seen from outside of any lab; False if nothing is readable.

    A process that forges the mark only excludes itself and its children from the host's processes.
    """
    return _is_of_lab(host, pid) and not is_marked(host, "self")


def is_marked(host: Any, process: Union[int, str]) -> bool:
    """True if a process or one of its ancestors has the mark."""
    return any(_has_mark(host, ancestor) for ancestor in lineage(host, process))


def lineage(host: Any, process: Union[int, str]) -> Iterator[Union[int, str]]:
    """A process and its ancestors, up to the first process of its PID namespace."""
    seen: set[Union[int, str]] = set()
    while process not in {0, *seen}:
        seen.add(process)
        yield process
        # The state and the parent follow the name, which may contain brackets.
        words = _read(host, process, "stat").rpartition(b")")[2].split()
        if len(words) < 2 or not words[1].isdigit():
            return
        process = int(words[1])


def _is_of_lab(host: Any, pid: int) -> bool:
    return any(_has_mark(host, p) or _runs_module(host, p) for p in lineage(host, pid))


def _has_mark(host: Any, process: Union[int, str]) -> bool:
    mark = (ENVIRONMENT_MARK + "=").encode()
    variables = _read(host, process, "environ").split(b"\0")
    return any(variable.startswith(mark) for variable in variables)


def _runs_module(host: Any, process: Union[int, str]) -> bool:
    words: List[bytes] = _read(host, process, "cmdline").rstrip(b"\0 ").split(b"\0")
    # ``unshare … --`` may precede the interpreter.
    return any(
        words[at : at + 3] == _BY_MODULE and words[at + 4][: len(_MODULE)] == _MODULE
        for at in range(len(words) - 4)
    )


def _read(host: Any, process: Union[int, str], name: str) -> bytes:
    """A file of a process in /proc; empty if unreadable."""
    try:
        data = host.read_bytes("/proc/{}/{}".format(process, name))
    except Exception:  # noqa: BLE001  # the collector raises OSError, a Host its own error
        return b""
    return bytes(data)
