"""Ten thousand connections that ask nothing, really held on a real nginx; what bounds them."""

from __future__ import annotations

import http.client
import re
import resource
import subprocess
import threading
from collections.abc import Callable

import pytest
from needs import lacks
from probe_loads import Nginx, StartNginx

from nginx_tune.documents.base import decode
from nginx_tune.documents.measurement import Measurement

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.needs("nginx", "probe")

MANY = 10_000
_OTHERS = 700
"""Descriptors of nginx and of the probe for all else."""


class Status(threading.Thread):
    """Asks nginx, by one connection that it keeps, how many it holds; keeps the most it said."""

    def __init__(self, nginx: Nginx) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=10)
        self._ended = threading.Event()
        self.most = 0

    def run(self) -> None:
        """Ask ten times a second."""
        while not self._ended.wait(0.1):
            self._connection.request("GET", "/status")
            text = self._connection.getresponse().read().decode()
            found = re.search(r"Active connections: (\d+)", text)
            assert found is not None
            self.most = max(self.most, int(found[1]))

    def end(self) -> int:
        """The most connections that it held at once, without the one that asked."""
        self._ended.set()
        self.join(timeout=20)
        self._connection.close()
        return self.most - 1


@pytest.fixture
def large(start_nginx: StartNginx) -> Nginx:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < MANY + _OTHERS:
        lacks("descriptors", f"the limit of open files is below {MANY + _OTHERS}")
    return start_nginx(
        main=f"worker_rlimit_nofile {MANY + _OTHERS};",
        # nginx closes idle ones where a sixteenth of its connections or fewer are free
        # (ngx_drain_connections): with room for 10,500 some 180 were always missing.
        connections=MANY + 2000,
        server="location = /status { stub_status; } client_header_timeout 300s;",
    )


@pytest.mark.parametrize("threads", [2, pytest.param(1, marks=pytest.mark.thorough)])
def test_ten_thousand_are_held_while_others_are_served(
    large: Nginx, run_cli: RunCli, threads: int
) -> None:
    status = Status(large)
    status.start()
    run = run_cli(
        "probe", large.url("/1k"), "--allow-live", "--rate", "200", "--max-connections", "50",
        "--idle-connections", str(MANY), "--cap", f"connections={MANY + 50}",
        "--threads", str(threads), "--warmup", "6s", "--duration", "1s", "-f", "json",
    )  # fmt: skip
    most = status.end()
    assert run.returncode == 0, run.stderr
    measurement = decode(Measurement, run.stdout.encode())
    idle = measurement.generator.idle_connections
    assert idle is not None
    assert (idle.wanted, idle.open, idle.lost, idle.failed) == (MANY, MANY, 0, 0)
    # What nginx itself counts: theirs and those of the class.
    assert MANY < most <= MANY + 50
    item = measurement.classes["url"]
    assert item.errors == {}
    assert item.requests == item.intended > 0


def test_the_cap_is_said_and_raised_by_its_option_alone(nginx: Nginx, run_cli: RunCli) -> None:
    load = ("--allow-live", "--rate", "50", "--max-connections", "10", "--duration", "200ms")
    run = run_cli("probe", nginx.url("/1k"), *load, "--idle-connections", str(MANY))
    assert run.returncode == 2
    assert f"{MANY + 10} connections are above the cap of 4096" in run.stderr
    assert "--cap" in run.stderr
    few = (*load, "--idle-connections", "20", "--cap", "connections=29")
    run = run_cli("probe", nginx.url("/1k"), *few)
    assert run.returncode == 2
    assert "30 connections are above the cap of 29" in run.stderr


def test_what_a_host_cannot_hold_is_refused_before_anything_is_sent(
    nginx: Nginx, run_cli: RunCli
) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if not 0 < hard < 900_000:
        lacks("descriptors", "no limit of open files to meet")
    run = run_cli(
        "probe", nginx.url("/1k"), "--allow-live", "--idle-connections", str(hard),
        "--cap", f"connections={hard + 100}",
    )  # fmt: skip
    assert run.returncode == 2
    assert "open files; the limit (ulimit -n) is" in run.stderr
