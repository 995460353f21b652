"""A real nginx for the proofs of rules."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scratch_nginx import NGINX, Server, write_conf


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Start nginx on a configuration; ``PORT`` and ``DIR`` in it are replaced."""
    started: list[subprocess.Popen[bytes]] = []

    def start(conf: str) -> Server:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        path = write_conf(tmp_path, conf.replace("PORT", str(port)))
        process = subprocess.Popen([NGINX, "-p", tmp_path, "-c", path])
        started.append(process)
        server = Server(tmp_path, port, process)
        for _ in range(200):
            try:
                server.connect().close()
            except ConnectionRefusedError:
                time.sleep(0.02)
            else:
                return server
        raise AssertionError(server.log())

    yield start
    for process in started:
        for worker in Server(tmp_path, 0, process).workers():
            subprocess.run(["kill", "-CONT", str(worker)], check=False)
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
