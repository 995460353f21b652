"""Ten thousand connections that ask nothing, really held on a real nginx; what bounds them."""

from __future__ import annotations

import http.client
import re
import resource
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from needs import lacks
from probe_loads import Nginx, StartNginx, load_class, load_plan

from nginx_tune.documents.base import encode
from nginx_tune.documents.loadplan import Caps
from nginx_tune.measure.load.probe import run_probe

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
def test_ten_thousand_are_held_while_others_are_served(large: Nginx, threads: int) -> None:
    status = Status(large)
    status.start()
    caps = Caps(connections=MANY + 50)
    item = load_class("/1k", connections=50)
    plan = load_plan(large, item, idle_connections=MANY, threads=threads, caps=caps)
    measurement = run_probe(msgspec.structs.replace(plan, warmup_seconds=6.0, duration_seconds=1.0))
    most = status.end()
    idle = measurement.generator.idle_connections
    assert idle is not None
    assert (idle.wanted, idle.open, idle.lost, idle.failed) == (MANY, MANY, 0, 0)
    # What nginx itself counts: theirs and those of the class.
    assert MANY < most <= MANY + 50
    found = measurement.classes["c"]
    assert found.errors == {}
    assert found.requests == found.intended > 0


def test_the_cap_is_said_and_raised_by_its_option_alone(
    nginx: Nginx, run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    refused = [
        (MANY, "4096", f"{MANY + 20} connections are above the cap of 4096"),
        (20, "39", "40 connections are above the cap of 39"),
    ]
    if 0 < hard < 900_000:
        refused.append((hard, f"{hard + 100}", "open files; the limit (ulimit -n) is"))
    for idle, cap, words in refused:
        plan = load_plan(nginx, load_class("/1k"), idle_connections=idle)
        file.write_bytes(encode(plan))
        run = run_cli("probe", file, "--allow-live", "--cap", f"connections={cap}")
        assert run.returncode == 2
        assert words in run.stderr
