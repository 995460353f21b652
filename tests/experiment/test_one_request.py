"""Single requests: what is said on a connection before HTTP."""

import socket
import threading
from pathlib import Path

import pytest

from nginx_tune import __version__
from nginx_tune.documents.loadplan import ProxyProtocol, Target
from nginx_tune.experiment.survey import TargetConnection, request_headers


@pytest.mark.parametrize("proxied", [True, False])
def test_the_line_goes_first_where_the_listener_wants_it(proxied: bool) -> None:
    got: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        stream, _ = listener.accept()
        with stream:
            text = b""
            while b"\r\n\r\n" not in text:
                text += stream.recv(1000)
            got.append(text)
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        spoken = ProxyProtocol(version=1) if proxied else None
        target = Target(address="127.0.0.1", port=port, host="a.example", proxy_protocol=spoken)
        connection = TargetConnection(target, timeout=5.0)
        connection.connect()
        own = connection.sock.getsockname()
        assert connection.get("/x").status == 200
        connection.finish()
        thread.join()
    line = f"PROXY TCP4 127.0.0.1 127.0.0.1 {own[1]} {port}\r\n".encode() if proxied else b""
    agent = f"User-Agent: nginx-tune-probe/{__version__}".encode()
    said = [b"GET /x HTTP/1.1", b"Host: a.example", agent, b"Accept: */*", b"", b""]
    assert got[0] == line + b"\r\n".join(said)


def test_a_single_request_says_what_the_load_says() -> None:
    """A site that answers by these headers answers both alike."""
    probes = Path(__file__).parents[2] / "probes"
    assert f'version = "{__version__}"' in (probes / "Cargo.toml").read_text()
    client = (probes / "src" / "http1" / "client.rs").read_text()
    own = [name for name, _ in request_headers(Target())]
    places = [client.index(f'("{name}", ') for name in own]
    assert places == sorted(places)
    agent = 'concat!("nginx-tune-probe/", env!("CARGO_PKG_VERSION"))'
    assert agent in (probes / "src" / "request.rs").read_text()
