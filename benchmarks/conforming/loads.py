"""A load's requests without an answer, and its use of connections and threads."""

import argparse
import math
from collections.abc import Iterator

from conforming.rows import PLACE, RATE, Row, ground_truth, milliseconds, run, run_classes
from nginx_tune.documents.loadplan import Arrivals, LoadClass, Paths

_SECONDS = 4.0


def timeouts(_options: argparse.Namespace) -> Iterator[Row]:
    """One request in 20 is never answered and times out after 1 s."""
    with ground_truth("--never", 20, *PLACE) as server:
        _, seen = run(server, rate=200.0, duration_seconds=_SECONDS, timeout_seconds=1.0)
        silent = server.end()["unanswered"]
    latency = seen.response_seconds
    failed = seen.errors.get("timeout", 0)
    yield Row("20", f"{silent} timed out", f"{failed}", failed == silent)
    counted = latency.count == seen.intended
    yield Row("20", "all arrivals in the quantiles", f"{latency.count} of {seen.intended}", counted)
    p90, p99 = milliseconds(latency.p90), milliseconds(latency.p99)
    held = p90 < 100 and p99 >= 1000 and {"p99", "max"} <= set(latency.at_least)
    held = held and "p90" not in latency.at_least
    asked = "p90 a number, p99 and max at least 1 s"
    yield Row("20", asked, f"{p90:.1f} ms; {p99:.0f} ms, ≥: {', '.join(latency.at_least)}", held)


def turns(_options: argparse.Namespace) -> Iterator[Row]:
    """An open loop over 50 connections, used in turn."""
    for use in ("turns", "latest"):
        with ground_truth(*PLACE) as server:
            run(server, rate=500.0, duration_seconds=_SECONDS, connections=50, connection_use=use)
            counts = sorted(server.end()["by_connection"])
        mean = 500.0 * _SECONDS / 50
        text = f"{len(counts)} connections, {counts[0]} to {counts[-1]} requests each"
        if use == "turns":
            held = len(counts) == 50 and counts[0] >= 0.9 * mean and counts[-1] <= 1.1 * mean
            yield Row("21", f"50 connections, {mean:.0f} ± 10 % requests each", text, held)
        else:
            few = sum(counts[-2:]) / sum(counts)
            yield Row("21", "the last used first: two have most", f"{few:.0%}", few > 0.5)


def users(_options: argparse.Namespace) -> Iterator[Row]:
    """1,000 users who pause for 2 s, each on a separate connection."""
    item = LoadClass(
        name="c",
        arrivals=Arrivals(kind="closed", users=1000, think_seconds=2.0),
        paths=Paths(kind="fixed", paths=["/"]),
        connections=1000,
    )
    with ground_truth(*PLACE) as server:
        measurement = run_classes(server, [item], duration_seconds=5.0)
        counts = server.end()["by_connection"]
    seen = measurement.classes["c"]
    text = f"{seen.connections_opened:,}, {min(counts)} to {max(counts)} requests each"
    held = seen.connections_opened == len(counts) == 1000 and min(counts) >= 1
    held = held and max(counts) - min(counts) <= 1
    yield Row("22", "1,000 connections, of alike many requests", text, held)


def threads(options: argparse.Namespace) -> Iterator[Row]:
    """Threads side by side have one schedule and one histogram."""
    intended = []
    for count in (1, 3):
        with ground_truth("--stall", 1.0, "--every", 5.0, *PLACE) as server:
            measurement, seen = run(
                server,
                kind="poisson",
                threads=count,
                connections=2000,
                duration_seconds=float(max(options.seconds // 2, 5)),
            )
        intended.append(seen.intended)
        p99 = milliseconds(seen.response_seconds.p99)
        # As in 1: 3 percent, plus two standard errors of the share of a Poisson count.
        room = 28 + 2 * math.sqrt(0.99 * 0.01 / seen.intended) / 0.2 * 1e3
        name = f"{measurement.generator.threads or 1} threads: stalls of 1 s in 5"
        held = abs(p99 - 950.0) <= room
        yield Row("23", f"{name}, p99 950 ± {room:.0f} ms", f"{p99:.1f} ms", held)
    same = len(set(intended)) == 1
    yield Row("23", f"the same arrivals at {RATE:.0f}/s", " and ".join(map(str, intended)), same)


__all__ = ["threads", "timeouts", "turns", "users"]
