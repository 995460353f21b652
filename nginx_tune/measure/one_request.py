"""Single requests to a server under test, outside the load."""

from __future__ import annotations

import http.client
import socket
import ssl

_LOCAL = ("127.0.0.1", 0)
"""What is said of a unix socket's ends, which have no address."""


def client_line(own: tuple[str, int], server: tuple[str, int]) -> bytes:
    """The header of a connection between two addresses and ports: PROXY protocol, version 1.

    Source: HAProxy's proxy-protocol.txt, section 2.1; nginx has read it since 1.5.12.
    """
    family = "TCP6" if ":" in own[0] else "TCP4"
    return f"PROXY {family} {own[0]} {server[0]} {own[1]} {server[1]}\r\n".encode()


class DoorConnection(http.client.HTTPConnection):
    """A connection to an address, spoken to as its listener wants it.

    With TLS no certificate is checked: behind the walls is nobody else. ``unix`` is the path of a
    socket, in the place of address and port.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        host: str,
        tls: bool,
        proxied: bool,
        timeout: float,
        unix: str | None = None,
    ) -> None:
        super().__init__(address or _LOCAL[0], port, timeout=timeout)
        self._unix = unix
        self._name = host
        self._tls = tls
        self._proxied = proxied

    def connect(self) -> None:
        """Connect; PROXY protocol first, then TLS."""
        if self._unix is None:
            super().connect()
            ends = (self.sock.getsockname(), self.sock.getpeername())
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._unix)
            ends = (_LOCAL, _LOCAL)
        if self._proxied:
            self.sock.sendall(client_line(*ends))
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.sock = context.wrap_socket(self.sock, server_hostname=self._name)
