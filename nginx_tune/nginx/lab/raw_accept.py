"""A bare server in nginx's place: processes that accept from a listening socket.

It shows how the kernel spreads connections. Processes blocked in ``accept()`` are woken in turn;
with epoll, the first waiter in the list gets the connections again and again. Each process answers
one short request per connection. It logs its process id and a number for the connection (the
time), in the form of nginx's log of connections.

    python -m nginx_tune.nginx.lab.raw_accept --how epoll --port 8080 --workers 4 --log FILE
"""

import argparse
import contextlib
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Literal, NoReturn

from nginx_tune.host.program import die_with_parent

WaitingBy = Literal["blocking", "epoll"]

TITLE = "nginx_tune.nginx.lab.raw_accept"

_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
    b"Connection: close\r\n\r\nok\n"
)
_REQUEST_SECONDS = 5.0
_BACKLOG = 511
"""nginx's default on Linux (ngx_linux_config.h)."""


def raw_accept_command(
    how: WaitingBy, *, python: str, port: int, workers: int, log: Path
) -> list[str]:
    """The command that runs the server in the foreground."""
    command = [python, "-m", TITLE, "--how", how, "--port", str(port)]
    return [*command, "--workers", str(workers), "--log", str(log)]


def _main() -> NoReturn:
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=("blocking", "epoll"), required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    log = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", options.port))
        listener.listen(_BACKLOG)
        serve = _serve_epoll if options.how == "epoll" else _serve_blocking
        for _ in range(options.workers):
            if os.fork() == 0:
                die_with_parent()
                serve(listener, log)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        while True:
            time.sleep(3600)


def _serve_blocking(listener: socket.socket, log: int) -> NoReturn:
    """Wait in accept(): waiters are exclusive and queue at the tail, so they take turns."""
    while True:
        connection, _ = listener.accept()
        _answer(connection, log)


def _serve_epoll(listener: socket.socket, log: int) -> NoReturn:
    """Wait in epoll, in which each process keeps its place in the queue of the listener."""
    listener.setblocking(False)
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN | select.EPOLLEXCLUSIVE)
    while True:
        poller.poll()
        with contextlib.suppress(BlockingIOError):
            connection, _ = listener.accept()
            _answer(connection, log)


def _answer(connection: socket.socket, log: int) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(_REQUEST_SECONDS)
        os.write(log, b"%d %d\n" % (os.getpid(), time.monotonic_ns()))
        if connection.recv(4096):
            connection.sendall(_ANSWER)
            connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    _main()
