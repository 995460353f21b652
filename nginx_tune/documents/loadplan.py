"""``loadplan``: the input of the load probe for a measurement (one JSON in, one out)."""

from typing import Literal

from msgspec import field

from nginx_tune.documents.base import Bytes, Count, Document, Number, Part, Ratio, Seconds


class Tls(Part, frozen=True, kw_only=True):
    """TLS with the target."""

    verify: bool = True
    """True to verify the certificate."""
    ca_file: str | None = None
    """PEM file of trusted authorities; null for the authorities that the system trusts."""
    server_name: str | None = None
    """Name in the handshake and the certificate; null for the name in the ``Host`` header."""
    resumption: bool = True
    """True to resume an earlier session on a new connection."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """The oldest offered version."""
    max_version: Literal["1.2", "1.3"] = "1.3"
    ciphers: list[str] = []
    """Offered cipher suites by OpenSSL's or IANA's names, the preferred first; empty for all of the
    probe's."""
    certificate_file: str | None = None
    """PEM file with the client's certificate and its chain."""
    key_file: str | None = None
    """PEM file with its private key, without a password."""


class ProxyProtocol(Part, frozen=True, kw_only=True):
    """The PROXY protocol header of each connection, as from a balancer in front of the server."""

    version: Literal[1, 2]
    source: str | None = None
    """The client's IP address; null for the connection's address, or UNKNOWN on a unix socket."""


class Target(Part, frozen=True, kw_only=True):
    """A server address for requests."""

    address: str = ""
    """An IP address; the probe resolves no names."""
    port: Count = 0
    unix: str | None = None
    """Path of a unix socket, instead of address and port."""
    host: str = "localhost"
    """``Host`` header."""
    tls: Tls | None = None
    """TLS with this target; null for cleartext."""
    proxy_protocol: ProxyProtocol | None = None
    """The PROXY protocol header to send; null to send none."""


class RateStep(Part, frozen=True, kw_only=True):
    """A time with a constant rate, or one that changes evenly to ``to_rate_per_second``."""

    seconds: Seconds
    rate_per_second: Number
    to_rate_per_second: Number | None = None


class Arrivals(Part, frozen=True, kw_only=True):
    """The due times of requests: a pure function of seed, class and index."""

    kind: Literal["closed", "constant", "poisson", "steps", "replay"]
    """``steps``: a changing rate; ``replay``: the times of the class's manifest."""
    rate_per_second: Number | None = None
    """Open loop: mean arrival rate."""
    users: Count | None = None
    """Closed loop: concurrent requests, each followed by the next."""
    think_seconds: Seconds | None = None
    """Closed loop: pause between a response and the user's next request. The users' starts are
    spread over one pause."""
    steps: list[RateStep] | None = None
    """Kind ``steps``: the steps in order from the start of the run, including the warm-up; the last
    rate continues."""
    gaps: Literal["constant", "poisson"] | None = None
    """Kind ``steps``: distribution of the arrivals; null for ``poisson``. Kind ``closed``:
    distribution of the pauses, exponential for ``poisson``; null for ``constant``."""
    speed: Number | None = None
    """Kind ``replay``: recorded seconds per second; null for 1."""


class Paths(Part, frozen=True, kw_only=True):
    """The requested paths: a pure function of seed, class and index."""

    kind: Literal["fixed", "uniform", "zipf", "once", "manifest"]
    """``once`` requests each path once in shuffled order, then starts over; ``manifest`` follows a
    file of recorded requests in its order."""
    paths: list[str] = []
    exponent: float | None = None
    """Zipf exponent over ``paths`` in order of popularity."""
    bytes: list[Bytes] | None = None
    """Full length of the object by path; a body of another length is a ``length`` failure."""
    files: list[str] | None = None
    """Local file by path ("" for none): some bodies are compared with it, and a difference is a
    ``hash`` failure."""
    manifest: str | None = None
    """Kind ``manifest``: the file (JSON Lines, ``nginx-tune/manifest/1``) of paths, sizes and
    ranges, and of times for arrivals of kind ``replay``."""


class ByteRanges(Part, frozen=True, kw_only=True):
    """The requested part of each object, for which 206 is expected in place of 200."""

    kind: Literal["fixed", "random"]
    """``random``: ``bytes`` anywhere in the object, whose size is in ``paths.bytes``."""
    first: Count | None = None
    """Kind ``fixed``: first byte; null for 0."""
    last: Count | None = None
    """Kind ``fixed``: last byte."""
    bytes: Bytes | None = None


class Multiplexed(Part, frozen=True, kw_only=True):
    """Connections with many concurrent requests."""

    streams: Count = 100
    """Concurrent requests on a connection; fewer if the server allows fewer."""
    stream_window_bytes: Bytes = 6 << 20
    """Flow-control window of a stream, by default Chromium's."""
    connection_window_bytes: Bytes = 15 << 20
    """Flow-control window of a connection."""


class Http2(Multiplexed, frozen=True, kw_only=True):
    """HTTP/2 of a class: over TLS by ALPN, else with prior knowledge."""


class Http3(Multiplexed, frozen=True, kw_only=True):
    """HTTP/3 of a class: over QUIC, to the same address and port by UDP."""


