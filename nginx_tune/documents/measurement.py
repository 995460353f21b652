"""``measurement``: what one load run saw."""

from __future__ import annotations

from nginx_tune.documents.base import Document, Part, Unknown
from nginx_tune.documents.loadplan import Stripe


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


class IdleConnections(Part, frozen=True, kw_only=True):
    """Connections that stayed open and asked nothing."""

    wanted: int = 0
    open: int = 0
    """At the end."""
    lost: int = 0
    """Closed by the server; each was opened again."""
    failed: int = 0
    """Attempts that came to nothing."""


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
    ``local_ports``, ``descriptors``, ``other``."""
    statuses: dict[str, int] = {}
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
    tls_seconds: Latency = Latency()
    """From opening a connection to the end of the TLS handshake."""
    tls_resumed: int = 0
    """TLS sessions that took up an earlier one, warm-up included."""
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


class WorkerUse(Part, frozen=True, kw_only=True):
    """What one nginx process used during the measured time."""

    pid: int
    cpu_seconds: float | None = None
    """All threads."""
    main_thread_cpu_seconds: float | None = None
    state_d_ratio: float | None = None
    """Share of samples that saw the main thread in state D (uninterruptible sleep)."""
    state_ratios: dict[str, float] = {}
    """Share of samples by state of the main thread: ``D``, ``R`` (runs or wants to), ``S``."""
    state_samples: int = 0
    state_d_error: float | None = None
    """Standard error of ``state_d_ratio``, from the spread between its seconds."""
    block_io_delay_seconds: float | None = None
    """Time the main thread waited for block I/O."""
    run_queue_seconds: float | None = None
    """Time the main thread was ready to run and another one ran."""
    switches_voluntary: int | None = None
    switches_involuntary: int | None = None
    """Context switches of the main thread."""
    user_ratio: float | None = None
    """Share of the main thread's CPU time that it spent outside the kernel; 10-ms ticks."""
    major_faults: int | None = None
    """Page faults of the main thread that had to read: from swap, or of a mapped file."""
    threads: int | None = None
    """At the end; more than one with thread pools."""
    connections_max: int | None = None
    """Most TCP connections, to clients and upstreams, that it held at one look; one a second."""
    connections: float | None = None
    """Established connections to the listeners, mean of the window's first and last moment."""
    connection_ratio: float | None = None
    """Its share of all workers' connections."""
    loop_turns: int | None = None
    loop_busy_seconds: float | None = None
    """Time inside loop turns."""
    loop_blocked_seconds: float | None = None
    """Of that, in state D."""


class LoopTurn(Latency, frozen=True, kw_only=True):
    """Event-loop turns: leaving ``epoll_wait`` to entering it again, of all workers."""

    method: str = ""
    """``bpftrace`` or ``tracefs``."""
    busy_seconds: float | None = None
    """Sum of all turns."""
    blocked_seconds: float | None = None
    """Of that, in state D: waiting for a disk, mostly."""
    blocked_ratio: float | None = None
    """``blocked_seconds / busy_seconds``."""
    queued_seconds: float | None = None
    """Of all turns, ready to run without a CPU; null in measurements of before this was told."""
    asleep_seconds: float | None = None
    """In a call of their own that sleeps, such as a lock or a name resolved by a library."""
    stopped_seconds: float | None = None
    """Stopped by a signal or a debugger."""
    arrival_wait_seconds: float | None = None
    """How long an event that comes at a random moment waits for its loop, on average."""
    arrival_wait_by: dict[str, float] = {}
    """Seconds of that by what held the turn: ``computing``, ``blocked``, ``queued``, ``asleep``,
    ``stopped``."""
    traced_ratio: float | None = None
    """Share of the measured time that was traced; below 1 when there were too many turns."""


class ListenerUse(Part, frozen=True, kw_only=True):
    """One address that nginx listens on, over the measured time."""

    address: str
    port: int
    sockets: int = 1
    backlog: int | None = None
    accept_queue_max: int | None = None
    """Longest queue seen, of one socket; looked at once a second."""
    drops: int | None = None
    """Connections dropped here (events: a client that tries again counts again)."""


class DiskUse(Part, frozen=True, kw_only=True):
    """One leaf disk over the measured time, all of the host's processes together."""

    name: str
    utilisation_ratio: float | None = None
    """Share of the time with a request under way."""
    reads_per_second: float | None = None
    read_bytes_per_second: float | None = None
    read_await_seconds: float | None = None
    """Mean time of a read, with its time in the queue; null without a read."""
    in_flight: float | None = None
    """Mean number of requests under way."""
    writes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    write_await_seconds: float | None = None
    """Mean time of a write, with its time in the queue; null without a write."""
    below: list[str] = []
    """Disks of this list whose requests this one serves too: those stand in both."""


