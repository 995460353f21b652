"""``workload``: what is asked for; every part says how it is known."""

from __future__ import annotations

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
    """The bytes that can be asked for."""

    path: str | None = None
    files: Count | None = None
    bytes: Bytes | None = None
    requests_by_path: dict[str, Number] = {}
    """Requests for the files of each data directory, in proportion, where somebody knows; empty
    for as many to each disk."""
    provenance: Provenance = "assumed"


class CurveShare(Part, frozen=True, kw_only=True):
    """``bytes`` of the most popular objects receive ``requests_ratio`` of the requests."""

    requests_ratio: Ratio
    bytes: Bytes


class Popularity(Part, frozen=True, kw_only=True):
    """How requests spread over objects."""

    exponent: Exponent | None = None
    """Zipf exponent; 0 is uniform."""
    curve: list[CurveShare] = []
    working_set_50_bytes: Bytes | None = None
    working_set_90_bytes: Bytes | None = None
    working_set_99_bytes: Bytes | None = None
    exponent_error: Number | None = None
    """Standard error of the fitted exponent, with what sorting by counts may do to it."""
    fitted_objects: Count | None = None
    """The most popular objects, to which the exponent was fitted."""
    fit_distance_ratio: Ratio | None = None
    """Kolmogorov-Smirnov distance of the fit: the largest error of a share of their requests."""
    curve_error_ratio: Number | None = None
    """Standard error of the curve's shares: 0 where every object was counted."""
    requests_seen: Number | None = None
    """Requests since the page cache was empty, or full of what nobody had asked for; null for a
    server that has run for long."""
    began_full: bool = False
    """Whether it was full then."""
    began_empty: bool = False
    """Whether it was empty when the clients of ``concurrency.since_seconds`` came, and nobody
    counted their requests: who waits for answers asks as often as they come."""
    once: bool = False
    """Whether no object is asked for again before all have been."""
    provenance: Provenance = "assumed"


class ObjectSizes(Part, frozen=True, kw_only=True):
    """Sizes of requested objects, over requests."""

    mean_bytes: MeanBytes | None = None
    p50_bytes: Bytes | None = None
    p90_bytes: Bytes | None = None
    p99_bytes: Bytes | None = None
    sent_mean_bytes: MeanBytes | None = None
    """Mean of what a response with data carried."""
    sent_ratio: Number | None = None
    """Bytes sent over the full sizes of what was asked for: ranges and aborted transfers."""
    partial_ratio: Ratio | None = None
    """Share of the responses with data that were ranges (206)."""
    provenance: Provenance = "assumed"


class Rate(Part, frozen=True, kw_only=True):
    """Requests a second, whole server."""

    mean_per_second: Number | None = None
    peak_per_second: Number | None = None
    """A learnt one is the busiest minute, where the log is so long."""
    peak_1s_per_second: Number | None = None
    peak_10s_per_second: Number | None = None
    peak_60s_per_second: Number | None = None
    """The busiest 1, 10, 60 seconds on end."""
    without_file_per_second: Number | None = None
    """Requests that no file is read for, beside these; null for none that are known."""
    provenance: Provenance = "assumed"


class Concurrency(Part, frozen=True, kw_only=True):
    """Requests in flight at once, whole server."""

    mean: Number | None = None
    peak: Number | None = None
    """A learnt one is the mean over the busiest second."""
    cold_peak: Number | None = None
    """Peak number of transfers at once that miss the page cache."""
    cold_by_popularity: bool = False
    """Whether ``cold_peak`` counts clients that ask by the popularity, apart from those that ask
    for what memory holds: all of them may miss at once, on average the share that does not hit."""
    client_bytes_per_second: MeanBytes | None = None
    """What one client takes at most, where clients are slow."""
    clients_keep_pace: bool = False
    """Whether clients take an answer as fast as it is sent, however large: those on the server's
    own network do."""
    since_seconds: Seconds | None = None
    """For how long clients have been coming, where they all came at once; null for long."""
    think_seconds: Seconds | None = None
    """Pause of a client between a response and its next request, where clients wait for each."""
    provenance: Provenance = "assumed"


