"""The load probe over TLS, against the real nginx."""

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from command_line import RunCli
from free_ports import free_port
from probe_loads import SIZES, StartNginx, load_class, load_plan

from nginx_tune.documents.base import decode
from nginx_tune.documents.loadplan import Arrivals, LoadPlan, Tls
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.nginx.lab.network import make_certificate
from nginx_tune.report.measurement import measured_screen
from nginx_tune.report.screen import plain_text

pytestmark = pytest.mark.needs("nginx", "probe", "openssl")


class Secure(NamedTuple):
    """A server with TLS, and the certificate that it shows."""

    plan: LoadPlan
    port: int
    certificate: Path

    def run(self, tls: Tls, *, path: str = "/1k", **changes: object) -> Measurement:
        item = load_class(path, **changes)
        if path not in SIZES:
            paths = msgspec.structs.replace(item.paths, bytes=None)
            item = msgspec.structs.replace(item, paths=paths)
        target = msgspec.structs.replace(self.plan.target, tls=tls)
        plan = msgspec.structs.replace(self.plan, target=target, classes=[item])
        return run_probe(plan)


@pytest.fixture
def secure(start_nginx: StartNginx, tmp_path: Path) -> Secure:
    certificate, key = make_certificate(tmp_path, names=["localhost", "127.0.0.1"])
    port = free_port()
    nginx = start_nginx(
        server=f"listen 127.0.0.1:{port} ssl; ssl_certificate {certificate};"
        f" ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;"
        " ssl_session_cache shared:tls:1m;"
        " location = /gone { keepalive_timeout 0; return 200 gone; }"
        " location = /name { return 200 $ssl_server_name; }"
        " location = /agreed { return 200 '$ssl_protocol $ssl_cipher'; }"
    )
    plan = load_plan(nginx, load_class("/1k"))
    target = msgspec.structs.replace(plan.target, port=port)
    permit = msgspec.structs.replace(plan.permit, ports=[port])
    return Secure(msgspec.structs.replace(plan, target=target, permit=permit), port, certificate)


def only_class(measurement: Measurement) -> ClassMeasurement:
    [item] = measurement.classes.values()
    return item


def test_bodies_are_whole_and_handshakes_are_told_apart(secure: Secure) -> None:
    for path, rate in (("/1k", 200), ("/4m", 20)):
        arrivals = Arrivals(kind="constant", rate_per_second=rate)
        measurement = secure.run(Tls(ca_file=str(secure.certificate)), path=path, arrivals=arrivals)
        item = only_class(measurement)
        assert item.errors == {}, path
        assert item.requests == item.intended > 0, path
        assert 0 < item.tls_seconds.count <= item.connections_opened, path
        assert item.connect_seconds.p50 is not None
        assert item.tls_seconds.p50 is not None
        assert item.connect_seconds.p50 < item.tls_seconds.p50, path
        assert measurement.generator.cpu_seconds > 0


def test_a_session_is_taken_up_unless_told_otherwise(secure: Secure) -> None:
    trusting = Tls(ca_file=str(secure.certificate))
    again = only_class(secure.run(trusting, keepalive=False))
    assert again.errors == {}
    # On a busy machine some answers come behind the window.
    assert 0 < again.requests <= again.tls_seconds.count <= again.connections_opened
    assert again.tls_resumed > again.requests / 2
    afresh = msgspec.structs.replace(trusting, resumption=False)
    assert only_class(secure.run(afresh, keepalive=False)).tls_resumed == 0


def test_what_was_agreed_on_is_told(secure: Secure) -> None:
    # The server itself says so: its answer's length is that of its own words.
    for offered, agreed in (
        (Tls(verify=False), ("1.3", "TLS_AES_256_GCM_SHA384")),
        (
            Tls(verify=False, ciphers=["TLS_CHACHA20_POLY1305_SHA256"]),
            ("1.3", "TLS_CHACHA20_POLY1305_SHA256"),
        ),
        (
            Tls(verify=False, max_version="1.2", ciphers=["ECDHE-ECDSA-AES128-GCM-SHA256"]),
            ("1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ),
    ):
        version, cipher = agreed
        measurement = secure.run(offered, path="/agreed", keepalive=False)
        item = only_class(measurement)
        assert item.errors == {}, agreed
        [sessions] = item.tls_sessions
        assert (sessions.version, sessions.cipher) == agreed
        assert sessions.connections >= item.requests > 0, agreed
        # Bytes count when they come, requests when they were due: on a busy machine most of them
        # come behind the window.
        length = len(f"TLSv{version} {cipher}")
        assert item.bytes % length == 0, agreed
        assert 0 < item.bytes // length <= item.requests
        assert f"TLS {version} {cipher}, handshakes took" in plain_text(
            measured_screen(measurement)
        )


def test_a_certificate_that_is_not_good_fails_each_request(secure: Secure, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other", names=["other"]).certificate
    for name, authorities, words in (
        (None, other, "invalid peer certificate"),
        ("other.example", secure.certificate, "not valid for name"),
    ):
        measurement = secure.run(Tls(ca_file=str(authorities), server_name=name))
        item = only_class(measurement)
        assert item.errors == {"tls": item.intended}, name
        [flag] = [flag for flag in measurement.flags if flag.startswith("tls: ")]
        assert words in flag
        insecure = only_class(secure.run(Tls(verify=False, server_name=name)))
        assert insecure.errors == {}, name


def test_the_server_is_told_the_name(secure: Secure) -> None:
    # nginx answers with the name itself: its length tells it.
    item = only_class(secure.run(Tls(verify=False, server_name="a.example"), path="/name"))
    assert item.errors == {}
    assert item.bytes % len("a.example") == 0 < item.bytes


def test_curls_options_do_on_the_command_line(secure: Secure, run_cli: RunCli) -> None:
    url = f"https://localhost:{secure.port}/1k"
    short = ("--allow-live", "--duration", "500ms", "--warmup", "0", "--rate", "100", "-f", "json")
    for options in (["--cacert", secure.certificate], ["-k"]):
        run = run_cli("probe", url, *short, *options)
        assert run.returncode == 0, run.stderr
        item = decode(Measurement, run.stdout.encode()).classes["url"]
        assert item.errors == {}
        assert item.tls_seconds.count > 0
    refused = run_cli("probe", url, *short)
    assert refused.returncode == 4
    assert decode(Measurement, refused.stdout.encode()).classes["url"].errors.keys() == {"tls"}
