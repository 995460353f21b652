"""Slow servers for nginx: an upstream and a name server."""

import contextlib
import http.server
import socket
import struct
import threading
import time


class Upstream:
    """An upstream that answers each request after some seconds; never if they are infinite."""

    def __init__(self, seconds: float) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(seconds)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class DeafListener:
    """A listener with a full accept queue: clients wait for a handshake."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(0)
        self.port = self._socket.getsockname()[1]
        self._fill = [socket.socket() for _ in range(4)]
        for one in self._fill:
            one.setblocking(False)
            with contextlib.suppress(OSError):
                one.connect(("127.0.0.1", self.port))

    def close(self) -> None:
        for one in (*self._fill, self._socket):
            one.close()


class NameServer:
    """A slow name server that answers every question with 127.0.0.1 and a time to live of 0."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                question, client = self._socket.recvfrom(512)
            except OSError:
                return
            timer = threading.Timer(self._seconds, self._answer, (question, client))
            timer.daemon = True
            timer.start()

    def _answer(self, question: bytes, client: tuple[str, int]) -> None:
        end = question.index(b"\0", 12) + 5
        kind = question[end - 4 : end - 2]
        is_v4 = kind == b"\0\1"
        header = question[:2] + struct.pack(">HHHHH", 0x8180, 1, int(is_v4), 0, 0)
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton("127.0.0.1")
        with contextlib.suppress(OSError):
            self._socket.sendto(header + question[12:end] + (record if is_v4 else b""), client)

    def close(self) -> None:
        self._socket.close()
