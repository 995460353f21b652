"""What a configuration finds around it inside the walls: addresses, names, other servers, files."""

from __future__ import annotations

import msgspec

from nginx_tune.lab.stubs import Outgoing, Stubs


class SurroundRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted."""

    binary: str
    addresses: list[str]
    commands: list[list[str]]
    """Each tests a configuration."""
    replaced: dict[str, bytes]
    outgoing: list[Outgoing]
    cpus: list[int]
    """Of the clients, and so of the stubs."""
    sockets: list[str] = []
    """Paths of the unix sockets that the configurations listen on."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What there is now."""

    names: list[str] = []
    """That resolve for the first time."""
    stubs: Stubs = Stubs()
