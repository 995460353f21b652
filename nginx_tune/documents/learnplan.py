"""``learnplan``: how the lines of an access log are read, for either of the two readers."""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part

Slot = Literal[
    "time_local",
    "time_iso8601",
    "msec",
    "time",
    "request",
    "method",
    "request_uri",
    "uri",
    "protocol",
    "http3",
    "status",
    "bytes",
    "request_time",
    "connection",
    "connection_requests",
    "ssl_protocol",
    "scheme",
    "cache_status",
    "range",
    "content_range",
    "gzip_ratio",
    "server",
    "upstream",
    "round_trip",
    "user_agent",
]
"""What a field of a line is for; ``time`` is any of the three forms, ``http3`` is set for HTTP/3
alone, ``round_trip`` is in microseconds."""

Escape = Literal["default", "json", "none"]


class Segment(Part, frozen=True, kw_only=True):
    """Text that stands before a variable, and what the variable is for."""

    before: str
    slot: Slot | None = None
    """None for a variable that nothing is learnt from."""
    is_list: bool = False
    """Whether its value may hold ``, `` and `` : `` (one entry for each upstream)."""


class JsonKey(Part, frozen=True, kw_only=True):
    """A key of a line that is a JSON object."""

    key: str
    slot: Slot


class LineFormat(Part, frozen=True, kw_only=True):
    """A log format: segments of text, or keys of a JSON object, the preferred key first."""

    name: str
    escape: Escape = "default"
    segments: list[Segment] = []
    after: str = ""
    """Text after the last variable."""
    keys: list[JsonKey] = []

    @property
    def slots(self) -> set[Slot]:
        """What the format tells."""
        named = {segment.slot for segment in self.segments if segment.slot is not None}
        return named | {key.slot for key in self.keys}

    @property
    def tells_time(self) -> bool:
        """Whether its lines say when they were written."""
        return bool(self.slots & {"time", "msec", "time_iso8601", "time_local"})


class LearnPlan(Document, frozen=True, kw_only=True, tag="nginx-tune/learnplan/1"):
    """What is read from a log, and how much of it is kept."""

    format: LineFormat
    with_query: bool = False
    """Whether requests that differ in the query alone ask for different objects."""
    most_objects: int = 1 << 17
    """Objects that are counted one by one; past it a sample of them by their hash."""
    most_heavy: int = 1 << 15
    """Most popular objects that are always counted, once there are too many."""
    most_requests: int = 0
    """Requests kept for a manifest."""
    most_places: int = 0
    """Requests kept to tell their locations."""
    keeps_paths: bool = False
    """Whether the manifest's requests keep their paths."""
