"""The part of a ``measurement`` that tells of one request class: counts and latencies."""

from __future__ import annotations

from nginx_tune.documents.base import Part


class Latency(Part, frozen=True, kw_only=True):
    """A latency distribution in seconds; quantiles are null with no sample."""

    count: int = 0
    mean: float | None = None
    stdev: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p999: float | None = None
    max: float | None = None
    histogram: str = ""
    """HdrHistogram V2 in base64, deflated or not; values are nanoseconds."""
    censored: int = 0
    """Samples of requests that never finished, or failed because their time was up: they stand
    here at their age, a lower bound."""
    censored_from_seconds: float | None = None
    """The least of these: quantiles below it are exact."""
    at_least: list[str] = []
    """Quantiles (and ``max``) that are lower bounds, since their rank falls among these."""


class WorkerShare(Part, frozen=True, kw_only=True):
    """What one worker answered of a class, by the number in ``X-Probe-Worker``."""

    requests: int = 0
    connections: int = 0
    """On which it answered, warm-up included."""
    response_seconds: Latency = Latency()
    """From the intended start to the last byte; two digits."""


class Imbalance(Part, frozen=True, kw_only=True):
    """How unevenly requests, or connections, are spread over workers."""

    workers: int
    max_to_mean: float
    """The busiest worker's share by the mean share; 1 is even."""
    variation: float
    """Coefficient of variation: standard deviation by mean."""
    chi_square: float
    """Against equal chances for each worker."""
    p_value: float
    """Chance of a spread at least as uneven, were each request dealt at random."""


class Bodies(Part, frozen=True, kw_only=True):
    """The sampled bodies of a class beside the local files of the plan."""

    compared: int = 0
    differing: int = 0
    """Of these; they count as failed (``hash``), their latencies stay."""
    unread: int = 0
    """Sampled, but the file could not be read, or not in the time there is after a run."""


class TlsSessions(Part, frozen=True, kw_only=True):
    """Connections whose handshake agreed on the same version and cipher suite."""

    version: str
    """``1.2`` or ``1.3``."""
    cipher: str
    """OpenSSL's name, as nginx's ``$ssl_cipher`` has it."""
    connections: int = 0


class Http2Streams(Part, frozen=True, kw_only=True):
    """What the connections of a class with HTTP/2 came to, warm-up included."""

    streams: int = 0
    """Requests sent, each on a stream of its own."""
    most_streams: int = 0
    """Most streams of a connection at once."""
    mean_streams: float = 0.0
    """Streams of a connection when one more was opened, itself included."""
    peer_limit: int | None = None
    """The least that a server said it takes at once (SETTINGS_MAX_CONCURRENT_STREAMS)."""
    goaways: int = 0
    """Connections of which the server said that it takes no more."""
    refused: int = 0
    """Requests that the server had not looked at (behind a GOAWAY, REFUSED_STREAM)."""
    resets: int = 0
    """Streams that the server reset otherwise."""
    window_stalls: int = 0
    """Times that what the probe allows to be sent had run out, or nearly."""


class Http3Streams(Http2Streams, frozen=True, kw_only=True):
    """What the connections of a class with HTTP/3 came to, warm-up included.

    ``peer_limit`` is what a server grants at first (``initial_max_streams_bidi``).
    """

    handshakes: int = 0
    """Connections whose handshake came about."""
    datagrams_sent: int = 0
    datagrams_received: int = 0
    lost_packets: int = 0
    """Packets of the probe that were never acknowledged; what they carried was sent again."""
    dropped_datagrams: int = 0
    """Datagrams that came to this host and found the buffer of the probe's socket full: the server
    takes them for lost."""


class ClassMeasurement(Part, frozen=True, kw_only=True):
    """One request class."""

    requests: int = 0
    """Complete, correct responses to requests intended in the measured time."""
    requests_per_second: float = 0.0
    bytes: int = 0
    """Body bytes received in the measured time, of unfinished responses too."""
    bytes_per_second: float = 0.0
    users: int | None = None
    """Closed loop: how many; null for an open loop."""
    intended: int = 0
    """Arrivals due in the measured time (closed loop: requests started)."""
    truncated: int = 0
    """Bodies shorter than declared, and connections closed with no reply at all."""
    censored: int = 0
    """Requests still unfinished at the end; they stand in ``response_seconds`` at their age, as
    those do that failed by time (``timeout``, ``connect_timeout``)."""
    censored_from_seconds: float | None = None
    """Age of the youngest of these: quantiles below it are exact."""
    errors: dict[str, int] = {}
    """Failures by kind: ``refused``, ``connect_timeout``, ``unreachable``, ``tls``, ``reset``,
    ``empty``, ``truncated``, ``parse``, ``status``, ``length``, ``range``, ``hash``, ``timeout``,
    , ``local_ports``, ``descriptors``, ``backlog``, ``other``."""
    statuses: dict[str, int] = {}
    limited: int = 0
    """Refusals by a limit of the configuration (``limit_req``, ``limit_conn``), where they are
    known: no failures, and no requests."""
    response_seconds: Latency = Latency()
    """From the intended start to the last body byte."""
    ttfb_seconds: Latency = Latency()
    """From the intended start to the first byte."""
    service_seconds: Latency = Latency()
    """From the send to the last body byte."""
    failed_seconds: Latency = Latency()
    """From the intended start to the failure."""
    lateness_seconds: Latency = Latency()
    """From the intended start to the release of the arrival by the probe's loop."""
    arrival_seconds: Latency = Latency()
    """From the send to the arrival of the first byte in this host's kernel (of a sample): the
    time to the first byte without the probe's own part."""
    connect_seconds: Latency = Latency()
    """From opening a connection to the end of the TCP handshake."""
    round_trip_seconds: Latency = Latency()
    """Of its connections, at every sixteenth answer of each: of TCP as the kernel has it
    (``tcpi_rtt``), of QUIC as the probe has it (RFC 9002), both smoothed."""
    tls_seconds: Latency = Latency()
    """From opening a connection to the end of the TLS handshake, or of QUIC's."""
    tls_resumed: int = 0
    """TLS sessions that took up an earlier one, warm-up included."""
    tls_sessions: list[TlsSessions] = []
    """What handshakes agreed on, warm-up included."""
    http2: Http2Streams | None = None
    """Null for other protocols."""
    http3: Http3Streams | None = None
    """Null for other protocols."""
    syn_retries: int = 0
    """TCP handshakes that were asked for again, warm-up included: 1, 3, 7 s of waiting."""
    retransmits: int = 0
    """Segments that the load host sent again, warm-up included."""
    connections_opened: int = 0
    retried: int = 0
    """Requests sent again because a kept connection was closed as they were sent."""
    stray: int = 0
    """Connections on which the server sent bytes that nobody asked for."""
    ack_stall_suspects: int = 0
    """Pauses of 35 to 60 ms inside a response: as long as a kernel delays an acknowledgement."""
    at_cap: int = 0
    """Arrivals that waited because all connections were busy (open loop)."""
    max_pending: int = 0
    bodies: Bodies | None = None
    """Null when the plan names no files."""
    workers: dict[str, int] = {}
    """Good responses by worker, where the server says who answers (``X-Probe-Worker``)."""
    worker_shares: dict[str, WorkerShare] = {}
    worker_requests: Imbalance | None = None
    worker_connections: Imbalance | None = None
