"""The arrival times of an open loop's requests, from the time stamps of the receiving kernel."""

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from conforming.rows import PLACE, RATE, Row, ground_truth, run
from nginx_tune.documents.loadplan import Caps
from nginx_tune.documents.measured_class import ClassMeasurement

SPARSE = 200.0
"""Arrivals per second for the test of gaps. At 1000 per second, the few µs that sending a request
takes are a visible part of the gaps in a test of this size."""
WINDOW = 0.005
"""The length in seconds of a window in which arrivals are counted."""
PARTS = 20
"""The number of parts of a run whose medians show drift."""


def arrivals(options: argparse.Namespace) -> Iterator[Row]:
    """Constant and Poisson arrivals at the server's kernel: jitter, gaps, rate, drift."""
    seconds = float(options.seconds)
    yield from _constant(seconds if options.minutes is None else options.minutes * 60)
    name = f"poisson, {SPARSE:.0f}/s"
    seen, times, row = _arrived(name, "poisson", SPARSE, seconds)
    yield row
    gaps = [after - before for before, after in pairwise(times)]
    shares = sorted(1 - math.exp(-SPARSE * gap) for gap in gaps)
    distance, limit = kolmogorov(shares), 1.628 / math.sqrt(len(shares))
    asked = f"{name}: KS of the gaps ≤ {limit:.4f} (1 %)"
    yield Row("6", asked, f"{distance:.4f}, {len(shares):,} gaps", distance <= limit)
    square = anderson_darling(shares)
    yield Row("6", f"{name}: A² of the gaps ≤ 3.857 (1 %)", f"{square:.3f}", square <= 3.857)

    name = f"poisson, {RATE:.0f}/s"
    seen, times, row = _arrived(name, "poisson", RATE, seconds)
    yield row
    windows = int(seconds / WINDOW) - 1
    error = math.sqrt(2 / windows)
    index = dispersion(times, windows)
    yield Row(
        "6",
        f"{name}: dispersion 1 ± {max(0.02, 2 * error):.3f} "
        f"(two standard errors of {windows:,} windows: {2 * error:.3f})",
        f"{index:.3f}",
        abs(index - 1) <= max(0.02, 2 * error),
    )
    error = 2 / math.sqrt(RATE * seconds)
    off = seen.intended / (RATE * seconds) - 1
    asked = f"{name}: rate within its own sampling error, {error:.2%}"
    yield Row("6", asked, f"{off:+.2%}", abs(off) <= error)


def _constant(seconds: float) -> Iterator[Row]:
    name = f"constant, {RATE:.0f}/s"
    seen, times, row = _arrived(name, "constant", RATE, seconds)
    yield row
    late = [time - number / RATE for number, time in enumerate(times)]
    middle = statistics.median(late)
    jitter = sorted(abs(value - middle) for value in late)
    p99 = jitter[len(jitter) * 99 // 100] * 1e3
    lag = (seen.lateness_seconds.p99 or math.nan) * 1e3
    asked = f"{name}: jitter p99 < 0.2 ms"
    yield Row("6", asked, f"{p99:.3f} ms (lag that the probe tells: {lag:.3f})", p99 < 0.2)
    rate = (len(times) - 1) / (times[-1] - times[0])
    off = rate / RATE - 1
    yield Row("6", f"{name}: rate ± 0.1 %", f"{off:+.4%}", abs(off) <= 0.001)
    slope = drift(late)
    over = slope * len(late) / RATE
    yield Row(
        "6",
        f"{name}: drift over {seconds:.0f} s below 0.2 ms",
        f"{over * 1e3:+.3f} ms ({slope * 1e6:+.3f} µs a second)",
        abs(over) < 0.0002,
    )


def _arrived(
    name: str, kind: str, rate: float, seconds: float
) -> tuple[ClassMeasurement, list[float], Row]:
    """A run with its arrival times in seconds from the first, and a row on their completeness."""
    with ground_truth("--log", *PLACE) as server:
        caps = Caps(seconds=seconds + 60)
        _, seen = run(server, kind=kind, rate=rate, duration_seconds=seconds, caps=caps)
        told = server.end()
    stamps = sorted(told["arrived_nanoseconds"])
    row = Row(
        "6",
        f"{name}: as many as the plan has",
        f"{seen.intended:,} due, {told['requests']:,} came, {told['unstamped']} without a stamp",
        seen.intended == told["requests"] == len(stamps),
    )
    return seen, [(stamp - stamps[0]) / 1e9 for stamp in stamps], row


def kolmogorov(shares: Sequence[float]) -> float:
    """The largest distance of sorted shares from evenly spread ones."""
    count = len(shares)
    return max(
        max((rank + 1) / count - share, share - rank / count) for rank, share in enumerate(shares)
    )


def anderson_darling(shares: Sequence[float]) -> float:
    """A² of sorted shares against evenly spread ones: like KS, but with weight on the tails."""
    count = len(shares)
    kept = [min(max(share, 1e-12), 1 - 1e-12) for share in shares]
    terms = (
        (2 * rank + 1) * (math.log(share) + math.log1p(-kept[count - 1 - rank]))
        for rank, share in enumerate(kept)
    )
    return -count - math.fsum(terms) / count


def dispersion(times: Sequence[float], windows: int) -> float:
    """The variance of the arrivals in a window, divided by their mean; 1 for a Poisson process."""
    per_window = Counter(int(time / WINDOW) for time in times)
    counts = [per_window[window] for window in range(windows)]
    return statistics.variance(counts) / statistics.fmean(counts)


def drift(late: Sequence[float]) -> float:
    """The growth of lateness, in seconds per second."""
    part = max(len(late) // PARTS, 1)
    medians = [statistics.median(late[at : at + part]) for at in range(0, part * PARTS, part)]
    middles = [(number + 0.5) * part / RATE for number in range(PARTS)]
    return statistics.linear_regression(middles, medians).slope
