"""The processes of this host that listen where a load goes."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Sequence
from itertools import islice

from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.lab_mark import lineage
from nginx_tune.host.parse_listeners import (
    ListeningSocket,
    parse_listeners,
    parse_socket_link,
    parse_unix_listeners,
)


def find_listening_pids(host: Host, address: str, port: int) -> list[int]:
    """Those on an address and port, as far as they can be seen.

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
    parents = {pid: next(islice(lineage(host, pid), 1, None), 0) for pid in pids}
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
