"""The knee on curves whose truth is known."""

import random
from collections.abc import Callable, Sequence

import pytest
from rows import each_row

from nginx_tune.documents.facts_storage import CurvePoint
from nginx_tune.measure.proof.statistics import find_knee, plateau_reads_per_second

DEPTHS = [1, 2, 4, 8, 16, 32, 64]
Rates = Sequence[float]


def curve(
    rates: Rates, p99: Sequence[float | None] | None = None, error_ratio: float | None = None
) -> list[CurvePoint]:
    """Points at depths 1, 2, 4, …; without ``p99`` latency follows from Little's law."""
    return [
        CurvePoint(
            depth=1 << index,
            reads_per_second=rate,
            p50_seconds=(1 << index) / rate,
            p99_seconds=1.5 * (1 << index) / rate if p99 is None else p99[index],
            error_ratio=error_ratio,
        )
        for index, rate in enumerate(rates)
    ]


def parallel(single: float, channels: int) -> list[float]:
    """Rates of a disk with so many channels, reads dealt to them at random.

    With d reads over c channels c (1 - (1 - 1/c)^d) channels are busy on average.
    """
    return [single * channels * (1 - (1 - 1 / channels) ** depth) for depth in DEPTHS]


KNEES: list[tuple[str, list[CurvePoint], int | None, str]] = [
    ("hdd, one head", curve([117, 119, 120, 121, 121, 121, 121]), None, "one read at a time"),
    ("hdd with NCQ of 32", curve([120, 135, 160, 185, 215, 245, 246]), 32, "depth 64"),
    ("hdd with NCQ, last step flat", curve([120, 135, 160, 185, 215, 226, 228]), 32, "depth 64"),
    ("sata ssd", curve([8e3, 15.6e3, 30e3, 55e3, 80e3, 83e3, 83e3]), 16, "depth 32"),
    ("nvme", curve([11e3, 22e3, 44e3, 87e3, 170e3, 320e3, 520e3]), None, "up to depth 64"),
    ("nvme to its end", curve([11e3, 22e3, 44e3, 87e3, 170e3, 320e3, 331e3]), 32, "depth 64"),
    ("modelled, 1 ms in parallel", curve([758, 1210, 1679, 2300, 2696, 2720, 2728]), 16, "32"),
    ("throttled", curve([500, 503, 499, 507, 501, 500, 502]), None, "no knee: 500 reads/s"),
    ("worse with depth", curve([900, 1700, 1650, 1500, 1200, 900, 800]), 2, "depth 4"),
    ("worse at once", curve([900, 800, 700, 600, 500, 400, 300]), None, "no knee"),
    ("eight channels at random", curve(parallel(1000, 8)), 32, "depth 64"),
    (
        "p99 doubles first",
        curve([1e3, 2e3, 3.9e3, 7e3, 12e3, 20e3, 30e3], [1, 1, 1.1, 1.5, 3.1, 6, 12]),
        8,
        "p99 grows from 1.50 s to 3.10 s",
    ),
    ("p99 doubles at once", curve([1e3, 2e3, 4e3, 8e3], [1, 2.1, 2.2, 2.3]), 1, "p99 grows"),
    ("p99 not measured", curve([1e3, 2e3, 4e3, 8e3], [1, None, 9, None]), None, "up to depth 8"),
    ("one flat step made good", curve([1000, 1020, 2900, 5000, 9000, 9100, 9100]), 16, "depth 32"),
    ("one low outlier", curve([1000, 2000, 1500, 7000, 12e3, 12.1e3, 12e3]), 16, "depth 32"),
    ("two depths", curve([1000, 2000]), None, "fewer than three"),
    ("none", [], None, "fewer than three"),
]


@each_row(
    ("points", "depth", "words"), [case[1:] for case in KNEES], ids=[case[0] for case in KNEES]
)
def test_knees(points: list[CurvePoint], depth: int | None, words: str) -> None:
    knee = find_knee(points)
    assert (knee.depth, words in knee.reason) == (depth, True), knee
    # In any order, and with points at which nothing was read.
    mixed = [CurvePoint(depth=128, reads_per_second=0.0), *reversed(points)]
    assert find_knee(mixed) == knee


def test_bursts_tell_a_throttle() -> None:
    points = [
        CurvePoint(depth=d, reads_per_second=500, p50_seconds=4e-5, p99_seconds=0.096)
        for d in DEPTHS
    ]
    assert find_knee(points).reason.endswith("a throttled device")
    assert find_knee(points).depth is None


TRUTHS: dict[str, tuple[Callable[[int], float], set[int | None]]] = {
    "plateau": (lambda _: 500.0, {None}),
    "sata ssd": (lambda depth: min(8000.0 * depth, 80_000.0), {8, 16}),
    "nvme": (lambda depth: 11_000.0 * depth, {None}),
}


@each_row("noise", [0.02, 0.05, 0.10])
@each_row("name", TRUTHS)
def test_noise_moves_the_knee_seldom(name: str, noise: float) -> None:
    rate, expected = TRUTHS[name]
    chance = random.Random(f"{name} {noise}")
    hits = 0
    for _ in range(300):
        rates = [rate(depth) * max(0.1, chance.gauss(1, noise)) for depth in DEPTHS]
        knee = find_knee(curve(rates, [None] * len(rates), error_ratio=noise))
        hits += knee.depth in expected
    assert hits >= 270, hits


def test_the_plateau_is_the_mean_of_what_no_longer_gains() -> None:
    assert plateau_reads_per_second(curve([100, 200, 300, 304, 296])) == pytest.approx(300)
    assert plateau_reads_per_second(curve([500, 510, 490])) == pytest.approx(500)
    assert plateau_reads_per_second(curve([100, 200, 400])) is None
    assert plateau_reads_per_second(curve([100])) is None
    # p99 makes the knee at depth 1; the rate has its plateau later all the same.
    bent = curve([100, 200, 200], [1, 3, 3])
    assert find_knee(bent).depth == 1
    assert plateau_reads_per_second(bent) == pytest.approx(200)
