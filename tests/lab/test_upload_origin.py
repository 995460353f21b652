"""Bodies as the lab's origin takes them: counted to the last byte, however they are framed."""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from nginx_tune.documents.lab import UPLOADS_PATH, LabOrigin
from nginx_tune.nginx.lab.origin import OriginRequest


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    request = OriginRequest(address="127.0.0.1", origin=LabOrigin(), seed=1)
    argv = [
        sys.executable,
        "-m",
        "nginx_tune.nginx.lab.origin",
        msgspec.json.encode(request).decode(),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def said(port: int, *parts: bytes) -> bytes:
    """All that the origin says to these parts, the connection's end included."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"".join(parts))
        answer = b""
        # It may have closed already, with something unread.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                answer += piece
        return answer


def request(method: str, path: str, *fields: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", *fields, "", ""]).encode()


def test_a_body_of_a_length_is_counted(port: int) -> None:
    for method, size in itertools.product(("POST", "PUT"), (0, 1, 300_000)):
        head = request(method, UPLOADS_PATH, f"content-length: {size}")
        again = request(method, UPLOADS_PATH, "Content-Length: 7")
        answers = said(port, head, b"x" * size, again + b"1234567")
        assert answers.count(b"HTTP/1.1 200 OK\r\n") == 2, (method, size)
        assert b"X-Upload-Bytes: %d\r\n" % size in answers, (method, size)
        assert answers.endswith(b"X-Upload-Bytes: 7\r\n\r\n"), (method, size)


def test_a_body_in_chunks_is_counted_without_their_framing(port: int) -> None:
    head = request("POST", UPLOADS_PATH, "Transfer-Encoding: chunked")
    answer = said(port, head, b"3\r\nabc\r\n", b"1F4;x=y\r\n" + b"z" * 500 + b"\r\n", b"0\r\n\r\n")
    assert b"X-Upload-Bytes: 503\r\n" in answer


def test_a_body_that_ends_before_its_end_has_no_answer(port: int) -> None:
    cut = request("POST", UPLOADS_PATH, "Content-Length: 100"), b"x" * 99
    assert said(port, *cut) == b""
    chunked = request("POST", UPLOADS_PATH, "Transfer-Encoding: chunked"), b"5\r\nabc"
    assert said(port, *chunked) == b""


def test_connections_of_old_clients_and_of_those_who_ask_so_are_closed(port: int) -> None:
    for head in (
        request("POST", UPLOADS_PATH, "Content-Length: 1", version="1.0"),
        request("POST", UPLOADS_PATH, "Content-Length: 1", "Connection: close"),
    ):
        answers = said(port, head + b"x", request("GET", "/none"))
        assert answers.count(b"HTTP/1.1 ") == 1


def test_what_is_no_upload_is_refused(port: int) -> None:
    for parts in (
        (request("POST", "/f00000.bin", "Content-Length: 1"), b"x"),
        (request("POST", UPLOADS_PATH, "Content-Length: many"),),
        (request("POST", UPLOADS_PATH, "Content-Length: -1"),),
        (request("POST", UPLOADS_PATH, "Transfer-Encoding: chunked"), b"3\r\nabcde\r\n0\r\n\r\n"),
        (request("POST", UPLOADS_PATH, "Transfer-Encoding: chunked"), b"-5\r\n"),
        (request("DELETE", UPLOADS_PATH),),
    ):
        assert said(port, *parts).startswith(b"HTTP/1.1 400 "), parts
