"""Access logs: a ``learnplan`` goes to the reader, a ``reading`` comes back, ``partial`` keeps one.

A tally has whole numbers alone: sums, maxima and samples by hash, so that the tallies of parts of
the logs add up to that of all of them. A manifest is requests of the log in the order of time, one
JSON object a line, for replay.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.workload import Kind

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
    "host",
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
alone, ``host`` is the machine that counts connections, ``round_trip`` is in microseconds."""

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
        """The slots that a line fills."""
        named = {segment.slot for segment in self.segments if segment.slot is not None}
        return named | {key.slot for key in self.keys}

    @property
    def tells_time(self) -> bool:
        """True when its lines say when they were written."""
        return bool(self.slots & {"time", "msec", "time_iso8601", "time_local"})


class LoggedPlace(Part, frozen=True, kw_only=True):
    """A server or location of a configuration."""

    server: str
    """Its server's first name; empty for none."""
    location: str
    """The location as the configuration writes it; empty for a server."""
    file: str
    line: int
    root: str | None = None
    """The directory of its files, where it is a single one."""


class Configuration(Part, frozen=True, kw_only=True):
    """The places of a configuration where requests are answered."""

    servers: int
    places: list[LoggedPlace]
    notes: list[str] = []


class LearnPlan(Document, frozen=True, kw_only=True, tag="nginx-tune/learnplan/1"):
    """What is read from a log, and how much of it is kept."""

    format: LineFormat
    kind: Kind | None = None
    """What nginx serves, where the user says so."""
    with_query: bool = False
    """Whether requests that differ in the query alone ask for different objects."""
    most_objects: int = 1 << 18
    """Objects that are counted one by one; past it a sample of them by their hash."""
    most_lines: int = 1 << 19
    """Requests for objects that are kept; past it a sample of them by the hash of their line."""
    most_seconds: int = 1 << 24
    """Seconds that are counted one by one (half a year); past it two together, then four."""
    most_requests: int = 0
    """Requests kept for a manifest."""
    most_places: int = 0
    """Requests kept to tell their locations."""
    keeps_paths: bool = False
    """Whether the manifest's requests keep their paths."""
    configuration: Configuration | None = None
    key: str = "0" * 32
    """The key of all hashes, sixteen bytes in hexadecimal; empty in a file."""


class ObjectPopularity(Part, frozen=True, kw_only=True):
    """The objects of logs by the number of their requests, the most popular first.

    A row is all objects with one number of requests: that number, how many they are, their bytes.
    """

    known: list[tuple[int, int, int]]
    """Objects that are counted one by one."""
    sampled: list[tuple[int, int, int]]
    """A sample of all other objects."""
    other_requests: int
    """Requests for all other objects."""
    known_from_requests: int
    """Number of requests from which on every object is known."""
    size_quantiles: tuple[int, int, int] | None
    """Size in bytes that half, nine tenths and 99 hundredths of the requests do not exceed; None
    without objects."""


class ConnectionSample(Part, frozen=True, kw_only=True):
    """Connections by the hash of their host and number."""

    level: int
    gaps: list[int]


class SampledRequest(Part, frozen=True, kw_only=True):
    """A request that was kept."""

    times: int
    end: int
    """In milliseconds since 1970."""
    duration: int
    """In milliseconds."""
    object: int
    sent: int
    """In bytes."""
    size: int
    """Full size in bytes; -1 when not known."""
    range: tuple[int, int] | None
    server: str
    path: str
    """Both empty where not kept."""


class RequestSample(Part, frozen=True, kw_only=True):
    """Requests by the hash of their line, in its order."""

    level: int
    requests: list[tuple[int, SampledRequest]]


class LogCounts(Part, frozen=True, kw_only=True):
    """Sums over the lines of logs."""

    lines: int
    refused: dict[str, int]
    """Lines that could not be used, by the reason."""
    requests: int
    unreadable_requests: int
    methods: dict[str, int]
    statuses: dict[int, int]
    protocols: dict[str, int]
    tls: dict[str, int]
    cache_statuses: dict[str, int]
    upstream_requests: int
    sent_bytes: int
    data_requests: int
    """Requests answered with an object or a part of one: GET with 200 or 206."""
    data_bytes: int
    partial_requests: int
    timed_requests: int
    """Requests with a request time."""
    busy_milliseconds: int
    """The sum of these times."""
    numbered_requests: int
    """Requests with a connection number."""
    nth_requests: list[int]
    """Connections that carried a first, second, third … request."""
    later_requests: int
    """Requests beyond the last of these numbers."""
    round_trips: dict[int, int]
    """Requests by their round trip in microseconds, down to a thirty-second of it."""


class Tally(Part, frozen=True, kw_only=True):
    """What is kept of logs, without the samples that only the reader reads."""

    counts: LogCounts
    connections: ConnectionSample
    manifest: RequestSample


class Timeline(Part, frozen=True, kw_only=True):
    """Requests and time in flight over the logs' time."""

    stretches: list[tuple[int, int]]
    """First and last second of each."""
    requests: int
    stray_lines: int
    peak_1s: int | None
    """None where seconds were counted together."""
    peak_10s: int | None
    peak_60s: int | None
    busy_peak_milliseconds: int
    """Time in flight within the busiest second."""


class LogReading(Document, frozen=True, kw_only=True, tag="nginx-tune/reading/1"):
    """Output of the reader."""

    logs: list[str]
    """A digest of each log's lines, by the plan's key; empty for an empty log."""
    first_lines: dict[str, list[tuple[int, int]]]
    """The first refused lines for each reason: the index of their log, and their number in it."""
    timeline: Timeline
    popularity: ObjectPopularity
    tally: msgspec.Raw
    places: RequestSample


class Partial(Document, frozen=True, kw_only=True, tag="nginx-tune/partial/1"):
    """The tally of some of the logs: what ``nginx-tune merge`` adds up.

    It holds no path of a log, no client's address and no key, and of URLs only what a manifest has.
    """

    version: str
    """The nginx-tune that wrote it: another one may count otherwise."""
    plan: LearnPlan
    key_fingerprint: str
    logs: list[str]
    """Digests of the logs, sorted."""
    broken_logs: int = 0
    """Number of logs that could not be read to the end."""
    tally: msgspec.Raw
    places: RequestSample
    """Each path is the index of a place of the plan's configuration."""


class Manifest(Document, frozen=True, kw_only=True, tag="nginx-tune/manifest/1"):
    """The first line of a manifest."""

    requests: int | None = None
    duration_seconds: float | None = None
    paths: Literal["kept", "hashed"] = "hashed"


class ManifestRequest(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A request: every other line of a manifest."""

    offset_seconds: float
    path: str
    bytes: int | None = None
    """Full size of the object, where it is known."""
    range: tuple[int, int] | None = None
    """First and last byte of a partial request."""


def encode_manifest(manifest: Manifest, requests: list[ManifestRequest]) -> bytes:
    """The lines of a manifest; the same requests give the same bytes anywhere."""
    return msgspec.json.Encoder(order="deterministic").encode_lines([manifest, *requests])
