"""Access logs: ``learnplan`` goes to either of two readers, ``tally`` and ``manifest`` come back.

A tally has integers alone, so that both readers agree to the last digit. A manifest is requests of
the log in the order of time, one JSON object a line, for replay.
"""

from __future__ import annotations

from typing import Literal

import msgspec

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
        """True when its lines say when they were written."""
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


class RefusedLines(Part, frozen=True, kw_only=True):
    """Lines that could not be used, for one reason."""

    lines: int
    first_lines: list[int]


class Objects(Part, frozen=True, kw_only=True):
    """Objects as [hash, requests, size in bytes], in the order of their hashes."""

    level: int
    """The sample holds the objects whose hash begins with so many zero bits; 0 is all."""
    sampled: list[tuple[int, int, int]]
    heavy: list[tuple[int, int, int]]
    """The most popular ones, once the sample is not all."""
    heavy_error: int
    """Requests that each count of ``heavy`` may lack."""


class Timeline(Part, frozen=True, kw_only=True):
    """Requests and time in flight over the log's time."""

    stretches: list[tuple[int, int]]
    """First and last second of each."""
    requests: int
    peak_1s: int
    peak_10s: int
    peak_60s: int
    busy_milliseconds: int
    busy_peak_milliseconds: int
    """Time in flight within the busiest second."""
    timed_requests: int
    """Requests with a request time."""
    backward_lines: int
    stray_lines: int


class Connections(Part, frozen=True, kw_only=True):
    """Client connections."""

    level: int
    distinct: int
    """Connection numbers whose hash begins with ``level`` zero bits."""
    numbered: int
    """Requests with a connection number."""
    nth_requests: list[int]
    """How many connections carried a first, second, third … request."""
    later_requests: int
    """Requests past the last of them."""


class SampledRequest(Part, frozen=True, kw_only=True, array_like=True):
    """A request that was kept."""

    number: int
    """Of its line, from 1."""
    stretch: int
    end_milliseconds: int
    """Since 1970."""
    duration_milliseconds: int
    object: int
    sent_bytes: int
    size_bytes: int
    """Full size; -1 when not known."""
    range: tuple[int, int] | None
    server: str
    path: str
    """Both empty where not kept."""


class Sample(Part, frozen=True, kw_only=True):
    """Requests whose numbers' hash begins with ``level`` zero bits."""

    level: int
    requests: list[SampledRequest]


class Tally(Document, frozen=True, kw_only=True, tag="nginx-tune/tally/1"):
    """All that is counted of a log."""

    lines: int
    refused: dict[str, RefusedLines]
    requests: int
    unreadable_requests: int
    methods: dict[str, int]
    statuses: dict[str, int]
    protocols: dict[str, int]
    tls: dict[str, int]
    cache_statuses: dict[str, int]
    upstream_requests: int
    sent_bytes: int
    data_requests: int
    """Those answered with (a part of) an object: GET with 200 or 206."""
    data_bytes: int
    partial_requests: int
    objects: Objects
    timeline: Timeline
    connections: Connections
    round_trips: list[tuple[int, int]]
    """Microseconds, down to a thirty-second of them, and requests with so long a round trip."""
    manifest: Sample
    places: Sample


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
