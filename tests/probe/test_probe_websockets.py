"""Messages over WebSockets through a real nginx, with TLS and without, at known delays."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from probe_loads import Nginx, StartNginx, load_class, load_plan
from upload_loads import MARK, UNMARKED

from nginx_tune.documents.lab import WEBSOCKET_PATH, LabEcho, LabOrigin
from nginx_tune.documents.loadplan import Arrivals, LoadPlan, Paths, Tls, WebSocket
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.lab.certificate import make_certificate
from nginx_tune.lab.lifetime import ENVIRONMENT_MARK
from nginx_tune.lab.origin import OriginRequest
from nginx_tune.load.probe import run_probe

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.needs("nginx", "probe")

ECHO = LabEcho(delay_seconds=0.2, stall_seconds=0.5, stall_every_seconds=2.0)
PASSED_ON = (
    "location / {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1; "
    "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; {more} }}"
)
OURS = {"argv": ["sh", "-c", '"$@"; true', "sh"], "env": {ENVIRONMENT_MARK: MARK}}
"""As in a lab: the process that starts nginx has the mark. nginx itself overwrites its own."""


@contextlib.contextmanager
def echoing(echo: LabEcho) -> Iterator[int]:
    """The lab's origin: its port."""
    request = OriginRequest(address="127.0.0.1", origin=LabOrigin(echo=echo), seed=1)
    argv = [sys.executable, "-m", "nginx_tune.lab.origin", msgspec.json.encode(request).decode()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=UNMARKED) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def messages(nginx: Nginx, *, rate: float = 50.0, **changes: object) -> LoadPlan:
    """Five WebSockets for two seconds."""
    item = load_class(
        paths=Paths(kind="fixed", paths=[WEBSOCKET_PATH]),
        arrivals=Arrivals(kind="constant", rate_per_second=rate),
        connections=5,
        websocket=WebSocket(message_bytes=300, messages=200),
    )
    return load_plan(nginx, item, **{"duration_seconds": 2.0, "warmup_seconds": 0.3, **changes})


def measure(plan: LoadPlan) -> ClassMeasurement:
    found = run_probe(plan).classes["c"]
    assert found.websocket is not None
    return found


@pytest.mark.alone  # compares times
@pytest.mark.parametrize("is_secure", [False, True])
def test_delays_and_stalls_are_those_of_the_origin(
    start_nginx: StartNginx, free_port: int, tmp_path: Path, *, is_secure: bool
) -> None:
    words, tls = "", None
    if is_secure:
        made = make_certificate(tmp_path, names=["localhost"])
        words = f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key};"
        tls = Tls(ca_file=str(made.certificate))
    with echoing(ECHO) as origin:
        nginx = start_nginx(
            server=f"listen 127.0.0.1:{free_port} {'ssl' if tls else ''}; {words}"
            + PASSED_ON.format(port=origin, more=""),
            **OURS,
        )
        plan = messages(Nginx(free_port, nginx.error_log), duration_seconds=4.0)
        target = msgspec.structs.replace(plan.target, tls=tls)
        plan = msgspec.structs.replace(plan, target=target)
        for _ in range(4):  # on a busy machine one may be spoilt
            seen = measure(plan)
            assert seen.errors == {}
            assert seen.requests == 200
            if is_near(seen):
                break
        else:
            pytest.fail(f"{seen}")
    channel = seen.websocket
    assert channel is not None
    assert (channel.opened, channel.early_ends, channel.late) == (5, 0, 0)


def is_near(seen: ClassMeasurement) -> bool:
    """Within 3 %: a quarter of the time is a stall, whose length is spread over its messages."""
    assert seen.websocket is not None
    latency, gap = seen.response_seconds, seen.websocket.gap_seconds.max or 0.0
    truths = ((latency.p50, 0.2), (latency.p90, 0.5), (latency.max, 0.7))
    # A connection speaks every 0.1 s: its gap is the stall, and up to one more of these.
    return 0.49 < gap < 0.63 and all(
        value is not None and abs(value / truth - 1) < 0.03 for value, truth in truths
    )


