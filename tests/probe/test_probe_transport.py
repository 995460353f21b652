"""How the load probe reaches a real nginx: unix sockets, PROXY protocol, TLS by wish."""

import contextlib
import itertools
import re
import shlex
import socket
import socketserver
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import RunCli
from free_ports import free_port
from probe_loads import Nginx, StartNginx, load_class, load_plan
from started import until

from nginx_tune.documents.base import decode
from nginx_tune.documents.loadplan import LoadPlan, Permit, ProxyProtocol, Target, Tls
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.probe import run_probe

pytestmark = pytest.mark.needs("nginx", "probe")

SHORT = ("--duration", "400ms", "--warmup", "0", "--rate", "100", "--allow-live")


def only_class(measurement: Measurement) -> ClassMeasurement:
    [item] = measurement.classes.values()
    return item


def probe(run_cli: RunCli, *arguments: object) -> Measurement:
    run = run_cli("probe", *SHORT, *arguments, "-f", "json")
    assert run.returncode == 0, run.stderr
    return decode(Measurement, run.stdout.encode())


def said(log: Path, item: ClassMeasurement) -> Counter[str]:
    """The log's lines on a class of requests: nginx writes the last one after its answer."""
    until(lambda: log.read_text().count("\n") >= item.requests)
    return Counter(log.read_text().splitlines())


@pytest.fixture
def by_socket(start_nginx: StartNginx, tmp_path: Path) -> Path:
    path = tmp_path / "nginx.sock"
    start_nginx(server=f"listen unix:{path};")
    return path


def test_a_unix_socket_is_asked_by_its_url(by_socket: Path, run_cli: RunCli) -> None:
    measurement = probe(run_cli, f"http://unix:{by_socket}:/4m", "--rate", "20")
    item = only_class(measurement)
    assert item.errors == {}
    assert item.requests == item.intended > 0
    # Bytes count when they come, requests when they were due: the last ones may come too late.
    assert 0 < item.bytes <= item.requests * (4 << 20)
    assert measurement.generator.receive_lag_seconds.count == 0


