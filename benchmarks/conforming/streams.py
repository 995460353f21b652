"""Streams of HTTP/2 to a server that stands still in part of the time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import msgspec

from conforming.rows import PROBE_CPU, RATE, Row, milliseconds
from nginx_tune.documents.loadplan import Http2
from nginx_tune.load.probe import run_probe

STALL, EVERY = 1.0, 5.0


def streams(options: argparse.Namespace) -> Iterator[Row]:
    """Streams of HTTP/2: a server that stands still for 1 s of every 5, on 1 and 8 connections."""
    from http2_peer import Reply, answer, http2_peer  # noqa: PLC0415  # rows.py says where it is
    from truth import truth_plan  # noqa: PLC0415

    for connections in (1, 8):
        begun = time.monotonic()

        def reply(_: int, stream: int, begun: float = begun) -> Reply:
            phase = (time.monotonic() - begun) % EVERY
            return Reply(answer(stream), after_seconds=max(STALL - phase, 0.0))

        with http2_peer(reply) as peer:
            plan = truth_plan(
                peer.port, rate=RATE / 2, duration_seconds=options.seconds, connections=connections
            )
            item = msgspec.structs.replace(plan.classes[0], http2=Http2(streams=100))
            plan = msgspec.structs.replace(plan, classes=[item])
            seen = run_probe(plan, cpus=[PROBE_CPU]).classes["c"]
        name = f"24 {connections} × 100 streams"
        wanted = round(RATE / 2 * options.seconds)
        yield Row(name, f"{wanted:,} good", f"{seen.requests:,}", seen.requests == wanted)
        for quantile, share in (("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            truth = (share - (1 - STALL / EVERY)) / (STALL / EVERY) * STALL * 1e3
            value = milliseconds(getattr(seen.response_seconds, quantile))
            asked = f"{quantile} {truth:.0f} ± {0.03 * truth:.1f} ms"
            yield Row(name, asked, f"{value:.1f} ms", abs(value - truth) <= 0.03 * truth)
