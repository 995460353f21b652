"""Ports that a server of a test will listen on.

A port that the kernel chose (bind to 0) may be a client's own a moment later, and the one next to
it may be already. nginx then listens on its other ports, tries again for two seconds, and ends.
"""

import errno
import os
import socket
from itertools import product
from pathlib import Path

from tiers import dice

# Clients are given the ports from here on (networking/ip-sysctl.rst, ip_local_port_range).
_OF_CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_240
_ELSEWHERE = 49_152
"""Of other systems (RFC 6335, 6)."""
# Workers side by side must not find the same ports, even where they have one network.
_DICE = dice(f"ports of {os.environ.get('PYTEST_XDIST_WORKER')}")


def free_port(neighbours: int = 1) -> int:
    """The first of so many neighbouring ports that nobody has, of TCP and UDP, at any address."""
    below = _below_those_of_clients()
    for _ in range(1000):
        port = _DICE.randrange(_LOWEST, below - neighbours)
        if all(_nobody_has(port + further) for further in range(neighbours)):
            return port
    raise AssertionError(f"{_LOWEST} to {below}: hardly a port is free")


def _below_those_of_clients() -> int:
    """Where nearly all are theirs, theirs too: the chance is no worse than with bind to 0."""
    if not _OF_CLIENTS.exists():
        return _ELSEWHERE
    first = int(_OF_CLIENTS.read_text(encoding="ascii").split()[0])
    return first if first > 2 * _LOWEST else _ELSEWHERE


def _nobody_has(port: int) -> bool:
    places = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))
    for kind, (family, address) in product((socket.SOCK_STREAM, socket.SOCK_DGRAM), places):
        try:
            with socket.socket(family, kind) as one:
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            # Without IPv6 nobody has the port there.
            if family == socket.AF_INET:
                raise
    return True