class HeldCall(Part, frozen=True, kw_only=True):
    """A system call that main threads were found waiting in, by samples."""

    state: str
    """``D`` (a disk, mostly) or ``S`` (asleep)."""
    call: str
    """Such as ``sendfile``; ``page fault`` for none."""
    kind: str
    """``read``, ``write``, ``names``, ``page fault`` or ``other``."""
    file: str = ""
    """A log's path, else ``a log`` or ``a file``; empty where the call has none or it was not
    told."""
    ratio: float
    """Share of all samples of main threads."""


class Quota(Part, frozen=True, kw_only=True):
    """The CPU quota of the workers' control group, or of the ancestor that held them up most."""

    periods: int
    throttled_periods: int
    throttled_seconds: float
    """Of all CPUs, added."""


class Waiting(Part, frozen=True, kw_only=True):
    """Connections that waited at one moment, on average over looks, one a second."""

    looks: int
    clients: float
    clients_waiting: float
    """Asked last and were sent nothing since."""
    client_seconds: float | None = None
    """How long these had waited so far, mean."""
    client_longest_seconds: float | None = None
    clients_waiting_ratio: float = 1.0
    """Share of looks that found any such client."""
    clients_sending: float
    """Had not taken yet what was sent to them."""
    upstreams: float
    """Connections that workers opened, idle ones too."""
    upstreams_waiting: float
    """Of these, asked last and without an answer."""
    upstream_seconds: float | None = None
    upstream_longest_seconds: float | None = None
    upstreams_waiting_ratio: float = 1.0
    """Share of looks that found any such connection, or one that was not open yet."""
    upstreams_connecting: float
    pool_threads: float = 0.0
    pool_busy_ratio: float | None = None
    """Share of the pools' threads that were not asleep; null without a pool."""
    pool_full_ratio: float | None = None
    """Share of looks that found all of them so."""


class StubStatus(Part, frozen=True, kw_only=True):
    """What stub_status counted over the measured time."""

    requests: int
    requests_per_second: float
    accepts: int
    dropped: int
    """Accepted and closed at once for want of ``worker_connections``."""
    active: int
    """At the end."""
    writing: float | None = None
    """Requests that were answered or waited for an answer, mean over looks without our own."""


class ServerSecond(Part, frozen=True, kw_only=True):
    """The server in one second of the measured time."""

    second: int
    seconds: float = 1.0
    """How long it was: the last one may be shorter."""
    requests: int | None = None
    """By stub_status."""
    cpu_seconds: float | None = None
    block_io_delay_seconds: float | None = None
    state_d_ratio: float | None = None
    loop_turns: int | None = None
    loop_busy_seconds: float | None = None
    loop_blocked_seconds: float | None = None
    loop_turn_p99_seconds: float | None = None
    loop_turn_max_seconds: float | None = None
    disk_read_bytes: int | None = None
    refaults: int | None = None
    listen_drops: int | None = None


class ServerMeasurement(Part, frozen=True, kw_only=True):
    """What nginx and its kernel say about the run."""

    pool_overflow: int | None = None
    """New ``queue overflow`` lines in the main error log."""
    pool_overflow_by_pool: dict[str, int] = {}
    operations_too_slow: int | None = None
    """New ``took too long`` lines in all error logs."""
    connections_exhausted: int | None = None
    """New ``worker_connections are not enough`` lines that refused a connection."""
    connections_reused: int | None = None
    """New such lines on idle connections that were closed to make room; at most one a second of
    each worker, and none below ``error_log … warn``."""
    worker_connections: int | None = None
    """Of the configuration."""
    upstream_timeouts: int | None = None
    """New ``upstream timed out`` lines."""
    resolver_failures: int | None = None
    """New ``could not be resolved`` lines."""
    error_lines: dict[str, int] = {}
    """New error-log lines by level."""
    read_errors: int | None = None
    """New error-log lines on a call that failed with EIO: a disk gave an error."""
    disk_read_errors: dict[str, int] = {}
    """Reads that a modelled disk of the lab answered with EIO, by the disk's name; only disks
    that had some. The kernel tries again what a read-ahead did not get, so not each is seen."""
    listen_overflows: int | None = None
    listen_drops: int | None = None
    listeners: list[ListenerUse] = []
    loop_turn_seconds: LoopTurn | None = None
    block_io_delay_seconds: float | None = None
    """Of the workers' main threads, added."""
    block_io_delay_method: str = ""
    """``taskstats``, ``stat`` (10-ms ticks) or ``sched_switch`` (time in state D)."""
    state_d_ratio: float | None = None
    """Mean over the workers' main threads."""
    open_seconds: Latency | None = None
    """Calls of open() by the workers' main threads, each with its time; only when asked for."""
    pool_queue_wait_seconds: Latency | None = None
    """From posting a task to a pool thread taking it; only when asked for."""
    cpu_seconds: float | None = None
    """All nginx processes, all threads."""
    cpu_seconds_per_request: float | None = None
    run_queue_seconds: float | None = None
    """Of the workers' main threads, added."""
    cpu_samples: dict[str, int] = {}
    """Looks at what main threads computed, by library (``libz``), ``nginx``, ``kernel``, or
    ``generated code``."""
    quota: Quota | None = None
    """Null without a quota."""
    steal_ratio: float | None = None
    """Share of the host's CPU time that a hypervisor gave to others."""
    swapped_in_pages: int | None = None
    """Read back from swap, of the whole host."""
    held_calls: list[HeldCall] = []
    """What main threads were found waiting in; the most frequent first."""
    waiting: Waiting | None = None
    has_resolver: bool | None = None
    """Whether nginx asks a name server while it serves (``resolver``)."""
    resident_bytes_before: int | None = None
    """Dataset bytes in the page cache before the block."""
    resident_bytes_after: int | None = None
    disk_read_bytes: int | None = None
    disks: list[DiskUse] = []
    refaults: int | None = None
    """Pages of files read again after the page cache had let them go."""
    refault_source: str = ""
    """``cgroup`` (that of the workers) or ``host``."""
    stub_status: StubStatus | None = None
    workers: list[WorkerUse] = []
    served_connections: dict[str, int] = {}
    """Connections that each process served in the measured time, where a log counted them."""
    series: list[ServerSecond] = []
    observer_cpu_seconds: float | None = None
    """CPU that watching cost: nginx-tune itself and its tracer, without what events cost inside
    nginx."""