class ConnectionReuse(Part, frozen=True, kw_only=True):
    """How long client connections live."""

    requests_per_connection: MeanOfOneOrMore | None = None
    p50_requests: OneOrMore | None = None
    p90_requests: OneOrMore | None = None
    p99_requests: OneOrMore | None = None
    """Quantiles over connections."""
    single_request_ratio: Ratio | None = None
    """Share of the connections that carried one request alone."""
    connections_per_second: Number | None = None
    provenance: Provenance = "assumed"


class TlsUse(Part, frozen=True, kw_only=True):
    """Whether clients speak TLS."""

    value: bool = False
    """Of most requests."""
    requests_ratio: Ratio | None = None
    protocols: dict[str, Ratio] = {}
    """Share of the requests by protocol; ``none`` is cleartext."""
    provenance: Provenance = "assumed"


class HttpVersion(Part, frozen=True, kw_only=True):
    """The HTTP version that most clients speak."""

    value: Literal["1.0", "1.1", "2", "3"] = "1.1"
    shares: dict[str, Ratio] = {}
    """Share of the requests by version."""
    provenance: Provenance = "assumed"


class RoundTrip(Part, frozen=True, kw_only=True):
    """How far away clients are."""

    p90_seconds: Seconds | None = None
    """Nine in ten clients are nearer."""
    p50_seconds: Seconds | None = None
    p99_seconds: Seconds | None = None
    source: str = ""
    """From what it was measured, such as ``tcpi_rtt of 1,204 client connections``."""
    provenance: Provenance = "assumed"


class Gzip(Part, frozen=True, kw_only=True):
    """Whether most bodies are compressed as they are sent."""

    value: bool = False
    """Of most requests."""
    requests_ratio: Ratio | None = None
    protocols: dict[str, Ratio] = {}
    """Share of the requests by protocol; ``none`` is cleartext."""
    provenance: Provenance = "assumed"


class CpuPerRequest(Part, frozen=True, kw_only=True):
    """CPU time of nginx for one request."""

    mean_seconds: Seconds | None = None
    stdev_seconds: Seconds | None = None
    provenance: Provenance = "assumed"


class Objective(Part, frozen=True, kw_only=True):
    """A gate expression such as ``hot.p99 <= 50ms``."""

    expression: str
    provenance: Provenance = "declared"


class LocationShare(Part, frozen=True, kw_only=True):
    """What one location of a configuration answered."""

    server: str
    """Its server's first name; empty for none."""
    location: str
    """As it stands in the configuration; empty where no location matches."""
    file: str
    line: Count
    requests_ratio: Ratio
    bytes_ratio: Ratio


class Traffic(Part, frozen=True, kw_only=True):
    """What the requests of a log were, as shares of all of them."""

    methods: dict[str, Ratio] = {}
    statuses: dict[str, Ratio] = {}
    cache_statuses: dict[str, Ratio] = {}
    """``$upstream_cache_status``; ``none`` are requests that no cache saw."""
    locations: list[LocationShare] = []
    location_error_ratio: Number | None = None
    """Standard error of the locations' shares, at most; they are told from a sample."""


class Rejected(Part, frozen=True, kw_only=True):
    """Lines of a log that could not be used."""

    reason: str
    lines: Count


class LogSummary(Part, frozen=True, kw_only=True):
    """The logs that a workload was learnt from."""

    format: str
    lines: Count
    requests: Count
    rejected: list[Rejected] = []
    unreadable_requests: Count = 0
    """Well-formed lines whose request was none that HTTP knows."""
    first: str | None = None
    last: str | None = None
    """Earliest and latest end of a request, UTC."""
    span_seconds: WholeSeconds | None = None
    """The time that the log covers, without the gaps between its stretches."""
    stretches: Count = 0
    """Pieces of it that are apart by more than a day and a half."""
    stray_lines: Count = 0
    """Lines whose time is far from that of all others: in no rate."""
    notes: list[str] = []


class Workload(Document, frozen=True, kw_only=True, tag="nginx-tune/workload/1"):
    """What is served and asked for."""

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
