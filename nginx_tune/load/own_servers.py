"""Which servers on this host nginx-tune itself started: the guard rails let these be loaded.

Every process of a lab has a mark in its environment. nginx overwrites that memory with its
title (ngx_setproctitle.c), so the mark is looked for in the listener's ancestors too.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from nginx_tune.host.door import Host, HostReadError, Missing
from nginx_tune.host.parse_listeners import (
    ListeningSocket,
    parse_listeners,
    parse_socket_link,
    parse_unix_listeners,
)
from nginx_tune.host.parse_process import parse_parent_pid
from nginx_tune.lab.lifetime import ENVIRONMENT_MARK


def is_own_server(host: Host, address: str, port: int) -> bool:
    """Whether all who listen on an address and port were started by nginx-tune.

    False when nobody listens or the listener's processes cannot be seen.
    """
    wanted = ipaddress.ip_address(address)
    return _are_own(host, {item.inode for item in _listeners(host) if item.covers(wanted, port)})


def is_own_socket(host: Host, path: str) -> bool:
    """Whether all who listen on a unix socket were started by nginx-tune; False for nobody."""
    return _are_own(host, _socket_inodes(host, path))


def _are_own(host: Host, inodes: set[int]) -> bool:
    if not inodes:
        return False
    holders: dict[int, set[int]] = {inode: set() for inode in inodes}
    for pid in _pids(host):
        for inode in _sockets(host, pid) & inodes:
            holders[inode].add(pid)
    return all(pids and all(_is_marked(host, pid) for pid in pids) for pids in holders.values())


def find_listening_pids(host: Host, address: str, port: int) -> list[int]:
    """The processes that listen on an address and port, as far as they can be seen.

    Of nginx these are the master and its workers, who hold its sockets too.
    """
    wanted = ipaddress.ip_address(address)
    inodes = {item.inode for item in _listeners(host) if item.covers(wanted, port)}
    return [pid for pid in _pids(host) if inodes and _sockets(host, pid) & inodes]


def find_socket_pids(host: Host, path: str) -> list[int]:
    """The same of a unix socket."""
    inodes = _socket_inodes(host, path)
    return [pid for pid in _pids(host) if inodes and _sockets(host, pid) & inodes]


def find_workers(host: Host, pids: Sequence[int]) -> list[int]:
    """Those of some processes that serve: the children of a master among them, else all."""
    parents = {pid: next(islice(_lineage(host, pid), 1, None), 0) for pid in pids}
    children = [pid for pid in pids if parents[pid] in parents]
    return children or list(pids)


def _socket_inodes(host: Host, path: str) -> set[int]:
    try:
        return parse_unix_listeners(host.read_text("/proc/self/net/unix"), path)
    except HostReadError:
        return set()


def _listeners(host: Host) -> list[ListeningSocket]:
    found = []
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            found += parse_listeners(host.read_text(table), byteorder=sys.byteorder)
        except HostReadError:
            continue  # a kernel without IPv6
    return found


def _pids(host: Host) -> list[int]:
    try:
        return [int(name) for name in host.list_dir("/proc") if name.isascii() and name.isdigit()]
    except HostReadError:
        return []


def _sockets(host: Host, pid: int) -> set[int]:
    """Inodes of the sockets that a process holds; none when it is another user's or gone."""
    found = set()
    try:
        for name in host.list_dir(f"/proc/{pid}/fd"):
            inode = parse_socket_link(host.read_link(f"/proc/{pid}/fd/{name}"))
            if inode is not None:
                found.add(inode)
    except HostReadError:
        pass  # what was seen until then counts
    return found


def _is_marked(host: Host, pid: int) -> bool:
    return any(_has_mark(host, ancestor) for ancestor in _lineage(host, pid))


def _lineage(host: Host, pid: int) -> Iterator[int]:
    """A process, its parent, and so on up to the first of its namespace."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        yield pid
        try:
            parent = parse_parent_pid(host.read_text(f"/proc/{pid}/stat"))
        except HostReadError:
            return
        if isinstance(parent, Missing):
            return
        pid = parent


def _has_mark(host: Host, pid: int) -> bool:
    try:
        environment = host.read_bytes(f"/proc/{pid}/environ")
    except HostReadError:
        return False
    mark = f"{ENVIRONMENT_MARK}=".encode()
    return any(variable.startswith(mark) for variable in environment.split(b"\0"))
