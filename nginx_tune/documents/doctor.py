"""``doctor``: what a host lets nginx-tune measure."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part

CheckStatus = Literal["ok", "missing", "unknown"]


class Check(Part, frozen=True, kw_only=True):
    """One thing that some measurement needs."""

    name: str
    status: CheckStatus
    """``unknown``: it cannot be told from here."""
    detail: str
    """What was found, or why it is missing."""
    needed_for: str
    fix: str = ""
    """The command that puts it right; empty when it is there or nothing here would."""


class Doctor(Document, frozen=True, kw_only=True, tag="nginx-tune/doctor/1"):
    """What is there to measure with, and what is not."""

    checks: list[Check] = []
