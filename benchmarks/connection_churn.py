"""The probe under a new connection for each request, as fast as the machine allows.

    python benchmarks/connection_churn.py [--seconds N] [--connections N]

nginx serves 1 KB with one worker; the probe opens a connection for every request (closed loop).
Prints a line per second with the probe's descriptors and resident memory, then the result.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from nginx_tune.documents.loadplan import Arrivals, Caps, LoadClass, LoadPlan, Paths, Permit, Target
from nginx_tune.measure.load.probe import run_probe

CONF = """
{user}
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    server {{ listen 127.0.0.1:{port} backlog=4096; root {dir}; }}
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--connections", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        nginx, port = start_nginx(Path(directory))
        try:
            churn(port, options)
        finally:
            nginx.terminate()
            nginx.wait()


def start_nginx(directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (directory / "1k").write_bytes(os.urandom(1024))
    directory.chmod(0o755)
    user = "user root;" if os.geteuid() == 0 else ""
    conf = directory / "nginx.conf"
    conf.write_text(CONF.format(dir=directory, port=port, user=user))
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    process = subprocess.Popen([binary, "-e", directory / "error.log", "-c", conf])
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.01)
        else:
            return process, port
    raise SystemExit("nginx does not come up")


def churn(port: int, options: argparse.Namespace) -> None:
    item = LoadClass(
        name="churn",
        arrivals=Arrivals(kind="closed", users=options.connections),
        paths=Paths(kind="fixed", paths=["/1k"], bytes=[1024]),
        connections=options.connections,
        keepalive=False,
    )
    plan = LoadPlan(
        target=Target(address="127.0.0.1", port=port),
        classes=[item],
        duration_seconds=options.seconds,
        caps=Caps(seconds=options.seconds + 60),
        permit=Permit(ports=[port]),
    )
    done = threading.Event()
    seen: list[tuple[int, int]] = []
    watcher = threading.Thread(target=watch, args=(done, seen), daemon=True)
    watcher.start()
    measurement = run_probe(plan)
    done.set()
    watcher.join()
    part = measurement.classes["churn"]
    print(
        f"{part.connections_opened:,} connections, {part.requests_per_second:,.0f} good a second, "
        f"failed {part.errors}, from {measurement.generator.source_addresses} addresses"
    )
    descriptors = [count for count, _ in seen]
    memory = [kilobytes for _, kilobytes in seen]
    if seen:
        print(
            f"descriptors {min(descriptors)} to {max(descriptors)}, "
            f"memory {min(memory):,} to {max(memory):,} KiB"
        )
    for flag in measurement.flags:
        print(f"flag: {flag}")


def watch(done: threading.Event, seen: list[tuple[int, int]]) -> None:
    """Record the probe's descriptors and resident memory once a second."""
    while not done.wait(1.0):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for child in children:
            process = Path("/proc") / child
            try:
                if "nginx-tune-prob" not in (process / "comm").read_text():
                    continue
                count = len(list((process / "fd").iterdir()))
                status = (process / "status").read_text()
            except OSError:
                continue
            resident = int(status.split("VmRSS:")[1].split()[0])
            seen.append((count, resident))
            print(f"{count} descriptors, {resident:,} KiB")


if __name__ == "__main__":
    main()
