"""What a section of a page is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nginx_tune.report.page.plot.curves import CurvePlot
from nginx_tune.report.page.plot.ratios import RatioPlot
from nginx_tune.report.page.plot.workers import SharesPlot
from nginx_tune.report.screen import Screen

Plot = RatioPlot | CurvePlot | SharesPlot


@dataclass(frozen=True)
class Figure:
    """A number that is shown large."""

    name: str
    text: str
    value: float | None
    """As the document has it."""
    tone: str = "plain"
    """Whether the number is good, bad or neither."""


@dataclass(frozen=True)
class Text:
    """What is folded away and shown letter by letter: a configuration, a difference."""

    title: str
    content: str
    is_diff: bool = False


@dataclass(frozen=True)
class Section:
    """A document on a page; the screen's first block is its answer."""

    kind: str
    title: str
    screen: Screen
    tag: str = ""
    """The outcome in a word or two, and whether that is good, bad or neither."""
    tone: str = "plain"
    figures: Sequence[Figure] = ()
    plots: Sequence[Plot] = ()
    texts: Sequence[Text] = ()
