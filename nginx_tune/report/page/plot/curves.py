"""Curves over two axes, each with its name at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nginx_tune.report.page.plot.axis import Tick

_LEAST_HEIGHT_REM = 16.0
_LABEL_HEIGHT_REM = 1.4


@dataclass(frozen=True)
class CurveLine:
    """One line, as the points of polylines in percent."""

    name: str
    segments: Sequence[str]
    """Several where there are gaps."""
    end: tuple[float, float]
    """In percent from the left and from the top."""
    label_top: float
    """Where its label stands, in percent from the top, clear of the others."""
    number: int
    """Which colour."""
    is_faint: bool = False


@dataclass(frozen=True)
class CurvePlot:
    """Curves, and marks on the lower edge."""

    title: str
    caption: str
    curves: Sequence[CurveLine]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    height_rem: float = _LEAST_HEIGHT_REM
    marks: Sequence[float] = ()
    """In percent from the left: where something failed."""
    grey: Sequence[tuple[float, float]] = ()
    """In percent, from the left and wide: what does not count, and has no curve."""
    kind: str = "lines"


def place_of_arm(arm: str) -> tuple[int, str]:
    """The baseline first, the candidate next: an arm has its colour on every page."""
    return ({"baseline": 0, "candidate": 1}.get(arm, 2), arm)


def points_text(places: Sequence[tuple[float, float]]) -> str:
    """Points of a polyline; a single one is drawn as a dot."""
    shown = [*places, *places] if len(places) == 1 else places
    return " ".join(f"{x:g},{y:g}" for x, y in shown)


def height_for(curves: Sequence[CurveLine]) -> float:
    """The height, in rem, at which all labels can be read."""
    return max(_LEAST_HEIGHT_REM, _LABEL_HEIGHT_REM * (len(curves) + 1))


def spread(curves: Sequence[CurveLine], height_rem: float) -> list[CurveLine]:
    """The curves with their labels far enough from each other to be read, the topmost first."""
    gap = 100 * _LABEL_HEIGHT_REM / height_rem
    ordered = sorted(curves, key=lambda one: one.end[1])
    tops: list[float] = []
    for curve in ordered:
        tops.append(max(curve.end[1], tops[-1] + gap if tops else 0.0))
    bottom = 100.0
    for number in reversed(range(len(tops))):
        tops[number] = min(tops[number], bottom)
        bottom = tops[number] - gap
    return [
        replace(curve, label_top=round(top, 2)) for curve, top in zip(ordered, tops, strict=True)
    ]
