"""The load probe's CPU time per request over TLS, beside h2load and oha.

    python benchmarks/probe_over_tls.py [--rounds N] [--seconds N] [--bodies "1 KB,100 KB"]
                                        [--probe FILE]

nginx of the matrix (tools/nginx-matrix, 1.30) runs with one worker on the first CPU, the generators
on the last. They use HTTP/1.1 on 40 connections and HTTP/2 on 4 with 10 streams each, always with
TLS 1.3 and the only cipher suite of the server (AES-128-GCM), so that all do the same work. Each
round runs all once, in an order that alternates by round; ratios are formed by round. CPU time is
the kernel's figure for the generator's process, including handshakes. Over loopback it includes a
part of the network's work in both directions: compare ratios, not absolute figures. HTTP/3 is
measured with the probe and with tools that support it. Debian's h2load (1.52, and sid's 1.70) does
not; oha does after ``cargo install oha --locked --features http3``. oha runs if it is on PATH.
Prints a Markdown table of medians with the lowest and highest.
"""

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from probe_vs_wrk import run_and_charge
from protocols import CONNECTIONS, SIZES, USERS, plan_of, start_nginx

from nginx_tune.measure.load.probe import find_probe

STREAMS = USERS // CONNECTIONS
SUITE = "ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256; ssl_protocols TLSv1.3;"
CPUS = sorted(os.sched_getaffinity(0))
PINNED = ["taskset", "-c", str(CPUS[-1])]


class Asked(NamedTuple):
    """A run of a generator."""

    protocol: str
    size: int
    port: int
    seconds: int
    probe: str


def probe(asked: Asked) -> float:
    plan = plan_of(asked.protocol, asked.size, asked.port, asked.seconds)
    output, cpu_seconds = run_and_charge([*PINNED, asked.probe], msgspec.json.encode(plan))
    found = msgspec.json.decode(output)["classes"]["c"]
    if found["errors"]:
        raise SystemExit(f"the probe saw failures: {found['errors']}")
    return cpu_seconds / found["requests"]


def h2load(asked: Asked) -> float:
    spoken = {
        "HTTP/1.1": ["--h1", f"-c{USERS}"],
        "HTTP/2": ["--npn-list=h2", f"-c{CONNECTIONS}", f"-m{STREAMS}"],
        "HTTP/3": ["--npn-list=h3", f"-c{CONNECTIONS}", f"-m{STREAMS}"],
    }[asked.protocol]
    url = f"https://127.0.0.1:{asked.port}/{asked.size}"
    output, cpu_seconds = run_and_charge([*PINNED, "h2load", *spoken, f"-D{asked.seconds}", url])
    found = re.search(r"(\d+) succeeded, (\d+) failed", output)
    if not found or int(found[2]):
        raise SystemExit(f"h2load says: {output}")
    return cpu_seconds / int(found[1])


def oha(asked: Asked) -> float:
    spoken = {
        "HTTP/1.1": [f"-c{USERS}"],
        "HTTP/2": ["--http2", f"-c{CONNECTIONS}", f"-p{STREAMS}"],
        "HTTP/3": ["--http-version", "3", f"-c{CONNECTIONS}", f"-p{STREAMS}"],
    }[asked.protocol]
    options = ["--no-tui", "--insecure", "--output-format", "json", f"-z{asked.seconds}s"]
    url = f"https://127.0.0.1:{asked.port}/{asked.size}"
    output, cpu_seconds = run_and_charge([*PINNED, "oha", *options, *spoken, url])
    found = msgspec.json.decode(output)
    # It counts requests in flight at the end as failed.
    failed = {kind: n for kind, n in found["errorDistribution"].items() if "deadline" not in kind}
    if failed:
        raise SystemExit(f"oha saw failures: {failed}")
    return cpu_seconds / sum(found["statusCodeDistribution"].values())


def generators(protocol: str) -> dict[str, Callable[[Asked], float]]:
    """The installed generators for a protocol, the probe first."""
    found = {"probe": probe}
    if shutil.which("h2load"):
        said = subprocess.run(["h2load", "--help"], capture_output=True, text=True, check=True)
        if protocol != "HTTP/3" or "h3" in said.stdout:
            found["h2load"] = h2load
    if shutil.which("oha") and (protocol != "HTTP/3" or _oha_speaks_http3()):
        found["oha"] = oha
    return found


def _oha_speaks_http3() -> bool:
    """True if oha was built with QUIC."""
    return b"quinn" in Path(shutil.which("oha") or "").read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--bodies", default="1 KB,100 KB")
    parser.add_argument("--protocols", default="HTTP/1.1,HTTP/2,HTTP/3")
    parser.add_argument("--probe", default=str(find_probe()), help="another executable of it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        nginx = start_nginx(Path(directory), port, "1.30", cpu=CPUS[0], server=SUITE)
        try:
            print("| body | protocol | generator | µs CPU a request | probe × this |")
            print("|---|---|---|--:|--:|")
            for name in options.bodies.split(","):
                for protocol in options.protocols.split(","):
                    asked = Asked(protocol, SIZES[name], port, options.seconds, options.probe)
                    compare(name, asked, options.rounds)
        finally:
            nginx.terminate()
            nginx.wait()


def compare(name: str, asked: Asked, rounds: int) -> None:
    programs = generators(asked.protocol)
    found: dict[str, list[float]] = {tool: [] for tool in programs}
    for number in range(rounds):
        for tool in programs if number % 2 else reversed(programs):
            found[tool].append(programs[tool](asked) * 1e6)
    for tool, costs in found.items():
        ratios = [own / other for own, other in zip(found["probe"], costs, strict=True)]
        ratio = "1" if tool == "probe" else spread(ratios, ".2f")
        print(
            f"| {name} | {asked.protocol} | {tool} | {spread(costs, '.1f')} | {ratio} |", flush=True
        )


def spread(values: list[float], form: str) -> str:
    middle = format(statistics.median(values), form)
    return f"{middle} [{min(values):{form}}–{max(values):{form}}]"


if __name__ == "__main__":
    main()
