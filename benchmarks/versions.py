"""The behaviour of nginx versions with ``aio threads``, ``reuseport``, and ``nginx -t``.

    python benchmarks/versions.py [--source REPOSITORY] NGINX-OR-VERSION...

An argument with a slash is a program. Any other is a release, built from REPOSITORY, a git
directory of nginx with its tags, with threads and without parts that need other libraries. Every
server listens on a free port of the loopback, and ``nginx -t`` runs while it serves. Prints a table
in Markdown. Needs strace, and gcc and make to build.
"""

import argparse
import contextlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WORKERS = 3
_TESTS = 25
"""The number of runs of ``nginx -t`` while clients connect."""
_LISTENING = "0A"
"""State of a socket in /proc/net/tcp."""


class Row(NamedTuple):
    """The results of a version."""

    version: str
    aio_threads: str
    """``accepted``, or nginx's message."""
    reuseport: str
    queues: int | None
    """Listening sockets with three workers; None without reuseport."""
    queues_late: int | None
    """The same with ``worker_processes`` after ``http``."""
    test_listens: int | None
    """Successful calls of listen() by one ``nginx -t`` beside the running server."""
    lost: int | None
    """Connections that were reset, or closed without an answer, during repeated runs of ``nginx
    -t``."""
    asked: int = 0


def look(nginx: str, work: Path) -> Row:
    """The results of a program.

    Errors: RuntimeError if it does not start.
    """
    said = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=True).stderr
    version = said.strip().rpartition("/")[2].split()[0]
    site = Site(nginx, work)
    aio = site.check(site.write(location="aio threads;"))
    reuse = site.check(site.write(listen="reuseport"))
    if reuse:
        return Row(version, aio or "accepted", reuse, None, None, None, None)
    late = site.write(listen="reuseport", is_late=True)
    with site.running(late):
        queues_late = site.listening()
    conf = site.write(listen="reuseport")
    with site.running(conf):
        queues = site.listening()
        listens = site.listens_of_a_test(conf)
        asked, lost = site.ask_during_tests(conf)
    return Row(version, aio or "accepted", "accepted", queues, queues_late, listens, lost, asked)


