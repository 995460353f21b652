"""``workload``: the load of a server; each part has its provenance."""

from typing import Literal

from nginx_tune.documents.base import (
    Bytes,
    Count,
    Document,
    Exponent,
    MeanBytes,
    MeanOfOneOrMore,
    Number,
    OneOrMore,
    Part,
    Provenance,
    Ratio,
    Seconds,
    WholeSeconds,
)

Kind = Literal["static", "media", "cache", "proxy"]


class ServedData(Part, frozen=True, kw_only=True):
    """The data that is served."""

    path: str | None = None
    files: Count | None = None
    bytes: Bytes | None = None
    requests_by_path: dict[str, Number] = {}
    """Relative request counts of the data directories; empty if they are unknown or equal."""
    short_log_bytes: Bytes | None = None
    """Bytes requested in a log of less than a day, if ``bytes`` is the larger size on disk."""
    provenance: Provenance = "assumed"


class CurveShare(Part, frozen=True, kw_only=True):
    """``bytes`` of the most popular objects receive ``requests_ratio`` of the requests."""

    requests_ratio: Ratio
    bytes: Bytes


class Popularity(Part, frozen=True, kw_only=True):
    """Distribution of requests over objects."""

    exponent: Exponent | None = None
    """Zipf exponent; 0 is uniform."""
    curve: list[CurveShare] = []
    working_set_50_bytes: Bytes | None = None
    working_set_90_bytes: Bytes | None = None
    working_set_99_bytes: Bytes | None = None
    exponent_error: Number | None = None
    """Standard error of the fitted exponent, including the bias from sorting by counts."""
    fitted_objects: Count | None = None
    """Number of most popular objects used for the fit."""
    fit_distance_ratio: Ratio | None = None
    """Kolmogorov-Smirnov distance of the fit: its largest error in a share of requests."""
    curve_error_ratio: Number | None = None
    """Standard error of the curve's shares; 0 if every object was counted."""
    requests_seen: Number | None = None
    """Requests since the page cache was empty or full of other data; null for a server that has
    been running for long."""
    began_full: bool = False
    """True if the page cache was full of other data before these requests."""
    began_empty: bool = False
    """True if the page cache was empty when the clients of ``concurrency.since_seconds`` arrived;
    the number of requests since then is unknown."""
    once: bool = False
    """True if no object is requested again before all others were."""
    provenance: Provenance = "assumed"


class ObjectSizes(Part, frozen=True, kw_only=True):
    """Sizes of requested objects, weighted by requests."""

    mean_bytes: MeanBytes | None = None
    p50_bytes: Bytes | None = None
    p90_bytes: Bytes | None = None
    p99_bytes: Bytes | None = None
    sent_mean_bytes: MeanBytes | None = None
    """Mean bytes of a response with data."""
    sent_ratio: Number | None = None
    """Bytes sent as a share of the full sizes; less than 1 with ranges and aborted transfers."""
    partial_ratio: Ratio | None = None
    """Share of partial responses (206) among the responses with data."""
    provenance: Provenance = "assumed"


class Rate(Part, frozen=True, kw_only=True):
    """Requests per second of the whole server."""

    mean_per_second: Number | None = None
    peak_per_second: Number | None = None
    """Peak rate. From a log: the rate in the busiest minute, or over the whole of a shorter log."""
    peak_1s_per_second: Number | None = None
    peak_10s_per_second: Number | None = None
    peak_60s_per_second: Number | None = None
    """Rate in the busiest consecutive 1, 10 and 60 seconds."""
    without_file_per_second: Number | None = None
    """Additional requests that read no file; null if unknown."""
    provenance: Provenance = "assumed"


class Concurrency(Part, frozen=True, kw_only=True):
    """Concurrent requests of the whole server."""

    mean: Number | None = None
    peak: Number | None = None
    """Peak number of requests in flight. From a log: the mean over the busiest second."""
    cold_peak: Number | None = None
    """Peak of concurrent transfers that miss the page cache."""
    cold_by_popularity: bool = False
    """True if the clients in ``cold_peak`` request by popularity. All of them may miss at once,
    although the mean share of misses is the miss ratio."""
    client_bytes_per_second: MeanBytes | None = None
    """Highest rate of one client, if clients are slow."""
    clients_keep_pace: bool = False
    """True if clients receive responses of any size as fast as they are sent, as on the server's
    own network."""
    since_seconds: Seconds | None = None
    """Time since all clients arrived together; null if they arrived long ago."""
    think_seconds: Seconds | None = None
    """A client's pause between a response and its next request, if clients wait for responses."""
    provenance: Provenance = "assumed"


