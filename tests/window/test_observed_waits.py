"""Waits and refusals of a real nginx whose connections are kept and whose clients never pause."""

import contextlib
import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import RunCli
from free_ports import free_port
from slow_upstreams import SlowUpstream

from nginx_tune.documents.base import decode
from nginx_tune.documents.observation import Observation
from nginx_tune.nginx.instance import start_instance
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.screen import plain_text

CLIENTS = 8
CONF = """\
user root;
worker_processes 1;
pid {scratch}/nginx.pid;
error_log {scratch}/error.log {level};
events {{ worker_connections 256; }}
http {{
    access_log off;
    limit_req_zone $server_port zone=few:1m rate=5r/s;
    limit_req_zone $server_port zone=late:1m rate=20r/s;
    upstream app {{ server 127.0.0.1:{upstream}; keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        location = /status {{ stub_status; }}
        location = /memory {{ return 200 "ok"; }}
        location = /refused {{ limit_req zone=few; root {scratch}; }}
        location = /delayed {{ limit_req zone=late burst=100; root {scratch}; }}
        location /app {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""


@contextlib.contextmanager
def asking(port: int, path: str, think: float) -> Iterator[None]:
    """Clients that keep their connections."""
    ended = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with contextlib.suppress(OSError, http.client.HTTPException):
            while not ended.is_set():
                connection.request("GET", path)
                connection.getresponse().read()
                ended.wait(think)
        connection.close()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


class Case:
    """An nginx, and what is said of it under one kind of clients."""

    def __init__(self, run_cli: RunCli, scratch: Path) -> None:
        self.run_cli = run_cli
        self.scratch = scratch
        (scratch / "refused").write_bytes(b"x" * 200)
        (scratch / "delayed").write_bytes(b"x" * 200)

    def seen(
        self, path: str, think: float, *options: str, upstream: float = 0.3, level: str = "error"
    ) -> Observation:
        port = free_port()
        behind = SlowUpstream(upstream, keeps=True)
        conf = self.scratch / "nginx.conf"
        conf.write_text(
            CONF.format(scratch=self.scratch, port=port, upstream=behind.port, level=level)
        )
        running = start_instance(
            "nginx", conf, stderr_path=self.scratch / "stderr", address=("127.0.0.1", port)
        )
        file = self.scratch / "observation.json"
        try:
            with contextlib.closing(behind), asking(port, path, think):
                run = self.run_cli(
                    "observe", "--pid", str(running.pid), "--duration", "3s", *options,
                    "-f", "console", "-f", f"json={file}",
                )  # fmt: skip
        finally:
            running.stop()
        assert run.returncode == 0, run.stderr
        return decode(Observation, file.read_bytes())

    def named(self, cause: str, path: str, *options: str) -> Observation:
        """What is seen once the cause comes first: a busy machine may spend a window otherwise."""
        for _ in range(4):
            found = self.seen(path, 0.0, *options)
            if found.causes[0].id == cause:
                break
        assert found.causes[0].id == cause, shown(found)
        return found


@pytest.fixture
def case(run_cli: RunCli, tmp_path: Path) -> Case:
    return Case(run_cli, tmp_path)


def shown(found: Observation) -> str:
    return plain_text(observation_screen(found))


@pytest.mark.needs("root", "nginx")
@pytest.mark.parametrize(
    "options", [("--no-stub-status",), pytest.param((), marks=pytest.mark.thorough)]
)
def test_a_slow_upstream_behind_kept_connections_is_named(
    case: Case, options: tuple[str, ...]
) -> None:
    found = case.named("slow-upstream", "/app", *options)
    waiting = found.server.waiting
    assert waiting is not None
    assert waiting.clients_waiting > CLIENTS / 2
    assert waiting.upstreams_waiting + waiting.upstreams_unclear > CLIENTS / 2


@pytest.mark.needs("root", "nginx")
def test_a_limit_that_delays_is_never_nothing(case: Case) -> None:
    found = case.named("cause-not-known", "/delayed")
    waiting = found.server.waiting
    assert waiting is not None
    assert waiting.clients_waiting > CLIENTS / 2


@pytest.mark.needs("root", "nginx", "tracefs")
@pytest.mark.alone  # the kernel traces process numbers of the host
@pytest.mark.parametrize("path", ["/app", pytest.param("/memory", marks=pytest.mark.thorough)])
def test_clients_that_think_wait_for_nobody(case: Case, path: str) -> None:
    # On a busy machine they wait for a CPU, which is said, and for nothing else.
    for _ in range(4):
        found = case.seen(path, 0.1, upstream=0.0)
        assert {one.id for one in found.causes} <= {"nothing-found", "cpu-contention"}, shown(found)
        if found.causes[0].id == "nothing-found":
            assert found.causes[0].confidence == "high", shown(found)
            assert found.server.waiting is not None
            assert found.server.waiting.clients_waiting < CLIENTS / 4, shown(found)
            break


@pytest.mark.needs("root", "nginx")
def test_a_limit_that_refuses_is_named_and_never_hidden(case: Case) -> None:
    found = case.seen("/refused", 0.05)
    assert "refused-by-limit" in [one.id for one in found.causes], shown(found)
    assert (found.server.refused_by_limit or 0) > 100
    assert "lines of level error or worse" not in shown(found)
    hidden = case.seen("/refused", 0.05, level="crit")
    server = hidden.server
    assert (server.refused_by_limit, server.upstream_failures) == (None, None)
    assert (server.read_errors, server.connections_exhausted) == (0, 0)
    assert hidden.causes[0].id != "nothing-found" or hidden.causes[0].confidence == "medium"
    assert "upstream failures" not in shown(hidden).split("error logs:")[1].splitlines()[0]
    assert "has level crit" in shown(hidden)
