"""What nginx finds around it in a lab: where it is reached, the servers that it asks.

The shapes alone: what makes them (``topology``, ``stubs``) is loaded inside the walls only.
"""

from __future__ import annotations

from typing import Literal

import msgspec

LOOPBACK = "127.0.0.1"
Protocol = Literal[
    "http", "https", "grpc", "grpcs", "fastcgi", "scgi", "uwsgi", "dns", "syslog"
]  # fmt: skip


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What a site in the lab must know of the lab's topology."""

    address: str = LOOPBACK
    """Where clients reach nginx."""
    origin: str | None = None
    """``address:port`` of the origin."""
    objects: dict[str, int] = {}
    """Path and bytes of what the origin has."""
    certificate: str | None = None
    certificate_key: str | None = None


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a configuration asks."""

    protocol: Protocol
    name: str
    """As people know it."""
    address: str = ""
    """Where it is on this very host; empty for anywhere else."""
    port: int = 0
    path: str = ""
    """Of a unix socket."""
    answers_from: str = ""
    """Elsewhere, for datagrams: whoever asks wants the answer from the address that was asked."""

    @property
    def is_here(self) -> bool:
        """Whether it is on this very host."""
        return bool(self.address or self.path)


class Stubs(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    answering: list[Outgoing] = []
    silent: dict[str, str] = {}
    """Why nothing answers, by name."""
    sockets: dict[str, str] = {}
    """Where a unix socket really is, by the path that nginx knows."""