class ConnectionReuse(Part, frozen=True, kw_only=True):
    """Requests per client connection."""

    requests_per_connection: MeanOfOneOrMore | None = None
    p50_requests: OneOrMore | None = None
    p90_requests: OneOrMore | None = None
    p99_requests: OneOrMore | None = None
    """Quantiles over connections."""
    single_request_ratio: Ratio | None = None
    """Share of connections with a single request."""
    connections_per_second: Number | None = None
    provenance: Provenance = "assumed"


class TlsUse(Part, frozen=True, kw_only=True):
    """TLS of the clients."""

    value: bool = False
    """True if most requests use TLS."""
    requests_ratio: Ratio | None = None
    protocols: dict[str, Ratio] = {}
    """Share of the requests by protocol; ``none`` is cleartext."""
    provenance: Provenance = "assumed"


class HttpVersion(Part, frozen=True, kw_only=True):
    """HTTP version of most clients."""

    value: Literal["1.0", "1.1", "2", "3"] = "1.1"
    shares: dict[str, Ratio] = {}
    """Share of requests by version."""
    provenance: Provenance = "assumed"


class RoundTrip(Part, frozen=True, kw_only=True):
    """Round-trip time of the clients."""

    p90_seconds: Seconds | None = None
    """90th percentile."""
    p50_seconds: Seconds | None = None
    p99_seconds: Seconds | None = None
    source: str = ""
    """Source of the measurement, such as ``tcpi_rtt of 1,204 client connections``."""
    provenance: Provenance = "assumed"


class Gzip(Part, frozen=True, kw_only=True):
    """Compression of responses by nginx."""

    value: bool = False
    """True if nginx compresses most responses."""
    requests_ratio: Ratio | None = None
    provenance: Provenance = "assumed"


class CpuPerRequest(Part, frozen=True, kw_only=True):
    """CPU time of nginx per request."""

    mean_seconds: Seconds | None = None
    stdev_seconds: Seconds | None = None
    provenance: Provenance = "assumed"


class Objective(Part, frozen=True, kw_only=True):
    """A gate expression such as ``hot.p99 <= 50ms``."""

    expression: str
    provenance: Provenance = "declared"


class LocationShare(Part, frozen=True, kw_only=True):
    """One location's share of the requests."""

    server: str
    """First name of its server; empty for none."""
    location: str
    """The location as in the configuration; empty if none matches."""
    file: str
    line: Count
    requests_ratio: Ratio
    bytes_ratio: Ratio


class Traffic(Part, frozen=True, kw_only=True):
    """Shares of kinds of requests in a log."""

    methods: dict[str, Ratio] = {}
    statuses: dict[str, Ratio] = {}
    cache_statuses: dict[str, Ratio] = {}
    """Shares by ``$upstream_cache_status``; ``none`` for requests without a cache."""
    locations: list[LocationShare] = []
    location_error_ratio: Number | None = None
    """Upper bound of the standard error of the locations' shares, which come from a sample."""


class Rejected(Part, frozen=True, kw_only=True):
    """Rejected lines of a log."""

    reason: str
    lines: Count


class LogSummary(Part, frozen=True, kw_only=True):
    """The logs of a learnt workload."""

    format: str
    lines: Count
    requests: Count
    rejected: list[Rejected] = []
    unreadable_requests: Count = 0
    """Well-formed lines with an invalid HTTP request."""
    first: str | None = None
    last: str | None = None
    """Latest end of a request, in UTC; ``first`` is the earliest."""
    span_seconds: WholeSeconds | None = None
    """Time covered by the log, without the gaps between its stretches."""
    stretches: Count = 0
    """Number of parts of the log with gaps of more than a day and a half between them."""
    stray_lines: Count = 0
    """Lines whose time is far from all others; rates do not include them."""
    notes: list[str] = []


class Workload(Document, frozen=True, kw_only=True, tag="nginx-tune/workload/1"):
    """The load of a server and its data."""

    kind: Kind = "static"
    kind_provenance: Provenance = "assumed"
    dataset: ServedData = ServedData()
    popularity: Popularity = Popularity()
    sizes: ObjectSizes = ObjectSizes()
    rate: Rate = Rate()
    concurrency: Concurrency = Concurrency()
    connection_reuse: ConnectionReuse = ConnectionReuse()
    tls: TlsUse = TlsUse()
    http_version: HttpVersion = HttpVersion()
    round_trip: RoundTrip = RoundTrip()
    gzip: Gzip = Gzip()
    cpu_per_request: CpuPerRequest = CpuPerRequest()
    objectives: list[Objective] = []
    traffic: Traffic | None = None
    log: LogSummary | None = None
