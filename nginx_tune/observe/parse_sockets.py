"""Established connections in /proc/net/tcp and tcp6; pure, text in, socket numbers out."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

_ESTABLISHED = "01"
_INODE = 9


def parse_established(text: str, ports: AbstractSet[int]) -> set[int]:
    """Inodes of the established sockets whose own port is one of these.

    Source: proc(5), /proc/net/tcp; addresses are in hexadecimal.
    """
    wanted = {f"{port:04X}" for port in ports}
    inodes = set()
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) <= _INODE or fields[3] != _ESTABLISHED or not fields[_INODE].isdecimal():
            continue
        if fields[1].rpartition(":")[2] in wanted:
            inodes.add(int(fields[_INODE]))
    return inodes
