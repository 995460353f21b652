"""The load probe over HTTP/3: against the real nginx of two versions, and ports without QUIC."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from command_line import RunCli
from free_ports import free_port
from nginx_versions import find_nginx, marked
from probe_loads import SIZES, Nginx, load_class, load_plan
from started import number_in, until, workers_of
from tiers import dice
from truth import assert_stop_is_seen, run_past_a_stop

from nginx_tune.documents.loadplan import (
    Arrivals,
    Http2,
    Http3,
    LoadClass,
    LoadPlan,
    Paths,
    Target,
    Tls,
)
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.nginx.lab.network import make_certificate

pytestmark = pytest.mark.needs("nginx", "probe", "nginx-1.30", "openssl")

SERIES = marked("1.26", "1.30")

CONF = """
{user} daemon off; worker_processes {workers}; pid {dir}/pid; error_log {dir}/error.log info;
{main}
events {{ worker_connections 4096; }}
http {{
    log_format asked '$http3 $status $body_bytes_sent $uri';
    access_log {dir}/access.log asked;
    client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
    uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
    ssl_certificate {dir}/certificate.pem; ssl_certificate_key {dir}/certificate.key;
    server {{
        listen {address}:{port} quic reuseport; listen {address}:{port} ssl;
        root {dir}/files;
        {server}
    }}
}}
"""


class Quic(NamedTuple):
    """A running nginx that speaks QUIC."""

    nginx: Nginx
    access_log: Path
    workers: list[int]

    def answered(self, requests: int) -> Counter[str]:
        """Lines of the access log: so many at least, and those that come soon after."""
        until(lambda: self.access_log.read_text().count("\n") >= requests)
        time.sleep(0.3)
        return Counter(self.access_log.read_text().splitlines())


@contextlib.contextmanager
def listening(
    series: str,
    place: Path,
    server: str = "",
    workers: int = 1,
    *,
    main: str = "",
    address: str = "127.0.0.1",
    argv: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[Quic]:
    program = find_nginx(series).program
    (place / "files").mkdir()
    for path, size in SIZES.items():
        (place / "files" / path[1:]).write_bytes(dice(path).randbytes(size))
    make_certificate(place, names=["localhost"])
    port = free_port()
    conf = place / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    text = CONF.format(
        address=address, user=user, main=main, dir=place, port=port, server=server, workers=workers
    )
    conf.write_text(text)
    command = [*argv, program, "-e", str(place / "error.log"), "-c", str(conf)]
    with subprocess.Popen(command, env=env) as process:
        master = process.pid
        try:
            master = number_in(place / "pid")
            until(lambda: len(workers_of(master)) == workers)
            at_work = workers_of(master)
            yield Quic(Nginx(port, place / "error.log"), place / "access.log", at_work)
        finally:
            # What starts nginx is not always nginx itself, and does not end it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(master, signal.SIGTERM)
            process.terminate()


@pytest.fixture
def quic(tmp_path: Path) -> Iterator[Quic]:
    with listening("1.30", tmp_path) as running:
        yield running


def over_http3(*paths: str, **changes: object) -> LoadClass:
    """200 arrivals a second over two connections."""
    return load_class(*paths, **{"connections": 2, "http3": Http3(streams=10), **changes})


def closed(users: int) -> Arrivals:
    return Arrivals(kind="closed", users=users)


def plan_for(port: int, *classes: LoadClass, **changes: Any) -> LoadPlan:
    plan = load_plan(Nginx(port, Path("/dev/null")), *classes, **changes)
    target = msgspec.structs.replace(plan.target, tls=Tls(verify=False))
    return msgspec.structs.replace(plan, target=target)


def measured(port: int, *classes: LoadClass, **changes: Any) -> Measurement:
    return run_probe(plan_for(port, *classes, **changes))


def run(quic: Quic, *classes: LoadClass, **changes: Any) -> dict[str, ClassMeasurement]:
    return dict(measured(quic.nginx.port, *classes, **changes).classes)


@pytest.mark.parametrize("series", SERIES)
def test_whole_files_are_good_and_nginx_counts_the_same(series: str, tmp_path: Path) -> None:
    with listening(series, tmp_path) as quic:
        files = [str(tmp_path / "files" / path[1:]) for path in SIZES]
        paths = Paths(kind="once", paths=list(SIZES), bytes=list(SIZES.values()), files=files)
        found = run(quic, over_http3(paths=paths, hash_ratio=1.0), drain_seconds=60.0)["c"]
        lines = quic.answered(100)
    assert (found.errors, found.censored, found.requests) == ({}, 0, 100)
    assert found.statuses == {"200": 100}
    assert found.bodies is not None
    assert (found.bodies.compared, found.bodies.differing) == (100, 0)
    expected = {"/1k": 34, "/100k": 33, "/4m": 33}
    assert sum(lines.values()) == 100, "each was asked for once"
    assert {line.split()[3] for line in lines} == set(expected)
    assert lines == {f"h3 200 {SIZES[path]} {path}": lines[f"h3 200 {SIZES[path]} {path}"]
                     for path in expected}  # fmt: skip
    assert found.http2 is None
    assert found.http3 is not None
    assert (found.http3.peer_limit, found.http3.goaways, found.http3.resets) == (128, 0, 0)
    assert found.http3.handshakes == found.connections_opened == 2
    assert found.http3.streams == 100
    assert found.http3.datagrams_received > 100


def test_methods_ranges_statuses_and_lengths_are_as_over_http_1(quic: Quic) -> None:
    ten = Paths(kind="fixed", paths=["/1k"], bytes=[10])
    wrong = Paths(kind="fixed", paths=["/1k"], bytes=[1023])
    found = run(
        quic,
        over_http3("/100k", name="head", method="HEAD"),
        over_http3(name="range", paths=ten, headers={"Range": "bytes=0-9"}, status=[206]),
        over_http3(name="longer", paths=wrong),
        over_http3("/none", name="none"),
        over_http3(name="none expected", status=[404], paths=Paths(kind="fixed", paths=["/none"])),
    )
    assert (found["head"].requests, found["head"].bytes) == (100, 0)
    assert found["range"].requests == found["none expected"].requests == 100
    assert (found["longer"].errors, found["none"].errors) == ({"length": 100}, {"status": 100})


@pytest.mark.parametrize("series", SERIES)
def test_a_connection_that_nginx_ends_costs_no_request(series: str, tmp_path: Path) -> None:
    with listening(series, tmp_path, "keepalive_requests 50;") as quic:
        found = run(quic, over_http3("/1k", arrivals=closed(30), connections=3))["c"]
        lines = quic.answered(found.requests)
    assert found.errors == {}
    assert found.http3 is not None
    assert found.http3.goaways >= 3
    assert found.connections_opened >= found.http3.goaways
    assert found.http3.refused == found.retried
    # Those under way at the end were sent, and perhaps answered.
    assert 0 <= sum(lines.values()) - found.requests <= 30


def test_what_a_stopped_server_delays_stands_in_the_latencies(quic: Quic) -> None:
    """What was due waits on the clock, sent or not: three times as many as there are streams."""
    item = over_http3("/1k", connections=1, http3=Http3(streams=100))
    plan = plan_for(quic.nginx.port, item, duration_seconds=3.0)
    measurement, seconds = run_past_a_stop(plan, quic.workers)
    found = measurement.classes["c"]
    assert (found.errors, found.requests, found.censored) == ({}, 600, 0)
    assert_stop_is_seen(found.response_seconds, seconds, 200)
    assert found.http3 is not None
    assert found.http3.most_streams == 100


@pytest.mark.parametrize("series", SERIES)
def test_a_server_that_asks_for_the_address_again_is_answered(series: str, tmp_path: Path) -> None:
    with listening(series, tmp_path, "quic_retry on;") as quic:
        found = run(quic, over_http3("/1k", connections=4))["c"]
        lines = quic.answered(100)
    assert (found.errors, found.requests) == ({}, 100)
    assert sum(lines.values()) == 100
    assert found.http3 is not None
    assert found.http3.handshakes == 4


def test_a_port_without_quic_is_named() -> None:
    few = over_http3("/1k", timeout_seconds=0.4)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        found = measured(port, few)
    assert found.classes["c"].requests == 0
    assert found.classes["c"].errors.keys() <= {"timeout", "connect_timeout"}
    assert [flag for flag in found.flags if flag.startswith("quic: no answer")], found.flags
    closed_port = measured(port, few)
    assert closed_port.classes["c"].errors.keys() <= {"refused", "timeout"}
    assert "refused" in closed_port.classes["c"].errors
    assert "quic: nobody listens on the UDP port" in closed_port.flags


def test_a_certificate_is_checked_as_over_tcp(quic: Quic, tmp_path: Path) -> None:
    for tls, is_good in [
        (Tls(), False),
        (Tls(ca_file=str(tmp_path / "certificate.pem")), True),
        (Tls(ca_file=str(tmp_path / "certificate.pem"), server_name="another.example"), False),
    ]:
        plan = load_plan(quic.nginx, over_http3("/1k", timeout_seconds=0.5))
        target = msgspec.structs.replace(plan.target, tls=tls)
        found = run_probe(msgspec.structs.replace(plan, target=target))
        assert (found.classes["c"].requests == 100) == is_good, tls
        said = [flag for flag in found.flags if flag.startswith("quic: ")]
        assert bool(said) != is_good
        assert is_good or "certificate" in said[0]


def test_what_does_not_go_together_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"http3": Http3(streams=0)}, "http3.streams"),
        ({"http3": Http3(stream_window_bytes=1000)}, "http3.stream_window_bytes"),
        ({"keepalive": False}, "keepalive"),
        ({"connection_use": "turns"}, "connection_use"),
        ({"http2": Http2()}, "cannot be combined with http2"),
        ({"arrivals": closed(21)}, "more users than connections"),
        ({"target": Target(address="127.0.0.1", port=1)}, "TLS 1.3"),
        ({"target": Target(address="127.0.0.1", port=1, tls=Tls(max_version="1.2"))}, "TLS 1.3"),
        ({"target": Target(unix="/run/x", tls=Tls())}, "an address"),
        (
            {"target": Target(address="127.0.0.1", port=1, tls=Tls(ciphers=["AES128-SHA"]))},
            "cipher suite",
        ),
    ]
    for changes, what in refused:
        target = changes.pop("target", None)
        with pytest.raises(UsageError, match=what):
            measured(1, over_http3("/1k", **changes, **({"target": target} if target else {})))


def test_the_command_speaks_it(run_cli: RunCli, quic: Quic, tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{quic.nginx.port}/1k"
    options = ("--duration", "1s", "--warmup", "0", "--allow-live", "--insecure")
    asked = ("probe", url, "--http3", "--connections", "2", "--streams", "5")
    result = run_cli(*asked, *options, "-f", "console", "-f", f"json={tmp_path}/m.json")
    assert result.returncode == 0, result.stderr
    assert "HTTP/3, 2 connections with up to 5 streams" in result.stdout
    assert "streams at once" in result.stdout
    assert "datagrams" in result.stdout
    item = json.loads((tmp_path / "m.json").read_text())["classes"]["url"]
    assert item["users"] == 10
    assert item["http3"]["most_streams"] <= 5
    for wrong, word in [(("--keepalive", "off"), "HTTP/1.1"), (("--http2",), "exclude")]:
        refused = run_cli(*asked, *options, *wrong)
        assert (refused.returncode, word in refused.stderr) == (2, True), refused.stderr
    clear = run_cli("probe", url.replace("https", "http"), "--http3", "--allow-live")
    assert (clear.returncode, "https" in clear.stderr) == (2, True)
