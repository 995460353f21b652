"""Counts for the screens of people."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """``1 disk``, ``2 disks``, ``1,000 disks``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
