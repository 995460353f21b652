"""Single requests to a server under test, outside the load."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading

from nginx_tune import __version__
from nginx_tune.documents.loadplan import Target

AGENT = f"nginx-tune-probe/{__version__}"
"""What the load says too (``probes/src/request.rs``): a site may refuse a client without a name,
and must not answer a single request otherwise than the load."""

_LOCAL = ("127.0.0.1", 0)
"""What is said of a unix socket's ends, which have no address."""


def client_line(own: tuple[str, int], server: tuple[str, int]) -> bytes:
    """The header of a connection between two addresses and ports: PROXY protocol, version 1.

    Source: HAProxy's proxy-protocol.txt, section 2.1; nginx has read it since 1.5.12.
    """
    family = "TCP6" if ":" in own[0] else "TCP4"
    return f"PROXY {family} {own[0]} {server[0]} {own[1]} {server[1]}\r\n".encode()


class TargetConnection(http.client.HTTPConnection):
    """A connection to a target, spoken to as its listener wants it.

    With TLS no certificate is checked: behind the walls is nobody else.
    """

    def __init__(self, target: Target, *, timeout: float) -> None:
        """``timeout`` bounds all that is done with it, in seconds, and not each answer's part."""
        super().__init__(target.address or _LOCAL[0], target.port, timeout=timeout)
        self._target = target
        self._watched: socket.socket | None = None
        self._watch = threading.Timer(timeout, self._end)
        self._watch.daemon = True
        self._watch.start()

    def _end(self) -> None:
        """Have whoever waits for the other side see an end."""
        if self._watched is not None:
            with contextlib.suppress(OSError):
                self._watched.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        """Close it; nothing watches its time any more."""
        self._watch.cancel()
        self.close()

    def connect(self) -> None:
        """Connect; PROXY protocol first, then TLS."""
        if self._target.unix is None:
            super().connect()
            ends = (self.sock.getsockname(), self.sock.getpeername())
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._target.unix)
            ends = (_LOCAL, _LOCAL)
        if self._target.proxy_protocol is not None:
            self.sock.sendall(client_line(*ends))
        if self._target.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.sock = context.wrap_socket(
                self.sock, server_hostname=self._target.host.partition(":")[0]
            )
        self._watched = self.sock  # its response may take it over

    def get(self, url: str) -> http.client.HTTPResponse:
        """The answer to the request that a class of the load makes by default."""
        self.putrequest("GET", url, skip_host=True, skip_accept_encoding=True)
        for name, value in request_headers(self._target):
            self.putheader(name, value)
        self.endheaders()
        return self.getresponse()


def request_headers(target: Target) -> list[tuple[str, str]]:
    """What the load says of itself by default, in its order."""
    return [("Host", target.host), ("User-Agent", AGENT), ("Accept", "*/*")]
