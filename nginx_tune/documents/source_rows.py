"""``source_rows``: what the published texts state, and what shows each of it here."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part

Shown = Literal["yes", "part", "no"]


class RowClaim(Part, frozen=True, kw_only=True):
    """A scenario's claim of a row."""

    scenario: str
    name: str
    expected: str
    """With the arms that it is about."""


class SourceRow(Part, frozen=True, kw_only=True):
    """One fact of the texts."""

    row: str
    """``A1`` … ``A17``, ``B1`` … ``B7``, ``C1`` … ``C9``."""
    fact: str
    figure: str = ""
    """The source's; empty where it states none."""
    shown: Shown
    """``yes``: a claim or a command shows it on a real nginx; ``part``: some of it, or not on a
    real nginx."""
    scenarios: list[str] = []
    """That have a claim of it."""
    set_up: list[str] = []
    """Scenarios that are arranged as it tells, or measure it, with no claim of it."""
    commands: list[str] = []
    missing: str = ""
    """What is not shown, or is another way than in the source, and why."""
    claims: list[RowClaim] = []


class SourceRows(Document, frozen=True, kw_only=True, tag="nginx-tune/source_rows/1"):
    """All of them, in the order of the texts."""

    rows: list[SourceRow] = []
