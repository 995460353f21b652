"""The claims of the rules about TLS sessions, logs and client connections, on real nginx."""

import gzip
import re
import socket
import ssl
import time
from pathlib import Path

import pytest
from needs import lacks
from nginx_versions import Nginx, every_version
from origin import Request, run_origin
from proving import fires, has_ended, system_calls
from rows import each_row
from scratch_nginx import Serve, Server
from started import until, within

from nginx_tune.audit.rule import linux

pytestmark = pytest.mark.needs("nginx", "root")

Certificate = tuple[Path, Path]


def _secure(directives: str, certificate: Certificate, main: str = "worker_processes 1;") -> str:
    return (
        f"{main} events {{}} http {{ ssl_certificate {certificate[0]};"
        f" ssl_certificate_key {certificate[1]}; server {{ {directives} return 200 here; }} }}"
    )


class _Client:
    """A client that comes back with the session of its first connection."""

    def __init__(self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.context.minimum_version = self.context.maximum_version = version
        self.session: ssl.SSLSession | None = None

    def connect(self, server: Server, name: str = "localhost") -> bool:
        """Whether the session was resumed."""
        with (
            server.connect() as plain,
            self.context.wrap_socket(plain, server_hostname=name, session=self.session) as peer,
        ):
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while peer.recv(65536):  # in TLS 1.3 tickets come with the answer
                pass
            self.session = self.session or peer.session
            return bool(peer.session_reused)


@pytest.mark.needs("openssl")
@every_version
@each_row("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@each_row(
    ("directives", "is_resumed"),
    [
        ("ssl_session_tickets off;", False),
        ("ssl_session_tickets off; ssl_session_cache none;", False),
        ("ssl_session_tickets off; ssl_session_cache shared:SSL:1m;", True),
        ("", True),
    ],
)
def test_tls_no_resumption_is_a_full_handshake_each_time(
    serve: Serve,
    certificate: Certificate,
    version: ssl.TLSVersion,
    directives: str,
    is_resumed: bool,
) -> None:
    protocols = "ssl_protocols TLSv1.2 TLSv1.3;"
    server = serve(_secure(f"listen 127.0.0.1:PORT ssl; {protocols} {directives}", certificate))
    client = _Client(version)
    assert [client.connect(server) for _ in range(3)] == [False, is_resumed, is_resumed]
    assert fires("tls-no-resumption", server.conf) is not is_resumed


@pytest.mark.needs("openssl")
@every_version
@each_row(("cache", "is_shared"), [("builtin:100", False), ("shared:SSL:1m", True)])
def test_tls_cache_builtin_is_of_one_worker(
    serve: Serve, certificate: Certificate, cache: str, is_shared: bool
) -> None:
    server = serve(
        _secure(
            f"listen 127.0.0.1:PORT ssl reuseport; ssl_session_tickets off;"
            f" ssl_session_cache {cache};",
            certificate,
            "worker_processes 2;",
        )
    )
    client = _Client()
    client.connect(server)
    resumed = [client.connect(server) for _ in range(16)]
    assert any(resumed)
    assert all(resumed) is is_shared
    assert fires("tls-cache-builtin", server.conf) is not is_shared


@pytest.mark.needs("strace", "openssl")
@every_version
@each_row("name", ["$ssl_server_name", "localhost"])
def test_tls_cert_var_uncached_reads_it_for_each_handshake(
    serve: Serve, certificate: Certificate, name: str
) -> None:
    directory = certificate[0].parent
    names = directory / f"{name}.crt", directory / f"{name}.key"
    server = serve(_secure("listen 127.0.0.1:PORT ssl;", names))
    client = _Client()
    client.connect(server)
    client.session = None
    with system_calls(server, "open", "openat") as calls:
        for _ in range(3):
            _Client().connect(server)
    is_read = name.startswith("$")
    assert sum("localhost.crt" in call for call in calls) == 3 * is_read
    assert fires("tls-cert-var-uncached", server.conf) is is_read


@pytest.mark.needs("strace")
@every_version
@each_row(("cache", "opened"), [("", 4), ("open_log_file_cache max=9;", 1)])
def test_log_var_path_opens_the_log_for_each_line(serve: Serve, cache: str, opened: int) -> None:
    server = serve(
        f"worker_processes 1; events {{}} http {{ {cache} server {{ listen 127.0.0.1:PORT;"
        " access_log DIR/$host.log; root DIR; } }"
    )
    with system_calls(server, "open", "openat", "close") as calls:
        for _ in range(4):
            server.get("/")
    assert sum("/x.log" in call for call in calls) == opened
    assert fires("log-var-path", server.conf) is (opened > 1)


@every_version
@each_row(("level", "is_debug"), [("debug", True), ("warn", False)])
def test_log_debug_prod_writes_dozens_of_lines_for_a_request(
    serve: Serve, nginx: Nginx, level: str, is_debug: bool
) -> None:
    server = serve(
        f"error_log DIR/error.log {level}; worker_processes 1; events {{}} http {{"
        " server { listen 127.0.0.1:PORT; return 200 here; } }"
    )
    before = server.log().count("\n")
    assert server.get("/").is_whole
    can_debug = "--with-debug" in nginx.build
    if is_debug and can_debug:
        until(lambda: server.log().count("\n") - before > 40)
    else:
        assert server.log().count("\n") - before < 40
    flags = ("--with-debug",) if can_debug else ("--with-threads",)
    host = linux(version=nginx.version, flags=flags)
    assert fires("log-debug-prod", server.conf, host) is (is_debug and can_debug)


@pytest.mark.needs("strace")
@every_version
@each_row(("static", "is_made"), [("", True), ("gzip_static on;", False)])
def test_gz_dynamic_static_files_takes_sendfile_away(
    serve: Serve, nginx: Nginx, static: str, is_made: bool
) -> None:
    if "--with-http_gzip_static_module" not in nginx.build:
        lacks("debian-build", "this nginx is built without gzip_static")
    server = serve(
        "worker_processes 1; events {} http { sendfile on; gzip on; gzip_types text/css;"
        f" types {{ text/css css; }} {static} server {{ listen 127.0.0.1:PORT; root DIR; }} }}"
    )
    text = b"a { color: red }\n" * 10_000
    (server.directory / "a.css").write_bytes(text)
    (server.directory / "a.css.gz").write_bytes(gzip.compress(text))
    with system_calls(server, "sendfile", "writev") as calls, server.connect() as peer:
        peer.sendall(b"GET /a.css HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        head = peer.recv(65536)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(65536):
            pass
    assert b"Content-Encoding: gzip" in head
    assert any("sendfile(" in call for call in calls) is not is_made
    host = linux(version=nginx.version, flags=("--with-http_gzip_static_module",))
    assert fires("gz-dynamic-static-files", server.conf, host) is is_made


@every_version
@each_row(("timeout", "stays"), [("", True), ("worker_shutdown_timeout 50ms;", False)])
def test_cn_shutdown_timeout_old_workers_stay(serve: Serve, timeout: str, stays: bool) -> None:
    upgraded = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"

    def answer(request: Request, peer: socket.socket) -> bytes:
        return upgraded

    with run_origin(answer) as origin:
        server = serve(
            f"{timeout} worker_processes 1; events {{}} http {{ server {{ listen 127.0.0.1:PORT;"
            f" location /ws/ {{ proxy_pass http://127.0.0.1:{origin.port}; proxy_http_version 1.1;"
            " proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } } }"
        )
        (old,) = server.workers()
        with server.connect() as peer:
            peer.sendall(
                b"GET /ws/ HTTP/1.1\r\nHost: x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
            )
            assert b" 101 " in peer.recv(65536)
            server.process.send_signal(1)
            until(lambda: any(pid != old for pid in server.workers()))
            assert within(lambda: has_ended(old), 0.5 if stays else 60) is not stays
        until(lambda: has_ended(old))
    assert fires("cn-shutdown-timeout", server.conf) is stays


LARGE = b"%x\r\n%b\r\n" % (100_000, bytes(100_000))
"""A chunk that is more than client_max_body_size."""


@every_version
@each_row(
    ("option", "framing", "is_reset"),
    [
        ("off", b"Transfer-Encoding: chunked", True),
        ("on", b"Transfer-Encoding: chunked", False),
        ("off", b"Content-Length: 4000000", False),
    ],
)
def test_cn_lingering_off_resets_a_client_that_is_sending(
    serve: Serve, option: str, framing: bytes, is_reset: bool
) -> None:
    """The body is refused when a part of it is there; where its length is known, before that."""
    server = serve(
        "worker_processes 1; events {} http { client_max_body_size 1k; server {"
        f" listen 127.0.0.1:PORT; lingering_close {option};"
        " location / { proxy_pass http://127.0.0.1:1; } } }"
    )
    with server.connect() as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n")
        try:
            for _ in range(30):
                peer.sendall(LARGE)
                time.sleep(0.002)
            status = int(peer.recv(65536).split()[1])
        except (ConnectionResetError, BrokenPipeError):
            status = 0
    assert status == (0 if is_reset else 413)
    assert fires("cn-lingering-off", server.conf) is (option == "off")


@every_version
@each_row(("line", "is_coarse"), [("timer_resolution 10s;", True), ("", False)])
def test_cn_timer_resolution_stops_the_clock(serve: Serve, line: str, is_coarse: bool) -> None:
    server = serve(
        f"{line} worker_processes 1; events {{}} http {{"
        " server { listen 127.0.0.1:PORT; return 200 $msec; } }"
    )
    seen = set()
    for _ in range(3):
        with server.connect() as peer:
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
            match = re.search(rb"[0-9.]+$", b"".join(iter(lambda: peer.recv(65536), b"")))
            assert match is not None
            seen.add(match[0])
        time.sleep(0.03)
    assert (len(seen) == 1) is is_coarse
    assert fires("cn-timer-resolution", server.conf) is is_coarse
