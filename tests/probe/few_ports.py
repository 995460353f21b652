"""Run in a network with ten local ports: two loads, their measurements a line each."""

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from nginx_tune.documents.base import encode
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Permit, Target
from nginx_tune.measure.load.probe import run_probe


class Handler(BaseHTTPRequestHandler):
    """An empty 200, on a connection that stays."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


class Server(ThreadingHTTPServer):
    """On both families, outside the ten ports."""

    address_family = socket.AF_INET6
    request_queue_size = 128
    daemon_threads: ClassVar[bool] = True


def load(address: str, connections: int) -> bytes:
    """The measurement of so many users on connections that they keep."""
    item = LoadClass(
        name="c",
        arrivals=Arrivals(kind="closed", users=connections, think_seconds=0.05),
        paths=Paths(kind="fixed", paths=["/"]),
        connections=connections,
    )
    plan = LoadPlan(
        target=Target(address=address, port=8080),
        classes=[item],
        duration_seconds=0.5,
        permit=Permit(ports=[8080]),
    )
    return encode(run_probe(plan))


def main() -> None:
    server = Server(("::", 8080), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.buffer.write(load("127.0.0.1", 40).strip().replace(b"\n", b" ") + b"\n")
    held = [socket.create_connection(("::1", 8080)) for _ in range(7)]
    sys.stdout.buffer.write(load("::1", 5).strip().replace(b"\n", b" ") + b"\n")
    for connection in held:
        connection.close()


main()
