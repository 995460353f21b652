"""``labs``: what labs have left or keep on this machine."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part


class LabRun(Part, frozen=True, kw_only=True):
    """A lab's directory with its mark."""

    directory: str
    mark: str
    pid: int
    state: Literal["running", "dead"]
    bytes: int
    cgroups: list[str] = []
    """Those that are still there."""


class KeptImage(Part, frozen=True, kw_only=True):
    """A disk image that later runs find made."""

    path: str
    bytes: int
    in_use: bool
    unused_seconds: float


class Labs(Document, frozen=True, kw_only=True, tag="nginx-tune/labs/1"):
    """What ``lab list`` shows; from ``lab clean``, what was removed."""

    runs: list[LabRun] = []
    images: list[KeptImage] = []
    image_bytes_most: int = 0
    """Bound on all images together."""
    tracing: list[str] = []
    """Tracing instances of dead runs that were removed; only ``clean`` looks for them."""
    failures: list[str] = []
    """What could not be removed, and why."""
