"""Several nginx run: which one was watched is said, and what the others did."""

import contextlib
import http.client
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from free_ports import free_port

from nginx_tune.documents.base import decode
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.observation import Cause, Observation, OtherNginx, busier_other
from nginx_tune.nginx.instance import start_instance
from nginx_tune.observe.window.observation import with_pointer
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.screen import plain_text

CONF = """\
user root;
worker_processes 1;
pid {scratch}/nginx.pid;
error_log {scratch}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; server {{ listen 127.0.0.1:{port}; return 200 "ok"; }} }}
"""


@contextlib.contextmanager
def nginx(scratch: Path, *, busy: bool) -> Iterator[int]:
    """One of them, and its pid."""
    scratch.mkdir()
    port = free_port()
    conf = scratch / "nginx.conf"
    conf.write_text(CONF.format(scratch=scratch, port=port))
    running = start_instance(
        "nginx", conf, stderr_path=scratch / "stderr", address=("127.0.0.1", port)
    )
    ended = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        while not ended.wait(0.001):
            connection.request("GET", "/")
            connection.getresponse().read()
        connection.close()

    client = threading.Thread(target=ask, daemon=True)
    if busy:
        client.start()
    try:
        yield running.pid
    finally:
        ended.set()
        if busy:
            client.join()
        running.stop()


@pytest.mark.needs("root", "nginx")
def test_those_that_were_not_watched_are_told(
    run_cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    file = tmp_path / "observation.json"
    arguments = ("observe", "--duration", "2s", "--tracing", "off", "-f", f"json={file}")
    with nginx(tmp_path / "idle", busy=False) as idle, nginx(tmp_path / "busy", busy=True) as busy:
        run = run_cli(*arguments)
        found = decode(Observation, file.read_bytes())
        named = run_cli(*arguments, "--pid", str(idle), "-f", "console")
        alone = decode(Observation, file.read_bytes())
    assert run.returncode == 0, run.stderr
    used = {one.pid: one.cpu_seconds for one in found.others}
    # Another nginx of this host may have been taken, and be among the others.
    assert {idle, busy} - {found.pid} <= set(used)
    if found.pid == idle:
        assert (used[busy] or 0) > (found.server.cpu_seconds or 0)
    assert all(one.reason for one in found.others)
    assert "not used: " in run.stderr
    assert "not observed: " in plain_text(observation_screen(found))
    # Who says which one is not told of others.
    assert (named.stderr, alone.others) == ("", [])
    assert "not observed" not in named.stdout


def test_a_busier_one_is_pointed_at() -> None:
    little = Cause(id="not-enough-evidence", summary="idle", confidence="low", next_command="x")
    for own, other, pointed in (
        (0.001, 0.9, True),
        (0.001, 0.004, False),  # neither did a thing
        (0.5, 0.9, False),
        (0.001, None, False),
        (None, 0.9, False),
    ):
        observation = Observation(
            server=ServerMeasurement(cpu_seconds=own),
            causes=[little],
            others=[OtherNginx(pid=7, binary="/nginx", reason="it came later", cpu_seconds=other)],
        )
        assert (busier_other(observation) is not None) is pointed
        next_command = with_pointer(observation).causes[0].next_command
        assert next_command == ("nginx-tune observe --pid 7" if pointed else "x")
        shown = plain_text(observation_screen(observation))
        assert ("process 7 was busier" in shown) is pointed
        assert "not observed: /nginx of process 7" in shown
