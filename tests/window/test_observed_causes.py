"""Causes that are no disk: `observe` names what a real nginx waits for."""

import contextlib
import http.client
import os
import signal
import socket
import threading
import time
from pathlib import Path

import free_ports
import pytest
from observed_servers import RunCli, asking, named, serving
from slow_upstreams import SlowUpstream
from started import until
from tiers import dice

from nginx_tune.documents.base import decode
from nginx_tune.documents.observation import Observation
from nginx_tune.observe.states import read_call
from nginx_tune.observe.window.watch import ServerWatch


@pytest.mark.alone  # the kernel traces process numbers of the host
@pytest.mark.needs("root", "nginx", "tracefs")
def test_a_loop_held_by_compression_is_named(
    run_cli: RunCli, tmp_path: Path, free_port: int
) -> None:
    """No disk is waited for, and small files take as long as a turn of gzip."""
    text = dice("text").randbytes(1 << 16).hex().encode()
    (tmp_path / "text").write_bytes(b"%s\n" % text * 48)
    location = "location = /text { gzip on; gzip_comp_level 9; default_type text/html; }"
    with serving(tmp_path, free_port, location) as running, asking(free_port, "/text", 2):
        [worker] = running.workers()
        with contextlib.suppress(PermissionError):  # else it waits for the CPU on a busy machine
            os.sched_setscheduler(worker, os.SCHED_RR, os.sched_param(1))
        found = named(run_cli, running, tmp_path, "loop-held-by-cpu")
    turns = found.server.loop_turn_seconds
    assert turns is not None
    assert turns.arrival_wait_by["computing"] > 0.01
    assert sum(turns.arrival_wait_by.values()) == pytest.approx(turns.arrival_wait_seconds)
    if found.server.cpu_samples:  # where the profiler is allowed
        assert found.server.cpu_samples["libz"] > 10
        assert "zlib (compression)" in found.causes[0].summary


@pytest.mark.needs("root", "nginx")
def test_a_stopped_worker_is_named(run_cli: RunCli, tmp_path: Path, free_port: int) -> None:
    ended = threading.Event()
    with serving(tmp_path, free_port, "") as running, asking(free_port, "/memory", 1):
        [worker] = running.workers()

        def stop() -> None:
            while not ended.wait(0.4):
                os.kill(worker, signal.SIGSTOP)
                time.sleep(0.2)
                os.kill(worker, signal.SIGCONT)

        stopper = threading.Thread(target=stop)
        stopper.start()
        try:
            found = named(run_cli, running, tmp_path, "worker-stopped")
        finally:
            ended.set()
            stopper.join()
    assert found.server.workers[0].state_ratios["T"] > 0.05


