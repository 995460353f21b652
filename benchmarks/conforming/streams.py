"""Streams of HTTP/2 and HTTP/3 to a server that stalls part of the time."""

import argparse
import contextlib
import shutil
import subprocess
from collections.abc import Iterator

import msgspec

from conforming.rows import (
    PLACE,
    PROBE_CPU,
    RATE,
    REPOSITORY,
    SERVER_CPU,
    Check,
    Row,
    milliseconds,
    truth_plan,
)
from nginx_tune.documents.loadplan import Http2, Http3, LoadPlan, Tls
from nginx_tune.measure.load.probe import run_probe

STALL, EVERY = 1.0, 5.0
STREAMS = 100


def streams_of(number: str, protocol: str) -> Check:
    """The rows of a protocol."""

    def streams(options: argparse.Namespace) -> Iterator[Row]:
        if shutil.which("cargo") is None:
            yield Row(number, f"{protocol}: stalls", "no cargo to build the server", held=None)
            return
        for connections in (1, 8):
            yield from _stalls(number, protocol, connections, options.seconds)

    name = protocol.upper().replace("HTTP", "HTTP/")
    streams.__doc__ = f"Streams of {name} to a server that stands still for 1 s of every 5."
    return streams


def _stalls(number: str, protocol: str, connections: int, seconds: int) -> Iterator[Row]:
    with _stalling(protocol) as port:
        plan = _plan(port, protocol, connections, seconds)
        seen = run_probe(plan, cpus=[PROBE_CPU]).classes["c"]
    name = f"{number} {protocol}, {connections} × {STREAMS} streams"
    wanted = round(RATE / 2 * seconds)
    yield Row(name, f"{wanted:,} good", f"{seen.requests:,}", seen.requests == wanted)
    for quantile, share in (("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        truth = (share - (1 - STALL / EVERY)) / (STALL / EVERY) * STALL * 1e3
        value = milliseconds(getattr(seen.response_seconds, quantile))
        asked = f"{quantile} {truth:.0f} ± {0.03 * truth:.1f} ms"
        yield Row(name, asked, f"{value:.1f} ms", abs(value - truth) <= 0.03 * truth)


def _plan(port: int, protocol: str, connections: int, seconds: int) -> LoadPlan:
    plan = truth_plan(port, rate=RATE / 2, duration_seconds=seconds, connections=connections)
    spoken = {"http2": Http2(streams=STREAMS)} if protocol == "http2" else {}
    if protocol == "http3":
        spoken = {"http3": Http3(streams=STREAMS)}
    item = msgspec.structs.replace(plan.classes[0], **spoken)
    target = plan.target
    if protocol == "http3":
        target = msgspec.structs.replace(target, tls=Tls(verify=False))
    realtime = "--realtime" in PLACE
    return msgspec.structs.replace(plan, classes=[item], target=target, realtime=realtime)


@contextlib.contextmanager
def _stalling(protocol: str) -> Iterator[int]:
    """The port of the crate's stalling server, while it runs (``probes/examples/stalling.rs``)."""
    build = ["cargo", "build", "--release", "--locked", "--quiet", "--example", "stalling"]
    subprocess.run(build, cwd=REPOSITORY / "probes", check=True)
    program = REPOSITORY / "probes" / "target" / "release" / "examples" / "stalling"
    command = ["taskset", "-c", str(SERVER_CPU), program, protocol, str(STALL), str(EVERY)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise SystemExit("no pipes to the server")
        # It ends with its standard input.
        with process.stdin:
            yield int(process.stdout.readline())
