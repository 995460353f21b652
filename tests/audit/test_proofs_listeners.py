"""The claims of the rules about listening sockets, shown on real versions of nginx."""

import os
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from free_ports import free_port
from msgspec.structs import replace
from nginx_versions import Nginx, every_version, since
from proving import fires
from rows import each_row
from scratch_nginx import Serve, Server, config_test, write_conf
from started import until, within
from tiers import dice

from nginx_tune.audit.rule import linux
from nginx_tune.documents.facts import Facts, Kernel
from nginx_tune.documents.facts import Nginx as NginxFacts
from nginx_tune.documents.facts_machine import Listener
from nginx_tune.host.door import attempt
from nginx_tune.host.live import LiveHost
from nginx_tune.host.network import read_listeners

pytestmark = pytest.mark.needs("nginx", "root")

SOMAXCONN = int(Path("/proc/sys/net/core/somaxconn").read_text())
CONNECTIONS = 200
DICE = dice("packets of QUIC")
PACE_SECONDS = 0.003
"""Between two connections: the workers idle."""
UNEVEN, EVEN = 0.7, 0.5
"""Shares of the busiest of four workers; alone on a machine they are 1.0 and 0.3."""
TRIES = 8
"""A busy machine wakes the workers in other orders: what it hides once, it does not hide always."""


def _here(listen: str) -> str:
    return (
        "worker_processes 1; events {} http { server {"
        f" listen 127.0.0.1:PORT {listen}; location / {{ return 200; }} }} }}"
    )


def _listener(server: Server) -> Listener:
    """The address of a server as this host's facts have it."""
    host, pid = LiveHost(), server.process.pid
    found, _ = read_listeners(host, attempt(host.listening, pid), pid)
    return next(one for one in found if one.port == server.port)


@every_version
@each_row("is_capped", [True, False])
def test_ls_backlog_capped_by_somaxconn(serve: Serve, *, is_capped: bool) -> None:
    asked = 2 * SOMAXCONN if is_capped else SOMAXCONN
    server = serve(_here(f"backlog={asked}"))
    assert _listener(server).backlog == SOMAXCONN
    facts = Facts(kernel=Kernel(system="Linux", sysctls={"net.core.somaxconn": str(SOMAXCONN)}))
    assert fires("ls-backlog-capped", server.conf, facts) is is_capped


@every_version
def test_ls_port_ephemeral_is_held_by_an_outgoing_connection(nginx: Nginx, tmp_path: Path) -> None:
    """While it is there and for a minute after, though nobody listens at that port."""
    with ExitStack() as stack:
        peer = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        clients = [
            stack.enter_context(socket.create_connection(peer.getsockname())) for _ in range(2)
        ]
        accepted = [stack.enter_context(peer.accept()[0]) for _ in clients]
        ports = [client.getsockname()[1] for client in clients]
        for end in (clients[0], *accepted):  # its end comes first: TIME_WAIT is its
            end.close()
        listen = " ".join(f"listen 127.0.0.1:{port};" for port in ports)
        conf = write_conf(tmp_path, f"events {{}} http {{ server {{ {listen} return 204; }} }}")
        assert config_test(conf, nginx.program).returncode == 0, "nginx -t sees nothing"
        said = subprocess.run(
            [nginx.program, "-p", tmp_path, "-c", conf],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
    assert said.returncode == 1
    for port in ports:
        assert f"bind() to 127.0.0.1:{port} failed (98: Address already in use)" in said.stderr
    names = [f"net.ipv4.ip_local_{name}" for name in ("port_range", "reserved_ports")]
    here = {name: Path("/proc/sys", name.replace(".", "/")).read_text().strip() for name in names}
    assert fires("ls-port-ephemeral", conf, linux(sysctls=here))


@every_version
@each_row(("clients", "is_enough"), [(12, False), (4, True)])
def test_ls_backlog_overflow_seen_counts_what_was_dropped(
    serve: Serve, clients: int, *, is_enough: bool
) -> None:
    """The worker does not come to accept for a while."""
    server = serve(_here("backlog=6"))
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)
    peers = []
    for _ in range(clients):
        peer = socket.socket()
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", server.port))
        peers.append(peer)
    until(lambda: bool(_listener(server).drops) is not is_enough)
    listener = _listener(server)
    os.kill(worker, signal.SIGCONT)
    for peer in peers:
        peer.close()
    assert listener.of_nginx
    assert listener.backlog == 6
    facts = replace(linux(), listeners=[listener])
    assert fires("ls-backlog-overflow-seen", server.conf, facts, profile="strict") is not is_enough


@every_version
@each_row(
    ("first", "second", "is_refused"),
    [
        ("reuseport", "reuseport", True),
        ("backlog=100", "deferred", True),
        ("bind", "sndbuf=1m", True),
        ("reuseport", "", False),
        ("", "backlog=100", False),
        ("default_server", "reuseport", False),
    ],
)
def test_ls_reuseport_twice_does_not_start(
    nginx: Nginx, tmp_path: Path, first: str, second: str, *, is_refused: bool
) -> None:
    servers = "".join(
        f"server {{ listen 127.0.0.1:{free_port()} {option}; server_name s{number}; }}"
        for number, option in enumerate((first, second))
    )
    port = free_port()
    servers = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", servers)
    conf = write_conf(tmp_path, f"events {{}} http {{ {servers} }}")
    said = config_test(conf, nginx.program)
    assert ("duplicate listen options" in said.stderr) is is_refused
    assert bool(said.returncode) is is_refused
    assert fires("ls-reuseport-twice", conf) is is_refused


