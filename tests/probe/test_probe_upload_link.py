"""Bodies over a lab's link: to our own server at its other end, and to nobody else."""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from needs import lacks
from upload_loads import MARKED, UNMARKED, upload_class

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.lab import LabLink, LabOrigin
from nginx_tune.documents.loadplan import (
    Arrivals,
    Http2,
    LoadClass,
    LoadPlan,
    Permit,
    Target,
    Upload,
)
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.probe import find_probe
from nginx_tune.nginx.lab.network import _CLIENT_END, SERVER_ADDRESS, ClientSide, Namespace
from nginx_tune.nginx.lab.origin import OriginRequest

pytestmark = pytest.mark.needs("root", "nginx", "probe")

REFUSED = "is not a server that nginx-tune started"
BITS = 40_000_000
PORT, PORT_OF_HTTP2 = 8080, 8081
LISTENS = (
    "import socket, sys, time\n"
    "s = socket.create_server((sys.argv[1], int(sys.argv[2]))); print(1, flush=True)\n"
    "time.sleep(100)\n"
)


class Ends(NamedTuple):
    """Of a link: where servers are, and where clients are."""

    servers: Namespace
    clients: ClientSide


@pytest.fixture
def ends() -> Ends:
    servers = Namespace("servers")
    return Ends(servers, servers.run(lambda: ClientSide(LabLink(bits_per_second=BITS))))


