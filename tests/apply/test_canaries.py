"""Canaries that answer slowly, by drips, in part or never."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apply_site import Site, amid_watch

from nginx_tune.apply import canary
from nginx_tune.errors import UsageError

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]
Answer = Callable[[socket.socket], None]
SECONDS = 0.6
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
    monkeypatch.setattr(canary, "ANSWER_SECONDS", SECONDS)
    one = Server()
    yield one
    one.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file = tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=a.test", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    file.write_bytes((tmp_path / "key").read_bytes() + (tmp_path / "cert").read_bytes())
    return file


@pytest.mark.parametrize("answer", [by_drips, never])
def test_a_late_answer_takes_the_change_back_at_once(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, server: Server, answer: Answer
) -> None:
    site = make_site()
    amid_watch(monkeypatch, lambda: setattr(server, "answer", answer))
    edits = {"conf.d/site.conf": site.server("return 204;")}
    applied = site.apply(edits, canaries=[server.url], watch_seconds=60.0)
    assert applied.outcome == "rolled_back"
    assert applied.reason == f"{server.url} does not answer within {SECONDS:g} s"
    assert server.asked == 6, "five before the change"


@pytest.mark.parametrize(
    ("answer", "how"),
    [(badly, "answers 500"), (in_part, "does not answer"), (by_drips, "does not answer within")],
)
def test_the_first_bad_answer_before_the_change_refuses_it(
    make_site: Make, server: Server, answer: Answer, how: str
) -> None:
    site = make_site()
    server.answer = answer
    with pytest.raises(UsageError, match=f"{how}.* before the change"):
        site.apply({"conf.d/site.conf": site.server("return 204;")}, canaries=[server.url])
    assert server.asked == 1


def test_a_bad_last_answer_is_asked_for_once_more(
    make_site: Make, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    site = make_site()
    edits = {"conf.d/site.conf": site.server("return 204;")}
    amid_watch(monkeypatch, lambda: setattr(server, "answer", badly))
    applied = site.apply(edits, canaries=[server.url], watch_seconds=0.1)
    assert (applied.outcome, applied.reason) == ("rolled_back", f"{server.url} answers 500")


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
def test_a_canary_in_tls(make_site: Make, server: Server, certificate: Path) -> None:
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
    assert site.apply(edits, canaries=[url]).outcome == "kept"
    server.answer = never  # no handshake
    with pytest.raises(UsageError, match="does not answer within"):
        site.apply({"conf.d/site.conf": site.server("return 205;")}, canaries=[url])
