"""The load probe over HTTP/2: against the real nginx of several versions, and peers that err."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import RunCli
from http2_peer import GOAWAY, SETTINGS, Reply, answer, frame, http2_peer
from nginx_versions import find_nginx, marked
from probe_loads import SIZES, Nginx, StartNginx, load_class, load_plan
from started import await_port, children
from truth import assert_stop_is_seen, run_past_a_stop

from nginx_tune.documents.loadplan import Arrivals, Http2, LoadClass, Paths, Tls
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.measure.proof.histogram import decode_histogram
from nginx_tune.nginx.lab.network import make_certificate

pytestmark = pytest.mark.needs("nginx", "probe")


PORTS = "add_header X-Probe-Worker $remote_port; keepalive_requests 1000000;"


def over_http2(*paths: str, **changes: object) -> LoadClass:
    """200 arrivals a second over two connections."""
    return load_class(*paths, **{"connections": 2, "http2": Http2(streams=10), **changes})


def closed(users: int) -> Arrivals:
    return Arrivals(kind="closed", users=users)


def run(nginx: Nginx, *classes: LoadClass, tls: Tls | None = None) -> dict[str, ClassMeasurement]:
    plan = load_plan(nginx, *classes)
    target = msgspec.structs.replace(plan.target, tls=tls)
    return dict(run_probe(msgspec.structs.replace(plan, target=target)).classes)


def listening(start_nginx: StartNginx, port: int, **parts: Any) -> Nginx:
    """An nginx that speaks HTTP/2 without TLS on a port of its own."""
    server = f"listen 127.0.0.1:{port} http2; {parts.pop('server', '')}"
    nginx = start_nginx(server=server, **parts)
    return Nginx(port, nginx.error_log)


@pytest.fixture
def nginx(start_nginx: StartNginx, free_port: int) -> Nginx:
    return listening(start_nginx, free_port)


def test_whole_files_are_good_and_counted_to_the_byte(nginx: Nginx, tmp_path: Path) -> None:
    files = [str(tmp_path / "files" / path[1:]) for path in SIZES]
    paths = Paths(kind="uniform", paths=list(SIZES), bytes=list(SIZES.values()), files=files)
    found = run(nginx, over_http2(paths=paths, hash_ratio=1.0))["c"]
    assert (found.errors, found.requests, found.statuses) == ({}, 100, {"200": 100})
    assert found.bodies is not None
    assert (found.bodies.compared, found.bodies.differing) == (100, 0)
    assert found.connections_opened == 2
    assert found.http2 is not None
    assert (found.http2.peer_limit, found.http2.goaways, found.http2.resets) == (128, 0, 0)


def test_a_connection_that_nginx_ends_costs_no_request(
    start_nginx: StartNginx, free_port: int
) -> None:
    nginx = listening(start_nginx, free_port, server="keepalive_requests 50;")
    found = run(nginx, over_http2("/1k", arrivals=closed(30), connections=3))["c"]
    assert found.errors == {}
    assert found.http2 is not None
    assert found.http2.goaways >= 3
    assert found.connections_opened >= found.http2.goaways
    assert found.retried > 0, "requests behind the GOAWAY are sent again"


def test_what_a_stopped_server_delays_stands_in_the_latencies(nginx: Nginx) -> None:
    """What was due waits on the clock, sent or not: three times as many as there are streams."""
    item = over_http2("/1k", connections=1, http2=Http2(streams=100))
    master = int((nginx.error_log.parent / "nginx.pid").read_text())
    plan = load_plan(nginx, item, duration_seconds=3.0)
    measurement, seconds = run_past_a_stop(plan, children(master))
    found = measurement.classes["c"]
    assert (found.errors, found.requests, found.censored) == ({}, 600, 0)
    assert_stop_is_seen(found.response_seconds, seconds, 200)
    assert found.http2 is not None
    assert found.http2.most_streams == 100


@pytest.fixture
def certificate(tmp_path: Path) -> str:
    """Directives that show it."""
    made = make_certificate(tmp_path, names=["localhost"])
    return f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key};"


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_over_tls_by_alpn(
    start_nginx: StartNginx, free_port: int, certificate: str, version: str
) -> None:
    listen = f"listen 127.0.0.1:{free_port} ssl http2; {certificate} ssl_protocols {version};"
    nginx = Nginx(free_port, start_nginx(server=listen).error_log)
    item = over_http2(*SIZES, arrivals=closed(60), connections=6)
    found = run(nginx, item, tls=Tls(verify=False))["c"]
    assert found.errors == {}
    assert found.requests > 0
    assert [one.version for one in found.tls_sessions] == [version.removeprefix("TLSv")]


@pytest.mark.needs("openssl")
def test_a_server_without_it_is_named(
    start_nginx: StartNginx, free_port: int, certificate: str
) -> None:
    listen = f"listen 127.0.0.1:{free_port} ssl; {certificate}"
    plain = start_nginx(server=listen)
    few = over_http2("/1k", timeout_seconds=1.0)
    clear = run_probe(load_plan(plain, few))
    assert clear.classes["c"].errors.keys() <= {"parse", "timeout"}
    assert any("HTTP/1.x: the server does not speak HTTP/2" in flag for flag in clear.flags)
    plan = load_plan(Nginx(free_port, plain.error_log), few)
    target = msgspec.structs.replace(plan.target, tls=Tls(verify=False))
    coded = run_probe(msgspec.structs.replace(plan, target=target))
    assert coded.classes["c"].errors.keys() <= {"tls", "timeout"}
    assert any(flag.startswith("tls: ") for flag in coded.flags), coded.flags


@pytest.mark.parametrize("series", marked("1.18", "1.26", "1.30"))
def test_other_versions_answer_all(series: str, tmp_path: Path, free_port: int) -> None:
    program = find_nginx(series).program
    as_before = tuple(map(int, series.split("."))) < (1, 25)
    limit = "http2_max_requests" if series == "1.18" else "keepalive_requests"
    listen = f"listen 127.0.0.1:{free_port}" + (" http2;" if as_before else "; http2 on;")
    for path, size in SIZES.items():
        (tmp_path / path[1:]).write_bytes(b"x" * size)
    conf = tmp_path / "nginx.conf"
    paths = "".join(
        f"{name}_temp_path {tmp_path}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf.write_text(
        f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;"
        f" events {{ }} http {{ access_log off; {paths} {limit} 30;"
        f" server {{ {listen} root {tmp_path}; }} }}"
    )
    with subprocess.Popen([program, "-c", conf]) as process:
        try:
            await_port(free_port, process)
            item = over_http2(*SIZES, timeout_seconds=30.0)
            found = run(Nginx(free_port, tmp_path / "error.log"), item)["c"]
        finally:
            process.terminate()
    # 1.18 closes a connection that has had its requests while more is being said there, and the
    # kernel resets it (lingering since 1.19.1).
    assert found.errors.keys() <= ({"truncated", "reset"} if as_before else set())
    assert found.requests > 70
    assert found.http2 is not None
    assert found.http2.goaways > 0


def peer_run(
    reply: Callable[[int, int], Reply], **changes: Any
) -> tuple[ClassMeasurement, list[str], list[tuple[int, int]]]:
    settings = changes.pop("settings", frame(SETTINGS, 0, 0))
    with http2_peer(reply, settings) as peer:
        paths = Paths(kind="fixed", paths=["/"])
        parts = {"paths": paths, "timeout_seconds": 0.4, "connections": 1, **changes}
        nginx = Nginx(peer.port, Path("/dev/null"))
        measured = run_probe(load_plan(nginx, over_http2(**parts)))
    return measured.classes["c"], measured.flags, peer.requests


def test_a_request_that_was_not_looked_at_is_answered_elsewhere_with_its_own_start() -> None:
    """The first connection answers one request and leaves the others unseen, late."""

    def reply(connection: int, stream: int) -> Reply:
        if connection > 0 or stream == 1:
            return Reply(answer(stream))
        if stream == 9:
            return Reply(frame(GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\0"), after_seconds=0.1)
        return Reply(b"")

    found, _, requests = peer_run(reply)
    assert (found.errors, found.requests) == ({}, 100)
    assert found.http2 is not None
    assert (found.http2.goaways, found.http2.refused) == (1, found.retried)
    assert found.retried >= 4
    assert [stream for connection, stream in requests if connection == 0][:5] == [1, 3, 5, 7, 9]
    assert found.response_seconds.max is not None
    assert found.response_seconds.max >= 0.1, "from the start that was intended"


def test_a_connection_that_still_ends_what_it_has_holds_up_nobody() -> None:
    """The server takes no more on the first one, whose one stream lasts: a second one is opened."""

    def reply(connection: int, stream: int) -> Reply:
        if connection > 0:
            return Reply(answer(stream))
        if stream == 1:
            return Reply(answer(stream), after_seconds=2.0)
        return Reply(frame(GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\0"))

    found, _, requests = peer_run(reply, timeout_seconds=5.0)
    assert (found.errors, found.requests, found.censored) == ({}, 100, 0)
    histogram = decode_histogram(found.response_seconds.histogram)
    assert histogram.count_above(1_500_000_000) == 1
    assert {connection for connection, _ in requests} == {0, 1}


def test_what_does_not_go_together_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"http2": Http2(streams=0)}, "http2.streams"),
        ({"http2": Http2(stream_window_bytes=1000)}, "http2.stream_window_bytes"),
        ({"keepalive": False}, "keepalive"),
        ({"connection_use": "turns"}, "connection_use"),
        ({"arrivals": closed(21)}, "more users than connections"),
    ]
    for changes, what in refused:
        with pytest.raises(UsageError, match=what):
            run_probe(load_plan(Nginx(1, Path("/")), over_http2("/1k", **changes)))


def test_the_command_speaks_it(run_cli: RunCli, nginx: Nginx) -> None:
    options = ("--duration", "1s", "--warmup", "0", "--allow-live")
    asked = ("probe", nginx.url("/1k"), "--http2", "--connections", "2", "--streams", "5")
    result = run_cli(*asked, *options, "-f", "console", "-f", f"json={nginx.error_log}.json")
    assert result.returncode == 0, result.stderr
    assert "HTTP/2, 2 connections with up to 5 streams" in result.stdout
    assert "streams at once" in result.stdout
    item = json.loads(Path(f"{nginx.error_log}.json").read_text())["classes"]["url"]
    assert item["users"] == 10
    assert item["http2"]["most_streams"] <= 5
    refused = run_cli(*asked, *options, "--keepalive", "off")
    assert (refused.returncode, "HTTP/1.1" in refused.stderr) == (2, True), refused.stderr
    alone = run_cli("probe", nginx.url("/1k"), "--streams", "5", *options)
    assert (alone.returncode, "--http2" in alone.stderr) == (2, True)