def test_a_unix_socket_needs_leave_like_any_server(by_socket: Path, run_cli: RunCli) -> None:
    run = run_cli("probe", f"http://unix:{by_socket}:/1k")
    assert run.returncode == 2
    assert "is not the socket of a server that nginx-tune started" in run.stderr
    plan = LoadPlan(
        target=Target(unix=str(by_socket)),
        classes=[load_class("/1k", "/100k")],
        duration_seconds=1.0,
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
    start_nginx: StartNginx, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "seen.log"
    start_nginx(
        http="log_format seen '$proxy_protocol_addr $proxy_protocol_port $realip_remote_port"
        " $proxy_protocol_server_addr';",
        server=f"listen 127.0.0.1:{port} proxy_protocol; listen unix:{tmp_path}/s proxy_protocol;"
        f" access_log {log} seen; set_real_ip_from unix:; set_real_ip_from 127.0.0.1;"
        " real_ip_header proxy_protocol;",
    )
    for version, source in itertools.product((1, 2), (None, "192.0.2.7", "2001:db8::7")):
        row = (version, source)
        first = ProxyProtocol(version=version, source=source)
        log.write_bytes(b"")
        there = Target(address="127.0.0.1", port=port, proxy_protocol=first)
        item = only_class(ask(there))
        assert item.errors == {}, row
        for line in said(log, item):
            address, told, own, server = line.split(" ")
            assert (address, told) == (source or "127.0.0.1", own), row
            mapped = "::ffff:127.0.0.1" if source and ":" in source else "127.0.0.1"
            assert server == mapped, row
        log.write_bytes(b"")
        item = only_class(ask(Target(unix=f"{tmp_path}/s", proxy_protocol=first)))
        assert item.errors == {}, row
        # Without a source nothing is said of a client: UNKNOWN, or the command LOCAL.
        assert {line.split(" ")[0] for line in said(log, item)} == {source or "-"}, row


def ask(target: Target, **changes: object) -> Measurement:
    """What comes of 40 requests."""
    item = load_class("/1k", **changes)
    permit = Permit(live=True)
    return run_probe(LoadPlan(target=target, classes=[item], duration_seconds=0.2, permit=permit))


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
def secure(start_nginx: StartNginx, tmp_path: Path) -> tuple[int, Path]:
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
    return port, log


@pytest.mark.needs("openssl")
def test_tls_is_spoken_as_wished(secure: tuple[int, Path], tmp_path: Path) -> None:
    port, log = secure
    own = {"certificate_file": f"{tmp_path}/client.pem", "key_file": f"{tmp_path}/client.key"}
    both = tmp_path / "both.pem"
    both.write_text("".join((tmp_path / f"client.{end}").read_text() for end in ("pem", "key")))
    chacha = "ECDHE-ECDSA-CHACHA20-POLY1305"
    new = ["tls_aes_128_gcm_sha256", "TLS_AES_256_GCM_SHA384"]
    wishes: list[tuple[dict[str, Any], str]] = [
        ({}, r"TLSv1\.3 TLS_\w+ NONE"),
        ({"max_version": "1.2"}, r"TLSv1\.2 ECDHE-ECDSA-\S+ NONE"),
        ({"max_version": "1.2", "ciphers": [chacha]}, rf"TLSv1\.2 {chacha} NONE"),
        ({"min_version": "1.3", "ciphers": new}, r"TLSv1\.3 TLS_AES_(128|256)_GCM_SHA\d+ NONE"),
        (own, r"TLSv1\.3 \S+ SUCCESS"),
        ({"certificate_file": str(both), "key_file": str(both)}, r"TLSv1\.3 \S+ SUCCESS"),
        ({"max_version": "1.2", **own}, r"TLSv1\.2 \S+ SUCCESS"),
    ]
    for wish, seen in wishes:
        log.write_bytes(b"")
        target = Target(address="127.0.0.1", port=port, tls=Tls(verify=False, **wish))
        item = only_class(ask(target))
        assert item.errors == {}, wish
        assert item.requests == item.intended > 0, wish
        lines = said(log, item)
        assert sum(lines.values()) == item.requests, wish
        assert all(re.fullmatch(seen, line) for line in lines), (wish, lines)
    stranger = {name: file.replace("client.", "stranger.") for name, file in own.items()}
    tls = Tls(verify=False, **stranger)  # type: ignore[arg-type]
    item = only_class(ask(Target(address="127.0.0.1", port=port, tls=tls)))
    # nginx answers 400 to a certificate that it does not trust.
    assert set(item.statuses) == {"400"}


@pytest.mark.needs("openssl")
def test_the_client_is_said_before_tls(secure: tuple[int, Path], tmp_path: Path) -> None:
    who = Path(f"{secure[1]}.who")
    for version in (1, 2):
        who.write_bytes(b"")
        first = ProxyProtocol(version=version, source="192.0.2.9")  # type: ignore[arg-type]
        target = Target(unix=f"{tmp_path}/tls", tls=Tls(verify=False), proxy_protocol=first)
        item = only_class(ask(target, keepalive_requests=2))
        assert item.errors == {}, version
        assert item.tls_seconds.count == item.connections_opened > 1, version
        assert set(said(who, item)) == {"192.0.2.9"}, version


def test_what_cannot_be_is_refused(run_cli: RunCli) -> None:
    run = run_cli("probe", "http://unix:/" + 120 * "x" + ":/", "--allow-live")
    assert (run.returncode, "107 bytes at most" in run.stderr) == (2, True), run.stderr
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ciphers": ["AES128-SHA"]}, "is not a cipher suite"),
        (
            {"min_version": "1.3", "ciphers": ["ECDHE-RSA-AES256-GCM-SHA384"]},
            "no usable cipher suites",
        ),
        ({"certificate_file": "/nowhere/x.pem", "key_file": "/nowhere/x.pem"}, "/nowhere/x.pem"),
    ]
    for wish, words in wrong:
        with pytest.raises(UsageError, match=words):
            ask(Target(address="127.0.0.1", port=1, tls=Tls(**wish)))


def test_what_is_no_http_says_why() -> None:
    class Answering(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.recv(1000)
                self.request.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                self.request.recv(1000)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        measurement = ask(Target(address="127.0.0.1", port=server.server_address[1]))
        server.shutdown()
    [flag] = [flag for flag in measurement.flags if flag.startswith("not_http: c: first ")]
    assert "byte 0x53 (S) at offset 0 of the head" in flag
    assert set(only_class(measurement).errors) <= {"parse", "reset"}
