"""What every worker has open before it serves anybody: log files and listening sockets.

The master opens them, and each worker is forked with all of them, those of other servers too.
Source: ngx_init_cycle (``open_files``, ``listening``), ngx_conf_open_file.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.quantities import parameter, parse_count
from nginx_tune.conf.sockets import SocketName, socket_name
from nginx_tune.conf.tree import ConfTree

_LOGS = frozenset({"access_log", "error_log"})
_NO_FILES = ("off", "stderr", "memory:")


class KeptOpen(NamedTuple):
    """Descriptors by what they are of."""

    logs: int
    sockets: int
    """One for each address and port; with ``reuseport`` a worker has as many as there are
    workers (ngx_clone_listening; none is closed)."""


def kept_open(tree: ConfTree) -> KeptOpen:
    """The distinct log files, at all levels and of all modules, and the listening sockets."""
    if not tree.names & {"access_log", "error_log", "open_log_file_cache", "listen"}:
        return KeptOpen(0, 0)
    files: set[str] = set()
    for_names = 0
    for line in tree.main.walk():
        if line.name in _LOGS and line.args:
            files |= {one for one in [_file(line, tree)] if one}
        elif line.name == "open_log_file_cache":
            # Logs with variables in their names are opened while it serves, and kept by this.
            for_names += parse_count(parameter(line.args, "max") or "") or 0
    sockets = sum(_sockets(one.socket) for one in listeners(tree) if one.has_socket)
    return KeptOpen(len(files) + for_names, sockets + _other_sockets(tree))


def _file(line: Directive, tree: ConfTree) -> str:
    """What tells a log's descriptor from others; empty for one that takes none to keep."""
    path = line.value
    if path.startswith("syslog:"):  # a socket for each line (ngx_syslog_process_conf)
        return f"{line.file}:{line.start} {path}"
    if path.startswith(_NO_FILES) or "$" in path:
        return ""
    return tree.opened_name(path)


def _other_sockets(tree: ConfTree) -> int:
    """Those of ``stream`` and ``mail``."""
    found = {
        (socket_name(line.value), "udp" in line.args[1:])
        for module in ("stream", "mail")
        for part in tree.main.all(module)
        for line in (part.block or Block([])).walk()
        if line.name == "listen" and line.args
    }
    return sum(_sockets(name) for name, _ in found)


def _sockets(name: SocketName) -> int:
    """How many there are: a range of ports is a socket each."""
    return len(name.ports) or 1
