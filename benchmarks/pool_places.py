"""The exact number of tasks that a pool of nginx accepts before it refuses one.

    python benchmarks/pool_places.py NGINX...

A library makes every read of a pool's thread last forever, so each accepted task is held. The reads
are those of SSI includes: one request posts many of them in one turn of the loop, so 65,568 tasks
need at most 330 connections, some 290 MB and a second. The file that they all read is in the page
cache, where no read waits; each is still handed to the pool, since nginx cannot know. Needs gcc,
and nginx 1.19.5 for its option ``-e``.
"""

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

POOLS = (
    ("", "aio threads;"),
    ("thread_pool few threads=3 max_queue=0;", "aio threads=few;"),
    ("thread_pool few threads=3 max_queue=5;", "aio threads=few;"),
    ("thread_pool few threads=3;", "aio threads=few;"),
)
MOST_PLACES = 65_536 + 32
_ALONE = 100
"""The number of tasks on either side of the pool's limit that each come from a separate request: if
an include is refused, the rest of its page is not posted."""

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
MOST_INCLUDES = 200
"""Small enough that a page is read at once and all of its includes are posted in that turn; with
500, only about half were."""


class Held(NamedTuple):
    """An nginx with pool threads that never end a task."""

    pid: int
    directory: Path

    def ask(self, path: str) -> socket.socket:
        """Request a path; the answer is not read."""
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
        """Post this many tasks; the returned sockets keep them."""
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
        """Wait until earlier requests were processed.

        The loop takes connections in turn, and a request posts all of its tasks in the turn that
        reads it.
        """
        for _ in range(3):
            with self.ask("/here") as asked:
                if not asked.recv(99).startswith(b"HTTP/1.1 204"):
                    raise RuntimeError("the loop does not answer")

    def wait_until_idle(self) -> None:
        """Wait until each thread waits for a task.

        A thread that has not started to wait does not count as free. Source:
        src/core/ngx_thread_pool.c, ngx_thread_pool_cycle: ``tp->waiting--``.
        """
        for _ in range(1000):
            stats = [(one / "stat").read_text() for one in Path(f"/proc/{self.pid}/task").iterdir()]
            if all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats):
                return
            time.sleep(0.01)
        raise RuntimeError("a thread of nginx's never waits")

    @property
    def refused(self) -> list[str]:
        """The lines of the error log about refused tasks."""
        log = (self.directory / "error.log").read_text()
        return [line.partition("thread pool ")[2] for line in log.splitlines() if "overf" in line]

    @property
    def threads(self) -> int:
        """The number of threads besides the main one."""
        return len(os.listdir(f"/proc/{self.pid}/task")) - 1  # noqa: PTH208  # only how many


@contextlib.contextmanager
def held(nginx: str, directory: Path, pool: str, aio: str) -> Iterator[Held]:
    """An nginx with one pool, inside the context. Needs gcc."""
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
        [nginx, "-c", conf, "-e", "stderr"],
        env={"LD_PRELOAD": str(library)},
        stderr=subprocess.PIPE,
    )
    found = Held(process.pid, directory)
    try:
        for _ in range(500):
            with contextlib.suppress(OSError):
                found.wait_until_posted()
                break
            if process.poll() is not None:
                raise RuntimeError(f"nginx ended: {process.stderr and process.stderr.read()!r}")
            time.sleep(0.01)
        yield found
    finally:
        process.send_signal(signal.SIGKILL)  # a quit waits for the pool's threads
        process.communicate()


class Row(NamedTuple):
    """One pool of one nginx."""

    version: str
    pool: str
    threads: int
    in_memory: bool | None
    """True if the page cache has all of the requested file; None if unknown."""
    posted: int
    held: int
    said: str
    """The first refusal, as in the log."""


def read_in_memory(file: Path) -> bool | None:
    """True if a non-blocking read gets all of a file. Source: preadv2(2), RWF_NOWAIT."""
    wanted = bytearray(file.stat().st_size)
    with file.open("rb") as stream:
        try:
            return os.preadv(stream.fileno(), [wanted], 0, os.RWF_NOWAIT) == len(wanted)
        except BlockingIOError:
            return False
        except OSError:  # a file system that cannot say, such as tmpfs
            return None


def look(nginx: str, directory: Path, pool: str, aio: str) -> Row:
    """Post more tasks than the pool accepts, and count those that were not refused."""
    said = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=True).stderr
    with held(nginx, directory, pool, aio) as server, contextlib.ExitStack() as requests:
        server.wait_until_idle()
        found = re.search(r"max_queue=([0-9]+)", pool)
        places = int(found[1]) + server.threads if found else MOST_PLACES
        posted = places + _ALONE
        by_pages = max(0, places - _ALONE)
        for one in server.hold(by_pages):
            requests.enter_context(one)
        server.wait_until_posted()
        for _ in range(posted - by_pages):
            requests.enter_context(server.ask("/held/file"))
        server.wait_until_posted()
        refused = server.refused
        return Row(
            version=said.strip().rpartition("/")[2].split()[0],
            pool=pool or "default",
            threads=server.threads,
            in_memory=read_in_memory(directory / "held" / "file"),
            posted=posted,
            held=posted - len(refused),
            said=refused[0] if refused else "",
        )


def table(rows: list[Row]) -> str:
    """Rows as Markdown."""
    lines = [
        "| nginx | pool | threads | file in memory | posted | held | refused with |",
        "|---|---|--:|---|--:|--:|---|",
    ]
    words = {True: "all of it", False: "no", None: "?"}
    for row in rows:
        counts = f"{row.threads} | {words[row.in_memory]} | {row.posted:,} | {row.held:,}"
        said = f"`{row.said}`" if row.said else "–"
        lines.append(f"| {row.version} | `{row.pool.rstrip(';')}` | {counts} | {said} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("nginx", nargs="+", help="a program")
    rows = []
    for nginx in parser.parse_args().nginx:
        for pool, aio in POOLS:
            with tempfile.TemporaryDirectory() as directory:
                rows.append(look(nginx, Path(directory), pool, aio))
    print(table(rows))


if __name__ == "__main__":
    main()