@pytest.mark.needs("root", "nginx")
def test_an_nginx_that_ends_in_the_window_is_no_success(
    run_cli: RunCli, tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "seen.json"
    with serving(tmp_path, free_port, "") as running:
        begin = ServerWatch.start

        def begin_and_end(watch: ServerWatch) -> None:
            begin(watch)
            os.kill(running.pid, signal.SIGQUIT)

        monkeypatch.setattr(ServerWatch, "start", begin_and_end)
        run = run_cli(
            "observe", "--pid", str(running.pid), "--duration", "1s", "--tracing", "off",
            "-f", "console", "-f", f"json={output}",
        )  # fmt: skip
    assert run.returncode == 4, run.stdout
    assert "nginx ended in this window" in run.stdout
    assert "replaced" not in run.stdout
    found = decode(Observation, output.read_bytes(), source=str(output))
    assert found.flags == ["ended: nginx ended in the window"]


@pytest.mark.thorough
@pytest.mark.needs("root", "nginx", "tracefs")
@pytest.mark.alone  # as above
def test_a_log_whose_reader_lags_is_named(run_cli: RunCli, tmp_path: Path, free_port: int) -> None:
    """The worker is stuck in write() before the window and after it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)  # nobody reads, and nginx can open it
    location = f"location = /logged {{ access_log {pipe}; return 200 ok; }}"
    try:
        with serving(tmp_path, free_port, location) as running, asking(free_port, "/logged", 1):
            [worker] = running.workers()
            os.set_blocking(held, False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(held, bytes(4096))
            until(lambda: (call := read_call(worker)) and call.name == "write")
            try:
                found = named(run_cli, running, tmp_path, "loop-asleep-in-call", tries=2)
            finally:
                os.read(held, 1 << 16)  # it goes on, and can be stopped
    finally:
        os.close(held)
    turns = found.server.loop_turn_seconds
    assert turns is not None
    assert turns.arrival_wait_by["computing"] < turns.arrival_wait_by["asleep"]
    assert "write" in found.causes[0].summary
    assert "a reader that is too slow" in found.causes[0].summary


@pytest.mark.needs("root", "nginx")
def test_loops_that_are_free_while_upstreams_are_slow(
    run_cli: RunCli, tmp_path: Path, free_port: int
) -> None:
    upstream = SlowUpstream(0.4)
    location = f"location /app {{ proxy_pass http://127.0.0.1:{upstream.port}; }}"
    with (
        contextlib.closing(upstream),
        serving(tmp_path, free_port, location) as running,
        asking(free_port, "/app", 6),
    ):
        found = named(run_cli, running, tmp_path, "slow-upstream")
    waiting = found.server.waiting
    assert waiting is not None
    assert waiting.upstreams_waiting > 1
    assert waiting.upstream_longest_seconds is not None
    assert 0.05 < waiting.upstream_longest_seconds < 10
    assert found.server.has_resolver is False


@pytest.mark.needs("root", "nginx")
def test_an_upstream_that_is_gone_is_named(run_cli: RunCli, tmp_path: Path, free_port: int) -> None:
    port = free_ports.free_port()
    with (
        serving(tmp_path, free_port, f"location /app {{ proxy_pass http://127.0.0.1:{port}; }}")
        as running,
        asking(free_port, "/app", 4),
    ):  # fmt: skip
        found = named(run_cli, running, tmp_path, "failing-upstream")
    failures = {one.metric: one.value for one in found.causes[0].evidence}
    assert failures["server.upstream_failures"] > 1


@pytest.mark.needs("root", "nginx")
def test_descriptors_that_are_used_up_are_named(
    run_cli: RunCli, tmp_path: Path, free_port: int
) -> None:
    """Idle clients hold them all; further ones wait in the queue while the loop is free."""
    with serving(tmp_path, free_port, "", main="worker_rlimit_nofile 24;") as running:
        idle = [socket.create_connection(("127.0.0.1", free_port)) for _ in range(40)]
        try:
            with asking(free_port, "/", 4, patience=1):
                named(run_cli, running, tmp_path, "descriptors-exhausted")
        finally:
            for one in idle:
                one.close()


@pytest.mark.needs("root", "nginx")
def test_a_full_zone_of_cache_keys_is_named(
    run_cli: RunCli, tmp_path: Path, free_port: int
) -> None:
    """Requests under way hold their keys: a full zone finds none that it may throw out."""
    upstream = SlowUpstream(30)
    location = f"location /app {{ proxy_cache x; proxy_pass http://127.0.0.1:{upstream.port}; }}"
    cache = f"proxy_cache_path {tmp_path}/cache keys_zone=x:32k;"
    clients: list[socket.socket] = []
    with (
        contextlib.closing(upstream),
        serving(tmp_path, free_port, location, http=cache, connections=1024) as running,
        contextlib.ExitStack() as open_ones,
    ):
        for n in range(250):
            clients.append(socket.create_connection(("127.0.0.1", free_port)))
            open_ones.enter_context(clients[-1])
            clients[-1].sendall(b"GET /app/%d HTTP/1.1\r\nHost: a\r\n\r\n" % n)
        with asking(free_port, "/app/more", 2):
            found = named(run_cli, running, tmp_path, "shared-zone-full")
            audited = run_cli("audit", "--pid", str(running.pid), "--select", "lim-zone-full-seen")
    assert (audited.returncode, 'zone "x" was full' in audited.stdout) == (1, True)
    assert 'cache keys zone "x"' in found.causes[0].summary
    assert "keys_zone" in found.causes[0].summary


@pytest.mark.needs("root", "nginx")  # each worker's network is its own then
def test_local_ports_that_are_used_up_are_named(
    run_cli: RunCli, tmp_path: Path, free_port: int
) -> None:
    settings = {"ip_local_port_range": "40000 40019", "tcp_tw_reuse": "0"}
    before = {name: Path(f"/proc/sys/net/ipv4/{name}").read_text() for name in settings}
    location = (
        f"location /app {{ proxy_http_version 1.1; proxy_set_header Connection ''; "
        f"proxy_pass http://127.0.0.1:{free_port}/memory; }}"
    )
    ended = threading.Event()

    def ask() -> None:  # on one connection: it is nginx that opens another for each request
        client = http.client.HTTPConnection("127.0.0.1", free_port, timeout=20)
        while not ended.wait(0.005):
            client.request("GET", "/app")
            client.getresponse().read()
        client.close()

    asker = threading.Thread(target=ask)
    with serving(tmp_path, free_port, location) as running:
        try:
            for name, value in settings.items():
                Path(f"/proc/sys/net/ipv4/{name}").write_text(value)
            asker.start()
            found = named(run_cli, running, tmp_path, "local-ports-exhausted")
            audited = run_cli(
                "audit", "--pid", str(running.pid), "--select", "up-literal-no-keepalive"
            )
        finally:
            ended.set()
            asker.join()
            for name, value in before.items():
                Path(f"/proc/sys/net/ipv4/{name}").write_text(value)
    assert "Cannot assign requested address" in audited.stdout
    assert "keepalive" in found.causes[0].summary
    assert found.server.upstream_failures == 0
