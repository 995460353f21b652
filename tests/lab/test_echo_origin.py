"""The origin's WebSockets: frames, delays and stalls, and what the stubs echo."""

from __future__ import annotations

import asyncio
import os
import socket
import time

import pytest
from test_topologies import serving

from nginx_tune.documents.lab import Lab, LabEcho, LabOrigin
from nginx_tune.errors import UsageError
from nginx_tune.lab.check import check_lab
from nginx_tune.lab.echo_origin import echo_moment
from nginx_tune.lab.stub_server import Echo
from nginx_tune.lab.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Frame,
    FrameReader,
    accept_key,
    echo_of,
    server_frame,
)

OPENING = (
    b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def client_frame(opcode: int, payload: bytes) -> bytes:
    """As a client sends it: the head of a server's, with a mask."""
    head = bytearray(server_frame(opcode, payload)[: -len(payload) or None])
    head[1] |= 0x80
    mask = os.urandom(4)
    return bytes(head) + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_of_every_length_are_read_wherever_they_are_cut(length: int) -> None:
    payload = os.urandom(length)
    data = client_frame(BINARY, payload) + client_frame(PING, b"there?")
    for cut in {1, 2, 5, 9, 13, len(data) // 2, len(data) - 1}:
        reader = FrameReader()
        frames = [*reader.feed(data[:cut]), *reader.feed(data[cut:])]
        assert frames == [Frame(BINARY, payload), Frame(PING, b"there?")]
    assert echo_of(Frame(TEXT, payload)) == server_frame(TEXT, payload)


def test_what_no_client_may_send_is_refused() -> None:
    with pytest.raises(ValueError, match="without a mask"):
        list(FrameReader().feed(server_frame(TEXT, b"hello")))
    with pytest.raises(ValueError, match="too long"):
        list(FrameReader().feed(bytes((0x82, 0xFF)) + (1 << 40).to_bytes(8, "big")))


def test_the_key_is_answered_as_the_standard_has_it() -> None:
    assert accept_key(OPENING) == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("came", "moment"),
    [(0.0, 0.1), (3.85, 3.95), (3.9, 5.0), (4.2, 5.0), (4.95, 5.05), (8.95, 10.0)],
)
def test_what_is_due_in_a_stall_comes_at_its_end(came: float, moment: float) -> None:
    echo = LabEcho(delay_seconds=0.1, stall_seconds=1.0, stall_every_seconds=5.0)
    assert echo_moment(echo, came) == pytest.approx(moment)
    assert echo_moment(LabEcho(delay_seconds=0.1), came) == pytest.approx(came + 0.1)


def test_the_origin_echoes_after_its_delay_and_answers_pings_and_closes() -> None:
    with (
        serving(LabOrigin(echo=LabEcho(delay_seconds=0.2))) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.sendall(OPENING)
        said = client.recv(4096)
        assert said.startswith(b"HTTP/1.1 101 ")
        assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in said
        started = time.monotonic()
        client.sendall(client_frame(TEXT, b"hello") + client_frame(PING, b"1"))
        wanted = server_frame(TEXT, b"hello") + server_frame(PONG, b"1")
        came = b""
        while len(came) < len(wanted):
            came += client.recv(4096)
        assert came == wanted
        assert time.monotonic() - started >= 0.2
        client.sendall(client_frame(CLOSE, b"\x03\xe8bye"))
        assert client.recv(4096) == server_frame(CLOSE, b"\x03\xe8")
        assert client.recv(4096) == b""


class Taken(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.ended = b"", ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


def test_the_stub_echoes_frames_as_a_server_and_text_as_it_is() -> None:
    for sent, echoed, ended in (
        (b"rehearsal-echo!\n", b"rehearsal-echo!\n", ""),
        (client_frame(TEXT, b"hello"), server_frame(TEXT, b"hello"), ""),
        (client_frame(CLOSE, b"\x03\xe8"), server_frame(CLOSE, b"\x03\xe8"), "closed"),
        (server_frame(TEXT, b"no mask"), b"", "aborted"),
    ):
        stub, transport = Echo(), Taken()
        stub.connection_made(transport)
        for at in range(len(OPENING)):
            stub.data_received(OPENING[at : at + 1])
        head = transport.written
        assert head.endswith(b"\r\n\r\n")
        for at in range(len(sent)):
            stub.data_received(sent[at : at + 1])
        assert (transport.written[len(head) :], transport.ended) == (echoed, ended)


@pytest.mark.parametrize(
    ("echo", "message"),
    [
        (LabEcho(delay_seconds=-1.0), "origin.echo.delay_seconds"),
        (LabEcho(stall_seconds=5.0), "origin.echo.stall_seconds"),
        (LabEcho(stall_seconds=-1.0), "origin.echo.stall_seconds"),
    ],
)
def test_an_echo_that_cannot_be_is_refused(echo: LabEcho, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_lab(Lab(origin=LabOrigin(echo=echo)), "lab: ")
