"""Clients that hold a server's connections."""

import contextlib
import socket
from collections.abc import Iterator

from scratch_nginx import Server

HELD_SECONDS = 1.0
"""For a reply that will never come."""


def ask(server: Server, path: str, patience: float = 30) -> socket.socket:
    """A connection on which a request was sent."""
    peer = server.connect(patience)
    peer.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    return peer


def status_of(peer: socket.socket) -> int | None:
    """The status that has come; null for a reset or nothing."""
    try:
        head = peer.recv(64)
    except (ConnectionResetError, TimeoutError):
        return None
    return int(head.split()[1]) if head else None


@contextlib.contextmanager
def transfers(server: Server, paths: list[str], patience: float = 30) -> Iterator[list[int | None]]:
    """One request after the other, all held open; the status of each."""
    with contextlib.ExitStack() as held:
        peers = []
        statuses = []
        for path in paths:
            peer = held.enter_context(ask(server, path, patience))
            peers.append(peer)
            statuses.append(status_of(peer))
        yield statuses
