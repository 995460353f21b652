"""Frames of WebSocket, and what the stubs echo."""

import asyncio

import pytest
from tiers import dice

from nginx_tune.nginx.lab.stub_server import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Echo,
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
    mask = dice("mask").randbytes(4)
    return bytes(head) + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_of_every_length_are_read_wherever_they_are_cut(length: int) -> None:
    payload = dice(length).randbytes(length)
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
        (client_frame(PING, b"1"), server_frame(PONG, b"1"), ""),
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
