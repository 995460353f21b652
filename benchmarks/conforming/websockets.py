"""Echoes over WebSockets of an origin that stands still in part of the time."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from conforming.rows import PLACE, PROBE_CPU, RATE, SERVER_CPU, Row, milliseconds, truth_plan
from nginx_tune.documents.lab import WEBSOCKET_PATH, LabEcho, LabOrigin
from nginx_tune.documents.loadplan import LoadPlan, Paths, WebSocket
from nginx_tune.lab.lifetime import ENVIRONMENT_MARK, new_mark
from nginx_tune.lab.origin import OriginRequest
from nginx_tune.load.probe import run_probe

DELAY, STALL, EVERY = 0.1, 1.0, 5.0
"""Not shorter: the origin's timers (asyncio) are whole milliseconds, and late by one."""
ROOM = 0.03


def websockets(options: argparse.Namespace) -> Iterator[Row]:
    """Messages over WebSockets to an origin that stands still for 1 s of every 5."""
    for connections in (1, 8):
        yield from _stalls(connections, options.seconds)


def _stalls(connections: int, seconds: int) -> Iterator[Row]:
    rate = RATE / 10 * connections
    with _echoing() as port:
        plan = _plan(port, rate, connections, seconds)
        seen = run_probe(plan, cpus=[PROBE_CPU]).classes["c"]
    name = f"31 WebSocket, {connections} × {rate / connections:.0f} messages a second"
    wanted = round(rate * seconds)
    yield Row(name, f"{wanted:,} good", f"{seen.requests:,}", seen.requests == wanted)
    part, latency = STALL / EVERY, seen.response_seconds
    for quantile, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
        waited = max(0.0, share - (1 - part)) / part * STALL
        yield _near(name, quantile, getattr(latency, quantile), DELAY + waited)
    channel = seen.websocket
    gap = None if channel is None else channel.gap_seconds.max
    # The last echo before a stall comes just before it, the next with its end.
    yield _near(name, "longest gap", gap, STALL)
    ends = math.nan if channel is None else channel.early_ends
    yield Row(name, "none ends early", f"{ends}", ends == 0)


def _near(name: str, what: str, seconds: float | None, truth: float) -> Row:
    value, wanted = milliseconds(seconds), truth * 1e3
    asked = f"{what} {wanted:.0f} ± {ROOM * wanted:.1f} ms"
    return Row(name, asked, f"{value:.1f} ms", abs(value - wanted) <= ROOM * wanted)


def _plan(port: int, rate: float, connections: int, seconds: int) -> LoadPlan:
    plan = truth_plan(port, rate=rate, duration_seconds=seconds, connections=connections)
    item = msgspec.structs.replace(
        plan.classes[0],
        paths=Paths(kind="fixed", paths=[WEBSOCKET_PATH]),
        websocket=WebSocket(message_bytes=256, messages=1000),
    )
    realtime = "--realtime" in PLACE
    return msgspec.structs.replace(plan, classes=[item], warmup_seconds=1.0, realtime=realtime)


@contextlib.contextmanager
def _echoing() -> Iterator[int]:
    """The lab's origin, as a lab starts it: its port."""
    echo = LabEcho(delay_seconds=DELAY, stall_seconds=STALL, stall_every_seconds=EVERY)
    request = OriginRequest(address="127.0.0.1", origin=LabOrigin(echo=echo), seed=1)
    argv = [sys.executable, "-m", "nginx_tune.lab.origin", msgspec.json.encode(request).decode()]
    command = ["taskset", "-c", str(SERVER_CPU), *argv]
    os.environ[ENVIRONMENT_MARK] = new_mark()  # the probe has to have it too
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if process.stdout is None:
            raise SystemExit("no pipe to the origin")
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