class Priority(Part, frozen=True, kw_only=True):
    """The priority of a class's requests.

    A weight belongs to HTTP/2 (the tree of RFC 7540 §5.3); an urgency is sent in the header
    ``priority`` (RFC 9218) over any protocol. A class has one of the two, or both.
    """

    weight: Count | None = None
    """The stream's share among its siblings, from 1 to 256."""
    depends_on: list[str] = []
    """Classes on the same connections. A stream of this class depends on the newest stream in
    progress of those classes, if there is one. A class may name itself."""
    exclusive: bool = False
    """True if a stream takes over the other streams that depend on its parent."""
    frame: Literal["headers", "priority"] = "headers"
    """The frame with the priority: HEADERS, or PRIORITY after them."""
    urgency: Count | None = None
    """Urgency from 0, the most urgent, to 7; the default of HTTP is 3."""
    incremental: bool = False
    """True if parts of answers are useful, so that answers of equal urgency can share bandwidth."""


class RequestClass(Part, frozen=True, kw_only=True):
    """Requests that are measured together, with their arrivals and connections.

    A scenario adds the requested data, a load plan the paths.
    """

    name: str
    arrivals: Arrivals
    connections: Count
    """Limit of connections; arrivals at the limit wait with their intended time."""
    connections_of: str | None = None
    """The HTTP/2 class whose connections these requests share, like the requests of a page;
    ``connections`` and ``http2`` are the same as there. Null for separate connections."""
    connection_use: Literal["latest", "turns"] = "latest"
    """Open loop: ``latest`` uses the most recently used idle connection, and a new one when all are
    busy, so that a few carry nearly all requests; ``turns`` keeps connections open from the start
    and uses them in turn, to compare workers. Each user of a closed loop has its own connection."""
    held_connections: Count | None = None
    """Number of open connections with ``turns``; more are opened when all are busy. Null for
    all."""
    headers: dict[str, str] = {}
    timeout_seconds: Seconds = 30.0
    """Time limit from the intended start."""
    keepalive: bool = True
    """True if a connection serves more than one request."""
    read_bytes_per_second: Bytes | None = None
    """Maximum number of bytes that a slow client reads from a connection in a second. With HTTP/2
    the client opens its windows at that pace, and reads data at once."""
    read_pace_of: Literal["stream", "connection"] = "stream"
    """The scope of the pace of a slow HTTP/2 client: each stream by itself, or all streams of a
    connection together."""
    http2: Http2 | None = None
    """Null for HTTP/1.1. All connections are open from the start and used in turn, or by the same
    users; ``connection_use`` and ``keepalive`` belong to HTTP/1.1 alone."""
    http3: Http3 | None = None
    """HTTP/3 over QUIC, in place of ``http2``; the target needs ``tls``. Slow clients are not
    possible."""
    priority: Priority | None = None
    """The priority to send; null to send none."""


class LoadClass(RequestClass, frozen=True, kw_only=True):
    """A request class with its own connections."""

    paths: Paths
    method: Literal["GET", "HEAD"] = "GET"
    status: list[Count] = field(default_factory=lambda: [200])
    """Expected statuses; any other is a ``status`` failure."""
    keepalive_requests: Count | None = None
    """Requests after which the probe closes a connection."""
    close_probability: Ratio | None = None
    """Probability that the probe closes a connection after a response."""
    range: ByteRanges | None = None
    receive_buffer_bytes: Bytes | None = None
    """Receive buffer of the sockets (SO_RCVBUF); null for the kernel's default, or 4 KiB for a slow
    client."""
    hash_ratio: Ratio = 0.01
    """Share of bodies to compare with ``paths.files``, in addition to the first of each file."""
    target: Target | None = None
    """A separate server for this class; null for the plan's target."""


class Caps(Part, frozen=True, kw_only=True):
    """Limits of the run."""

    seconds: Seconds = 600.0
    bytes: Bytes = 1 << 42
    """Bytes of bodies."""
    requests: Count = 100_000_000
    connections: Count = 4096
    rate_per_second: Number = 200_000.0


class Permit(Part, frozen=True, kw_only=True):
    """The targets that the guard rails allow.

    An address of this host is allowed if its port is listed (a server that nginx-tune started) or
    ``live`` is set, and another address only if it is in ``hosts``.
    """

    ports: list[Count] = []
    live: bool = False
    hosts: list[str] = []
    sockets: list[str] = []
    """Paths of unix sockets of servers that nginx-tune started."""


class Stripe(Part, frozen=True, kw_only=True):
    """This load host's share of the arrivals."""

    index: Count = 0
    count: Count = 1


class LoadPlan(Document, frozen=True, kw_only=True, tag="nginx-tune/loadplan/1"):
    """A load measurement."""

    target: Target
    classes: list[LoadClass]
    duration_seconds: Seconds
    """Measured time, after the warm-up."""
    warmup_seconds: Seconds = 0.0
    """Requests intended before this are sent but not recorded."""
    drain_seconds: Seconds = 5.0
    """Time after the last arrival for unfinished requests; those still unfinished are censored."""
    seed: int = 1
    stripe: Stripe = Stripe()
    threads: Count = 1
    """Concurrent engines, each with a part of arrivals, users and connections; the arrivals are the
    same as with one thread."""
    precise: bool = False
    """True to busy-wait for the last 0.2 ms before an arrival, which needs a free CPU."""
    second_histograms: bool = False
    """True to record a histogram of response times for each second."""
    abort_error_ratio: Ratio | None = None
    """Share of failed requests in three consecutive seconds that ends the run."""
    cpus: list[Count] = []
    """CPUs of the probe; empty for any."""
    realtime: bool = False
    """True for real-time priority (SCHED_FIFO) where allowed; only for CPUs without other
    processes."""
    idle_connections: Count = 0
    """Additional open connections without requests."""
    start_at_unix_seconds: Seconds | None = None
    """Start of the run, the same for several load hosts; null for at once."""
    caps: Caps = Caps()
    permit: Permit = Permit()
