"""The walls around nginx that the user gave up, in words."""

from __future__ import annotations

from collections.abc import Iterable


def weaker_walls_text(walls: Iterable[str]) -> str:
    """One line for a result that was reached without them."""
    return f"walls given up where this host cannot have them: {', '.join(walls)}"
