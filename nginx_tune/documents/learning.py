"""Access logs: ``learnplan`` is the reader's input, ``reading`` its output, ``partial`` is stored.

A tally has only whole numbers: sums, maxima and samples by hash. So the tallies of parts of the
logs add up to the tally of all logs. A manifest has requests of the log for replay, in order of
time, one JSON object per line.
"""

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
"""The meaning of a field of a line. ``time`` is a time in any of three forms, ``http3`` is set for
HTTP/3 only, ``host`` is the machine that counts connections, ``round_trip`` is in microseconds."""

Escape = Literal["default", "json", "none"]


class Segment(Part, frozen=True, kw_only=True):
    """The literal text before a variable, and the meaning of the variable."""

    before: str
    slot: Slot | None = None
    """Meaning of the variable; None if nothing is learnt from it."""
    is_list: bool = False
    """True if its value may contain ``, `` and `` : `` (one entry for each upstream)."""


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
        """True if its lines have a time."""
        return bool(self.slots & {"time", "msec", "time_iso8601", "time_local"})


class LoggedPlace(Part, frozen=True, kw_only=True):
    """A server or location of a configuration."""

    server: str
    """First name of its server; empty for none."""
    location: str
    """The location as written in the configuration; empty for a server."""
    file: str
    line: int
    root: str | None = None
    """The directory of its files; None unless there is exactly one."""


class Configuration(Part, frozen=True, kw_only=True):
    """The places of a configuration where requests are answered."""

    servers: int
    places: list[LoggedPlace]
    notes: list[str] = []


class LearnPlan(Document, frozen=True, kw_only=True, tag="nginx-tune/learnplan/1"):
    """The fields to read from a log, and bounds on the amounts to keep."""

    format: LineFormat
    kind: Kind | None = None
    """The kind of site, if the user named it."""
    with_query: bool = False
    """True if requests that differ only in the query are for different objects."""
    most_objects: int = 1 << 18
    """Maximum number of objects to count one by one; of any further objects, only a sample by hash
    is counted."""
    most_lines: int = 1 << 19
    """Maximum number of requests for objects to keep; if there are more, a sample by the hash of
    their lines is kept."""
    most_seconds: int = 1 << 24
    """Maximum number of seconds to count one by one (half a year). If the logs cover a longer time,
    seconds are counted in pairs, then in fours, and so on."""
    most_requests: int = 0
    """Maximum number of requests to keep for a manifest."""
    most_places: int = 0
    """Maximum number of requests to keep in order to find their locations."""
    keeps_paths: bool = False
    """True if the manifest's requests keep their paths."""
    configuration: Configuration | None = None
    key: str = "0" * 32
    """The key of all hashes, sixteen bytes in hexadecimal; empty in a file."""


class ObjectPopularity(Part, frozen=True, kw_only=True):
    """Requested objects, grouped by their number of requests, the most popular first.

    A row has a number of requests, the number of objects that have it, and their bytes together.
    """

    known: list[tuple[int, int, int]]
    """Objects that were counted one by one."""
    sampled: list[tuple[int, int, int]]
    """A sample of all other objects."""
    other_requests: int
    """Requests for all other objects."""
    known_from_requests: int
    """Every object with at least this many requests is in ``known``."""
    size_quantiles: tuple[int, int, int] | None
    """Median, 90th and 99th percentile of the object size in bytes, over requests; None without
    objects."""


class ConnectionSample(Part, frozen=True, kw_only=True):
    """A sample of connections, by the hash of their host and number."""

    level: int
    gaps: list[int]


class SampledRequest(Part, frozen=True, kw_only=True):
    """A request of the sample."""

    times: int
    end: int
    """Time of its end, in milliseconds since 1970."""
    duration: int
    """Its duration in milliseconds."""
    object: int
    sent: int
    """Bytes sent."""
    size: int
    """Full size of the object in bytes; -1 when not known."""
    range: tuple[int, int] | None
    server: str
    path: str
    """Server and path are empty if they were not kept."""


class RequestSample(Part, frozen=True, kw_only=True):
    """A sample of requests by the hash of their lines, in the order of the hash."""

    level: int
    requests: list[tuple[int, SampledRequest]]


class LogCounts(Part, frozen=True, kw_only=True):
    """Sums over the lines of logs."""

    lines: int
    refused: dict[str, int]
    """Number of lines that could not be used, by reason."""
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
    """Sum of these request times."""
    numbered_requests: int
    """Requests with a connection number."""
    nth_requests: list[int]
    """Connections that carried a first, second, third … request."""
    later_requests: int
    """Requests whose number in their connection is beyond ``nth_requests``."""
    round_trips: dict[int, int]
    """Number of requests by round trip in microseconds, rounded down by at most one part in 32."""


class Tally(Part, frozen=True, kw_only=True):
    """The counts and samples of logs that add up; a part of a reading or of a partial result."""

    counts: LogCounts
    connections: ConnectionSample
    manifest: RequestSample


class Timeline(Part, frozen=True, kw_only=True):
    """Requests, and their time in flight, over the time that the logs cover."""

    stretches: list[tuple[int, int]]
    """First and last second of each stretch."""
    requests: int
    stray_lines: int
    peak_1s: int | None
    """Requests in the busiest second; None if seconds were counted together."""
    peak_10s: int | None
    peak_60s: int | None
    busy_peak_milliseconds: int
    """Time in flight within the busiest second."""


class LogReading(Document, frozen=True, kw_only=True, tag="nginx-tune/reading/1"):
    """Output of the reader."""

    logs: list[str]
    """A digest of each log's lines, made with the plan's key; empty for an empty log."""
    first_lines: dict[str, list[tuple[int, int]]]
    """The first refused lines for each reason, each as the index of its log and its line number."""
    timeline: Timeline
    popularity: ObjectPopularity
    tally: msgspec.Raw
    places: RequestSample


class Partial(Document, frozen=True, kw_only=True, tag="nginx-tune/partial/1"):
    """The tally of some of the logs; ``nginx-tune merge`` adds such tallies up.

    It has no log paths, client addresses or keys, and no parts of URLs but those in a manifest.
    """

    version: str
    """The version of nginx-tune that wrote it; another version may count differently."""
    plan: LearnPlan
    key_fingerprint: str
    logs: list[str]
    """Digests of the logs, sorted."""
    broken_logs: int = 0
    """Number of logs that could not be read to the end."""
    tally: msgspec.Raw
    places: RequestSample
    """The sampled requests, each with the index of a place of the plan's configuration as its
    path."""


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
