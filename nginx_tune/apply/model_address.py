"""Where an nginx listens; pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

Speaks = Literal["http", "tls", "unknown"]


class Address(NamedTuple):
    """A ``listen`` of the configuration."""

    host: str
    """``*`` for every address."""
    port: int
    path: str
    """Of a socket file; empty otherwise."""
    speaks: Speaks

    def is_at(self, address: str, port: int) -> bool:
        """Whether it is the listener at an address."""
        host = self.host.strip("[]")
        return self.port == port and (host == address or (host == "*" and address == "0.0.0.0"))  # noqa: S104


class Place(NamedTuple):
    """A listening socket."""

    address: str
    port: int
    path: str
    speaks: Speaks

    @property
    def name(self) -> str:
        """For people."""
        if self.path:
            return f"unix:{self.path}"
        return (
            f"[{self.address}]:{self.port}"
            if ":" in self.address
            else (f"{self.address}:{self.port}")
        )
