"""One thing about a host that holds nginx back."""

from __future__ import annotations

from typing import NamedTuple


class Hindrance(NamedTuple):
    """What was seen, what it does to nginx, and what helps."""

    fact: str
    """Where in the facts it stands."""
    seen: str
    meaning: str
    remedy: str
