"""How many tasks a pool of the real nginx holds, by a pool that cannot drain (A13, A15).

A library makes every read of a pool's thread last for ever, so each task that is taken is held.
The reads are those of SSI includes: one request posts many of them in one turn of the loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from scratch_nginx import NGINX

HELD = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
ssize_t pread64(int fd, void *buffer, size_t bytes, off64_t at) {
    while (syscall(SYS_gettid) != getpid())
        pause();
    return syscall(SYS_pread64, fd, buffer, bytes, at);
}
"""
MOST_INCLUDES = 500
"""So that a page is read at once, and all that it includes is posted in that turn."""

pytestmark = pytest.mark.needs("nginx", "gcc")


class Held(NamedTuple):
    """An nginx whose pool threads never end a task."""

    pid: int
    directory: Path

    def ask(self, path: str) -> socket.socket:
        asked = socket.socket(socket.AF_UNIX)
        asked.settimeout(20)
        try:
            asked.connect(str(self.directory / "socket"))
            asked.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        except OSError:
            asked.close()
            raise
        return asked

    def hold(self, tasks: int) -> list[socket.socket]:
        """Post so many tasks; what comes back keeps them."""
        asked = []
        while tasks > 0:
            some = min(tasks, MOST_INCLUDES)
            page = self.directory / f"{some}.shtml"
            if not page.exists():  # nginx may be reading it
                page.write_text('<!--#include virtual="/held/file" -->\n' * some)
            asked.append(self.ask(f"/{page.name}"))
            tasks -= some
        return asked

    def wait_until_posted(self) -> None:
        """Until what was asked before is done: the loop takes connections in turn, and a request
        posts all of its tasks in the turn that reads it."""
        for _ in range(3):
            with self.ask("/here") as asked:
                assert asked.recv(99).startswith(b"HTTP/1.1 204")

    @property
    def refused(self) -> list[str]:
        log = (self.directory / "error.log").read_text()
        return [line.partition("thread pool ")[2] for line in log.splitlines() if "overf" in line]

    @property
    def threads(self) -> int:
        """Beside the main one."""
        return len(os.listdir(f"/proc/{self.pid}/task")) - 1  # noqa: PTH208  # only how many


@contextlib.contextmanager
def held(directory: Path, pool: str, aio: str) -> Iterator[Held]:
    source, library = directory / "held.c", directory / "held.so"
    source.write_text(HELD)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    (directory / "held").mkdir()
    (directory / "held" / "file").write_text("held\n")
    conf = directory / "nginx.conf"
    temporary = " ".join(
        f"{name}_temp_path {directory}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf.write_text(
        f"daemon off; master_process off; {pool} error_log {directory}/error.log;"
        f" pid {directory}/pid; events {{ worker_connections 1024; }}"
        f" http {{ access_log off; sendfile off; open_file_cache max=64; {temporary}"
        f" server {{ listen unix:{directory}/socket; root {directory};"
        " location / { ssi on; ssi_types *; }"
        f" location /held/ {{ {aio} output_buffers 1 512; }}"
        " location = /here { return 204; } } }"
    )
    process = subprocess.Popen(
        [NGINX, "-c", conf, "-e", "stderr"],
        env={"LD_PRELOAD": str(library)},
        stderr=subprocess.PIPE,
    )
    found = Held(process.pid, directory)
    try:
        for _ in range(500):
            with contextlib.suppress(OSError):
                found.wait_until_posted()
                break
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        yield found
    finally:
        process.send_signal(signal.SIGKILL)  # a quit waits for the pool's threads
        process.communicate()


@pytest.mark.parametrize(
    ("pool", "aio", "threads", "waiting"),
    [
        ("", "aio threads;", 32, None),
        ("thread_pool few threads=3 max_queue=0;", "aio threads=few;", 3, 0),
        ("thread_pool few threads=3 max_queue=5;", "aio threads=few;", 3, 5),
        ("thread_pool few threads=3;", "aio threads=few;", 3, None),
    ],
)
def test_io_pool_holds_its_threads_and_its_queue(
    tmp_path: Path, pool: str, aio: str, threads: int, waiting: int | None
) -> None:
    with held(tmp_path, pool, aio) as nginx, contextlib.ExitStack() as open_requests:
        assert nginx.threads == threads
        places = threads + (400 if waiting is None else waiting)
        for one in nginx.hold(places - 1):
            open_requests.enter_context(one)
        nginx.wait_until_posted()
        last = open_requests.enter_context(nginx.ask("/held/file"))
        nginx.wait_until_posted()
        assert nginx.refused == []
        if waiting is None:
            return
        last.setblocking(False)
        with pytest.raises(BlockingIOError):
            last.recv(1)
        with nginx.ask("/held/file") as refused:
            assert refused.recv(99) == b""
        name = "few" if pool else "default"
        assert nginx.refused == [f'"{name}" queue overflow: {waiting} tasks waiting']
