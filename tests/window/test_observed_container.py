"""Observing an nginx in a container: processes, mounts and a network of its own, and a cgroup.

What it is called inside is something else outside: its port and its logs have others' names here.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import RunCli
from own_name import own_name

from nginx_tune.documents.base import decode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.observation import Observation
from nginx_tune.nginx.lab.cgroups import LabCgroups
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.screen import plain_text

pytestmark = pytest.mark.needs("root", "nginx", "ip")

MIB = 1 << 20

CONF = """\
user root;
worker_processes 2;
daemon off;
pid {place}/nginx.pid;
error_log {log};
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=77;
        root {place};
        location = /status {{ stub_status; }}
        location / {{ }}
    }}
}}
"""

ASK = """\
import contextlib, http.client, sys, time
while True:
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    with contextlib.suppress(OSError):
        connection.request("GET", "/none")
        connection.getresponse().read()
    connection.close()
    time.sleep(0.02)
"""
"""Of the container's own network; each of its requests is a line in the error log."""


class Container(NamedTuple):
    """A container and what has its names outside."""

    master: int
    port: int
    log: Path


@contextlib.contextmanager
def run_container(place: Path, log: str, stderr: Path) -> Iterator[Container]:
    """Its nginx lies on a tmpfs of its own over ``place``, where we see other files."""
    place.mkdir()
    (place / "error.log").touch()
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # backlog of its own
        port = int(ours.getsockname()[1])
        group = LabCgroups(f"contained-{own_name()}-{port}")
        group.use("memory")
        stack.callback(group.remove)
        conf = stderr.with_name("nginx.conf")
        conf.write_text(CONF.format(place=place, log=log, port=port))
        joins = "; ".join(f"echo $$ > {file}" for file in group.join_files())
        script = (
            f"mount -t tmpfs tmpfs {place}; cp {conf} {place}/nginx.conf; ip link set lo up; "
            f"ln -s /dev/stderr {place}/stream.log; "
            f"{sys.executable} -c '{ASK}' {port} 2>/dev/null & "
            f"exec nginx -c {place}/nginx.conf"
        )
        sandbox = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        program = [
            "sh",
            "-e",
            "-c",
            f'{joins}; exec "$@"',
            "sh",
            *sandbox,
            "sh",
            "-e",
            "-c",
            script,
        ]
        with stderr.open("wb") as file:
            outer = subprocess.Popen(program, stderr=file)
        stack.callback(outer.wait, 30)
        stack.callback(outer.send_signal, signal.SIGKILL)
        yield Container(_await_master(outer), port, place / "error.log")


def _await_master(outer: subprocess.Popen[bytes]) -> int:
    """The id that we see of the first process inside, once nginx serves."""
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    for _ in range(400):
        assert outer.poll() is None, "the container did not start"
        for child in children.read_text().split():
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{child}/cmdline").read_bytes()
                others = Path(f"/proc/{child}/task/{child}/children").read_text().split()
                titles = [Path(f"/proc/{one}/cmdline").read_bytes() for one in others]
                workers = [one for one in titles if one.startswith(b"nginx: worker process")]
                if title.startswith(b"nginx: master") and len(workers) == 2:
                    return int(child)
        time.sleep(0.05)
    pytest.fail("nginx did not come up in the container")


def observe(run_cli: RunCli, container: Container, directory: Path) -> Observation:
    """What the command says; what is written here under the container's names is not its."""
    file = directory / "observation.json"
    overflow = '2026/11/20 14:23:40 [crit] 1#1: thread pool "x" queue overflow: 1 tasks waiting\n'
    with container.log.open("a") as decoy:
        writer = subprocess.Popen(
            ["sh", "-c", f"while sleep 0.1; do printf '%s' '{overflow}'; done"], stdout=decoy
        )
    try:
        run = run_cli(
            "observe",
            "--pid",
            str(container.master),
            "--duration",
            "1s",
            "--tracing",
            "off",
            "-f",
            f"json={file}",
        )
    finally:
        writer.kill()
        writer.wait()
    assert run.returncode == 0, run.stderr
    return decode(Observation, file.read_bytes())


@pytest.mark.parametrize("log", ["error.log", "stream.log"])
def test_a_container_is_seen_as_it_is_inside(run_cli: RunCli, tmp_path: Path, log: str) -> None:
    place = tmp_path / "nginx"
    with run_container(place, f"{place}/{log}", tmp_path / "stderr") as container:
        found = observe(run_cli, container, tmp_path)
        inspected = run_cli("inspect", "--pid", str(container.master), "-f", "json")
    facts = decode(Facts, inspected.stdout.encode())
    assert facts.nginx.running is not None
    assert facts.nginx.running.pid == container.master
    assert len(facts.nginx.running.workers) == 2
    assert [(one.port, one.backlog) for one in facts.listeners] == [(container.port, 77)]
    server = found.server
    shown = plain_text(observation_screen(found))
    reasons = {one.path: one.reason for one in found.unknown}
    assert found.worker_processes == 2
    (listener,) = server.listeners
    assert (listener.port, listener.backlog) == (container.port, 77), shown
    assert server.error_lines.get("error", 0) > 0, reasons
    assert "crit" not in server.error_lines
    assert server.pool_overflow == 0
    assert server.refault_source == "cgroup"
    assert server.stub_status is not None, reasons
    assert server.stub_status.requests > 1
    assert {worker.connections is not None for worker in server.workers} == {True}
    assert all(worker.cpu_seconds is not None for worker in server.workers)


def test_a_log_that_goes_into_a_pipe_is_not_known(run_cli: RunCli, tmp_path: Path) -> None:
    """As with a container's runtime: none of its lines can be seen, which is not the same as 0."""
    os.mkfifo(tmp_path / "stderr")
    with subprocess.Popen(["cat", tmp_path / "stderr"], stdout=subprocess.DEVNULL) as reader:
        place = tmp_path / "nginx"
        with run_container(place, f"{place}/stream.log", tmp_path / "stderr") as container:
            found = observe(run_cli, container, tmp_path)
        reader.wait(30)
    reasons = {one.path: one.reason for one in found.unknown}
    assert found.server.pool_overflow is None
    assert reasons["/server/pool_overflow"] == f"/proc/{container.master}/fd/2: not a regular file"
