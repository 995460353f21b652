"""What is around nginx in a lab: a limited link, a slow origin, a certificate."""

import concurrent.futures
import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nginx_tune.documents.lab import Lab, LabDisk, LabLink, LabOrigin
from nginx_tune.documents.loadplan import LoadPlan, Target, Tls
from nginx_tune.documents.site import Site
from nginx_tune.experiment.session import place_plan, place_site
from nginx_tune.nginx.lab import network
from nginx_tune.nginx.lab.network import make_certificate
from nginx_tune.nginx.lab.operation import Placement
from nginx_tune.nginx.lab.origin import OriginRequest, origin_objects
from nginx_tune.nginx.lab.sandbox import unshare_command

LINK = """
import json, socket, sys, threading, time
import msgspec
from nginx_tune.documents.lab import Lab, LabLink
from nginx_tune.nginx.lab.building import Topology
from nginx_tune.nginx.lab.enclosure import raise_loopback
from nginx_tune.nginx.lab.network import read_tcp, set_tcp
from pathlib import Path
raise_loopback()
wanted = {"net.ipv4.tcp_congestion_control": "none", "net.ipv4.tcp_wmem": "4096 16384 999424"}
here = set_tcp(wanted)
link = msgspec.json.decode(sys.argv[1], type=LabLink)
topology = Topology(Lab(topology="link", link=link), Path("/"))
address = topology.placement.address
size = 6_000_000
server = socket.create_server((address, 0))
def serve():
    peer = server.accept()[0]
    peer.sendall(bytes(size))
    peer.close()
threading.Thread(target=serve, daemon=True).start()
def fetch():
    with socket.create_connection((address, server.getsockname()[1])) as client:
        started = time.monotonic()
        own, got = client.getsockname()[0], 0
        while data := client.recv(1 << 16):
            got += len(data)
        return own, got, time.monotonic() - started
own, got, seconds = topology.from_clients(fetch)
ports = topology.from_clients(lambda: Path("/proc/thread-self/net/dev").read_text())
print(json.dumps({"address": address, "own": own, "got": got, "bits": 8 * got / seconds,
    "server_sees_clients": "lab-clients" in Path("/proc/self/net/dev").read_text(),
    "clients_see_link": "lab-clients" in ports,
    "tcp": [here, topology.from_clients(read_tcp)]}))
"""


def run_link(link: LabLink) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*unshare_command(root=True), sys.executable, "-c", LINK, msgspec.json.encode(link)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.needs("root", "ip")
def test_clients_are_apart_and_the_link_bounds_what_they_get() -> None:
    said = run_link(LabLink(bits_per_second=20_000_000))
    assert said.returncode == 0, said.stderr
    seen = json.loads(said.stdout)
    assert (seen["address"], seen["own"], seen["got"]) == ("198.18.0.1", "198.18.0.2", 6_000_000)
    assert seen["clients_see_link"]
    assert not seen["server_sees_clients"]
    here, at_clients = seen["tcp"]
    assert here == at_clients
    assert here["net.ipv4.tcp_wmem"] == "4096 16384 999424"
    assert here["net.ipv4.tcp_congestion_control"] in {"cubic", "reno"}, "not the host's"
    # The bucket's first 256 KiB are free; a busy machine can only be slower than the link.
    assert 2_000_000 < seen["bits"] <= 22_000_000
    free = run_link(LabLink())
    assert json.loads(free.stdout)["bits"] > 3 * seen["bits"]


