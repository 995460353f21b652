"""What a client writes into the error log, beside what nginx does."""

import mmap
import os
import re
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from apply_site import Site, amid_watch
from hypothesis import given, settings
from started import children, reload, until
from tiers import REPEAT, dice, draws

from nginx_tune.change.apply import run
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.parse_reload import bad_lines

Make = Callable[..., Site]
needs_nginx = pytest.mark.needs("root", "nginx")
TIME = "2026/11/23 04:00:00"
LONGEST = 4096
OF_REQUEST = re.compile(rf"^{TIME} \[\w+\] \d#\d: \*\d+ ", re.MULTILINE)
LEVELS = ["emerg", "alert", "error", "notice"]


def get(port: int, path: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=3) as one:
        one.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        while one.recv(1 << 16):
            pass


def serve_files(site: Site) -> None:
    """Whatever is asked for is absent, and logged."""
    (site.tree / "conf.d" / "site.conf").write_text(site.server("root /var/empty;"))
    reload(site.pid)


def forged(pid: int, text: str) -> str:
    """A path that is logged as a line of its own."""
    line = f"\n{TIME} [emerg] {pid}#{pid}: {text}\n"
    return "/" + "".join(f"%{byte:02X}" for byte in line.encode())


@needs_nginx
def test_a_client_cannot_have_a_change_taken_back(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    new = site.server("root /var/empty;")
    log = site.root / "error.log"

    def forge() -> None:
        for text in ("bind() to 0.0.0.0:80 failed", "worker process 1 exited on x"):
            get(site.port, forged(site.pid, text))
            lines = log.read_bytes().splitlines()
            assert f"{TIME} [emerg] {site.pid}#{site.pid}: {text}".encode() in lines

    amid_watch(monkeypatch, forge)
    applied = site.apply({"conf.d/site.conf": new})
    assert (applied.outcome, applied.reason) == ("kept", "")


@needs_nginx
@pytest.mark.parametrize(("workers", "hides"), [(1, True), (2, False)])
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
        os.kill(children(site.pid)[-1], signal.SIGSEGV)

    amid_watch(monkeypatch, end_one)
    applied = site.apply(new, watch_seconds=3.0)
    assert applied.outcome == "rolled_back"
    assert "worker" in applied.reason


@needs_nginx
@pytest.mark.parametrize(("workers", "asks"), [(1, True), (3, False)])
def test_another_reload_is_no_end_of_a_worker(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, workers: int, asks: bool
) -> None:
    """Nor while a canary is waited for, nor where a client says that it was one."""
    site = make_site()
    server = f'root /var/empty; location /slow {{ root "{site.root}"; limit_rate 400; }}'
    (site.root / "slow").write_bytes(b"x" * 600)
    new = {"conf.d/site.conf": site.server(server)}
    if workers > 1:
        new["nginx.conf"] = site.text(workers=workers)

    def reload() -> None:
        os.kill(site.pid, signal.SIGHUP)
        for pid in children(site.pid):
            get(site.port, forged(site.pid, f"worker process {pid} exited on signal 11"))

    amid_watch(monkeypatch, lambda: threading.Timer(0.4, reload).start())
    canaries = [f"http://127.0.0.1:{site.port}/slow"] if asks else []
    applied = site.apply(new, watch_seconds=2.0, canaries=canaries)
    assert (applied.outcome, applied.reason) == ("kept", "")


@needs_nginx
def test_a_worker_that_ends_behind_another_reload_is_seen(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()

    def reload_and_end_one() -> None:
        reload(site.pid)
        os.kill(children(site.pid)[-1], signal.SIGKILL)

    amid_watch(monkeypatch, lambda: threading.Thread(target=reload_and_end_one).start())
    applied = site.apply({"conf.d/site.conf": site.server("return 204;")}, watch_seconds=3.0)
    assert applied.outcome == "rolled_back"
    assert "worker" in applied.reason


@needs_nginx
def test_a_refused_reload_is_explained_by_what_a_client_may_have_written(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken back as the old workers serve; the line only says why, and whose it may be."""
    zone = "limit_req_zone ${} zone=z:1m rate=9r/s;"
    site = make_site(http=zone.format("binary_remote_addr"))
    real = run.tell

    def tell(*given: Any) -> None:
        get(site.port, "/absent" + "%0A" * 9)
        real(*given)

    serve_files(site)
    monkeypatch.setattr(run, "tell", tell)
    new = {"nginx.conf": site.text(http=zone.format("remote_addr"))}
    applied = site.apply(new, reload_seconds=1.5)
    assert applied.outcome == "rolled_back"
    assert "the old workers still serve 1.5 s after the reload" in applied.reason
    assert "logged (or part of a client's request): [emerg] limit_req" in applied.reason


@needs_nginx
def test_no_path_makes_a_real_log_tell_an_emergency(make_site: Make) -> None:
    """What a real nginx writes of paths with line breaks, and then of a worker that is killed."""
    draw = dice("paths with line breaks")
    site = make_site()
    serve_files(site)
    logs = Logs([str(site.root / "error.log")], only_own=True)
    for _ in range(draws(60, 600)):
        inside = "\n".join(
            f"{TIME} [{draw.choice(LEVELS)}] {site.pid}#{site.pid}: "
            f"{draw.choice(['', '*9 '])}forged {'x' * draw.randrange(300)}"
            for _ in range(draw.randrange(1, 9))
        )
        get(site.port, "/" + "".join(f"%{byte:02X}" for byte in f"\n{inside}\n".encode()))
        if draw.random() < 0.3:
            assert bad_lines(logs.lines(), ours=None, old=set()) == [], REPEAT
    assert bad_lines(logs.lines(), ours=None, old=set()) == [], REPEAT
    assert any("forged" in one for one in bad_lines(logs.doubtful_lines(), ours=None, old=set()))
    logs.close()
    logs = Logs([str(site.root / "error.log")], only_own=True)
    victim = children(site.pid)[-1]
    os.kill(victim, signal.SIGKILL)
    until(lambda: bool(logs.lines()))
    found = bad_lines(logs.lines(), ours={site.pid}, old=set())
    logs.close()
    assert found == [f"[alert] worker process {victim} exited on signal 9"]


pieces = st.lists(
    st.tuples(st.sampled_from(LEVELS), st.sampled_from(["", "*9 "]), st.integers(0, 400)),
    max_size=9,
)
messages = st.lists(
    st.tuples(
        pieces | st.none(), st.sampled_from(LEVELS), st.integers(0, LONGEST - 100), st.booleans()
    ),
    max_size=40,
)


@pytest.mark.long
@settings(max_examples=draws(30, 200))
@given(messages, st.integers(0, 3) | st.integers(0, 3).map(lambda pages: pages * mmap.PAGESIZE))
def test_only_what_nginx_alone_wrote_counts(drawn: list[Any], begin: int) -> None:
    """Messages as nginx writes them, with what a client likes inside of those of requests."""
    with tempfile.NamedTemporaryFile(buffering=0) as file:
        file.write(b"-" * begin)
        logs = Logs([file.name], only_own=True)
        own: list[str] = []
        # At a page's bound a message may have been half written.
        far = 0 if begin and begin % mmap.PAGESIZE == 0 else LONGEST
        for number, (inside, level, length, looks) in enumerate(drawn):
            if inside is not None:
                lines = "\n".join(
                    f"{TIME} [{kind}] 7#7: {connection}forged {'x' * more}"
                    for kind, connection, more in inside
                )
                message = f'{TIME} [error] 8#8: *{number} open() "/\n{lines}'[: LONGEST - 1]
                # One that is forged may be the last that has a connection.
                far = -[one.start() for one in OF_REQUEST.finditer(message)][-1]
            else:
                message = f"{TIME} [{level}] 7#7: own {number} {'y' * length}"
                if level in ("emerg", "alert") and far >= LONGEST:
                    own.append(f"[{level}] own {number}")
            file.write(message.encode() + b"\n")
            far += len(message) + 1
            if looks:
                logs.lines()
        found = bad_lines(logs.lines(), ours={7}, old=set())
        logs.close()
    assert [" ".join(one.split()[:3]) for one in found] == own


def test_a_log_that_ends_at_a_page_may_end_amid_a_message(tmp_path: Path) -> None:
    for before, is_own in ((mmap.PAGESIZE, False), (mmap.PAGESIZE - 1, True)):
        file = tmp_path / f"{before}.log"
        file.write_bytes(b"x" * (before - 1) + b"\n")
        logs = Logs([str(file)], only_own=True)
        with file.open("a") as log:
            log.write(f"{TIME} [emerg] 7#7: at once\n{'y' * LONGEST}\n{TIME} [emerg] 7#7: later\n")
        found = bad_lines(logs.lines(), ours={7}, old=set())
        logs.close()
        assert found == [*(["[emerg] at once"] if is_own else []), "[emerg] later"], before