def test_a_time_without_a_word_ends_websockets_by_tcp_alone(start_nginx: StartNginx) -> None:
    with echoing(LabEcho()) as origin:
        more = "proxy_read_timeout 300ms;"
        nginx = start_nginx(server=PASSED_ON.format(port=origin, more=more), **OURS)
        seen = measure(messages(nginx, rate=5.0, duration_seconds=3.0))
    channel = seen.websocket
    assert channel is not None
    assert channel.tcp_ends >= 5
    assert channel.closes == {}
    assert channel.early_ends == channel.tcp_ends
    assert seen.requests + sum(seen.errors.values()) == 15
    assert seen.connections_opened > 5


def test_a_reload_leaves_websockets_until_the_shutdown_timeout(
    start_nginx: StartNginx, tmp_path: Path
) -> None:
    for main, ends in (("", 0), ("worker_shutdown_timeout 300ms;", 5)):
        with echoing(LabEcho()) as origin:
            nginx = start_nginx(main=main, server=PASSED_ON.format(port=origin, more=""), **OURS)

            def reload() -> None:
                time.sleep(1.0)
                os.kill(int((tmp_path / "nginx.pid").read_text()), 1)

            thread = threading.Thread(target=reload)
            thread.start()
            seen = measure(messages(nginx, duration_seconds=3.0))
            thread.join()
            os.kill(int((tmp_path / "nginx.pid").read_text()), 15)
        channel = seen.websocket
        assert channel is not None
        assert (channel.tcp_ends + channel.resets, channel.closes) == (ends, {}), seen
        assert channel.opened == 5 + ends
        assert seen.requests >= 140


def test_an_upgrade_that_is_not_passed_on_is_refused(start_nginx: StartNginx) -> None:
    with echoing(LabEcho()) as origin:
        nginx = start_nginx(
            server=f"location / {{ proxy_pass http://127.0.0.1:{origin}; }}", **OURS
        )
        seen = measure(messages(nginx))
    assert seen.websocket is not None
    assert seen.websocket.opened == seen.requests == 0
    assert set(seen.websocket.refused) == {"404"}
    assert seen.errors["upgrade"] > 10


def test_the_command_sends_messages_to_our_own_servers_alone(
    start_nginx: StartNginx, run_cli: RunCli
) -> None:
    with echoing(LabEcho()) as origin:
        nginx = start_nginx(server=PASSED_ON.format(port=origin, more=""), **OURS)
        url = nginx.url(WEBSOCKET_PATH)
        options = ("--websocket", "--rate", "50", "--message-bytes", "1000", "--duration", "1s")
        said = run_cli("probe", url, *options, "--connections", "4", "--text")
        assert said.returncode == 0, said.stderr
        assert "4 WebSockets with up to 100 messages on their way" in said.stdout
        assert "each a text message of 1000 B that awaits its echo" in said.stdout
        assert "4 WebSockets opened" in said.stdout
        again = run_cli("probe", url, "--websocket", "--connections", "2", "--duration", "1s",
                        "-f", "json")  # fmt: skip
        assert json.loads(again.stdout)["classes"]["url"]["websocket"]["opened"] == 2
        # The origin was started by no lab: no option lets a message through.
        others = f"http://127.0.0.1:{origin}{WEBSOCKET_PATH}"
        refused = run_cli("probe", others, "--websocket", "--allow-live")
        assert refused.returncode == 2
        assert "sends messages" in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--message-bytes", "9"), "go with --websocket"),
        (("--text",), "go with --websocket"),
        (("--websocket", "--http2"), "--http2 does not go with --websocket"),
        (("--websocket", "--event-stream"), "--event-stream does not go with --websocket"),
        (("--websocket", "--head"), "--head does not go with --websocket"),
        (("--websocket", "--status", "101"), "--status does not go with --websocket"),
        (("--websocket", "--max-connections", "9"), "--max-connections does not go"),
        (("--websocket", "--start-at", "2099-01-01T00:00:00Z"), "--start-at does not go"),
    ],
)
def test_what_does_not_go_with_messages_is_said(
    run_cli: RunCli, words: tuple[str, ...], message: str
) -> None:
    refused = run_cli("probe", "http://127.0.0.1:1/", *words)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert refused.stderr.count("\n") <= 2
