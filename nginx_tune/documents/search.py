"""The proof of a plan that a search chose: its candidates, and the comparisons that decided."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Part
from nginx_tune.documents.verdict import Verdict

SearchAnswer = Literal["candidate", "recommendation", "today"]
"""A candidate beat both; the recommendation beat today's, and no candidate beat it; neither."""


class SearchCandidate(Part, frozen=True, kw_only=True):
    """One of the configurations that were measured beside each other in short runs."""

    name: str
    """``today`` and ``recommended`` are those two."""
    changes: list[str] = []
    """Its lines that the recommendation lacks, and after ``without`` those that only that has."""
    reason: str = ""
    """The fact of the recommendation that is near its break-even, or why it is in doubt."""
    ratio: float | None = None
    """Of the metric that decides to the reference's, in the middle of the rounds."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Coverage of the interval, which so few rounds leave low: it ranks, and claims nothing."""
    regret_ratio: float | None = None
    """How many times as good the best of all was, 1 for the best itself."""
    rounds: int = 0
    """Short runs that count."""
    confirmed: bool = False
    """Whether it was measured again, on seeds of its own."""


class Search(Part, frozen=True, kw_only=True):
    """A bounded search around a recommendation."""

    answer: SearchAnswer
    name: str
    """Of the configuration that the answer is."""
    reference: Literal["recommended", "today"]
    """What the candidates' ratios are to; today's where nothing is recommended."""
    primary_metric: str
    candidates: list[SearchCandidate]
    against_today: Verdict
    """The answer, or for today's the contender that did not beat it, against today's."""
    against_recommended: Verdict | None = None
    """The candidate that was measured again, against the recommendation; null for none."""
    runs: int = 0
    """All of them, the short ones too."""
    short_seconds: float = 0.0
    """How long a short run is measured."""
    seconds: float = 0.0
    """Of the whole search."""
    most_seconds: float | None = None
