"""The claims of the rules about protocols (WebSockets, early data, HTTP/3), on real nginx."""

import base64
import contextlib
import hashlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from nginx_versions import Nginx, every_version, since
from origin import Request, ok, run_origin
from proving import fires
from rows import each_row
from scratch_nginx import Serve, Server
from started import until

from nginx_tune.audit.rule import linux

pytestmark = pytest.mark.needs("nginx", "root")

CONF = "worker_processes 1; events {} http { server { listen 127.0.0.1:PORT; %s } }"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
APPLICATION_DATA = 23
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def socket_server(request: Request, peer: socket.socket) -> bytes:
    """The server's side of a WebSocket handshake by RFC 6455, 4.2.1."""
    line, *rest = request.head.split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in
              (one.partition(":") for one in rest)}  # fmt: skip
    names = {word.strip().lower() for word in fields.get("connection", "").split(",")}
    if not line.endswith("HTTP/1.1") or "upgrade" not in names:
        return ok(b"a page")
    if fields.get("upgrade", "").lower() != "websocket":
        return ok(b"a page")
    digest = hashlib.sha1(  # noqa: S324  # the handshake asks for it
        (fields["sec-websocket-key"] + GUID).encode()
    ).digest()
    accept = base64.b64encode(digest).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


def status_of_handshake(server: Server) -> int:
    with server.connect() as peer:
        peer.sendall(
            b"GET /live HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY.encode() + b"\r\n\r\n"
        )
        return int(peer.recv(65536).split()[1])


@every_version
@each_row(
    ("lines", "is_opened"),
    [
        ('proxy_set_header Connection "upgrade";', False),
        ("proxy_http_version 1.1;", False),
        ('proxy_http_version 1.0; proxy_set_header Connection "upgrade";', False),
        ('proxy_http_version 1.1; proxy_set_header Connection "upgrade";', True),
    ],
)
def test_px_upgrade_http10_opens_no_websocket(
    serve: Serve, nginx: Nginx, lines: str, *, is_opened: bool
) -> None:
    if nginx.number >= (1, 29, 7) and "proxy_http_version" not in lines:
        is_opened = True  # it asks for HTTP/1.1 by itself
    with run_origin(socket_server) as origin:
        server = serve(
            CONF % f"location / {{ proxy_pass http://127.0.0.1:{origin.port}; "
            f"proxy_set_header Upgrade $http_upgrade; {lines} }}"
        )
        assert status_of_handshake(server) == (101 if is_opened else 200)
    facts = linux(version=nginx.version)
    assert fires("px-upgrade-http10", server.conf, facts) is not is_opened


def s_client(port: int, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_3", *arguments],
        input=text, capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    return done.stdout


@contextlib.contextmanager
def relay(port: int) -> Iterator[tuple[int, bytearray]]:
    """Somebody on the way to a server: the port to ask, and what one client sent."""
    sent = bytearray()

    def copy(source: socket.socket, to: socket.socket, kept: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                if kept is not None:
                    kept += part
                to.sendall(part)
            to.shutdown(socket.SHUT_WR)

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", port)) as server:
                back = threading.Thread(target=copy, args=(server, client, None), daemon=True)
                back.start()
                copy(client, server, sent)
                back.join(20)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], sent
        thread.join(20)


def first_flight(sent: bytes) -> bytes:
    """The records of a TLS 1.3 client up to the early data (RFC 8446, 5.1)."""
    at = 0
    while at < len(sent):
        kind, length = sent[at], int.from_bytes(sent[at + 3 : at + 5], "big")
        at += 5 + length
        if kind == APPLICATION_DATA:
            return sent[:at]
    raise AssertionError("no early data was sent")


@pytest.mark.needs("openssl")
@every_version
@each_row("is_told", [False, True])
def test_tls_early_data_replay_has_an_order_placed_twice(
    serve: Serve, nginx: Nginx, certificate: tuple[Path, Path], tmp_path: Path, *, is_told: bool
) -> None:
    """Who keeps what a client sent first can send it again, and knows no key."""
    line = "proxy_set_header Early-Data $ssl_early_data;" if is_told else ""
    order = "GET /order HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    (tmp_path / "early").write_bytes(order.encode())
    session = str(tmp_path / "session")

    with run_origin() as origin:
        server = serve(
            f"worker_processes 1; events {{}} http {{ server {{ listen 127.0.0.1:PORT ssl; "
            f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]}; "
            f"ssl_protocols TLSv1.3; ssl_early_data on; "
            f"location / {{ proxy_pass http://127.0.0.1:{origin.port}; {line} }} }} }}"
        )

        def orders() -> list[str]:
            return [one.head for one in origin.requests if one.path == "/order"]

        first = order.replace("order", "first")
        s_client(server.port, "-sess_out", session, "-ign_eof", text=first)
        early = ("-sess_in", session, "-early_data", str(tmp_path / "early"), "-ign_eof")
        with relay(server.port) as (port, sent):
            assert "Early data was accepted" in s_client(port, *early)
        assert len(orders()) == 1
        with server.connect() as peer:
            peer.sendall(first_flight(bytes(sent)))
            until(lambda: len(orders()) > 1)
    assert ("early-data: 1" in orders()[1].lower()) is is_told
    assert fires("tls-early-data-replay", server.conf) is not is_told


@since("1.26")
@each_row("is_announced", [False, True])
def test_ls_quic_not_announced_is_in_no_answer(
    serve: Serve, nginx: Nginx, certificate: tuple[Path, Path], *, is_announced: bool
) -> None:
    line = "add_header Alt-Svc 'h3=\":PORT\"; ma=86400';" if is_announced else ""
    server = serve(
        f"worker_processes 1; events {{}} http {{ server {{ listen 127.0.0.1:PORT ssl; "
        f"listen 127.0.0.1:PORT quic reuseport; ssl_certificate {certificate[0]}; "
        f"ssl_certificate_key {certificate[1]}; {line} return 200 here; }} }}"
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with server.connect() as plain, context.wrap_socket(plain) as peer:
        peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while part := peer.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")
    assert (b"\r\nAlt-Svc: h3=" in answer) is is_announced
    facts = linux(version=nginx.version)
    assert fires("ls-quic-not-announced", server.conf, facts) is not is_announced
