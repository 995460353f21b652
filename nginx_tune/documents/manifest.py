"""``manifest``: requests of a log in the order of time, one JSON object a line, for replay."""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part


class Manifest(Document, frozen=True, kw_only=True, tag="nginx-tune/manifest/1"):
    """The first line."""

    requests: int | None = None
    duration_seconds: float | None = None
    paths: Literal["kept", "hashed"] = "hashed"


class ManifestRequest(Part, frozen=True, kw_only=True, omit_defaults=True):
    """Every further line."""

    offset_seconds: float
    path: str
    bytes: int | None = None
    """Full size of the object, where it is known."""
    range: tuple[int, int] | None = None
    """First and last byte of a partial request."""


def encode_manifest(manifest: Manifest, requests: list[ManifestRequest]) -> bytes:
    """The lines of a manifest; the same requests give the same bytes anywhere."""
    return msgspec.json.Encoder(order="deterministic").encode_lines([manifest, *requests])
