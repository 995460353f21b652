"""The claims of the rules about upstreams, shown on a real nginx."""

import contextlib
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from msgspec.structs import replace
from nginx_versions import Nginx, every_version, versions
from origin import Request, no_answer, ok, run_origin
from proving import fires, has_ended
from rows import each_row
from scratch_nginx import Serve, Server, config_test, write_conf
from started import until

from nginx_tune.audit.rule import linux
from nginx_tune.documents.facts import Kernel

pytestmark = pytest.mark.needs("nginx", "root")

REQUESTS = 5
REUSING = 'proxy_http_version 1.1; proxy_set_header Connection "";'


def _proxy(upstream: str, location: str, http: str = "") -> str:
    return (
        f"worker_processes 1; events {{}} http {{ {http} upstream app {{ {upstream} }} server {{"
        f" listen 127.0.0.1:PORT; location / {{ proxy_pass http://app; {location} }} }} }}"
    )


def _connections(serve: Serve, upstream: str, location: str, http: str = "") -> tuple[int, Server]:
    """How many connections nginx opens for a few requests in a row."""
    with run_origin() as origin:
        server = serve(
            _proxy(upstream.replace("ORIGIN", f"127.0.0.1:{origin.port}"), location, http)
        )
        for _ in range(REQUESTS):
            assert server.get("/").is_whole
        assert len(origin.requests) == REQUESTS
        return origin.connections, server


@every_version
@each_row("pool", ["", "keepalive 4;"])
def test_up_keepalive_missing_opens_a_connection_for_each_request(
    serve: Serve, nginx: Nginx, pool: str
) -> None:
    connections, server = _connections(serve, f"server ORIGIN; {pool}", REUSING)
    is_bare = not pool and nginx.number < (1, 29, 7)
    assert connections == (REQUESTS if is_bare else 1)
    host = linux(version=nginx.version)
    # The test's origin is on the loopback, where a connection costs little.
    assert fires("up-keepalive-missing", server.conf, host, profile="strict") is is_bare


UPGRADE = "map $http_upgrade $upgrading { default upgrade; '' %s; }"


@every_version
@each_row(
    ("location", "http", "opened"),
    [
        ("", "", REQUESTS),
        ("proxy_http_version 1.1;", "", REQUESTS),
        ('proxy_set_header Connection "";', "", REQUESTS),
        (REUSING, "", 1),
        ("proxy_http_version 1.1;", 'proxy_set_header Connection "";', 1),
        (
            "proxy_http_version 1.1; proxy_set_header Host $host;",
            'proxy_set_header Connection "";',
            REQUESTS,
        ),
        (
            "proxy_http_version 1.1; proxy_set_header Connection $upgrading;",
            UPGRADE % "close",
            REQUESTS,
        ),
        ("proxy_http_version 1.1; proxy_set_header Connection $upgrading;", UPGRADE % "''", 1),
        ("proxy_http_version 1.1; proxy_set_header Connection upgrade;", "", 1),
    ],
)
def test_up_keepalive_http10_leaves_the_pool_empty(
    serve: Serve, nginx: Nginx, location: str, http: str, opened: int
) -> None:
    """Before 1.29.7; since then only what says close by itself does."""
    connections, server = _connections(serve, "server ORIGIN; keepalive 4;", location, http)
    if nginx.number >= (1, 29, 7) and "close" not in http:
        opened = 1
    assert connections == opened
    host = linux(version=nginx.version)
    assert fires("up-keepalive-http10", server.conf, host) is (opened > 1)


@every_version
@each_row("method", ["ip_hash", "least_conn", "hash $uri", "random"])
@each_row("is_before", [True, False])
def test_up_keepalive_before_lb_keeps_nothing(
    serve: Serve, nginx: Nginx, method: str, is_before: bool
) -> None:
    lines = ["keepalive 4;", f"{method};"]
    order = lines if is_before else reversed(lines)
    connections, server = _connections(serve, f"{' '.join(order)} server ORIGIN;", REUSING)
    is_lost = is_before and nginx.number < (1, 29, 7)
    assert connections == (REQUESTS if is_lost else 1)
    warned = "load balancing method redefined" in config_test(server.conf, nginx.program).stderr
    assert warned is is_lost
    host = linux(version=nginx.version)
    assert fires("up-keepalive-before-lb", server.conf, host) is is_lost


