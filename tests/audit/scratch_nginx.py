"""A real nginx for the proofs of rules."""

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

NGINX = "/usr/sbin/nginx"


class Reply(NamedTuple):
    status: int
    promised: int
    received: int

    @property
    def is_whole(self) -> bool:
        return self.status == 200 and self.received == self.promised


class Server:
    """A running nginx with its directory; ``port`` is its own."""

    def __init__(self, directory: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self.port = port
        self.process = process
        self.conf = directory / "nginx.conf"

    def workers(self) -> list[int]:
        """Its children, by the parent of each process: the kernel's own list may miss some."""
        try:
            return [child.pid for child in psutil.Process(self.process.pid).children()]
        except psutil.NoSuchProcess:
            return []

    def connect(self, timeout: float = 20) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def get(self, path: str) -> Reply:
        with self.connect() as peer:
            peer.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            return read_reply(peer)

    def log(self) -> str:
        return (self.directory / "error.log").read_text()


class Serve(Protocol):
    """Starts nginx on a configuration."""

    def __call__(
        self,
        conf: str,
        under: Sequence[str] = (),
        *,
        directory: Path | None = None,
        has_workers: bool = True,
    ) -> Server: ...


def read_reply(peer: socket.socket) -> Reply:
    data = b""
    try:
        while part := peer.recv(1 << 20):
            data += part
    except ConnectionResetError:
        pass
    head, _, body = data.partition(b"\r\n\r\n")
    if not head:
        return Reply(0, 0, 0)
    lines = head.decode().split("\r\n")
    lengths = [int(li.split(":")[1]) for li in lines if li.lower().startswith("content-length:")]
    return Reply(int(lines[0].split()[1]), lengths[0] if lengths else -1, len(body))


def write_conf(directory: Path, conf: str) -> Path:
    """``conf`` with DIR replaced and what a scratch nginx needs put before it."""
    path = directory / "nginx.conf"
    head = f"daemon off; user root; pid {directory}/pid;\n"
    if "error_log" not in conf:
        head += f"error_log {directory}/error.log;\n"
    path.write_text(head + conf.replace("DIR", str(directory)))
    return path


def config_test(
    path: Path, nginx: str = NGINX, under: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    command = [*under, nginx, "-t", "-p", path.parent, "-c", path]
    return subprocess.run(
        command, capture_output=True, text=True, errors="backslashreplace", check=False
    )
