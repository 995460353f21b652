"""How the load probe reaches a real nginx: unix sockets, PROXY protocol, TLS by wish."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import socket
import socketserver
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from free_ports import free_port
from probe_loads import Nginx, StartNginx, load_class, load_plan

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.loadplan import LoadPlan, Permit, ProxyProtocol, Target, Tls
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.probe import run_probe

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.needs("nginx", "probe")

SHORT = ("--duration", "400ms", "--warmup", "0", "--rate", "100", "--allow-live")


def only_class(measurement: Measurement) -> ClassMeasurement:
    [item] = measurement.classes.values()
    return item


def probe(run_cli: RunCli, *arguments: object) -> Measurement:
    run = run_cli("probe", *SHORT, *arguments, "-f", "json")
    assert run.returncode == 0, run.stderr
    return decode(Measurement, run.stdout.encode())


def said(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines())


@pytest.fixture
def by_socket(start_nginx: StartNginx, tmp_path: Path) -> Path:
    path = tmp_path / "nginx.sock"
    start_nginx(server=f"listen unix:{path}; location = /host {{ return 200 $host; }}")
    return path


def test_a_unix_socket_is_asked_by_its_url_or_by_an_option(
    by_socket: Path, run_cli: RunCli
) -> None:
    for arguments in (
        (f"http://unix:{by_socket}:/4m",),
        ("http://site.example/4m", "--unix", by_socket),
    ):
        # No more than a busy machine copies: what comes behind the window is not counted.
        measurement = probe(run_cli, *arguments, "--rate", "20")
        item = only_class(measurement)
        assert item.errors == {}
        assert item.requests == item.intended > 0
        # Bytes count when they come, requests when they were due: an edge may lie between the two.
        assert abs(item.bytes - item.requests * (4 << 20)) <= 2 * (4 << 20)
        assert measurement.generator.receive_lag_seconds.count == 0
    named = only_class(probe(run_cli, "http://site.example/host", "--unix", by_socket))
    assert named.bytes % len("site.example") == 0
    assert abs(named.bytes // len("site.example") - named.requests) <= 2 < named.requests


def test_a_unix_socket_needs_leave_like_any_server(by_socket: Path, run_cli: RunCli) -> None:
    run = run_cli("probe", f"http://unix:{by_socket}:/1k")
    assert run.returncode == 2
    assert "is not the socket of a server that nginx-tune started" in run.stderr
    plan = LoadPlan(
        target=Target(unix=str(by_socket)),
        classes=[load_class("/1k", "/100k")],
        duration_seconds=0.3,
        permit=Permit(sockets=[str(by_socket)]),
        idle_connections=5,
        threads=2,
    )
    measurement = run_probe(plan)
    assert only_class(measurement).errors == {}
    idle = measurement.generator.idle_connections
    assert idle is not None
    assert (idle.open, idle.lost, idle.failed) == (5, 0, 0)
    other = msgspec.structs.replace(plan, permit=Permit(sockets=[f"{by_socket}2"]))
    with pytest.raises(UsageError, match="is not the socket of"):
        run_probe(other)


def test_a_socket_that_nobody_listens_on_refuses(by_socket: Path) -> None:
    path = f"{by_socket}.gone"
    plan = LoadPlan(
        target=Target(unix=path),
        classes=[load_class("/1k")],
        duration_seconds=0.2,
        permit=Permit(live=True),
    )
    item = only_class(run_probe(plan))
    assert item.errors == {"refused": item.intended}


def test_a_full_queue_of_a_socket_is_a_failure_of_its_own(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "full"))
        listener.listen(0)
        plan = LoadPlan(
            target=Target(unix=str(tmp_path / "full")),
            classes=[load_class("/1k", timeout_seconds=1.0)],
            duration_seconds=0.2,
            drain_seconds=2.0,
            permit=Permit(live=True),
        )
        item = only_class(run_probe(plan))
    assert set(item.errors) == {"backlog", "timeout"}
    assert item.errors["backlog"] > item.errors["timeout"] > 0


def test_the_server_sees_the_client_of_the_proxy_protocol(
    start_nginx: StartNginx, run_cli: RunCli, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "seen.log"
    start_nginx(
        http="log_format seen '$proxy_protocol_addr $proxy_protocol_port $realip_remote_port"
        " $proxy_protocol_server_addr';",
        server=f"listen 127.0.0.1:{port} proxy_protocol; listen unix:{tmp_path}/s proxy_protocol;"
        f" access_log {log} seen; set_real_ip_from unix:; set_real_ip_from 127.0.0.1;"
        " real_ip_header proxy_protocol;",
    )
    for version, source in itertools.product(("v1", "v2"), (None, "192.0.2.7", "2001:db8::7")):
        row = (version, source)
        words = ("--proxy-protocol", version, *(("--proxy-source", source) if source else ()))
        log.write_bytes(b"")
        url = f"http://127.0.0.1:{port}/1k"
        item = only_class(probe(run_cli, url, *words, "--connections", "3"))
        assert item.errors == {}, row
        assert item.requests == item.intended > 0, row
        for line in said(log):
            address, told, own, server = line.split(" ")
            assert (address, told) == (source or "127.0.0.1", own), row
            mapped = "::ffff:127.0.0.1" if source and ":" in source else "127.0.0.1"
            assert server == mapped, row
        log.write_bytes(b"")
        item = only_class(probe(run_cli, f"http://unix:{tmp_path}/s:/1k", *words))
        assert item.errors == {}, row
        # Without a source nothing is said of a client: UNKNOWN, or the command LOCAL.
        assert {line.split(" ")[0] for line in said(log)} == {source or "-"}, row


def test_without_its_header_a_proxied_listener_answers_nobody(start_nginx: StartNginx) -> None:
    port = free_port()
    nginx = start_nginx(server=f"listen 127.0.0.1:{port} proxy_protocol;")
    plan = load_plan(Nginx(port, nginx.error_log), load_class("/1k"), idle_connections=3)
    assert only_class(run_probe(plan)).requests == 0
    target = msgspec.structs.replace(plan.target, proxy_protocol=ProxyProtocol(version=2))
    measurement = run_probe(msgspec.structs.replace(plan, target=target))
    assert only_class(measurement).errors == {}
    idle = measurement.generator.idle_connections
    assert idle is not None
    assert (idle.open, idle.lost) == (3, 0)


def openssl(text: str) -> None:
    subprocess.run(shlex.split(f"openssl {text}"), check=True, capture_output=True)


@pytest.fixture
def secure(start_nginx: StartNginx, tmp_path: Path) -> tuple[str, Path]:
    """A TLS listener that asks for certificates, and one behind a balancer; what they log."""
    port, log = free_port(), tmp_path / "tls.log"
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    for name, alternative in (("server", "IP:127.0.0.1"), ("client", "DNS:client"),
                              ("stranger", "DNS:stranger")):  # fmt: skip
        openssl(
            f"req -x509 {curve} -keyout {tmp_path}/{name}.key -out {tmp_path}/{name}.pem -days 2"
            f" -subj /CN={name} -addext subjectAltName={alternative}"
        )
    start_nginx(
        http="log_format tls '$ssl_protocol $ssl_cipher $ssl_client_verify';"
        " log_format who $proxy_protocol_addr;",
        server=f"listen 127.0.0.1:{port} ssl; ssl_protocols TLSv1.2 TLSv1.3;"
        f" ssl_certificate {tmp_path}/server.pem; ssl_certificate_key {tmp_path}/server.key;"
        f" ssl_client_certificate {tmp_path}/client.pem; ssl_verify_client optional;"
        f" listen unix:{tmp_path}/tls ssl proxy_protocol;"
        f" access_log {log} tls; access_log {log}.who who;",
    )
    return f"https://127.0.0.1:{port}/1k", log


@pytest.mark.needs("openssl")
def test_tls_is_spoken_as_wished(secure: tuple[str, Path], run_cli: RunCli, tmp_path: Path) -> None:
    url, log = secure
    for wish, seen in (
        ("", r"TLSv1\.3 TLS_\w+ NONE"),
        ("--tls-max 1.2", r"TLSv1\.2 ECDHE-ECDSA-\S+ NONE"),
        ("--tls-max 1.2 --ciphers ECDHE-ECDSA-CHACHA20-POLY1305",
         r"TLSv1\.2 ECDHE-ECDSA-CHACHA20-POLY1305 NONE"),
        ("--tls-min TLSv1.3 --ciphers tls_aes_128_gcm_sha256,TLS_AES_256_GCM_SHA384",
         r"TLSv1\.3 TLS_AES_(128_GCM_SHA256|256_GCM_SHA384) NONE"),
        ("--ciphers TLS_CHACHA20_POLY1305_SHA256", r"TLSv1\.3 TLS_CHACHA20_POLY1305_SHA256 NONE"),
        ("--cert client.pem --key client.key", r"TLSv1\.3 \S+ SUCCESS"),
        ("--tls-max 1.2 --cert client.pem --key client.key", r"TLSv1\.2 \S+ SUCCESS"),
    ):  # fmt: skip
        words = [
            str(tmp_path / word) if word.startswith("client.") else word
            for word in shlex.split(wish)
        ]
        log.write_bytes(b"")
        item = only_class(probe(run_cli, url, "-k", *words))
        assert item.errors == {}, wish
        assert item.requests == item.intended > 0, wish
        lines = said(log)
        assert sum(lines.values()) == item.requests, wish
        assert all(re.fullmatch(seen, line) for line in lines), (wish, lines)


@pytest.mark.needs("openssl")
def test_the_client_is_said_before_tls(
    secure: tuple[str, Path], run_cli: RunCli, tmp_path: Path
) -> None:
    url = f"https://unix:{tmp_path}/tls:/1k"
    who = Path(f"{secure[1]}.who")
    for version in ("v1", "v2"):
        who.write_bytes(b"")
        words = ("--proxy-protocol", version, "--proxy-source", "192.0.2.9", "--keepalive", "2")
        item = only_class(probe(run_cli, url, "-k", *words))
        assert item.errors == {}, version
        assert item.tls_seconds.count == item.connections_opened > 1, version
        assert set(said(who)) == {"192.0.2.9"}, version


@pytest.mark.needs("openssl")
def test_a_certificate_and_its_key_may_stand_in_one_file(
    secure: tuple[str, Path], run_cli: RunCli, tmp_path: Path
) -> None:
    url, log = secure
    both = tmp_path / "both.pem"
    both.write_text((tmp_path / "client.pem").read_text() + (tmp_path / "client.key").read_text())
    probe(run_cli, url, "-k", "--cert", both)
    assert {line.rpartition(" ")[2] for line in said(log)} == {"SUCCESS"}


@pytest.mark.needs("openssl")
def test_a_certificate_that_the_server_does_not_take_is_told(
    secure: tuple[str, Path], run_cli: RunCli, tmp_path: Path
) -> None:
    url, _ = secure
    words = ("--cert", tmp_path / "stranger.pem", "--key", tmp_path / "stranger.key")
    run = run_cli("probe", url, "-k", *words, *SHORT, "-f", "json")
    # nginx answers 400 to a certificate that it does not trust.
    item = only_class(decode(Measurement, run.stdout.encode()))
    assert set(item.statuses) == {"400"}
    assert run.returncode == 4


def test_what_cannot_be_is_refused(run_cli: RunCli) -> None:
    for arguments, words in (
        ("https://h/ --tls-min 1.1", "the probe speaks TLS 1.2 and 1.3"),
        ("https://h/ --tls-min 1.3 --tls-max 1.2", "--tls-min 1.3 is above --tls-max 1.2"),
        ("https://h/ --key nginx.key", "--key goes with --cert"),
        ("http://h/ --cert x.pem", "--cert is for a URL that begins with https://"),
        ("http://h/ --tls-max 1.2", "--tls-max is for a URL"),
        ("http://h/ --proxy-source 192.0.2.1", "--proxy-source goes with --proxy-protocol"),
        ("http://127.0.0.1/ --proxy-protocol v1 --proxy-source x", "'x' is no IP address"),
        ("http://unix:/run/x:/ --unix /run/y", "names a unix socket, and so does --unix"),
        ("https://127.0.0.1/ --ciphers AES128-SHA --allow-live", "is no cipher suite"),
        (
            "https://127.0.0.1/ --tls-min 1.3 --ciphers ECDHE-RSA-AES256-GCM-SHA384 --allow-live",
            "no usable cipher suites",
        ),
        ("https://127.0.0.1/ -k --cert /nowhere/x.pem --allow-live", "/nowhere/x.pem"),
        ("http://unix:/" + 120 * "x" + ":/ --allow-live", "107 bytes at most"),
    ):
        run = run_cli("probe", *shlex.split(arguments))
        assert run.returncode == 2, (arguments, run.stderr)
        assert words in run.stderr, arguments


def test_old_documents_and_new_ones_are_read_alike() -> None:
    plan = LoadPlan(
        target=Target(
            unix="/run/x", tls=Tls(min_version="1.3", ciphers=["TLS_AES_128_GCM_SHA256"])
        ),
        classes=[load_class("/1k")],
        duration_seconds=1.0,
    )
    assert decode(LoadPlan, encode(plan)) == plan


NO_HTTP = {
    b"SSH-2.0-OpenSSH_9.2\r\n": "byte 0x53 (S) at offset 0 of the head",
    b"\x15\x03\x01\0\x02\x02\x28": "byte 0x15 at offset 0 of the head: the server speaks TLS",
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n": "more than 128 header fields",
    b"HTTP/1.1 200 OK\r\nA: " + b"b" * 80_000: "a head of more than 65536 bytes",
}


def test_what_is_no_http_says_why() -> None:
    for answer, why in NO_HTTP.items():
        errors, flag = said_of(answer)
        assert errors <= {"parse", "reset"}, why
        assert why in flag


def said_of(answer: bytes) -> tuple[set[str], str]:
    class Answering(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.recv(1000)
                self.request.sendall(answer)
                self.request.recv(1000)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        plan = LoadPlan(
            target=Target(address="127.0.0.1", port=port),
            classes=[load_class("/1k")],
            duration_seconds=0.3,
            permit=Permit(ports=[port]),
        )
        measurement = run_probe(plan)
        server.shutdown()
    [flag] = [flag for flag in measurement.flags if flag.startswith("not_http: c: first ")]
    return set(only_class(measurement).errors), flag
