"""Observing a real nginx that really waits for a disk: a loop device behind a limit."""

import contextlib
import http.client
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from free_ports import free_port
from observed_servers import CONF, RunCli, observe
from own_name import own_name
from prometheus_client.parser import text_string_to_metric_families
from tiers import dice

from nginx_tune.documents.observation import Observation
from nginx_tune.nginx.instance import RunningNginx, start_instance
from nginx_tune.nginx.lab.cgroups import LabCgroups
from nginx_tune.nginx.lab.disks import Loop, device_number, evict, run_tool
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.screen import plain_text

MIB = 1 << 20
FILES = 96
CLIENTS = 4


class Blocked(NamedTuple):
    """An nginx under a load that its disk cannot keep up with."""

    instance: RunningNginx
    port: int


class Load:
    """Clients that fetch files nobody has read yet, and one that asks for memory."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._fetch, args=(client,), daemon=True)
            for client in range(-1, CLIENTS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _fetch(self, client: int) -> None:
        """Every file belongs to one client, which asks for each once: none is in memory."""
        own = itertools.cycle(range(max(client, 0), FILES, CLIENTS))
        while not self._ended.is_set():
            path = "/memory" if client < 0 else f"/files/{next(own)}"
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
                connection.request("GET", path)
                answer = connection.getresponse()
                while answer.read(MIB) and not self._ended.is_set():
                    pass
                connection.close()
            self._ended.wait(0.05 if client < 0 else 0.0)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A mounted file system on a loop device, with files on it."""
    base = tmp_path_factory.mktemp("observed")
    image, mount = base / "image", base / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (FILES + 64) * MIB)
    run_tool("mkfs.ext4", "-F", "-q", str(image))
    # It is not waited for at the end: a lab that runs meanwhile has a copy of the mount.
    with Loop(str(image)) as loop:
        device = loop.device
        run_tool("mount", "-o", "noatime", device, str(mount))
        try:
            (mount / "files").mkdir()
            for index in range(FILES):
                (mount / "files" / str(index)).write_bytes(dice(index).randbytes(MIB))
            os.sync()
            yield mount, device
        finally:
            run_tool("umount", "--lazy", str(mount))


@contextlib.contextmanager
def run_nginx(disk: tuple[Path, str], scratch: Path, aio: str) -> Iterator[Blocked]:
    """Nginx with the disk limited, under load; ``aio`` goes into the location."""
    data, device = disk
    port = free_port()
    conf = scratch / "nginx.conf"
    conf.write_text(CONF.format(scratch=scratch, data=data, port=port, aio=aio))
    group = LabCgroups(f"observed-{own_name()}-{port}")
    # Far below what a busy machine still copies: the disk must be what clients wait for.
    group.limit_reads(device_number(device), bytes_per_second=2 * MIB, reads_per_second=None)
    load = Load(port)
    evict(data)
    with contextlib.ExitStack() as stack:
        stack.callback(group.remove)
        instance = start_instance(
            "nginx",
            conf,
            stderr_path=scratch / "stderr",
            address=("127.0.0.1", port),
            join_files=group.join_files(),
        )
        stack.callback(instance.stop)
        stack.callback(load.join)
        # What waits in the limit's queue is let go: it holds the file system until it is done.
        stack.callback(
            group.limit_reads,
            device_number(device),
            bytes_per_second=1 << 40,
            reads_per_second=None,
        )
        stack.callback(load.end)
        load.start()
        time.sleep(0.5)
        yield Blocked(instance, port)


@pytest.fixture(scope="module")
def blocked(disk: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocked]:
    """Without thread pools: every cold read holds the loop."""
    with run_nginx(disk, tmp_path_factory.mktemp("blocked"), "") as running:
        yield running


def shows_blocking(found: Observation) -> bool:
    """On a busy machine a window may be spent in waiting for a CPU."""
    turns = found.server.loop_turn_seconds
    return (
        found.causes[0].id == "loop-blocked-on-disk"
        and (found.server.state_d_ratio or 0) > 0.3
        and (turns is None or (turns.blocked_ratio or 0) > 0.15)
    )


