"""Addresses of the host inside the walls, on the only link there: ``lo``."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterable

_SIOCSIFADDR = 0x8916
_LOOPBACK_INDEX = 1


def take_addresses(addresses: Iterable[str]) -> None:
    """Have ``lo`` answer for these addresses, as the host's links do outside.

    One that the kernel does not take is left out: nginx says so itself when it binds it.
    Source: netdevice(7); in6_ifreq of linux/ipv6.h.
    """
    for number, text in enumerate(addresses, start=1):
        address = ipaddress.ip_address(text)
        with contextlib.suppress(OSError):
            if address.version == 4:  # noqa: PLR2004
                _take_ipv4(f"lo:{number}", address.packed)
            else:
                _take_ipv6(address.packed)


def _take_ipv4(alias: str, packed: bytes) -> None:
    """An alias of ``lo`` with this address."""
    # struct ifreq: the name, then a sockaddr_in; its family is in the host's byte order.
    place = struct.pack("=H2x4s8x", socket.AF_INET, packed)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16s16s8x", alias.encode(), place)
        fcntl.ioctl(sock, _SIOCSIFADDR, request)


def _take_ipv6(packed: bytes) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFADDR, struct.pack("=16sIi", packed, 128, _LOOPBACK_INDEX))
