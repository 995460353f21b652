"""How the requests of a class are spread over the server's workers, a bar for each arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.report.page.plot.curves import place_of_arm
from nginx_tune.report.quantities import one_line
from nginx_tune.report.text import percent_text

_MOST_SHOWN = 16
"""Workers of one bar; the others are one piece."""


@dataclass(frozen=True)
class Piece:
    """A worker's part of a bar, in percent of it."""

    left: float
    width: float


@dataclass(frozen=True)
class Bar:
    """One arm: its workers, the busiest first."""

    label: str
    said: str
    pieces: Sequence[Piece]
    shares: Sequence[float]


@dataclass(frozen=True)
class SharesPlot:
    """Bars of shares that come to 100 % each."""

    title: str
    caption: str
    bars: Sequence[Bar]
    kind: str = "shares"


def workers_plots(measurements: Sequence[Measurement]) -> list[SharesPlot]:
    """One for each class whose answers say which worker they are from."""
    classes = dict.fromkeys(name for one in measurements for name in one.classes)
    plots = []
    for name in classes:
        by_arm: dict[str, list[list[float]]] = {}
        for one in measurements:
            shares = _ranked(one.classes[name]) if name in one.classes else []
            if len(shares) > 1:
                by_arm.setdefault(one.arm, []).append(shares)
        if by_arm:
            arms = sorted(by_arm, key=place_of_arm)
            plots.append(
                SharesPlot(
                    f"Requests of {one_line(name)} by worker",
                    "The busiest worker of each block first, then the second, and so on; mean "
                    "over the blocks.",
                    [_bar(one_line(arm) or one_line(name), by_arm[arm]) for arm in arms],
                )
            )
    return plots


def _ranked(part: ClassMeasurement) -> list[float]:
    """Each worker's share, the busiest first, those that answered nothing too."""
    counts = sorted((count for count in part.workers.values() if count > 0), reverse=True)
    total = sum(counts)
    there = part.worker_requests.workers if part.worker_requests is not None else 0
    idle = min(max(0, there - len(counts)), _MOST_SHOWN)
    return [count / total for count in counts] + [0.0] * idle if counts else []


def _bar(label: str, blocks: Sequence[Sequence[float]]) -> Bar:
    most = max(map(len, blocks))
    means = [
        sum(shares[rank] for shares in blocks if rank < len(shares)) / len(blocks)
        for rank in range(most)
    ]
    shown = [*means[:_MOST_SHOWN], *([sum(means[_MOST_SHOWN:])] if most > _MOST_SHOWN else [])]
    pieces = [
        Piece(round(100 * sum(shown[:rank]), 2), round(100 * share, 2))
        for rank, share in enumerate(shown)
    ]
    said = ", ".join(percent_text(share, 2) for share in means[:_MOST_SHOWN])
    more = f" and {most - _MOST_SHOWN} more" if most > _MOST_SHOWN else ""
    return Bar(label, said + more, pieces, means)
