"""``loadplan``: everything the load probe needs for one measurement (one JSON in, one out)."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from nginx_tune.documents.base import Bytes, Count, Document, Number, Part, Ratio, Seconds


class Tls(Part, frozen=True, kw_only=True):
    """How to speak TLS with the target."""

    verify: bool = True
    """Whether the certificate must be good."""
    ca_file: str | None = None
    """PEM file of the authorities that are trusted; null is the system's."""
    server_name: str | None = None
    """Name in the handshake and the certificate; null is the ``Host`` header's."""
    resumption: bool = True
    """Whether a new connection takes up an earlier session."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """The oldest version that is offered."""
    max_version: Literal["1.2", "1.3"] = "1.3"
    ciphers: list[str] = []
    """Cipher suites that are offered, the best first, by OpenSSL's or IANA's names; none are all
    that the probe has."""
    certificate_file: str | None = None
    """PEM file with the client's certificate and those that vouch for it."""
    key_file: str | None = None
    """PEM file with its private key, without a password."""


class ProxyProtocol(Part, frozen=True, kw_only=True):
    """What each connection says first: from whom it comes, as a balancer before the server does."""

    version: Literal[1, 2]
    source: str | None = None
    """The client's IP address; null is the connection's own, and UNKNOWN of a unix socket's."""


class Target(Part, frozen=True, kw_only=True):
    """A server address that is asked."""

    address: str = ""
    """An IP address; the probe resolves no names."""
    port: Count = 0
    unix: str | None = None
    """Path of a unix socket, in the place of address and port."""
    host: str = "localhost"
    """``Host`` header."""
    tls: Tls | None = None
    """Null is cleartext."""
    proxy_protocol: ProxyProtocol | None = None
    """Null says nothing before TLS and HTTP."""


class RateStep(Part, frozen=True, kw_only=True):
    """A stretch of time at a rate, or (``to_rate_per_second``) growing evenly to another."""

    seconds: Seconds
    rate_per_second: Number
    to_rate_per_second: Number | None = None


class Arrivals(Part, frozen=True, kw_only=True):
    """When requests are due: a pure function of seed, class and index."""

    kind: Literal["closed", "constant", "poisson", "steps", "replay"]
    """``steps``: a rate that changes; ``replay``: when the class's manifest says."""
    rate_per_second: Number | None = None
    """Open loop: mean arrival rate."""
    users: Count | None = None
    """Closed loop: requests in flight at once, each followed by the next."""
    think_seconds: Seconds | None = None
    """Closed loop: pause between a response and the same user's next request. Users begin spread
    over one."""
    steps: list[RateStep] | None = None
    """Kind ``steps``: one after another from the start of the run (the warm-up is part of it);
    the last rate goes on."""
    gaps: Literal["constant", "poisson"] | None = None
    """Kind ``steps``: how arrivals lie about the rate; null is ``poisson``. Kind ``closed``: how
    pauses lie about theirs; ``poisson`` are exponential, null is ``constant``."""
    speed: Number | None = None
    """Kind ``replay``: recorded seconds that pass in a second; null is 1."""


class Paths(Part, frozen=True, kw_only=True):
    """What is asked for: a pure function of seed, class and index."""

    kind: Literal["fixed", "uniform", "zipf", "once", "manifest"]
    """``once`` asks for each path once in shuffled order, then starts over; ``manifest`` for
    what a file of recorded requests says, in its order."""
    paths: list[str] = []
    exponent: float | None = None
    """Zipf exponent over ``paths`` in order of popularity."""
    bytes: list[Bytes] | None = None
    """Length of the whole object per path; a body of another length is a ``length`` failure."""
    files: list[str] | None = None
    """Local file per path ("" for none): some bodies are compared with it, and one that differs
    is a ``hash`` failure."""
    manifest: str | None = None
    """Kind ``manifest``: the file (JSON Lines, ``nginx-tune/manifest/1``). Its paths, sizes and
    ranges; with arrivals of kind ``replay`` its times too."""


class ByteRanges(Part, frozen=True, kw_only=True):
    """Which part of each object is asked for. Where 200 is expected of the whole, 206 is of it."""

    kind: Literal["fixed", "random"]
    """``random``: ``bytes`` of them, anywhere inside the object (whose size ``paths.bytes``
    tells)."""
    first: Count | None = None
    """Kind ``fixed``: first byte; null is 0."""
    last: Count | None = None
    """Kind ``fixed``: last byte."""
    bytes: Bytes | None = None


class Multiplexed(Part, frozen=True, kw_only=True):
    """Connections that carry many requests at once."""

    streams: Count = 100
    """Requests at once on a connection; fewer where the server wants fewer."""
    stream_window_bytes: Bytes = 6 << 20
    """What the server may send of a response before the probe has read it: Chromium's."""
    connection_window_bytes: Bytes = 15 << 20
    """The same of all responses on a connection together."""


class Http2(Multiplexed, frozen=True, kw_only=True):
    """How a class speaks HTTP/2: over TLS by ALPN, else at once ("prior knowledge")."""


class Http3(Multiplexed, frozen=True, kw_only=True):
    """How a class speaks HTTP/3: over QUIC, to the same address and port by UDP."""


