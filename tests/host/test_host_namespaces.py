"""A real nginx in mounts and a network of its own, seen from outside; real accept queues."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import RunCli
from started import until, workers_of

from nginx_tune.documents.facts import Facts
from nginx_tune.host.kernel import read_kernel
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx import subject
from nginx_tune.observe.inspect.facts import gather_facts

pytestmark = pytest.mark.needs("root", "nginx", "loop", "ip")

PORTS = "20000 20010"
CONF = """
worker_processes 1;
daemon off;
pid {place}/nginx.pid;
error_log {place}/error.log;
thread_pool default threads=3;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
    server {{ listen 127.0.0.1:8080 backlog=3; root {place}/data; }}
}}
"""


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[int]:
    """The master of an nginx whose data lies on a loop device that only it has mounted."""
    place = tmp_path / "nginx"
    (place / "data").mkdir(parents=True)
    (place / "n.conf").write_text(CONF.format(place=place))
    script = (
        f"cd {place}; truncate -s 32M disk.img; mkfs.ext4 -q -F disk.img; "
        "mount -o loop disk.img data; head -c 100000 /dev/zero > data/file; "
        f"ip link set lo up; echo {PORTS} > /proc/sys/net/ipv4/ip_local_port_range; "
        "exec nginx -c $PWD/n.conf"
    )
    command = ["unshare", "--mount", "--net", "sh", "-e", "-c", script]
    process = subprocess.Popen(command, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    try:
        until(lambda: process.poll() is not None or workers_of(process.pid))
        yield process.pid
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(30)


def seen(pid: int, **given: Any) -> Facts:
    return gather_facts(LiveHost(), pid=pid, **given)


def test_its_disk_and_its_data_are_seen(contained: int, tmp_path: Path) -> None:
    data = f"{tmp_path}/nginx/data"
    facts = seen(contained, paths=[data], datasets=[data])
    running = facts.nginx.running
    assert running is not None
    assert running.other_mount_namespace is True
    assert running.other_network_namespace is True
    placed = facts.storage.paths[0]
    assert placed.seen_by_nginx
    assert placed.stack[0].startswith("loop")
    dataset = facts.datasets[0]
    assert (dataset.files, dataset.bytes, dataset.seen_by_nginx) == (1, 100000, True)
    assert dataset.path == data
    # From here the directory is empty and lies on another file system.
    here = gather_facts(LiveHost(), paths=[data], datasets=[data])
    assert not here.storage.paths[0].seen_by_nginx
    assert here.datasets[0].files == 0


def test_settings_of_its_network_are_its_own(contained: int) -> None:
    """And those that are the whole kernel's are read here, for it cannot see them."""
    sysctls = seen(contained).kernel.sysctls
    assert sysctls["net.ipv4.ip_local_port_range"] == PORTS
    here = read_kernel(LiveHost())[0].sysctls
    assert here["net.ipv4.ip_local_port_range"] != PORTS
    assert sysctls["net.core.rmem_max"] == here["net.core.rmem_max"]
    assert sysctls.keys() == here.keys()


def test_what_it_is_is_read_not_run(contained: int) -> None:
    nginx = seen(contained).nginx
    said = subprocess.run(["/usr/sbin/nginx", "-V"], capture_output=True, text=True, check=True)
    assert f"nginx version: nginx/{nginx.version}\n" in said.stderr
    assert nginx.flags
    assert all(flag.partition("=")[0] in said.stderr for flag in nginx.flags)
    assert nginx.libc == "glibc"
    assert nginx.openssl is None
    assert nginx.running is not None
    (worker,) = nginx.running.workers
    assert worker.threads == 4
    assert worker.age_seconds is not None
    assert nginx.running.generations == 1
    assert nginx.running.reloaded is False


def test_its_accept_queue_and_drops(contained: int) -> None:
    """With the worker stopped a backlog of 3 holds 4; what comes then is dropped."""
    running = seen(contained).nginx.running
    assert running is not None
    worker = running.workers[0].pid
    before = seen(contained).network.listen_overflows
    os.kill(worker, signal.SIGSTOP)
    flood = (
        "import socket, time; held = [socket.socket() for _ in range(12)]; "
        "[s.setblocking(False) for s in held]; "
        "[s.connect_ex(('127.0.0.1', 8080)) for s in held]; print('up', flush=True); "
        "time.sleep(60)"
    )
    clients = subprocess.Popen(
        ["nsenter", f"--net=/proc/{contained}/ns/net", sys.executable, "-c", flood],
        stdout=subprocess.PIPE,
    )
    try:
        assert clients.stdout is not None
        clients.stdout.readline()
        for _ in range(100):
            facts = seen(contained)
            (listener,) = facts.listeners
            if listener.drops:
                break
            time.sleep(0.05)
    finally:
        os.kill(worker, signal.SIGCONT)
        clients.kill()
        clients.communicate()
    assert (listener.address, listener.port, listener.of_nginx) == ("127.0.0.1", 8080, True)
    assert (listener.backlog, listener.accept_queue, listener.sockets) == (3, 4, 1)
    assert listener.drops
    assert facts.network.listen_overflows is not None
    assert before is not None
    assert facts.network.listen_overflows > before


def test_beside_it_the_installed_configuration_is_read(
    contained: int, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = f"nginx-tune: the running nginx (process {contained}) sees other files: a container"
    for command in ("check", "audit", "plan"):
        run = run_cli(command)
        assert run.returncode in {0, 1}, run.stderr
        assert f"{away}; /etc/nginx/nginx.conf is read instead\n" in run.stderr
        assert "not used" not in run.stderr
    monkeypatch.setattr(subject, "installed_conf", lambda *_: None)
    alone = run_cli("plan")
    assert (alone.returncode, alone.stderr.startswith(f"{away} (run nginx-")) == (4, True)


def test_a_capture_of_it_replays_without_it(
    contained: int, tmp_path: Path, run_cli: RunCli
) -> None:
    capture = tmp_path / "host.json"
    data = f"{tmp_path}/nginx/data"
    live = run_cli(
        "inspect", "--pid", str(contained), "--dataset", data, "--capture", capture,
        "--with-config", "-f", "json",
    )  # fmt: skip
    assert live.returncode == 0, live.stderr
    os.kill(contained, signal.SIGTERM)
    replayed = run_cli("inspect", "--host", capture, "-f", "json")
    assert replayed.stdout == live.stdout
    answers = json.loads(capture.read_text())["answers"]
    assert "backlog=3" in answers[f"read {tmp_path}/nginx/n.conf"]["value"]


@pytest.mark.needs("dd", "disk")
def test_how_busy_disks_are(tmp_path: Path) -> None:
    """Writes past the page cache keep the disk busy while it is watched."""
    storage = gather_facts(LiveHost(), paths=[str(tmp_path)]).storage
    (leaf,) = storage.paths[0].leaf_disks or ["memory"]
    script = "while :; do dd if=/dev/zero of=file bs=64k count=64 oflag=direct conv=notrunc; done"
    writer = subprocess.Popen(
        ["sh", "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        facts = gather_facts(LiveHost(), paths=[str(tmp_path)], watch_seconds=0.5)
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        writer.wait()
    ratio = {disk.name: disk.utilisation_ratio for disk in facts.storage.disks}[leaf]
    assert ratio is not None
    assert 0.05 < ratio <= 1