@contextlib.contextmanager
def serving(origin: LabOrigin) -> Iterator[int]:
    request = OriginRequest(address="127.0.0.1", origin=origin, seed=1)
    with subprocess.Popen(
        [sys.executable, "-m", "nginx_tune.nginx.lab.origin", msgspec.json.encode(request)],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def fetch(port: int, path: str, method: str = "GET") -> tuple[int, bytes, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    started = time.monotonic()
    connection.request(method, path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body, time.monotonic() - started


def test_the_origin_has_its_delay_and_rate_and_the_same_bytes() -> None:
    origin = LabOrigin(delay_seconds=0.1, bytes_per_second=1e6, files=3, file_bytes=200_000)
    assert origin_objects(origin) == {f"/f0000{number}.bin": 200_000 for number in range(3)}
    with serving(origin) as port:
        status, body, seconds = fetch(port, "/f00001.bin")
        assert (status, len(body)) == (200, 200_000)
        assert seconds >= 0.1 + 0.19
        assert fetch(port, "/f00001.bin")[1] == body
        assert fetch(port, "/f00002.bin?x=1")[1] != body
        assert fetch(port, "/f00001.bin", "HEAD")[:2] == (200, b"")
        assert fetch(port, "/none")[0] == 404
        assert fetch(port, "/f00001.bin", "POST")[0] == 400


def test_the_origin_serves_so_many_at_once_and_no_more() -> None:
    origin = LabOrigin(delay_seconds=0.2, connections=2, files=1, file_bytes=10)
    with serving(origin) as port, concurrent.futures.ThreadPoolExecutor(6) as pool:
        started = time.monotonic()
        answers = list(pool.map(lambda _: fetch(port, "/f00000.bin")[0], range(6)))
        assert time.monotonic() - started >= 3 * 0.2
    assert answers == [200] * 6


def test_the_origin_says_what_did_not_change() -> None:
    with serving(LabOrigin(delay_seconds=0, files=2, file_bytes=10)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/f00000.bin")
        first = connection.getresponse()
        assert (first.status, len(first.read())) == (200, 10)
        tag = {"If-None-Match": first.headers["ETag"]}
        for path, status in (("/f00000.bin", 304), ("/f00001.bin", 200)):
            connection.request("GET", path, headers=tag)
            answer = connection.getresponse()
            assert answer.status == status
            answer.read()
        connection.close()


def test_the_origin_refuses_what_is_no_request() -> None:
    with serving(LabOrigin(delay_seconds=0, files=1)) as port:
        for words in (b"\x16\x03\x01\r\n\r\n", b"G" * 40_000 + b"\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                client.sendall(words)
                with contextlib.suppress(ConnectionError):
                    assert client.recv(100).startswith(b"HTTP/1.1 400")
        assert fetch(port, "/f00000.bin")[0] == 200


@pytest.mark.needs("openssl")
def test_the_certificate_is_for_the_names_it_was_made_for(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, names=["localhost", "127.0.0.1"])
    assert made.key.stat().st_mode & 0o077 == 0
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.certificate, made.key)
    client = ssl.create_default_context(cafile=str(made.certificate))
    ours, theirs = socket.socketpair()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(server.wrap_socket, ours, server_side=True)
        with client.wrap_socket(theirs, server_hostname="localhost") as spoken:
            assert spoken.version() == "TLSv1.3"
        accepted.result().close()


def test_a_site_is_placed_in_its_topology() -> None:
    site = Site(listen=["127.0.0.1:8080"], roots=["/srv"])
    assert place_site(site, Lab(), Placement()) == site
    link = place_site(site, Lab(), Placement(address="198.18.0.1"))
    assert link.listen == ["198.18.0.1:8080"]
    lab = Lab(disks=[LabDisk(name="a", mount="/c", writable=True), LabDisk(name="b", mount="/d")])
    proxy = place_site(site, lab, Placement(origin="127.0.0.1:99"))
    assert proxy.cache_dirs == ["/c"]
    spare = LabDisk(name="s", mount="/s", writable=True, spare=True)
    own = LabDisk(name="a", mount="/c", writable=True, room_bytes=256 << 20)
    proxy = place_site(site, Lab(disks=[own, spare]), Placement(origin="127.0.0.1:99"))
    assert proxy.cache_dirs == ["/c"]
    bounds = proxy.cache_bounds["/c"]
    assert (bounds.max_bytes, bounds.min_free_bytes) == (192 << 20, 16 << 20)
    assert [upstream.servers for upstream in proxy.upstreams] == [["127.0.0.1:99"]]
    tls = place_site(site, Lab(), Placement(certificate="/c.pem", certificate_key="/c.key"))
    assert tls.listen == ["127.0.0.1:8080 ssl"]
    assert tls.tls is not None


def test_a_plan_is_aimed_at_nginx_from_where_clients_are() -> None:
    plan = LoadPlan(target=Target(address="127.0.0.1", port=80), classes=[], duration_seconds=1)
    assert place_plan(plan, Placement()) == plan
    placed = place_plan(plan, Placement(address="198.18.0.1"))
    assert placed.target.address == "198.18.0.1"
    assert placed.permit.hosts == ["198.18.0.1"]
    secured = place_plan(plan, Placement(certificate="/c", certificate_key="/k"))
    assert secured.target.tls == Tls(verify=False)
    assert secured.permit == plan.permit


def test_an_old_kernel_without_tcp_settings_of_namespaces_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 4.15 a new namespace has no such files."""
    monkeypatch.setattr(network, "_sysctl_file", lambda name: tmp_path / "none" / name)
    assert network.set_tcp({}) == {}
    assert network.differing({}, {"net.ipv4.tcp_congestion_control": "bbr"}, "this host") == []
