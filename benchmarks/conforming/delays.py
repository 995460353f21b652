"""Delays that the server makes and logs, and the probe's figures for them."""

import argparse
import bisect
import math
from collections.abc import Iterator, Sequence

from conforming.rows import PLACE, Row, ground_truth, milliseconds, run
from nginx_tune.measure.proof.histogram import Histogram, decode_histogram, rank_of

WAY = 1e-4
"""The longest median round trip on a quiet machine, in seconds."""
TAIL_WAY = 2e-4
"""The same for all but a few requests."""

SHAPES = {
    "bimodal": "bimodal:0.001,0.05,0.01",
    "lognormal": "lognormal:0.02,1",
    "pareto": "pareto:0.02,2",
}


def constant_delays(_options: argparse.Namespace) -> Iterator[Row]:
    """A constant delay of 0, 1, 10 and 100 ms."""
    for delay in (0.0, 0.001, 0.01, 0.1):
        with ground_truth("--delay", f"constant:{delay}", "--log", *PLACE) as server:
            measurement, seen = run(server, rate=200.0, duration_seconds=3.0)
            held = sorted(server.end()["each_own_seconds"])
        name = f"{milliseconds(delay):.0f} ms"
        lag = measurement.generator.lateness_seconds.p50 or 0.0
        p50 = seen.response_seconds.p50 or math.nan
        truth = held[len(held) // 2]
        beyond = milliseconds(p50 - lag - truth)
        yield Row(
            "3",
            f"{name}: p50 less lag within 0.1 ms of the server's own",
            f"{milliseconds(p50):.3f} less {milliseconds(lag):.3f} ms, "
            f"server {milliseconds(truth):.3f} ms",
            abs(beyond) <= milliseconds(WAY),
        )
        service = seen.service_seconds
        spread = (service.p90 or math.nan) - (service.p50 or math.nan)
        own = held[len(held) * 9 // 10] - held[len(held) // 2]
        yield Row(
            "3",
            f"{name}: p90 less p50 within 0.1 ms of the server's own",
            f"{milliseconds(spread):.3f} ms, server {milliseconds(own):.3f} ms",
            abs(milliseconds(spread - own)) < 0.1,
        )


def tails(options: argparse.Namespace) -> Iterator[Row]:
    """Delays of known shapes: their quantiles, and the distribution as a whole.

    The probe keeps histograms and no single requests. So its service times and the server's log of
    the true times are compared as two distributions, at the ends of the histogram's counters, where
    its counts are exact. A service time is a delay plus the round trip: never shorter than the
    delay, and not much longer.
    """
    for name, shape in SHAPES.items():
        with ground_truth("--delay", shape, "--log", *PLACE) as server:
            _, seen = run(server, duration_seconds=options.seconds, drain_seconds=15.0)
            held = sorted(server.end()["each_own_seconds"])
        yield Row(
            "4",
            f"{name}: every delay is in it",
            f"{len(held):,} put in, {seen.service_seconds.count:,} told",
            len(held) == seen.service_seconds.count == seen.requests,
        )
        histogram = decode_histogram(seen.service_seconds.histogram)
        for quantile in (0.5, 0.9, 0.99, 0.999):
            low, high = order_interval(held, quantile)
            value = milliseconds((histogram.value_at(quantile) or 0) / 1e9)
            # Three digits: a counter spans a thousandth of its values.
            high = milliseconds(high * 1.001 + WAY)
            yield Row(
                "4",
                f"{name}: p{quantile * 100:g} in {milliseconds(low):.3f}–{high:.3f} ms",
                f"{value:.3f} ms",
                milliseconds(low) <= value <= high,
            )
        yield _distance(f"{name}: KS distance to the delays", histogram, held, (0.0, TAIL_WAY))
        stamped = decode_histogram(seen.arrival_seconds.histogram)
        # The kernel has the answer before the server knows that it has.
        room = (-WAY, TAIL_WAY)
        yield _distance(f"{name}: the same by the kernel's stamps", stamped, held, room)


def _distance(
    asked: str, histogram: Histogram, delays: Sequence[float], room: tuple[float, float]
) -> Row:
    early, late = distances(histogram, delays, room)
    limit = 1.358 * math.sqrt(1 / len(delays) + 1 / max(histogram.total, 1))
    low, high = map(milliseconds, room)
    return Row(
        "4",
        f"{asked}, {low:g} to {high:g} ms added, ≤ {limit:.4f} (5 %)",
        f"{early:.4f} below, {late:.4f} above, {histogram.total:,} of them",
        histogram.total > 0 and max(early, late) <= limit,
    )


def order_interval(ordered: Sequence[float], quantile: float) -> tuple[float, float]:
    """The 95 % interval of a quantile, as two of the sorted values, for any distribution."""
    count = len(ordered)
    room = 1.96 * math.sqrt(count * quantile * (1 - quantile))
    rank = rank_of(quantile, count)
    low = max(math.floor(rank - room), 1)
    high = min(math.ceil(rank + room), count)
    return ordered[low - 1], ordered[high - 1]


def distances(
    histogram: Histogram, delays: Sequence[float], room: tuple[float, float]
) -> tuple[float, float]:
    """The distances of a distribution from the delays plus the least and the longest round trip.

    Shape: the distance below the first, and that above the second. ``delays`` are sorted; a
    distance is the largest difference of the shares up to a value, as Kolmogorov's.
    """
    least, most = room
    early = late = 0.0
    counted = 0

    def share_to(seconds: float) -> float:
        return bisect.bisect_right(delays, seconds) / len(delays)

    for index, count in histogram.counts.items():
        before = counted / histogram.total
        late = max(late, share_to(histogram.layout.lowest_value(index) / 1e9 - most) - before)
        counted += count
        until = histogram.layout.highest_value(index) / 1e9
        early = max(early, counted / histogram.total - share_to(until - least))
    return early, late


def large_bodies(_options: argparse.Namespace) -> Iterator[Row]:
    """Bodies of 100 KB over loopback, where acknowledgements may come 40 ms late."""
    with ground_truth("--body", 100_000, *PLACE) as server:
        _, seen = run(server, rate=500.0, connections=10, duration_seconds=5.0)
    worst = milliseconds(seen.response_seconds.p999)
    yield Row("14", "p99.9 < 15 ms", f"{worst:.2f} ms", worst < 15)
    suspects = seen.ack_stall_suspects
    yield Row("14", "no pause like a late acknowledgement", f"{suspects}", suspects == 0)
    yield Row(
        "14",
        "such pauses are seen without quick acknowledgements",
        "`probes/tests/probe/receive.rs::a_delayed_acknowledgement_is_not_taken_for_the_servers_latency`",
        held=None,
    )