class Site:
    """A configuration and a free port for one program."""

    def __init__(self, nginx: str, work: Path) -> None:
        self.nginx, self.work = nginx, work
        work.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    def write(self, *, listen: str = "", location: str = "", is_late: bool = False) -> Path:
        """Write the configuration; ``is_late`` puts ``worker_processes`` after ``http``."""
        workers = f"worker_processes {WORKERS};"
        work = self.work
        temporary = " ".join(
            f"{name}_temp_path {work}/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        http = (
            f"http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{self.port} {listen};"
            f" location / {{ root {work}; {location} }} }} }}"
        )
        first, last = ("", workers) if is_late else (workers, "")
        conf = work / "nginx.conf"
        conf.write_text(
            f"daemon off; {first} error_log {work}/error.log; pid {work}/pid;"
            f" events {{ accept_mutex off; }} {http} {last}\n"
        )
        (work / "index.html").write_text("here\n")
        return conf

    def _argv(self, conf: Path) -> list[str]:
        return [self.nginx, "-p", str(self.work), "-c", str(conf)]

    def check(self, conf: Path) -> str:
        """The reason why ``nginx -t`` rejects a configuration; empty if it accepts it."""
        run = subprocess.run([*self._argv(conf), "-t"], capture_output=True, text=True, check=False)
        if not run.returncode:
            return ""
        found = re.search(
            r"\[emerg\] (?:\d+#\d+: )?(.*?)(?: in \S+:\d+)?$", run.stderr, re.MULTILINE
        )
        return found[1] if found else run.stderr.strip()

    @contextlib.contextmanager
    def running(self, conf: Path) -> Iterator[None]:
        """Run the server inside the context."""
        process = subprocess.Popen(self._argv(conf), stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 10
            while self.ask() != "answered":
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.nginx} does not serve")
                time.sleep(0.02)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)

    def listening(self) -> int:
        """The number of sockets that listen on the port."""
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        fields = [line.split() for line in lines]
        return sum(one[3] == _LISTENING and one[1].endswith(f":{self.port:04X}") for one in fields)

    def listens_of_a_test(self, conf: Path) -> int:
        """The number of successful calls of listen() in one ``nginx -t``."""
        trace = self.work / "trace"
        subprocess.run(
            ["strace", "-f", "-e", "trace=listen", "-o", trace, *self._argv(conf), "-t"],
            capture_output=True, check=True,
        )  # fmt: skip
        return len(re.findall(r"listen\(.*= 0$", trace.read_text(), re.MULTILINE))

    def ask(self) -> str:
        """The outcome of a connection: ``answered``, ``lost`` (reset or closed) or ``refused``."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as client:
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return "answered" if client.recv(99) else "lost"
        except ConnectionRefusedError:
            return "refused"
        except OSError:
            return "lost"

    def ask_during_tests(self, conf: Path) -> tuple[int, int]:
        """The numbers of connections made while ``nginx -t`` ran, and of those that were lost."""
        ended = threading.Event()
        outcomes: list[str] = []

        def client() -> None:
            while not ended.is_set():
                outcomes.append(self.ask())

        clients = [threading.Thread(target=client, daemon=True) for _ in range(8)]
        for one in clients:
            one.start()
        for _ in range(_TESTS):
            subprocess.run([*self._argv(conf), "-t"], capture_output=True, check=True)
        ended.set()
        for one in clients:
            one.join()
        return len(outcomes), sum(outcome != "answered" for outcome in outcomes)


def build(repository: str, version: str, work: Path, *, module: Path | None = None) -> str:
    """Build a release from source, with threads if it supports them.

    With ``module``, the sources of a module, it also has that module and ``rewrite``, which needs
    PCRE.
    """
    archive = subprocess.run(
        ["git", "-C", repository, "archive", f"release-{version}"], check=True, capture_output=True
    )
    subprocess.run(["tar", "x", "-C", work], input=archive.stdout, check=True)
    user = work / "src/os/unix/ngx_user.c"
    # A work-around for an old C library, which does not compile with a present one.
    user.write_text(re.sub(r"\n *cd\.current_salt\[0\].*", "", user.read_text()))
    options = (work / "auto/options").read_text()
    arguments = ["--without-http_gzip_module"]
    arguments += [f"--add-module={module}"] if module else ["--without-http_rewrite_module"]
    arguments += ["--with-threads"] if "--with-threads)" in options else []
    subprocess.run(
        ["./auto/configure", *arguments, "--with-cc-opt=-O1 -Wno-error"],
        cwd=work, check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(["make"], cwd=work, check=True, capture_output=True)
    return str(work / "objs" / "nginx")


def table(rows: list[Row]) -> str:
    """Rows as Markdown."""
    head = (
        "| nginx | `aio threads` | `reuseport` | queues of 3 workers | with `worker_processes`"
        " last | `listen()` by `nginx -t` | connections lost during 25 `nginx -t` |"
    )
    lines = [head, "|---|---|---|--:|--:|--:|--:|"]
    for row in rows:
        cells = [row.version, row.aio_threads, row.reuseport]
        numbers = (row.queues, row.queues_late, row.test_listens)
        cells += ["–" if number is None else str(number) for number in numbers]
        cells.append("–" if row.lost is None else f"{row.lost} of {row.asked}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", help="git directory of nginx")
    parser.add_argument("nginx", nargs="+", help="a program, or a release to build")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for number, word in enumerate(given.nginx):
            work = Path(directory, str(number))
            work.mkdir()
            for place in (Path(directory), work):  # workers are nobody
                place.chmod(0o755)
            if "/" not in word and not given.source:
                sys.exit(f"{word}: no program; name --source to build the release")
            nginx = word if "/" in word else build(given.source, word, work)
            rows.append(look(nginx, work / "site"))
    print(table(rows))


if __name__ == "__main__":
    main()
