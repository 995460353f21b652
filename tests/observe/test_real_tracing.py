"""Tracing a real nginx by every means, and what is left when it ends badly.

`alone` is what traces: the kernel's events name processes by ids that a worker's process namespace
has not.
"""

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from started import is_alive, until
from tiers import dice

from nginx_tune.host.door import Missing
from nginx_tune.nginx.instance import RunningNginx, start_instance
from nginx_tune.observe.accounting import BlockDelayMeter, TaskStats, delay_between
from nginx_tune.observe.connections import count_held
from nginx_tune.observe.states import read_call
from nginx_tune.observe.tracefs import PREFIX, TraceFs, TraceInstance, open_tracefs, sweep_tracing
from nginx_tune.observe.tracing import (
    ENDS,
    Means,
    QueueWaits,
    QueueWaitTracer,
    start_queue_wait,
    start_tracing,
)
from nginx_tune.observe.window.server import loop_turn_of

# As root: whoever starts pytest next takes others' rights to its temporary directory away.
CONF = """\
user root;
worker_processes 2;
thread_pool default threads=2;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        root {directory};
        location = /memory {{ return 200 "ok"; }}
        location /file {{ aio threads; sendfile on; }}
        location /text {{ gzip on; gzip_comp_level 9; default_type text/html; }}
    }}
}}
"""

ASK_GZIP = """\
import http.client
while True:
    connection = http.client.HTTPConnection("127.0.0.1", {port}, timeout=60)
    connection.request("GET", "/text", headers={{"Accept-Encoding": "gzip"}})
    connection.getresponse().read()
    connection.close()
"""
StartNginx = Callable[[], tuple[RunningNginx, int]]


@pytest.fixture
def nginx(tmp_path: Path, free_port: int) -> Iterator[tuple[RunningNginx, int]]:
    (tmp_path / "file").write_bytes(dice("file").randbytes(100_000))
    (tmp_path / "text").write_bytes(b"%s\n" % dice("text").randbytes(1 << 15).hex().encode() * 128)
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF.format(directory=tmp_path, port=free_port))
    instance = start_instance(
        "nginx", conf, stderr_path=tmp_path / "stderr", address=("127.0.0.1", free_port)
    )
    yield instance, free_port
    instance.stop()


def ask(port: int, path: str, times: int) -> None:
    for _ in range(times):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", path)
        assert connection.getresponse().read()
        connection.close()


@pytest.mark.alone
@pytest.mark.needs("root", "nginx", "tracefs")
@pytest.mark.parametrize(
    "means", [pytest.param("bpftrace", marks=pytest.mark.needs("bpftrace")), "tracefs"]
)
def test_turns_are_counted(nginx: tuple[RunningNginx, int], means: Means) -> None:
    instance, port = nginx
    tracing = start_tracing(instance.workers(), means)
    tracer = tracing.tracer
    assert tracer is not None, tracing.reason
    assert tracer.method == means
    ask(port, "/memory", 5)  # before the window
    tracer.mark()
    ask(port, "/memory", 40)
    tracer.mark()
    quiet_from = time.monotonic()
    time.sleep(0.2)
    tracer.mark()
    busy, quiet = tracer.finish()
    # Each connection is an accept and a request: one turn or more, and never hundreds.
    assert 40 <= busy.turns.total() <= 400
    # The maps are read one after the other: a turn that ends in between may be in one of them.
    assert abs(busy.turns.total() - busy.values.total()) <= len(instance.workers())
    assert set(busy.turns) <= set(tracing.global_ids.values())
    assert 0 < busy.busy.total() / 1e9 < 60
    assert quiet.turns.total() < 40
    assert 0 < quiet.traced_seconds <= time.monotonic() - quiet_from + 1


@pytest.mark.alone
@pytest.mark.needs("root", "nginx", "tracefs")
@pytest.mark.parametrize(
    "means", [pytest.param("bpftrace", marks=pytest.mark.needs("bpftrace")), "tracefs"]
)
def test_turns_longer_than_the_window_are_counted(
    nginx: tuple[RunningNginx, int], means: Means
) -> None:
    """Both workers are in a turn before tracing begins and are still in it when it ends.

    They are held in it by a stop, which comes while gzip computes.
    """
    instance, port = nginx
    askers = [
        subprocess.Popen([sys.executable, "-c", ASK_GZIP.format(port=port)]) for _ in range(6)
    ]
    workers = instance.workers()
    try:
        stopped = []
        deadline = time.monotonic() + 60
        for worker in workers:
            while worker not in stopped:
                assert time.monotonic() < deadline, "no worker was caught in a turn"
                os.kill(worker, signal.SIGSTOP)
                while _state(worker) != "T":
                    time.sleep(0.001)
                call = read_call(worker)
                if call is not None and call.kind != "loop":
                    stopped.append(worker)
                else:
                    os.kill(worker, signal.SIGCONT)
                    time.sleep(0.01)
        tracing = start_tracing(workers, means)
        assert tracing.tracer is not None, tracing.reason
        tracing.tracer.mark()
        time.sleep(0.3)
        tracing.tracer.mark()
        [span] = tracing.tracer.finish()
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        for asker in askers:
            asker.kill()
            asker.wait()
    assert span.bounds.total() == span.turns.total() == len(workers)
    assert min(span.values) >= 300_000_000
    turns = loop_turn_of(span, workers=2, seconds=span.traced_seconds, method=means)
    assert turns.at_least == ["p50", "p90", "p99", "p999", "max"]
    assert turns.censored == len(workers)
    # None of it was computing, which an arrival would else have waited behind.
    assert span.stopped == span.busy
    assert turns.arrival_wait_by["computing"] == 0


