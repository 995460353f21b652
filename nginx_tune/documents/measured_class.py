"""A request class in a ``measurement``: counts and latencies."""

from nginx_tune.documents.base import Part


class Latency(Part, frozen=True, kw_only=True):
    """A latency distribution in seconds; quantiles without samples are null."""

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
    """Samples of requests that never finished or timed out; their age counts, as a lower bound."""
    censored_from_seconds: float | None = None
    """Minimum age of a censored sample in seconds; quantiles below it are exact."""
    at_least: list[str] = []
    """Quantiles (and ``max``) that are lower bounds because of censored samples."""


class WorkerShare(Part, frozen=True, kw_only=True):
    """A worker's answers in a class, by the number in ``X-Probe-Worker``."""

    requests: int = 0
    connections: int = 0
    """Connections on which it answered, including the warm-up."""
    response_seconds: Latency = Latency()
    """Time from the intended start to the last byte, with two significant digits."""


class Imbalance(Part, frozen=True, kw_only=True):
    """The imbalance of requests, or connections, between workers."""

    workers: int
    max_to_mean: float
    """Ratio of the busiest worker's share to the mean share; 1 for an even spread."""
    variation: float
    """Coefficient of variation: standard deviation over mean."""
    chi_square: float
    """Chi-square statistic; the hypothesis is that all workers are equally likely."""
    p_value: float
    """Probability of an imbalance at least as large under random assignment of requests."""


class Bodies(Part, frozen=True, kw_only=True):
    """The sampled bodies of a class, compared with the plan's local files."""

    compared: int = 0
    differing: int = 0
    """Bodies that differ. They count as failed (``hash``), but their latencies are kept."""
    unread: int = 0
    """Sampled bodies whose file could not be read, or not in the time after the run."""


class TlsSessions(Part, frozen=True, kw_only=True):
    """Connections with the same negotiated version and cipher suite."""

    version: str
    """``1.2`` or ``1.3``."""
    cipher: str
    """OpenSSL's name, as in nginx's ``$ssl_cipher``."""
    connections: int = 0


class Http2Streams(Part, frozen=True, kw_only=True):
    """The HTTP/2 connections of a class, including the warm-up."""

    streams: int = 0
    """Requests sent, each on its own stream."""
    most_streams: int = 0
    """Maximum number of concurrent streams of a connection."""
    mean_streams: float = 0.0
    """Mean number of streams of a connection when one is opened, including that one."""
    peer_limit: int | None = None
    """The server's lowest limit of streams (SETTINGS_MAX_CONCURRENT_STREAMS)."""
    goaways: int = 0
    """Connections on which the server accepts no more streams."""
    refused: int = 0
    """Requests that the server did not process (after a GOAWAY, REFUSED_STREAM)."""
    resets: int = 0
    """Streams that the server reset for other reasons."""
    window_stalls: int = 0
    """Number of times that the probe's flow-control window was empty or nearly empty."""


class Http3Streams(Http2Streams, frozen=True, kw_only=True):
    """The HTTP/3 connections of a class, including the warm-up.

    ``peer_limit`` is a server's initial limit (``initial_max_streams_bidi``).
    """

    handshakes: int = 0
    """Completed handshakes."""
    datagrams_sent: int = 0
    datagrams_received: int = 0
    lost_packets: int = 0
    """Packets of the probe that were never acknowledged, whose data was sent again."""
    dropped_datagrams: int = 0
    """Datagrams from the server that were lost since the buffer of the probe's socket was full."""


class ClassMeasurement(Part, frozen=True, kw_only=True):
    """The measurement of a request class."""

    requests: int = 0
    """Complete, correct responses to requests that were due in the measured time."""
    requests_per_second: float = 0.0
    bytes: int = 0
    """Body bytes received in the measured time, including unfinished responses."""
    bytes_per_second: float = 0.0
    users: int | None = None
    """Closed loop: number of users; null for an open loop."""
    intended: int = 0
    """Arrivals due in the measured time (closed loop: requests started)."""
    truncated: int = 0
    """Bodies shorter than declared, and connections closed with no reply at all."""
    censored: int = 0
    """Unfinished requests at the end. They are in ``response_seconds`` with their age, like
    requests that timed out (``timeout``, ``connect_timeout``)."""
    censored_from_seconds: float | None = None
    """Age of the youngest censored request; quantiles below it are exact."""
    errors: dict[str, int] = {}
    """Failures by kind: ``refused``, ``connect_timeout``, ``unreachable``, ``tls``, ``reset``,
    ``empty``, ``truncated``, ``parse``, ``status``, ``length``, ``range``, ``hash``, ``timeout``,
    ``local_ports``, ``descriptors``, ``backlog``, ``other``."""
    statuses: dict[str, int] = {}
    limited: int = 0
    """Known refusals by a limit of the configuration (``limit_req``, ``limit_conn``), which count
    neither as failures nor as requests."""
    response_seconds: Latency = Latency()
    """Time from the intended start to the last body byte."""
    ttfb_seconds: Latency = Latency()
    """Time from the intended start to the first byte."""
    service_seconds: Latency = Latency()
    """Time from the send to the last body byte."""
    failed_seconds: Latency = Latency()
    """Time from the intended start to the failure."""
    lateness_seconds: Latency = Latency()
    """Time from the intended start until the probe's loop releases the request."""
    arrival_seconds: Latency = Latency()
    """For a sample of requests, the time from the send to the arrival of the first byte in this
    host's kernel: the time to the first byte without the probe's part."""
    connect_seconds: Latency = Latency()
    """Time from opening a connection to the end of the TCP handshake."""
    round_trip_seconds: Latency = Latency()
    """Smoothed round-trip times at every sixteenth answer of a connection: the kernel's for TCP
    (``tcpi_rtt``), the probe's for QUIC (RFC 9002)."""
    tls_seconds: Latency = Latency()
    """Time from opening a connection to the end of the TLS or QUIC handshake."""
    tls_resumed: int = 0
    """Resumed TLS sessions, including the warm-up."""
    tls_sessions: list[TlsSessions] = []
    """Negotiated TLS, including the warm-up."""
    http2: Http2Streams | None = None
    """The HTTP/2 connections; null for other protocols."""
    http3: Http3Streams | None = None
    """The HTTP/3 connections; null for other protocols."""
    syn_retries: int = 0
    """SYNs that were repeated after 1, 3 and 7 s, including the warm-up."""
    retransmits: int = 0
    """Segments that the load host retransmitted, including the warm-up."""
    connections_opened: int = 0
    retried: int = 0
    """Requests sent again because their kept connection was closed while they were sent."""
    stray: int = 0
    """Connections on which the server sent unrequested bytes."""
    ack_stall_suspects: int = 0
    """Pauses of 35 to 60 ms within a response, as long as delayed acknowledgements."""
    at_cap: int = 0
    """Arrivals that waited because all connections were busy (open loop)."""
    max_pending: int = 0
    bodies: Bodies | None = None
    """The compared bodies; null when the plan names no files."""
    workers: dict[str, int] = {}
    """Good responses by worker, if the server names it (``X-Probe-Worker``)."""
    worker_shares: dict[str, WorkerShare] = {}
    worker_requests: Imbalance | None = None
    worker_connections: Imbalance | None = None
