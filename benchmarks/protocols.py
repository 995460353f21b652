"""The CPU time of nginx and of the load probe per request, by protocol, always with TLS.

    python benchmarks/protocols.py [--rounds N] [--seconds N] [--series 1.30]

HTTP/1.1, HTTP/2 and HTTP/3 request the same three files from one worker of an nginx of the matrix
(tools/nginx-matrix), 40 at once: on 40 connections, or on 4 with 10 streams each. The protocols run
in turn, in an order that alternates by round. CPU time is the kernel's figure for the worker and
for the probe (over loopback it includes a part of the network's work in both directions), so other
work on the machine changes it little. Sent bytes of unfinished bodies count as fractions of a
request. Prints a Markdown table of medians with the lowest and highest.
"""

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from nginx_tune.documents.loadplan import (
    Arrivals,
    Caps,
    Http2,
    Http3,
    LoadClass,
    LoadPlan,
    Paths,
    Permit,
    Target,
    Tls,
)
from nginx_tune.measure.load.probe import run_probe

SIZES = {"1 KB": 1 << 10, "100 KB": 100 << 10, "4 MB": 4 << 20}
USERS, CONNECTIONS = 40, 4
PROTOCOLS = ("HTTP/1.1", "HTTP/2", "HTTP/3")

CONF = """
{user} worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; keepalive_requests 1000000000;
    client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
    uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
    ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;
    server {{
        listen 127.0.0.1:{port} quic reuseport; listen 127.0.0.1:{port} ssl; http2 on;
        root {dir}/files;
        {server}
    }}
}}
"""


class Run(NamedTuple):
    """The CPU time per request in a run."""

    server_seconds: float
    probe_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--series", default="1.30")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        nginx = start_nginx(Path(directory), port, options.series)
        try:
            print("| body | protocol | µs CPU of nginx a request | × HTTP/1.1 | of the probe |")
            print("|---|---|--:|--:|--:|")
            for name, size in SIZES.items():
                compare(name, size, port, Path(directory), options)
        finally:
            nginx.terminate()
            nginx.wait()


def start_nginx(
    directory: Path, port: int, series: str, *, cpu: int | None = None, server: str = ""
) -> subprocess.Popen[bytes]:
    (directory / "files").mkdir()
    for size in SIZES.values():
        (directory / "files" / str(size)).write_bytes(os.urandom(size))
    curve = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=localhost",
    ]
    files = ["-keyout", directory / "key.pem", "-out", directory / "cert.pem"]
    subprocess.run(["openssl", "req", "-x509", *curve, *files], check=True, capture_output=True)
    user = "user root;" if os.geteuid() == 0 else ""
    conf = directory / "nginx.conf"
    conf.write_text(CONF.format(dir=directory, port=port, user=user, server=server))
    matrix = Path(__file__).parent.parent / "tools" / "nginx-matrix"
    listed = subprocess.run([matrix, "--list"], capture_output=True, text=True, check=True).stdout
    program = dict(line.split(maxsplit=1) for line in listed.splitlines())[series]
    pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
    process = subprocess.Popen([*pinned, program, "-e", directory / "error.log", "-c", conf])
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.02)
    return process


def worker_cpu_seconds(directory: Path) -> float:
    """The worker's CPU time. Source: sched-stats.rst of the kernel, /proc/<pid>/schedstat."""
    master = (directory / "pid").read_text().strip()
    worker = Path(f"/proc/{master}/task/{master}/children").read_text().split()[0]
    return int(Path(f"/proc/{worker}/schedstat").read_text().split()[0]) / 1e9


def plan_of(protocol: str, size: int, port: int, seconds: float) -> LoadPlan:
    """The load of 40 users who request one file, on 40 connections or on 4 with 10 streams each."""
    streams = USERS // CONNECTIONS
    item = LoadClass(
        name="c",
        arrivals=Arrivals(kind="closed", users=USERS),
        paths=Paths(kind="fixed", paths=[f"/{size}"], bytes=[size]),
        connections=USERS if protocol == "HTTP/1.1" else CONNECTIONS,
        http2=Http2(streams=streams) if protocol == "HTTP/2" else None,
        http3=Http3(streams=streams) if protocol == "HTTP/3" else None,
    )
    return LoadPlan(
        target=Target(address="127.0.0.1", port=port, tls=Tls(verify=False)),
        classes=[item],
        duration_seconds=seconds,
        drain_seconds=0.0,
        caps=Caps(bytes=1 << 50),
        permit=Permit(ports=[port]),
    )


def run(protocol: str, size: int, port: int, directory: Path, seconds: float) -> Run:
    plan = plan_of(protocol, size, port, seconds)
    before = worker_cpu_seconds(directory)
    measured = run_probe(plan)
    used = worker_cpu_seconds(directory) - before
    found = measured.classes["c"]
    if found.errors:
        raise SystemExit(f"{protocol}: {found.errors}")
    answered = found.bytes / size
    return Run(used / answered, measured.generator.cpu_seconds / answered)


def compare(name: str, size: int, port: int, directory: Path, options: argparse.Namespace) -> None:
    runs: dict[str, list[Run]] = {protocol: [] for protocol in PROTOCOLS}
    for number in range(options.rounds):
        for protocol in PROTOCOLS if number % 2 else reversed(PROTOCOLS):
            runs[protocol].append(run(protocol, size, port, directory, options.seconds))
    for protocol in PROTOCOLS:
        own = [one.server_seconds * 1e6 for one in runs[protocol]]
        probe = [one.probe_seconds * 1e6 for one in runs[protocol]]
        first = [one.server_seconds * 1e6 for one in runs["HTTP/1.1"]]
        ratios = [a / b for a, b in zip(own, first, strict=True)]
        cells = [name, protocol, spread(own), spread(ratios), spread(probe)]
        print("| " + " | ".join(cells) + " |", flush=True)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g}–{max(values):.3g})"


if __name__ == "__main__":
    main()