@pytest.mark.needs("root", "nginx", "loop", "blkio", "tracefs")
@pytest.mark.alone  # the disk must be what is waited for
@pytest.mark.parametrize(
    "means", ["auto", "off", pytest.param("tracefs", marks=pytest.mark.thorough)]
)
def test_blocking_is_named_by_every_means(
    blocked: Blocked, run_cli: RunCli, tmp_path: Path, means: str
) -> None:
    metrics = tmp_path / "metrics"
    for _ in range(5):
        found = observe(
            run_cli, blocked.instance, tmp_path, "--tracing", means, "-f", f"prometheus={metrics}"
        )
        if shows_blocking(found):
            break
    families = {one.name: one for one in text_string_to_metric_families(metrics.read_text())}
    causes = families["nginx_tune_observe_cause"].samples
    assert causes[0].labels["id"] == found.causes[0].id
    assert families["nginx_tune_observe_window_seconds"].samples[0].value >= 2
    assert ("nginx_tune_observe_loop_turn_seconds" in families) is (means != "off")
    assert found.causes[0].id == "loop-blocked-on-disk", plain_text(observation_screen(found))
    assert "thread pools would take these reads off the loop" in found.causes[0].summary
    server = found.server
    assert server.state_d_ratio is not None
    assert server.state_d_ratio > 0.3
    reasons = {one.path: one.reason for one in found.unknown}
    if means == "off":
        assert server.loop_turn_seconds is None
        assert reasons["/server/loop_turn_seconds"] == "tracing was turned off"
        assert found.causes[0].confidence == "medium"
    else:
        assert server.loop_turn_seconds is not None
        assert (server.loop_turn_seconds.blocked_ratio or 0) > 0.15
        assert (server.loop_turn_seconds.max or 0) > 0.01
        assert server.block_io_delay_seconds is not None
    assert [disk.name for disk in server.disks if disk.name.startswith("loop")]
    assert server.disks[0].read_bytes_per_second is not None
    assert server.listeners[0].port == blocked.port
    assert server.stub_status is not None
    assert len(server.series) >= 2
    assert server.pool_overflow == 0


def test_no_nginx_and_wrong_options_are_told_in_one_line(run_cli: RunCli) -> None:
    for arguments, status in (
        (("observe", "--pid", str(os.getpid())), 2),
        (("observe", "--duration", "0.1s"), 2),
        (("observe", "--duration", "soon"), 2),
        (("observe", "--tracing", "magic"), 2),
    ):
        run = run_cli(*arguments)
        assert run.returncode == status
        assert len(run.stderr.splitlines()) == 1
        assert run.stdout == ""


def test_windows_compared_from_the_command_line(run_cli: RunCli, tmp_path: Path) -> None:
    series = [
        {"second": i, "requests": 50 + i % 3, "state_d_ratio": 0.5 + 0.01 * (i % 4)}
        for i in range(30)
    ]
    quick = [{**second, "state_d_ratio": 0.01} for second in series]
    for name, seconds in (("before", series), ("after", quick)):
        document = {"schema": "nginx-tune/observation/1", "duration_seconds": 30,
                    "server": {"series": seconds}}  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    run = run_cli("compare", before, after)
    assert run.returncode == 0, run.stderr
    assert any(
        line.startswith("Better: server state d ratio is 0.0") for line in run.stdout.splitlines()
    ), run.stdout
    assert run_cli("compare", after, before).returncode == 1
    run = run_cli("compare", before, after, "--control", before, after)
    assert run.returncode == 0
    assert any(line.startswith("No difference") for line in run.stdout.splitlines()), run.stdout
    assert run_cli("compare", before, tmp_path / "none").returncode == 2
    (tmp_path / "junk").write_text("{}")
    run = run_cli("compare", before, tmp_path / "junk")
    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.needs("root", "nginx", "loop", "blkio", "tracefs")
@pytest.mark.alone  # the disk must be what is waited for
def test_with_pools_the_loop_is_free(
    disk: tuple[Path, str], run_cli: RunCli, tmp_path: Path
) -> None:
    """The same load, offloaded: the next thing that is seen must not be blocked reads."""
    with run_nginx(disk, tmp_path, "aio threads;") as pooled:
        for _ in range(3):  # on a busy machine a window can show anything once
            found = observe(run_cli, pooled.instance, tmp_path)
            if "loop-blocked-on-disk" not in {cause.id for cause in found.causes}:
                break
        else:
            pytest.fail(found.causes[0].summary)
    assert (found.server.workers[0].threads or 0) > 1


@pytest.mark.needs("root", "nginx")
def test_a_time_in_an_objective(run_cli: RunCli) -> None:
    for wrong in ("p99 <= 50", "p99 >= 50ms", "requests_per_second > 5", "p99 <= 0s", "soon"):
        run = run_cli("observe", "--objective", wrong)
        assert run.returncode == 2, wrong
        assert len(run.stderr.splitlines()) == 1
