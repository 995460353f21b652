"""nginx and its kernel in a ``measurement`` and in an ``observation``, and the counters of harm.

A new counter of lost or failed requests is a field of ``ServerMeasurement`` and a row of ``HARMS``:
then the screen shows it, ``compare`` judges it, and a log that hides it makes it null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from nginx_tune.documents.base import Part
from nginx_tune.documents.log_messages import LoggedMessage
from nginx_tune.documents.measured_class import Latency


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
    virtual_bytes: int | None = None
    """Address space at the end: each pool thread adds its stack, of which little is memory."""
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
    accept_queue_median: float | None = None
    """Over the looks, of the socket with the longest queue; null with fewer than three."""
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
    clients_unclear: float = 0.0
    """Asked in the moment of their last answer, or were answered in that of their request, and
    nothing told which: they may wait, or be idle."""
    clients_unclear_seconds: float | None = None
    """For how long all was silent there, mean."""
    clients_sending: float
    """Took no more of what was sent to them."""
    upstreams: float
    """Connections that workers opened, idle ones too."""
    upstreams_waiting: float
    """Of these, asked last and without an answer."""
    upstream_seconds: float | None = None
    upstream_longest_seconds: float | None = None
    upstreams_waiting_ratio: float = 1.0
    """Share of looks that found any such connection, or one that was not open yet."""
    upstreams_unclear: float = 0.0
    """As of clients: kept and idle, or asked."""
    upstreams_connecting: float
    pool_threads: float = 0.0
    pool_busy_ratio: float | None = None
    """Share of the pools' threads that were not asleep; null without a pool."""
    pool_full_ratio: float | None = None
    """Share of looks that found all of them so."""


class RoundTrips(Part, frozen=True, kw_only=True):
    """How far away clients are: of each connection that was seen, what its kernel had last.

    A quantile with fewer than ten connections beyond it is null. A client behind a balancer is as
    far as the balancer is.
    """

    source: Literal["tcp_info"] = "tcp_info"
    """``tcp_info``: ``tcpi_rtt`` of the connections at nginx's own ports, by sock_diag."""
    connections: int
    p50_seconds: float | None = None
    p90_seconds: float | None = None
    p99_seconds: float | None = None


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
    descriptors_exhausted: int | None = None
    """New lines on a call that got no descriptor (EMFILE, ENFILE)."""
    upstream_failures: int | None = None
    """New lines on an upstream that refused, reset, timed out or closed too early."""
    refused_by_limit: int | None = None
    """New lines on requests and connections that ``limit_req`` or ``limit_conn`` refused."""
    zones_exhausted: int | None = None
    """New lines on a shared memory zone that had no room: of a cache's keys, limits, TLS sessions,
    an upstream."""
    ports_exhausted: int | None = None
    """New lines on a connection to an upstream that got no local port (EADDRNOTAVAIL)."""
    space_exhausted: int | None = None
    """New lines on a write that found no space, or met a quota (ENOSPC, EDQUOT)."""
    memory_exhausted: int | None = None
    """New lines on a call that got no memory (ENOMEM, ENOBUFS)."""
    workers_crashed: int | None = None
    """New lines on a process that ended on a signal or for good."""
    spilled_to_disk: int | None = None
    """New lines on answers and request bodies that went to a temporary file; none below
    ``error_log … warn``."""
    log_messages: list[LoggedMessage] = []
    """The messages that name a cause, by what they are about; the most frequent first."""
    error_lines: dict[str, int] = {}
    """New error-log lines by level."""
    read_errors: int | None = None
    """New error-log lines on a call that failed with EIO: a disk gave an error."""
    disk_read_errors: dict[str, int] = {}
    """Reads that a modelled disk of the lab answered with EIO, by the disk's name; only disks
    that had some. The kernel tries again what a read-ahead did not get, so not each is seen."""
    refused_calls: list[str] = []
    """System calls that the sandbox refused nginx, with the argument that decided."""
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
    rename_seconds: Latency | None = None
    """Calls of rename() by them: a file that a cache took gets its name; asked for with those."""
    open_disk_reads: dict[str, int] = {}
    """Of these calls of open(), how many by the disk reads that each asked for itself: directories
    and inodes that were not in memory. Empty where it was not counted."""
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
    host_load: float | None = None
    """Tasks that ran, waited for a CPU or slept uninterruptibly, mean, of the whole host: what
    its load average went towards. Pool threads that wait for a disk are in it."""
    iowait_ratio: float | None = None
    """Share of the host's CPU time that was idle while a task waited for a disk."""
    swapped_in_pages: int | None = None
    """Read back from swap, of the whole host."""
    held_calls: list[HeldCall] = []
    """What main threads were found waiting in; the most frequent first."""
    waiting: Waiting | None = None
    round_trips: RoundTrips | None = None
    """To the clients that were seen; null where none was, or the kernel does not tell."""
    has_resolver: bool | None = None
    """Whether nginx asks a name server while it serves (``resolver``)."""
    resident_bytes_before: int | None = None
    """Dataset bytes in the page cache before the run."""
    resident_bytes_after: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    """All disks added; what a disk on another writes counts once."""
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
    observer_late_seconds: float | None = None
    """How late a reading of the watch began at most: with no CPU left for it, what is sampled is
    seen too seldom, and at other times than it says."""
    observer_cpu_seconds: float | None = None
    """CPU that watching cost: nginx-tune itself and its tracer, without what events cost inside
    nginx."""


