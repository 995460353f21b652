"""The load probe's CPU time per request, beside wrk, and over HTTP/2 beside h2load.

    python benchmarks/probe_vs_wrk.py [--pairs N] [--seconds N] [--connections N] [--threads N]
                                      [--bodies "1 KB,100 KB"] [--streams M] [--beside PROBE]

nginx runs with one worker on one CPU, the load generator on another, and its N threads on N others
(on all CPUs, including nginx's, if there are fewer). For each body size both run in turn, in an
order that alternates by pair, and ratios are formed by pair. CPU time is the kernel's figure for
the generator's process (user and system). Over loopback it includes a part of the network's work in
both directions, so compare ratios, not absolute figures. h2load and oha run in the same rounds if
they are installed. With --streams M only the probe and h2load run, with HTTP/2 without TLS and M
concurrent requests on each connection. --beside PROBE runs another build of the probe in the same
rounds ("beside"). Prints a Markdown table of medians with the lowest and highest.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from nginx_tune.documents.loadplan import (
    Arrivals,
    Caps,
    Http2,
    LoadClass,
    LoadPlan,
    Paths,
    Permit,
    Target,
)
from nginx_tune.measure.load.probe import find_probe

SIZES = {"1 KB": 1 << 10, "100 KB": 100 << 10, "4 MB": 4 << 20}

CONF = """
{user}
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000000;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    server {{ listen 127.0.0.1:{port}{http2}; root {dir}/files; }}
}}
"""


class Run(NamedTuple):
    """A run of a generator."""

    requests_per_second: float
    cpu_seconds_per_request: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1, help="of each generator")
    parser.add_argument("--bodies", default=",".join(SIZES))
    parser.add_argument("--streams", type=int, default=0, help="over HTTP/2: on each connection")
    parser.add_argument("--beside", help="another executable of the probe")
    options = parser.parse_args()
    server_cpu, *others = sorted(os.sched_getaffinity(0))
    options.cpus = others[-options.threads :]
    if len(others) < options.threads:
        options.cpus = [server_cpu, *others]
        print("too few CPUs: server and generator share them\n")
    with tempfile.TemporaryDirectory() as directory, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        nginx = start_nginx(Path(directory), port, server_cpu, http2=options.streams > 0)
        try:
            other = reference(options)
            print(f"| body | generator | µs CPU a request | × {other} | requests/s | × {other} |")
            print("|---|---|--:|--:|--:|--:|")
            for name in options.bodies.split(","):
                compare(name, port, options)
        finally:
            nginx.terminate()
            nginx.wait()


def reference(options: argparse.Namespace) -> str:
    """The generator with which others are compared; wrk supports only HTTP/1.1."""
    return "h2load" if options.streams else "wrk"


def start_nginx(directory: Path, port: int, cpu: int, *, http2: bool) -> subprocess.Popen[bytes]:
    (directory / "files").mkdir()
    for size in SIZES.values():
        (directory / "files" / str(size)).write_bytes(os.urandom(size))
    user = "user root;" if os.geteuid() == 0 else ""
    conf = directory / "nginx.conf"
    conf.write_text(
        CONF.format(dir=directory, port=port, user=user, http2=" http2" if http2 else "")
    )
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    process = subprocess.Popen(
        ["taskset", "-c", str(cpu), binary, "-e", directory / "error.log", "-c", conf]
    )
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.01)
        else:
            return process
    raise SystemExit("nginx does not come up")


def compare(name: str, port: int, options: argparse.Namespace) -> None:
    programs = {tool: run for tool, run in RUNS.items() if tool == "probe" or shutil.which(tool)}
    if options.streams:
        programs = {tool: programs[tool] for tool in ("probe", "h2load")}
    if options.beside:
        programs["beside"] = partial(run_probe, program=options.beside)
    other = reference(options)
    found: dict[str, list[Run]] = {tool: [] for tool in programs}
    for pair in range(options.pairs):
        order = list(programs) if pair % 2 == 0 else list(reversed(programs))
        for tool in order:
            found[tool].append(programs[tool](port, SIZES[name], options))
    for tool, runs in found.items():
        pairs = list(zip(runs, found[other], strict=True))
        costs = [a.cpu_seconds_per_request / b.cpu_seconds_per_request for a, b in pairs]
        rates = [a.requests_per_second / b.requests_per_second for a, b in pairs]
        micros = [run.cpu_seconds_per_request * 1e6 for run in runs]
        per_second = statistics.median(run.requests_per_second for run in runs)
        ratios = ("1", "1") if tool == other else (spread(costs, ".2f"), spread(rates, ".2f"))
        print(
            f"| {name} | {tool} | {spread(micros, '.1f')} | {ratios[0]} "
            f"| {per_second:,.0f} | {ratios[1]} |",
            flush=True,
        )


def spread(values: list[float], form: str) -> str:
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):{form}}–{max(values):{form}}]"


def run_probe(port: int, size: int, options: argparse.Namespace, program: str | None = None) -> Run:
    streams = options.streams
    plan = LoadPlan(
        target=Target(address="127.0.0.1", port=port),
        classes=[
            LoadClass(
                name="c",
                arrivals=Arrivals(kind="closed", users=options.connections * max(streams, 1)),
                paths=Paths(kind="fixed", paths=[f"/{size}"], bytes=[size]),
                connections=options.connections,
                http2=Http2(streams=streams) if streams else None,
            )
        ],
        duration_seconds=options.seconds,
        cpus=options.cpus,
        threads=options.threads,
        caps=Caps(bytes=1 << 50),
        permit=Permit(ports=[port]),
    )
    output, cpu_seconds = run_and_charge([program or find_probe()], msgspec.json.encode(plan))
    result = json.loads(output)["classes"]["c"]
    if result["errors"]:
        raise SystemExit(f"the probe saw failures: {result['errors']}")
    requests = result["requests"]
    return Run(requests / options.seconds, cpu_seconds / requests)


def on(cpus: list[int]) -> list[str]:
    """The command prefix that pins a program to these CPUs."""
    return ["taskset", "-c", ",".join(map(str, cpus))]


def run_wrk(port: int, size: int, options: argparse.Namespace) -> Run:
    url = f"http://127.0.0.1:{port}/{size}"
    counts = [f"-t{options.threads}", f"-c{options.connections}", f"-d{options.seconds}"]
    output, cpu_seconds = run_and_charge([*on(options.cpus), "wrk", *counts, url])
    found = re.search(r"(\d+) requests in", output)
    if not found:
        raise SystemExit(f"wrk says: {output}")
    requests = int(found[1])
    return Run(requests / options.seconds, cpu_seconds / requests)


def run_h2load(port: int, size: int, options: argparse.Namespace) -> Run:
    url = f"http://127.0.0.1:{port}/{size}"
    spoken = f"-m{options.streams}" if options.streams else "--h1"
    counts = [spoken, f"-t{options.threads}", f"-c{options.connections}", f"-D{options.seconds}"]
    output, cpu_seconds = run_and_charge([*on(options.cpus), "h2load", *counts, url])
    found = re.search(r"(\d+) succeeded", output)
    if not found:
        raise SystemExit(f"h2load says: {output}")
    requests = int(found[1])
    return Run(requests / options.seconds, cpu_seconds / requests)


def run_oha(port: int, size: int, options: argparse.Namespace) -> Run:
    url = f"http://127.0.0.1:{port}/{size}"
    counts = ["--no-tui", "--output-format", "json", f"-c{options.connections}"]
    command = [*on(options.cpus), "oha", *counts, f"-z{options.seconds}s", url]
    output, cpu_seconds = run_and_charge(command)
    requests = sum(json.loads(output)["statusCodeDistribution"].values())
    return Run(requests / options.seconds, cpu_seconds / requests)


RUNS = {"probe": run_probe, "wrk": run_wrk, "h2load": run_h2load, "oha": run_oha}


def run_and_charge(argv: list[str | Path], stdin: bytes = b"") -> tuple[str, float]:
    """The output of a program, and its CPU time (wait4)."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(argv, stdin=given, stdout=printed)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{argv[0]}: exit {process.returncode}")
        printed.seek(0)
        return printed.read().decode(), usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