@pytest.mark.alone
@pytest.mark.needs("root", "nginx", "tracefs", "bpftrace")
def test_waits_in_the_queue_of_a_pool(nginx: tuple[RunningNginx, int]) -> None:
    instance, port = nginx
    workers = instance.workers()
    tracer = start_queue_wait(workers[0], workers)
    assert isinstance(tracer, QueueWaitTracer), tracer
    # A pool is known to be empty once a thread has waited: from the second task on.
    ask(port, "/file", 60)
    waits = tracer.finish()
    assert isinstance(waits, QueueWaits), waits
    assert waits.posted >= 60
    assert 20 <= waits.values.total() <= waits.posted
    assert min(waits.values) > 0


@pytest.mark.needs("root", "tracefs")
def test_without_a_means_the_reason_is_told(nginx: tuple[RunningNginx, int]) -> None:
    assert start_tracing(nginx[0].workers(), "off").reason == "tracing was turned off"
    assert start_tracing([], "auto").tracer is None


@pytest.mark.alone
@pytest.mark.needs("root", "tracefs")
def test_without_bpftrace_tracefs_does_it(
    nginx: tuple[RunningNginx, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nginx_tune.observe.tracing.missing_bpftrace", lambda: Missing("not installed")
    )
    tracing = start_tracing(nginx[0].workers())
    assert tracing.tracer is not None
    assert tracing.tracer.method == "tracefs"
    assert tracing.reasons == ["not installed"]
    tracing.tracer.kill()


HOLD = """\
import sys, time
from nginx_tune.observe.tracefs import TraceInstance, open_tracefs
print(TraceInstance(open_tracefs()).directory.name, flush=True)
time.sleep(60)
"""


@pytest.mark.needs("root", "tracefs")
def test_instances_of_dead_runs_go_and_live_ones_stay() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    name = holder.stdout.readline().strip()
    tracefs = open_tracefs()
    assert isinstance(tracefs, TraceFs)
    place = tracefs.root / "instances" / name
    assert name.startswith(PREFIX)
    try:
        assert name not in sweep_tracing()
        assert place.is_dir()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    sweep_tracing()  # this one, or another run's
    assert not place.exists()
    own = TraceInstance(tracefs)
    own.remove()
    assert not own.directory.exists()
    tracefs.close()


KILLED = """\
import os, sys
from nginx_tune.observe.tracing import start_tracing
tracer = start_tracing([os.getpid()], "bpftrace").tracer
print(tracer.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.alone
@pytest.mark.needs("root", "tracefs", "bpftrace")
def test_nobody_waits_for_the_end_of_bpftrace_and_it_comes(nginx: tuple[RunningNginx, int]) -> None:
    instance, _ = nginx
    before = threading.enumerate()  # another test's bpftrace may still be ending
    tracer = start_tracing(instance.workers(), "bpftrace").tracer
    assert tracer is not None
    assert tracer.pid is not None
    tracer.mark()
    tracer.mark()
    assert len(tracer.finish()) == 1
    ending = [thread for thread in threading.enumerate() if thread.name == ENDS]
    [end] = [thread for thread in ending if thread not in before]
    end.join(timeout=30)
    assert not end.is_alive()
    assert not Path(f"/proc/{tracer.pid}").exists()


@pytest.mark.alone
@pytest.mark.needs("root", "tracefs", "bpftrace")
def test_bpftrace_dies_with_us() -> None:
    run = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60, check=False
    )
    pid = int(run.stdout)
    until(lambda: not is_alive(pid))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.needs("root", "nginx")
def test_connections_that_workers_hold(nginx: tuple[RunningNginx, int]) -> None:
    instance, port = nginx
    kept = []
    for _ in range(6):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/memory")
        connection.getresponse().read()
        kept.append(connection)
    held = count_held(instance.workers(), {port})
    for connection in kept:
        connection.close()
    assert held is not None
    assert sum(held.values()) == 6


@pytest.mark.needs("root")
def test_delays_are_asked_of_the_kernel() -> None:
    """Of this thread; what it tells depends on a switch of the host that stays as it is."""
    with TaskStats() as taskstats:
        found = taskstats.read(os.getpid())
        assert found.version >= 8
        with pytest.raises(OSError, match="No such process"):
            taskstats.read(1 << 22)
    meter = BlockDelayMeter([os.getpid()])
    if meter.missing is not None:
        assert meter.missing.reason
        return
    first = meter.read()
    assert delay_between(first, meter.read())[os.getpid()] is not None
    meter.close()
