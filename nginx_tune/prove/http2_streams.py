"""What the connections of several measurements with HTTP/2 or HTTP/3 came to together; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from nginx_tune.documents.measured_class import Http2Streams

Streams = TypeVar("Streams", bound=Http2Streams)

_NO_SUMS = frozenset({"most_streams", "mean_streams", "peer_limit"})


def add_streams(parts: Sequence[Streams]) -> Streams | None:
    """The sum; None of none."""
    if not parts:
        return None
    streams = sum(part.streams for part in parts)
    limits = [part.peer_limit for part in parts if part.peer_limit is not None]
    counts = [name for name in parts[0].__struct_fields__ if name not in _NO_SUMS]
    return msgspec.structs.replace(
        parts[0],
        most_streams=max(part.most_streams for part in parts),
        mean_streams=sum(part.mean_streams * part.streams for part in parts) / max(streams, 1),
        peer_limit=min(limits, default=None),
        **{name: sum(getattr(part, name) for part in parts) for name in counts},
    )