class Priority(Part, frozen=True, kw_only=True):
    """How urgent the answers to a class's requests are.

    A weight is of HTTP/2 (the tree of RFC 7540 §5.3); an urgency goes in the header ``priority``
    (RFC 9218) over any protocol. One of the two, or both.
    """

    weight: Count | None = None
    """From 1 to 256: the stream's part beside those that depend on the same."""
    depends_on: list[str] = []
    """Classes on the same connections: a stream depends on the newest of theirs that is under way,
    on none where none is. A class may name itself."""
    exclusive: bool = False
    """Whether what had depended on that depends on this stream from then on."""
    frame: Literal["headers", "priority"] = "headers"
    """Whether HEADERS say it or a PRIORITY frame behind them."""
    urgency: Count | None = None
    """From 0, the most urgent, to 7; 3 is what holds where nothing is said."""
    incremental: bool = False
    """Whether an answer is of use in parts, beside others as urgent."""


class RequestClass(Part, frozen=True, kw_only=True):
    """Requests that are measured together: when they are due, over which connections they go.

    A scenario says it of the data that it asks for, a load plan of the paths.
    """

    name: str
    arrivals: Arrivals
    connections: Count
    """Cap on connections; arrivals at the cap wait with their intended time."""
    connections_of: str | None = None
    """The class of HTTP/2 over whose connections the requests go, beside its own, as those of one
    page; ``connections`` and ``http2`` are the same as there. Null has connections of its own."""
    connection_use: Literal["latest", "turns"] = "latest"
    """Of an open loop. ``latest``: the idle connection last used, and one more when all are busy,
    so that a few carry nearly all; ``turns``: connections are held open from the start and used
    in turn, as comparing workers wants. The users of a closed loop own theirs."""
    held_connections: Count | None = None
    """With ``turns``: how many are held; more are opened when all are busy. Null holds all."""
    headers: dict[str, str] = {}
    timeout_seconds: Seconds = 30.0
    """From the intended start."""
    keepalive: bool = True
    """Whether a connection serves more than one request."""
    read_bytes_per_second: Bytes | None = None
    """A slow client: most bytes that are read from a connection in a second. Of HTTP/2 it gives its
    windows back at that pace, and reads what comes at once."""
    read_pace_of: Literal["stream", "connection"] = "stream"
    """Of a slow client of HTTP/2: whether each stream has that pace, and others of the connection
    are as fast as ever, or all streams of the connection together."""
    http2: Http2 | None = None
    """Null is HTTP/1.1. All connections are held from the start and used in turn, or by the same
    users; ``connection_use`` and ``keepalive`` are of HTTP/1.1 alone."""
    http3: Http3 | None = None
    """The same over QUIC, in the place of ``http2``; the target needs ``tls``. No slow clients."""
    priority: Priority | None = None
    """Null says nothing of it."""


class LoadClass(RequestClass, frozen=True, kw_only=True):
    """One request class with its own connections."""

    paths: Paths
    method: Literal["GET", "HEAD"] = "GET"
    status: list[Count] = field(default_factory=lambda: [200])
    """Expected statuses; any other is a ``status`` failure."""
    keepalive_requests: Count | None = None
    """The probe closes a connection after so many requests."""
    close_probability: Ratio | None = None
    """The probe closes a connection after a response with this probability."""
    range: ByteRanges | None = None
    receive_buffer_bytes: Bytes | None = None
    """Receive buffer of the sockets (SO_RCVBUF); null leaves it to the kernel, or is 4 KiB for
    a slow client."""
    hash_ratio: Ratio = 0.01
    """Share of the bodies that are compared with ``paths.files``, besides the first per file."""
    target: Target | None = None
    """A server of its own; null is the plan's."""


class Caps(Part, frozen=True, kw_only=True):
    """Bounds the run cannot pass."""

    seconds: Seconds = 600.0
    bytes: Bytes = 1 << 42
    """Of bodies."""
    requests: Count = 100_000_000
    connections: Count = 4096
    rate_per_second: Number = 200_000.0


class Permit(Part, frozen=True, kw_only=True):
    """Which targets the guard rails let through.

    An address of this host is fine when its port is listed (a server that nginx-tune started)
    or ``live`` is set; another address only when it is in ``hosts``.
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
    """One load measurement."""

    target: Target
    classes: list[LoadClass]
    duration_seconds: Seconds
    """Measured time, after the warm-up."""
    warmup_seconds: Seconds = 0.0
    """Requests intended before this are sent but not recorded."""
    drain_seconds: Seconds = 5.0
    """Time that unfinished requests get after the last arrival; then they are censored."""
    seed: int = 1
    stripe: Stripe = Stripe()
    threads: Count = 1
    """Engines side by side, each with its part of arrivals, users and connections; the arrivals
    are those of one thread."""
    precise: bool = False
    """Do not sleep in the last 0.2 ms before an arrival is due; only where a CPU is free."""
    second_histograms: bool = False
    """Whether the series has the histogram of each second's response times."""
    abort_error_ratio: Ratio | None = None
    """Stop when more than this share of the requests failed in each of three seconds running."""
    cpus: list[Count] = []
    """CPUs to pin the probe to; empty leaves it alone."""
    realtime: bool = False
    """Run the probe ahead of ordinary processes (SCHED_FIFO) where that is allowed; only for
    CPUs that it has to itself."""
    idle_connections: Count = 0
    """Connections beside those of the classes that stay open and ask nothing."""
    start_at_unix_seconds: Seconds | None = None
    """When the run starts, the same for several load hosts; null starts at once."""
    caps: Caps = Caps()
    permit: Permit = Permit()