Weight = Literal["never", "seldom", "sign"]
"""``never``: one is too many. ``seldom``: it happens now and then, so more of them than chance
makes is worse. ``sign``: more of it than before hints at harm, and is none by itself."""

_WORSE_LEVELS = ("error", "crit", "alert", "emerg")


class Harm(NamedTuple):
    """One counter that should stay at zero."""

    name: str
    """Below ``server.``, as comparisons name it."""
    words: str
    """Beside its number: ``12 pool overflows``."""
    weight: Weight
    is_logged: bool = True
    """A field of that name, counted in error logs: null where they hide it."""
    is_kind: bool = True
    """A kind of lines of its own; False for what is part of another row, or all lines together."""
    read: Callable[[ServerMeasurement], int | None] | None = None
    """Null for the field of that name."""

    def counted(self, server: ServerMeasurement) -> int | None:
        """How many there were; null when that is not known."""
        if self.read is not None:
            return self.read(server)
        found: int | None = getattr(server, self.name)
        return found


def error_line_count(server: ServerMeasurement) -> int | None:
    """Lines of level error or worse; null where no log was read."""
    if server.pool_overflow is None and not server.error_lines:
        return None
    return sum(n for level, n in server.error_lines.items() if level in _WORSE_LEVELS)


def _dropped(server: ServerMeasurement) -> int | None:
    return None if server.stub_status is None else server.stub_status.dropped


def _listener_drops(server: ServerMeasurement) -> int | None:
    drops = [one.drops for one in server.listeners]
    return None if not drops or None in drops else sum(n or 0 for n in drops)


HARMS = (
    Harm("pool_overflow", "pool overflows", "never"),
    Harm("operations_too_slow", "slow operations", "never"),
    Harm("connections_exhausted", "connections closed for want of worker_connections", "never"),
    Harm("read_errors", "read errors", "never"),
    Harm("descriptors_exhausted", "calls without a descriptor", "never"),
    Harm("zones_exhausted", "entries without room in a shared zone", "never"),
    Harm("ports_exhausted", "connections without a local port", "never"),
    Harm("space_exhausted", "writes without space", "never"),
    Harm("memory_exhausted", "calls without memory", "never"),
    Harm("workers_crashed", "processes that crashed", "never"),
    Harm("upstream_failures", "upstream failures", "seldom"),
    Harm("upstream_timeouts", "upstream timeouts", "seldom", is_kind=False),
    Harm("resolver_failures", "names not resolved", "seldom"),
    Harm("refused_by_limit", "requests refused by a limit", "seldom"),
    Harm("spilled_to_disk", "answers or bodies in temporary files", "sign", is_kind=False),
    Harm("connections_reused", "idle connections closed to make room", "sign", is_kind=False),
    Harm("stub_status.dropped", "dropped", "never", is_logged=False, is_kind=False, read=_dropped),
    Harm("listeners.drops", "drops", "seldom", is_logged=False, is_kind=False,
         read=_listener_drops),
    Harm("error_lines", "lines of level error or worse", "sign", is_logged=False, is_kind=False,
         read=error_line_count),
)  # fmt: skip
LOGGED = tuple(harm.name for harm in HARMS if harm.is_logged)
"""Fields of ``ServerMeasurement`` that error logs are counted for."""
