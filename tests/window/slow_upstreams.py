"""A server that answers a while after it was asked."""

import contextlib
import socket
import threading
import time


class SlowUpstream:
    """Takes every connection; ``keeps`` them for further requests, or closes after the first."""

    def __init__(self, seconds: float, *, keeps: bool = False) -> None:
        self._seconds, self._keeps = seconds, keeps
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        version = b"1.1" if self._keeps else b"1.0"
        with client, contextlib.suppress(OSError):
            while client.recv(4096):
                time.sleep(self._seconds)
                client.sendall(b"HTTP/%b 200 OK\r\nContent-Length: 2\r\n\r\nok" % version)
                if not self._keeps:
                    return

    def close(self) -> None:
        self._server.close()