@versions("1.30")
@each_row(("pool", "opened"), [("", 2), ("keepalive 8;", 1), ("keepalive 0;", 4)])
def test_up_keepalive_1297_change_keeps_idle_connections_per_location(
    serve: Serve, nginx: Nginx, pool: str, opened: int
) -> None:
    """Two requests to each of two locations, which share a pool only when it is asked for."""
    with run_origin() as origin:
        server = serve(
            f"worker_processes 1; events {{}} http {{"
            f" upstream app {{ {pool} server 127.0.0.1:{origin.port}; }}"
            " server { listen 127.0.0.1:PORT; location /a/ { proxy_pass http://app; }"
            " location /b/ { proxy_pass http://app; } } }"
        )
        for path in ("/a/", "/b/", "/a/", "/b/"):
            assert server.get(path).is_whole
        assert origin.connections == opened
    busy = server.conf.read_text().replace("worker_processes 1;", "worker_processes 16;")
    server.conf.write_text(busy)
    host = linux(version=nginx.version)
    assert fires("up-keepalive-1297-change", server.conf, host) is not bool(pool)


def _request(server: Server, method: str) -> int:
    with server.connect() as peer:
        head = f"{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        peer.sendall(head.encode())
        return int(peer.recv(65536).split()[1])


@every_version
@each_row(("idle", "post"), [("100s", 502), ("50ms", 200)])
def test_up_keepalive_idle_mismatch_fails_writes(serve: Serve, idle: str, post: int) -> None:
    """The server closes a connection that was idle just when the next request comes on it."""

    def answer(request: Request, peer: socket.socket) -> bytes | None:
        return ok() if request.number == 1 else None

    with run_origin(answer) as origin:
        pool = f"server 127.0.0.1:{origin.port}; keepalive 1; keepalive_timeout {idle};"
        server = serve(_proxy(pool, REUSING))
        assert _request(server, "GET") == 200
        time.sleep(0.5)
        assert _request(server, "POST") == post
        assert _request(server, "GET") == 200
        assert _request(server, "GET") == 200, "what can be sent again is"
    assert fires("up-keepalive-idle-mismatch", server.conf) is (post == 502)


@every_version
@each_row(
    ("directives", "method", "tried"),
    [
        ("", "GET", 5),
        ("proxy_next_upstream_tries 2;", "GET", 2),
        ("", "POST", 1),
        ("proxy_next_upstream error timeout non_idempotent;", "POST", 5),
        ("proxy_next_upstream error non_idempotent; proxy_next_upstream_tries 2;", "POST", 2),
    ],
)
def test_up_retry_unbounded_asks_every_server(
    serve: Serve, directives: str, method: str, tried: int
) -> None:
    with run_origin(no_answer) as origin:
        servers = "".join(f"server 127.0.0.{n}:{origin.port};" for n in range(1, 6))
        server = serve(_proxy(servers, directives))
        assert _request(server, method) == 502
        assert [one.method for one in origin.requests] == [method] * tried
    assert fires("up-retry-unbounded", server.conf) is ("tries" not in directives)


@pytest.mark.needs("openssl")
@every_version
@each_row(("option", "resumes"), [("off", False), ("on", True)])
def test_up_tls_no_reuse_is_a_full_handshake_each_time(
    serve: Serve, server_tls: ssl.SSLContext, option: str, resumes: bool
) -> None:
    with run_origin(tls=server_tls) as origin:
        server = serve(
            f"worker_processes 1; events {{}} http {{ proxy_ssl_session_reuse {option}; server {{"
            f" listen 127.0.0.1:PORT; location / {{ proxy_pass https://127.0.0.1:{origin.port}; }}"
            " } }"
        )
        for _ in range(3):
            assert server.get("/").is_whole
        assert origin.resumed == [False, resumes, resumes]
    assert fires("up-tls-no-reuse", server.conf) is not resumes


STATUSES = """
import socket
peers = []
for n in range(8):
    peer = socket.create_connection(("127.0.0.1", PORT), timeout=10,
        source_address=("127.0.0.1", 50000 + n))
    peer.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print(peer.recv(65536).split()[1].decode())
    peers.append(peer)
"""