@contextlib.contextmanager
def started(
    where: Namespace, argv: list[str], env: dict[str, str], *, says: bool = True
) -> Iterator[str]:
    process = where.run(lambda: subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, text=True))
    try:
        assert process.stdout is not None
        yield process.stdout.readline() if says else ""
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def nginx_at(ends: Ends, directory: Path, env: dict[str, str]) -> Iterator[None]:
    """nginx at the other end, in front of the origin that counts."""
    request = OriginRequest(address="127.0.0.1", origin=LabOrigin(delay_seconds=0.001), seed=1)
    text = msgspec.json.encode(request).decode()
    argv = [sys.executable, "-m", "nginx_tune.nginx.lab.origin", text]
    with started(ends.servers, argv, env) as port:
        paths = "".join(
            f"{name}_temp_path {directory}/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        conf = directory / "nginx.conf"
        conf.write_text(
            f"daemon off; master_process off; user root; pid {directory}/pid;"
            f" error_log {directory}/error.log; events {{ }} http {{ access_log off; {paths}"
            f" client_max_body_size 0; server {{ listen {SERVER_ADDRESS}:{PORT};"
            f" listen {SERVER_ADDRESS}:{PORT_OF_HTTP2} http2;"
            f" location / {{ proxy_pass http://127.0.0.1:{port.strip()}; }} }} }}"
        )
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
        assert program is not None
        argv = [program, "-e", str(directory / "error.log"), "-c", str(conf)]
        with started(ends.servers, argv, env, says=False):
            deadline = time.monotonic() + 20
            while not ends.servers.run(lambda: _answers(PORT)):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((SERVER_ADDRESS, port), 1):
        return True
    return False


def asked(
    ends: Ends, item: LoadClass, *, address: str = SERVER_ADDRESS, port: int = PORT
) -> subprocess.CompletedProcess[bytes]:
    """The probe where the clients are, told that it may ask whomever it likes."""
    plan = LoadPlan(
        target=Target(address=address, port=port),
        classes=[item],
        duration_seconds=3.0,
        drain_seconds=10.0,
        permit=Permit(hosts=[address], live=True, ports=[port]),
    )
    said: subprocess.CompletedProcess[bytes] = ends.clients.run(
        lambda: subprocess.run([find_probe()], input=encode(plan), capture_output=True, check=False)
    )
    return said


@pytest.mark.parametrize(("port", "http2"), [(PORT, None), (PORT_OF_HTTP2, Http2(streams=8))])
def test_bodies_go_to_our_own_server_at_the_pace_of_the_link(
    ends: Ends, tmp_path: Path, port: int, http2: Http2 | None
) -> None:
    item = upload_class(
        arrivals=Arrivals(kind="closed", users=8),
        connections=8 if http2 is None else 1,
        upload=Upload(bytes=[300_000]),
        http2=http2,
    )
    with nginx_at(ends, tmp_path, MARKED):
        said = asked(ends, item, port=port)
    assert said.returncode == 0, said.stderr
    found = decode(Measurement, said.stdout).classes["c"]
    assert (found.errors, found.truncated, found.upload is not None) == ({}, 0, True)
    sent = found.upload
    assert sent is not None
    assert (sent.confirmed, sent.unconfirmed) == (found.requests, 0)
    # Far below what loopback carries; beyond the link lies what is in its bucket and buffers.
    bits = found.requests * 300_000 * 8 / 3.0
    assert 0.4 * BITS < bits < 1.3 * BITS


def test_a_server_of_somebody_else_at_the_other_end_gets_nothing(
    ends: Ends, tmp_path: Path
) -> None:
    with nginx_at(ends, tmp_path, UNMARKED):
        said = asked(ends, upload_class())
    assert (said.returncode, REFUSED in said.stderr.decode()) == (2, True)


def test_our_own_server_elsewhere_is_not_the_one_that_is_asked(ends: Ends) -> None:
    elsewhere = Namespace("another")
    words = ["ip", "address", "add", f"{SERVER_ADDRESS}/32", "dev", "lo"]
    elsewhere.run(lambda: subprocess.run(words, check=True))
    argv = [sys.executable, "-c", LISTENS, SERVER_ADDRESS, str(PORT)]
    with started(elsewhere, argv, MARKED):
        said = asked(ends, upload_class())
        assert (said.returncode, REFUSED in said.stderr.decode()) == (2, True)
    # At the link's end the same is.
    with started(ends.servers, argv, MARKED):
        assert REFUSED not in asked(ends, upload_class(timeout_seconds=0.1)).stderr.decode()


def test_what_lies_behind_a_router_is_not_the_other_end(ends: Ends) -> None:
    behind = "198.51.100.1"
    words = ["ip", "address", "add", f"{behind}/32", "dev", "lo"]
    ends.servers.run(lambda: subprocess.run(words, check=True))
    route = ["ip", "route", "add", behind, "via", SERVER_ADDRESS]
    ends.clients.run(lambda: subprocess.run(route, check=True))
    argv = [sys.executable, "-c", LISTENS, behind, str(PORT)]
    with started(ends.servers, argv, MARKED):
        said = asked(ends, upload_class(), address=behind)
    assert (said.returncode, REFUSED in said.stderr.decode()) == (2, True)


def test_another_neighbour_with_the_same_address_is_not_the_one_that_is_asked(ends: Ends) -> None:
    # The clients' network knows it, by a link of its own, and what is asked goes over the other.
    neighbour = Namespace("a neighbour")
    words = ["ip", "address", "add", f"{SERVER_ADDRESS}/32", "dev", "lo"]
    neighbour.run(lambda: subprocess.run(words, check=True))
    link = ["ip", "link", "add", "side", "type", "veth", "peer", "name", "side"]
    link += ["netns", neighbour.name]
    ends.clients.run(lambda: subprocess.run(link, check=True))
    argv = [sys.executable, "-c", LISTENS, SERVER_ADDRESS, str(PORT)]
    with started(neighbour, argv, MARKED):
        said = asked(ends, upload_class())
    assert (said.returncode, REFUSED in said.stderr.decode()) == (2, True)


def test_a_tunnel_is_no_link(ends: Ends) -> None:
    # It was made where the server is, and leads to whoever is at its other end.
    behind, elsewhere = "198.51.100.1", "198.51.100.2"
    tunnel = ["ip", "link", "add", "tunnel", "type", "vxlan", "id", "7", "dstport", "4789"]
    made = ends.servers.run(
        lambda: subprocess.run([*tunnel, "remote", elsewhere], capture_output=True, check=False)
    )
    if made.returncode != 0:
        lacks("vxlan", made.stderr.decode())
    for words in (
        ["ip", "address", "add", f"{behind}/32", "dev", "lo"],
        ["ip", "link", "set", "tunnel", "netns", ends.clients._namespace.name],
    ):
        ends.servers.run(functools.partial(subprocess.run, words, check=True))
    for words in (["link", "set", "tunnel", "up"], ["route", "add", behind, "dev", "tunnel"]):
        ends.clients.run(functools.partial(subprocess.run, ["ip", *words], check=True))
    argv = [sys.executable, "-c", LISTENS, behind, str(PORT)]
    with started(ends.servers, argv, MARKED):
        said = asked(ends, upload_class(), address=behind)
    assert (said.returncode, REFUSED in said.stderr.decode()) == (2, True)


def test_an_address_that_the_other_end_would_pass_on_is_not_its_own(ends: Ends) -> None:
    # Over the link with no router between, and whoever is there listens on all of its addresses.
    behind = "198.51.100.1"
    route = ["ip", "route", "add", behind, "dev", _CLIENT_END]
    ends.clients.run(lambda: subprocess.run(route, check=True))
    argv = [sys.executable, "-c", LISTENS, "0.0.0.0", str(PORT)]
    with started(ends.servers, argv, MARKED):
        said = asked(ends, upload_class(), address=behind)
    assert (said.returncode, REFUSED in said.stderr.decode()) == (2, True)