class Generator(Part, frozen=True, kw_only=True):
    """What the load probe says about itself."""

    version: str = ""
    cpu_seconds: float = 0.0
    cpu_ratio: float = 0.0
    """CPU seconds per second, of all threads together."""
    threads: int = 1
    """Engines that ran side by side."""
    lateness_seconds: Latency = Latency()
    """How late the loop released an arrival after its intended time."""
    receive_lag_seconds: Latency = Latency()
    """From the arrival of a first byte in the kernel until the probe read it (of a sample)."""
    max_rss_bytes: int = 0
    host_busy_seconds: float | None = None
    """CPU time of all processes of the probe's host in the measured time, without interrupts."""
    host_cpu_seconds: float | None = None
    """All time of all its CPUs."""
    foreign_cpu_ratio: float | None = None
    """Share of it that neither the probe nor the server used."""
    steal_ratio: float | None = None
    """Share of it that a hypervisor gave to others."""
    throttled_periods: int | None = None
    """Periods in which the probe's control groups had used up their CPU time."""
    clock_source: str = ""
    source_addresses: int = 1
    """Local addresses that connections came from: one more where an address ran out of ports."""
    start_skew_seconds: float | None = None
    """How long after the plan's wall-clock moment this load host began; null without one."""
    idle_connections: IdleConnections | None = None


class Agent(Part, frozen=True, kw_only=True):
    """One load host's part in a merged measurement."""

    name: str
    stripe: Stripe = Stripe()
    started_unix_seconds: float | None = None
    duration_seconds: float = 0.0
    requests: int = 0
    requests_per_second: float = 0.0
    cpu_ratio: float = 0.0
    lateness_p99_seconds: float | None = None
    flags: list[str] = []


class ClassSecond(Part, frozen=True, kw_only=True):
    """One class in one second, by completion time.

    Requests that failed by time stand in the latencies at their age.
    """

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    p50: float | None = None
    p99: float | None = None
    max: float | None = None


class SeriesPoint(Part, frozen=True, kw_only=True):
    """One second of the run; second 0 starts with the measured time."""

    second: int
    classes: dict[str, ClassSecond]


class Measurement(Document, frozen=True, kw_only=True, tag="nginx-tune/measurement/1"):
    """What one load run saw."""

    arm: str = ""
    block: int = 0
    seed: int = 1
    plan_digest: str = ""
    """Fingerprint of classes and durations: alike on all load hosts of one load."""
    stripe: Stripe = Stripe()
    """Which share of the arrivals was this load host's."""
    started_unix_seconds: float | None = None
    """When the measured time began, by the load host's clock."""
    duration_seconds: float = 0.0
    classes: dict[str, ClassMeasurement] = {}
    server: ServerMeasurement = ServerMeasurement()
    generator: Generator = Generator()
    flags: list[str] = []
    """Why the result is degraded; empty when it is valid."""
    series: list[SeriesPoint] = []
    agents: list[Agent] = []
    """The load hosts whose measurements were added."""
    start_skew_seconds: float | None = None
    """Between the first and the last of them to begin."""
    unknown: list[Unknown] = []