@pytest.mark.needs("userns", "ip")
@every_version
@each_row(("ports", "served"), [("40000 40003", 4), ("40000 40999", 8)])
def test_up_ports_exhaustion_answers_502(
    tmp_path: Path, nginx: Nginx, ports: str, served: int
) -> None:
    """In a network of its own with few local ports; each response lasts."""
    conf = (
        "worker_processes 1; events { worker_connections 64; } http {"
        " server { listen 127.0.0.1:81; location / { limit_rate_after 1k; limit_rate 1;"
        f" return 200 {'x' * 2000}; }} }}"
        " server { listen 127.0.0.1:80; location / { proxy_pass http://127.0.0.1:81;"
        " proxy_buffering off; } } }"
    )
    with _in_namespace(
        nginx,
        tmp_path,
        conf,
        "-n",
        f"ip link set lo up && echo {ports} > /proc/sys/net/ipv4/ip_local_port_range",
    ) as master:
        inside = ["nsenter", "-n", "-t", str(master.pid)]
        client = STATUSES.replace("PORT", "80")
        run = subprocess.run(
            [*inside, sys.executable, "-c", client], capture_output=True, text=True, check=True
        )
    assert run.stdout.split() == ["200"] * served + ["502"] * (8 - served)
    refused = (tmp_path / "error.log").read_text().count("(99: Cannot assign requested address)")
    assert refused == 8 - served
    host = replace(
        linux(), kernel=Kernel(system="Linux", sysctls={"net.ipv4.ip_local_port_range": ports})
    )
    assert fires("up-ports-exhaustion", tmp_path / "nginx.conf", host) is (served == 4)


@contextlib.contextmanager
def _in_namespace(
    nginx: Nginx, directory: Path, conf: str, unshare: str, setup: str
) -> Iterator[subprocess.Popen[bytes]]:
    """nginx in namespaces of its own, after a line of shell that prepares them."""
    command = [nginx.program, directory, write_conf(directory, conf)]
    with subprocess.Popen(
        ["unshare", unshare, "sh", "-c", f'{setup} && exec "$0" -p "$1" -c "$2"', *command]
    ) as process:
        until((directory / "pid").exists)
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def _names(address: list[str]) -> Iterator[int]:
    """A name server that gives ``address[0]`` for every name, to be asked again each time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            while True:
                try:
                    query, peer = server.recvfrom(512)
                except OSError:
                    return
                if not query:
                    return
                is_a = query[-4:-2] == b"\0\1"
                head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, int(is_a), 0, 0)
                record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4)
                record += socket.inet_aton(address[0])
                server.sendto(head + query[12:] + (record if is_a else b""), peer)

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        with contextlib.suppress(OSError):  # it is not connected, but wakes up
            server.shutdown(socket.SHUT_RDWR)


def _address_behind(server: Server) -> str:
    with server.connect() as peer:
        peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: peer.recv(65536), b"")).split(b"\r\n\r\n")[1].decode()


@pytest.mark.needs("userns")
@every_version
@each_row("is_frozen", [True, False])
def test_up_static_dns_keeps_the_first_address(
    tmp_path: Path, nginx: Nginx, is_frozen: bool
) -> None:
    port = free_port()
    backend = (
        f"server {{ listen 127.0.0.2:{port}; listen 127.0.0.3:{port}; return 200 $server_addr; }}"
    )
    address = ["127.0.0.2"]
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.2 backend.test\n")
    with _names(address) as names:
        passed = (
            f"proxy_pass http://backend.test:{port};"
            if is_frozen
            else f"resolver 127.0.0.1:{names} ipv6=off; set $to backend.test;"
            f" proxy_pass http://$to:{port};"
        )
        front = f"server {{ listen 127.0.0.1:{port}; location / {{ {passed} }} }}"
        conf = f"worker_processes 1; events {{}} http {{ {backend} {front} }}"
        mount = f"mount --bind {hosts} /etc/hosts"
        with _in_namespace(nginx, tmp_path, conf, "-m", mount) as master:
            server = Server(tmp_path, port, master)
            assert _address_behind(server) == "127.0.0.2"
            address[0] = "127.0.0.3"
            hosts.write_text("127.0.0.3 backend.test\n")
            if is_frozen:
                assert _address_behind(server) == "127.0.0.2"
            else:  # a TTL of 0 lasts until the next second
                until(lambda: _address_behind(server) == "127.0.0.3")
            (old,) = server.workers()
            subprocess.run(["kill", "-HUP", str(master.pid)], check=True)
            until(lambda: has_ended(old))
            assert _address_behind(server) == "127.0.0.3"
    assert fires("up-static-dns", tmp_path / "nginx.conf") is is_frozen