SPREAD = """
worker_processes 4;
events {{ {events} }}
http {{ server {{ listen 127.0.0.1:PORT {listen}; location / {{ return 200 "$pid"; }} }} }}
"""


def _busiest_share(server: Server) -> float:
    """Of new connections under light load, the share that went to one of the workers."""
    until(lambda: len(server.workers()) == 4)
    time.sleep(0.2)  # all of them wait
    served: Counter[bytes] = Counter()
    for _ in range(CONNECTIONS):
        with server.connect() as peer:
            peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            served[_read(peer).rpartition(b"\r\n\r\n")[2]] += 1
        time.sleep(PACE_SECONDS)
    assert sum(served.values()) == CONNECTIONS
    return max(served.values()) / CONNECTIONS


def _gives_one_worker_most(server: Server) -> bool:
    return any(_busiest_share(server) >= UNEVEN for _ in range(TRIES))


def _spreads(server: Server) -> bool:
    return any(_busiest_share(server) <= EVEN for _ in range(TRIES))


def _read(peer: socket.socket) -> bytes:
    data = b""
    while part := peer.recv(4096):
        data += part
    return data


@every_version
@each_row("listen", ["", "reuseport"])
def test_ls_reuseport_candidate_one_worker_takes_all(
    serve: Serve, nginx: Nginx, listen: str
) -> None:
    server = serve(SPREAD.format(events="", listen=listen))
    is_uneven = not listen and nginx.number < (1, 21, 6)
    assert _gives_one_worker_most(server) if is_uneven else _spreads(server)
    facts = linux(cpus=16, version=nginx.version)
    assert fires("ls-reuseport-candidate", server.conf, facts) is is_uneven


@every_version
def test_ls_multi_accept_gives_one_worker_most(serve: Serve) -> None:
    server = serve(SPREAD.format(events="multi_accept on;", listen=""))
    assert _gives_one_worker_most(server)
    assert fires("ls-multi-accept", server.conf)


@since("1.22")
@each_row("listen", ["", "reuseport"])
def test_ls_accept_mutex_redundant_gives_one_worker_most(serve: Serve, listen: str) -> None:
    """Except where it is ignored."""
    server = serve(SPREAD.format(events="accept_mutex on;", listen=listen))
    assert _spreads(server) if listen else _gives_one_worker_most(server)
    assert fires("ls-accept-mutex-redundant", server.conf, linux())


@every_version
@each_row(
    ("listen", "directive", "first_warned"),
    [("http2", "", (1, 25, 1)), ("", "http2_max_requests 100;", (1, 19, 7)), ("", "", (9,))],
)
def test_ls_http2_param_warns(
    nginx: Nginx, tmp_path: Path, listen: str, directive: str, first_warned: tuple[int, ...]
) -> None:
    server = f"server {{ listen 127.0.0.1:{free_port()} {listen}; {directive} }}"
    conf = write_conf(tmp_path, f"events {{}} http {{ {server} }}")
    said = config_test(conf, nginx.program)
    assert said.returncode == 0
    is_warned = nginx.number >= first_warned
    assert ("deprecated" in said.stderr or "obsolete" in said.stderr) is is_warned
    facts = Facts(nginx=NginxFacts(version=nginx.version, nginx_version=nginx.version))
    assert fires("ls-http2-param", conf, facts) is is_warned


def _readers(server: Server, client: socket.socket, packets: int, patience: float = 30) -> set[int]:
    """The workers that read what one client sends: Initial packets that nobody can decrypt."""
    before = len(server.log())

    def read() -> list[str]:
        return re.findall(r"(\d+)#\d+: \*\d+ quic recvmsg: ", server.log()[before:])

    for _ in range(packets):
        number, content = DICE.randbytes(8), DICE.randbytes(1200)
        client.send(b"\xc0\0\0\0\1\x08" + number + b"\0\0\x44\x9e" + content)
        time.sleep(0.05)
    within(lambda: len(read()) >= packets, patience)
    return {int(worker) for worker in read()}


@since("1.26")
@each_row(("option", "is_shared"), [("", True), ("reuseport", False)])
def test_ls_quic_no_reuseport_lets_any_worker_read_a_clients_packets(
    serve: Serve, certificate: tuple[Path, Path], option: str, *, is_shared: bool
) -> None:
    server = serve(
        f"""
        error_log DIR/error.log debug;
        worker_processes 2;
        events {{}}
        http {{ server {{
            listen 127.0.0.1:PORT;
            listen 127.0.0.1:PORT quic {option};
            ssl_certificate {certificate[0]};
            ssl_certificate_key {certificate[1]};
            ssl_protocols TLSv1.3;
        }} }}
        """
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", server.port))
        (first,) = _readers(server, client, 1)
        os.kill(first, signal.SIGSTOP)  # it is busy with something else
        others = _readers(server, client, 8, 10 if is_shared else 1)
        os.kill(first, signal.SIGCONT)
    assert bool(others - {first}) is is_shared
    assert fires("ls-quic-no-reuseport", server.conf, linux(version="1.26.3")) is is_shared
