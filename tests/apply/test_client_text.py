"""What a client writes into the error log, beside what nginx does."""

from __future__ import annotations

import mmap
import os
import random
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site, amid_watch

from nginx_tune.turnover.logs import Logs
from nginx_tune.turnover.parse_reload import bad_lines

Make = Callable[..., Site]
needs_nginx = pytest.mark.needs("root", "nginx")
TIME = "2026/11/23 04:00:00"
LONGEST = 2048
OF_REQUEST = re.compile(rf"^{TIME} \[\w+\] \d#\d: \*\d+ ", re.MULTILINE)


def get(port: int, path: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=3) as one:
        one.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        while one.recv(1 << 16):
            pass


def forged(pid: int, text: str) -> str:
    """A path that is logged as a line of its own."""
    line = f"\n{TIME} [emerg] {pid}#{pid}: {text}\n"
    return "/" + "".join(f"%{byte:02X}" for byte in line.encode())


@needs_nginx
@pytest.mark.parametrize("text", ["bind() to 0.0.0.0:80 failed", "worker process 1 exited on x"])
def test_a_client_cannot_have_a_change_taken_back(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    site = make_site()
    new = site.server("root /var/empty;")
    log = site.root / "error.log"

    def forge() -> None:
        get(site.port, forged(site.pid, text))
        lines = log.read_bytes().splitlines()
        assert f"{TIME} [emerg] {site.pid}#{site.pid}: {text}".encode() in lines

    amid_watch(monkeypatch, forge)
    applied = site.apply({"conf.d/site.conf": new})
    assert (applied.outcome, applied.reason) == ("kept", "")


@needs_nginx
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("hides", [False, True])
def test_a_worker_that_ends_takes_the_change_back_whatever_stands_around_it(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, workers: int, hides: bool
) -> None:
    site = make_site()
    new = {"conf.d/site.conf": site.server("root /var/empty;")}
    if workers > 1:
        new["nginx.conf"] = site.text(workers=workers)

    def end_one() -> None:
        if hides:  # whatever comes within a message's length behind a request's is not believed
            get(site.port, "/absent")
        children = Path(f"/proc/{site.pid}/task/{site.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGSEGV)

    amid_watch(monkeypatch, end_one)
    applied = site.apply(new, watch_seconds=3.0)
    assert applied.outcome == "rolled_back"
    assert "worker" in applied.reason


@needs_nginx
def test_another_reload_is_no_end_of_a_worker(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    amid_watch(monkeypatch, lambda: os.kill(site.pid, signal.SIGHUP))
    new = {"nginx.conf": site.text(workers=3), "conf.d/site.conf": site.server("return 204;")}
    applied = site.apply(new, watch_seconds=1.5)
    assert (applied.outcome, applied.reason) == ("kept", "")


@pytest.mark.parametrize("seed", range(20))
def test_only_what_nginx_alone_wrote_counts(tmp_path: Path, seed: int) -> None:
    """Messages as nginx writes them, with what a client likes inside of those of requests."""
    draw = random.Random(seed)
    file = tmp_path / "error.log"
    file.write_bytes(b"")
    logs = Logs([str(file)], only_own=True)
    own: list[str] = []
    far = LONGEST
    for number in range(200):
        if draw.random() < 0.5:
            inside = "\n".join(
                f"{TIME} [{draw.choice(['emerg', 'alert', 'error'])}] 7#7: "
                f"{draw.choice(['', '*9 '])}forged {'x' * draw.randrange(400)}"
                for _ in range(draw.randrange(9))
            )
            message = f'{TIME} [error] 8#8: *{number} open() "/{inside}" failed'[: LONGEST - 1]
            # A line of the client's that has a connection is as good as nginx's own.
            far = -max(found.start() for found in OF_REQUEST.finditer(message))
        else:
            level = draw.choice(["emerg", "alert", "notice"])
            message = f"{TIME} [{level}] 7#7: own {number} {'y' * draw.randrange(1500)}"
            if level != "notice" and far >= LONGEST:
                own.append(f"[{level}] own {number}")
        with file.open("a") as log:
            log.write(f"{message}\n")
        far += len(message) + 1
        if draw.random() < 0.3:
            logs.lines()
    found = bad_lines(logs.lines(), ours={7}, old=set())
    logs.close()
    assert [" ".join(one.split()[:3]) for one in found] == own
    assert own, "some are far enough from every request"


@pytest.mark.parametrize(("before", "is_own"), [(mmap.PAGESIZE, False), (mmap.PAGESIZE - 1, True)])
def test_a_log_that_ends_at_a_page_may_end_amid_a_message(
    tmp_path: Path, before: int, *, is_own: bool
) -> None:
    file = tmp_path / "error.log"
    file.write_bytes(b"x" * (before - 1) + b"\n")
    logs = Logs([str(file)], only_own=True)
    with file.open("a") as log:
        log.write(f"{TIME} [emerg] 7#7: at once\n{'y' * LONGEST}\n{TIME} [emerg] 7#7: later\n")
    found = bad_lines(logs.lines(), ours={7}, old=set())
    logs.close()
    assert found == [*(["[emerg] at once"] if is_own else []), "[emerg] later"]
