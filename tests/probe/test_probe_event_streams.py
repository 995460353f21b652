"""Watched answers through a real nginx, over HTTP/1.1, HTTP/2 and TLS, at a known pace."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from probe_loads import Nginx, StartNginx, load_class, load_plan
from test_probe_http3 import listening as listening_quic

from nginx_tune.documents.lab import LabEvents, LabOrigin
from nginx_tune.documents.loadplan import Arrivals, EventStream, Http2, Http3, LoadPlan, Tls
from nginx_tune.documents.measured_class import EventStreams
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.nginx.lab.check import LAST, STAMP
from nginx_tune.nginx.lab.network import make_certificate
from nginx_tune.nginx.lab.origin import OriginRequest

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.needs("nginx", "probe")

EVENTS = LabEvents(per_second=50.0, event_bytes=256, count=1000)
USERS = 8


@pytest.fixture
def origin_port() -> Iterator[int]:
    request = OriginRequest(address="127.0.0.1", origin=LabOrigin(events=EVENTS), seed=1)
    argv = [
        sys.executable,
        "-m",
        "nginx_tune.nginx.lab.origin",
        msgspec.json.encode(request).decode(),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with contextlib.ExitStack() as stack:
            stack.callback(process.kill)
            yield int(process.stdout.readline())


def watch(
    plan: LoadPlan,
    *,
    tls: Tls | None = None,
    http2: Http2 | None = None,
    http3: Http3 | None = None,
) -> EventStreams:
    """Eight streams for two seconds."""
    target = msgspec.structs.replace(plan.target, tls=tls)
    plan = msgspec.structs.replace(
        plan,
        target=target,
        duration_seconds=2.0,
        classes=[
            msgspec.structs.replace(
                item,
                arrivals=Arrivals(kind="closed", users=USERS),
                connections=2 if http2 or http3 else USERS,
                http2=http2,
                http3=http3,
                event_stream=EventStream(stamp=STAMP, end=LAST),
            )
            for item in plan.classes
        ],
    )
    found = run_probe(plan).classes["c"]
    assert found.errors == {}
    assert found.event_stream is not None
    assert found.event_stream.cut == found.event_stream.most_open == USERS
    return found.event_stream


@pytest.mark.alone  # compares times
@pytest.mark.parametrize(
    "way",
    [
        "http1",
        "tls-http2",
        pytest.param("http2", marks=pytest.mark.thorough),
        pytest.param("tls", marks=pytest.mark.thorough),
    ],
)
def test_what_nginx_passes_on_at_once_has_the_pace_of_the_origin(
    start_nginx: StartNginx, free_port: int, tmp_path: Path, origin_port: int, way: str
) -> None:
    words, tls = "", None
    if "tls" in way:
        made = make_certificate(tmp_path, names=["localhost"])
        words = f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key};"
        tls = Tls(ca_file=str(made.certificate))
    nginx = start_nginx(
        server=f"listen 127.0.0.1:{free_port} {'ssl' if tls else ''} "
        f"{'http2' if 'http2' in way else ''}; {words} location /events {{ "
        f"proxy_pass http://127.0.0.1:{origin_port}; proxy_buffering off; }}",
    )
    plan = load_plan(Nginx(free_port, nginx.error_log), load_class("/events"))
    http2 = Http2(streams=10) if "http2" in way else None
    check_pace(lambda: watch(plan, tls=tls, http2=http2))


@pytest.mark.needs("nginx-1.30", "openssl")
@pytest.mark.alone  # compares times
def test_a_stream_over_http3_has_the_pace_of_the_origin(tmp_path: Path, origin_port: int) -> None:
    passed_on = (
        f"location /events {{ proxy_pass http://127.0.0.1:{origin_port}; proxy_buffering off; }}"
    )
    with listening_quic("1.30", tmp_path, passed_on) as quic:
        plan = load_plan(quic.nginx, load_class("/events"))
        check_pace(lambda: watch(plan, tls=Tls(verify=False), http3=Http3(streams=10)))


def check_pace(watched: Callable[[], EventStreams]) -> None:
    """Gaps of the origin's pace within 3 %, an event in each piece, and hardly any delay."""
    for _ in range(4):  # on a busy machine one may be spoilt
        seen = watched()
        assert seen.gap_seconds.mean is not None
        close = abs(seen.gap_seconds.mean / 0.02 - 1) < 0.03
        if close and seen.events / seen.pieces > 0.97:
            break
    else:
        pytest.fail(f"{seen}")
    assert seen.events_ahead == 0
    assert (seen.event_delay_seconds.p50 or 1.0) < 0.01


def test_a_buffer_of_nginx_shows_in_events_a_piece(
    start_nginx: StartNginx, origin_port: int
) -> None:
    nginx = start_nginx(server=f"location /events {{ proxy_pass http://127.0.0.1:{origin_port}; }}")
    seen = watch(load_plan(nginx, load_class("/events")))
    # 4 KiB of 256 bytes each; the first buffer has the head in it.
    assert 14 <= seen.events / seen.pieces <= 17
    assert seen.gap_seconds.p50 == pytest.approx(16 / 50, rel=0.3)


def test_the_command_watches_and_tells(
    start_nginx: StartNginx, run_cli: RunCli, origin_port: int
) -> None:
    nginx = start_nginx(server=f"location /events {{ proxy_pass http://127.0.0.1:{origin_port}; }}")
    url = f"http://127.0.0.1:{nginx.port}/events"
    said = run_cli(
        "probe", url, "--event-stream", "--stamp", STAMP, "--stream-end", LAST, "--allow-live",
        "--duration", "1s", "--warmup", "0", "--connections", "2",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "2 bodies began, at most 2 at once; 0 ended whole, 2 were cut off" in said.stdout
    for words, message in (
        (("--stamp", STAMP), "go with --event-stream"),
        (("--event-stream", "--stamp", "sent1"), "last character no digit"),
        (("--event-stream", "--head"), "--head does not go with --event-stream"),
    ):
        refused = run_cli("probe", url, *words, "--allow-live")
        assert refused.returncode == 2
        assert message in refused.stderr
