"""Canaries that answer slowly, by drips, in part or never."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apply_site import Site, amid_watch

from nginx_tune.change.apply import run, watch
from nginx_tune.errors import UsageError
from nginx_tune.nginx.lab.network import make_certificate

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]
Answer = Callable[[socket.socket], None]
SECONDS = 1.5
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def well(one: socket.socket) -> None:
    one.sendall(GOOD)


def by_drips(one: socket.socket) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + b"x" * 10000:
        one.sendall(bytes([byte]))
        time.sleep(0.05)


def never(one: socket.socket) -> None:
    one.recv(1 << 16)
    one.settimeout(30)
    one.recv(1)


def in_part(one: socket.socket) -> None:
    one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")


def badly(one: socket.socket) -> None:
    one.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")


def endlessly(one: socket.socket) -> None:
    one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    while True:
        one.sendall(b"x" * (1 << 16))


class Server:
    """Answers as it is told, a connection after the other; counts them."""

    def __init__(self) -> None:
        self.answer: Answer = well
        self.asked = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                self.asked += 1
                threading.Thread(target=self._one, args=(one,), daemon=True).start()

    def _one(self, one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            one.recv(1 << 16, socket.MSG_PEEK)
            self.answer(one)
            one.shutdown(socket.SHUT_WR)
            while one.recv(1 << 16):  # else what was not read resets the connection
                pass

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(watch, "ANSWER_SECONDS", SECONDS)
    one = Server()
    yield one
    one.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file, made = tmp_path / "both.pem", make_certificate(tmp_path, names=["a.test"])
    file.write_bytes(made.key.read_bytes() + made.certificate.read_bytes())
    return file


def test_a_watch_ends_one_question_behind_its_time_at_most(
    make_site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several canaries, the last of whose answers are bad and take nearly all their time."""
    longest = 4.0
    monkeypatch.setattr(watch, "ANSWER_SECONDS", longest)
    servers = [Server() for _ in range(3)]
    times: list[float] = []

    def badly_and_late(one: socket.socket) -> None:
        time.sleep(longest * 0.9)
        badly(one)

    def begin() -> None:
        for server in servers:
            server.answer = badly_and_late
        times.append(time.monotonic())

    real = run.undo_served

    def undo(*given: Any) -> str:
        times.append(time.monotonic())
        return real(*given)

    monkeypatch.setattr(run, "undo_served", undo)
    site = make_site()
    amid_watch(monkeypatch, begin)
    edits = {"conf.d/site.conf": site.server("return 204;")}
    urls = [server.url for server in servers]
    applied = site.apply(edits, canaries=urls, watch_seconds=0.2)
    for server in servers:
        server.close()
    assert applied.outcome == "rolled_back"
    assert applied.reason.startswith(f"{urls[0]} answers 500, then does not answer within ")
    took = times[1] - times[0]
    assert longest * 0.9 < took < longest * 1.7, "twice would be two questions"


def test_looking_a_name_up_is_part_of_the_question(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    site = make_site()
    is_there_later = True
    real = socket.getaddrinfo
    seconds = 0.0
    is_asked = threading.Event()

    def look_up(host: Any, *given: Any, **named: Any) -> Any:
        if host != "slow.test":
            return real(host, *given, **named)
        is_asked.wait(seconds)
        return real("127.0.0.1", *given, **named)

    def begin() -> None:
        nonlocal seconds
        seconds = SECONDS / 3 if is_there_later else 60.0

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    amid_watch(monkeypatch, begin)
    url = server.url.replace("127.0.0.1", "slow.test")
    edits = {"conf.d/site.conf": site.server("return 204;")}
    applied = site.apply(edits, canaries=[url], watch_seconds=0.2)
    assert (applied.outcome, applied.reason) == ("kept", "")
    is_there_later, seconds = False, 0.0
    edits = {"conf.d/site.conf": site.server("return 205;")}
    applied = site.apply(edits, canaries=[url], watch_seconds=0.2)
    is_asked.set()
    assert applied.reason == f"{url} does not answer within {SECONDS:g} s"


def test_a_canary_is_asked_even_where_nothing_is_watched(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    site = make_site()
    edits = {"conf.d/site.conf": site.server("return 204;")}
    assert site.apply(edits, canaries=[server.url], watch_seconds=0.0).outcome == "kept"
    assert server.asked == 6, "five before the change"
    edits = {"conf.d/site.conf": site.server("return 205;")}
    amid_watch(monkeypatch, lambda: setattr(server, "answer", badly))
    assert site.apply(edits, canaries=[server.url], watch_seconds=0.0).outcome == "rolled_back"


def test_a_late_answer_takes_the_change_back_at_once(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    site = make_site()
    edits = {"conf.d/site.conf": site.server("return 204;")}
    for answer in (by_drips, never):
        server.answer, server.asked = well, 0
        with monkeypatch.context() as patch:
            amid_watch(patch, lambda late=answer: setattr(server, "answer", late))
            applied = site.apply(edits, canaries=[server.url], watch_seconds=60.0)
        assert applied.outcome == "rolled_back"
        assert applied.reason == f"{server.url} does not answer within {SECONDS:g} s"
        assert server.asked == 6, "five before the change"


def test_an_answer_is_late_whichever_clock_says_so_first(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """The socket's, where who waits is woken later than asked: seen on a busy host."""

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return super().wait(None if timeout is None else timeout + 20)

    monkeypatch.setattr(watch.threading, "Event", Event)
    server.answer = never
    assert str(watch._ask(server.url, 0.2)) == "does not answer within 0.2 s"


def test_the_first_bad_answer_before_the_change_refuses_it(make_site: Make, server: Server) -> None:
    site = make_site()
    hows = {badly: "answers 500", in_part: "does not answer", by_drips: "does not answer within"}
    for number, (answer, how) in enumerate(hows.items(), 1):
        server.answer = answer
        with pytest.raises(UsageError, match=f"{how}.* before the change"):
            site.apply({"conf.d/site.conf": site.server("return 204;")}, canaries=[server.url])
        assert server.asked == number


def test_one_bad_answer_is_no_reason(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    def bad_once(one: socket.socket) -> None:
        server.answer = well
        badly(one)

    site = make_site()
    edits = {"conf.d/site.conf": site.server("return 204;")}
    amid_watch(monkeypatch, lambda: setattr(server, "answer", bad_once))
    assert site.apply(edits, canaries=[server.url], watch_seconds=0.1).outcome == "kept"


def test_an_endless_answer_is_an_answer(make_site: Make, server: Server) -> None:
    site = make_site()
    server.answer = endlessly
    edits = {"conf.d/site.conf": site.server("return 204;")}
    assert site.apply(edits, canaries=[server.url]).outcome == "kept"


@pytest.mark.needs("openssl")
def test_a_canary_in_tls(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, server: Server, certificate: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def encrypted(one: socket.socket) -> None:
        with context.wrap_socket(one.dup(), server_side=True) as wrapped:
            wrapped.recv(1 << 16)
            wrapped.sendall(GOOD)

    site = make_site()
    server.answer = encrypted
    url = server.url.replace("http:", "https:")
    edits = {"conf.d/site.conf": site.server("return 204;")}
    monkeypatch.setattr(watch, "ANSWER_SECONDS", 30.0)  # as long as a busy machine may take
    assert site.apply(edits, canaries=[url]).outcome == "kept"
    monkeypatch.setattr(watch, "ANSWER_SECONDS", SECONDS)
    server.answer = never  # no handshake
    with pytest.raises(UsageError, match="does not answer within"):
        site.apply({"conf.d/site.conf": site.server("return 205;")}, canaries=[url])
