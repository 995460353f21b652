"""nginx and its kernel in a ``measurement`` and an ``observation``.

A new counter of lost or failed requests needs a field of ``ServerMeasurement`` and a row of
``HARMS``, the counters that should stay zero. The screen then shows it and ``compare`` judges it. A
counter of log lines is null if the configuration keeps these lines out of the log.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from nginx_tune.documents.base import Part
from nginx_tune.documents.log_messages import LoggedMessage
from nginx_tune.documents.measured_class import Latency


class WorkerUse(Part, frozen=True, kw_only=True):
    """One worker's use of resources and its waits during the measured time."""

    pid: int
    cpu_seconds: float | None = None
    """CPU time of all threads."""
    main_thread_cpu_seconds: float | None = None
    state_d_ratio: float | None = None
    """Share of samples with the main thread in state D (uninterruptible sleep)."""
    state_ratios: dict[str, float] = {}
    """Share of samples by the main thread's state: ``D``, ``R`` (running or ready), ``S``."""
    state_samples: int = 0
    state_d_error: float | None = None
    """Standard error of ``state_d_ratio``, from the spread between its seconds."""
    block_io_delay_seconds: float | None = None
    """Time that the main thread waited for block I/O."""
    run_queue_seconds: float | None = None
    """Time that the main thread was ready to run without a CPU."""
    switches_voluntary: int | None = None
    switches_involuntary: int | None = None
    """Involuntary context switches of the main thread."""
    user_ratio: float | None = None
    """Share of the main thread's CPU time outside the kernel, from 10-ms ticks."""
    major_faults: int | None = None
    """Page faults of the main thread that needed a read, from swap or a mapped file."""
    threads: int | None = None
    """Number of threads at the end; more than one with thread pools."""
    virtual_bytes: int | None = None
    """Address space at the end, with the stacks of pool threads, which take little real memory."""
    connections_max: int | None = None
    """Maximum number of TCP connections to clients and upstreams in any of the samples, which are
    taken once a second."""
    connections: float | None = None
    """Established client connections: mean of the first and the last moment of the window."""
    connection_ratio: float | None = None
    """This worker's share of the connections of all workers."""
    loop_turns: int | None = None
    loop_busy_seconds: float | None = None
    """Time in loop turns."""
    loop_blocked_seconds: float | None = None
    """Time in state D within loop turns."""


class LoopTurn(Latency, frozen=True, kw_only=True):
    """Event-loop turns of all workers, from leaving ``epoll_wait`` to entering it again."""

    method: str = ""
    """``bpftrace`` or ``tracefs``."""
    busy_seconds: float | None = None
    """Total time of all turns."""
    blocked_seconds: float | None = None
    """Part of ``busy_seconds`` in state D, mostly waits for a disk."""
    blocked_ratio: float | None = None
    """``blocked_seconds / busy_seconds``."""
    queued_seconds: float | None = None
    """Part of ``busy_seconds`` ready to run without a CPU; null in older measurements."""
    asleep_seconds: float | None = None
    """Part of ``busy_seconds`` asleep in a call, such as for a lock or a library's name lookup."""
    stopped_seconds: float | None = None
    """Part of ``busy_seconds`` during which a signal or a debugger had stopped the worker."""
    arrival_wait_seconds: float | None = None
    """Mean wait until the loop handles an event that arrives at a random moment."""
    arrival_wait_by: dict[str, float] = {}
    """Seconds of that wait by cause: ``computing``, ``blocked``, ``queued``, ``asleep``,
    ``stopped``."""
    traced_ratio: float | None = None
    """Share of the measured time that was traced; below 1 if there were too many turns."""


class ListenerUse(Part, frozen=True, kw_only=True):
    """The use of a listening address during the measured time."""

    address: str
    port: int
    sockets: int = 1
    backlog: int | None = None
    accept_queue_max: int | None = None
    """Longest accept queue of any of its sockets, in samples taken once a second."""
    accept_queue_median: float | None = None
    """Median over samples of the longest accept queue; null with fewer than three samples."""
    drops: int | None = None
    """Dropped connection attempts, including a client's repetitions."""


class DiskUse(Part, frozen=True, kw_only=True):
    """The use of a leaf disk during the measured time, by all processes of the host."""

    name: str
    utilisation_ratio: float | None = None
    """Share of the time with a request in flight."""
    reads_per_second: float | None = None
    read_bytes_per_second: float | None = None
    read_await_seconds: float | None = None
    """Mean time of a read, including the queue; null without a read."""
    in_flight: float | None = None
    """Mean number of requests in flight."""
    writes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    write_await_seconds: float | None = None
    """Mean time of a write, including the queue; null without a write."""
    below: list[str] = []
    """Disks of this list that are on top of this disk; their requests count in both."""


class HeldCall(Part, frozen=True, kw_only=True):
    """A system call in which sampled main threads waited."""

    state: str
    """``D`` (mostly a disk) or ``S`` (asleep)."""
    call: str
    """Name of the call, such as ``sendfile``; ``page fault`` outside of any call."""
    kind: str
    """``read``, ``write``, ``names``, ``page fault`` or ``other``."""
    file: str = ""
    """The path of a log, else ``a log`` or ``a file``; empty for no file or an unknown one."""
    ratio: float
    """Share of all samples of main threads."""


class Quota(Part, frozen=True, kw_only=True):
    """The CPU quota of the workers' control group, or of the ancestor that throttled them most."""

    periods: int
    throttled_periods: int
    throttled_seconds: float
    """Sum over all CPUs."""


class Waiting(Part, frozen=True, kw_only=True):
    """Waiting connections: means over samples, which are taken once a second."""

    looks: int
    clients: float
    clients_waiting: float
    """Clients that wait for an answer."""
    client_seconds: float | None = None
    """Mean time for which these clients have waited."""
    client_longest_seconds: float | None = None
    clients_waiting_ratio: float = 1.0
    """Share of samples with at least one waiting client."""
    clients_unclear: float = 0.0
    """Clients whose last request and last answer have the same time, so that their order is not
    known: they wait or are idle."""
    clients_unclear_seconds: float | None = None
    """Mean time since the last request or answer of these clients."""
    clients_sending: float
    """Clients that take no more data at present, while nginx has more to send."""
    upstreams: float
    """Connections to upstreams, including idle ones."""
    upstreams_waiting: float
    """Upstream connections that wait for an answer."""
    upstream_seconds: float | None = None
    upstream_longest_seconds: float | None = None
    upstreams_waiting_ratio: float = 1.0
    """Share of samples with an upstream connection that waited or was still opening."""
    upstreams_unclear: float = 0.0
    """Upstream connections that may be waiting or idle; the kernel does not show which."""
    upstreams_connecting: float
    pool_threads: float = 0.0
    pool_busy_ratio: float | None = None
    """Share of pool threads that were not asleep; null without a pool."""
    pool_full_ratio: float | None = None
    """Share of samples with no pool thread asleep."""


class RoundTrips(Part, frozen=True, kw_only=True):
    """The round-trip times of clients: the kernel's last value for each sampled connection.

    A quantile with fewer than ten connections beyond it is null. For a client behind a balancer,
    the time is that of the balancer.
    """

    source: Literal["tcp_info"] = "tcp_info"
    """``tcp_info``: ``tcpi_rtt`` of the connections to nginx's ports, by sock_diag."""
    connections: int
    p50_seconds: float | None = None
    p90_seconds: float | None = None
    p99_seconds: float | None = None


class StubStatus(Part, frozen=True, kw_only=True):
    """The counts of stub_status during the measured time."""

    requests: int
    requests_per_second: float
    accepts: int
    dropped: int
    """Connections that were accepted and closed at once for lack of ``worker_connections``."""
    active: int
    """Active connections at the end."""
    writing: float | None = None
    """Requests in progress: mean over samples, without requests of nginx-tune."""


class ServerSecond(Part, frozen=True, kw_only=True):
    """The server in a second of the measured time."""

    second: int
    seconds: float = 1.0
    """Length; the last one may be shorter than a second."""
    requests: int | None = None
    """Requests by stub_status."""
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
    """The figures of nginx and its kernel in a run."""

    pool_overflow: int | None = None
    """New ``queue overflow`` lines in the main error log."""
    pool_overflow_by_pool: dict[str, int] = {}
    operations_too_slow: int | None = None
    """New ``took too long`` lines in all error logs."""
    connections_exhausted: int | None = None
    """New ``worker_connections are not enough`` lines that refused a connection."""
    connections_reused: int | None = None
    """New ``worker_connections are not enough`` lines on idle connections that were closed to make
    room; at most one a second from each worker, and none below ``error_log … warn``."""
    worker_connections: int | None = None
    """The value in the configuration."""
    upstream_timeouts: int | None = None
    """New ``upstream timed out`` lines."""
    resolver_failures: int | None = None
    """New ``could not be resolved`` lines."""
    descriptors_exhausted: int | None = None
    """New lines on a call that got no descriptor (EMFILE, ENFILE)."""
    upstream_failures: int | None = None
    """New lines on an upstream that refused, reset, timed out or closed too early."""
    refused_by_limit: int | None = None
    """New lines on requests and connections that ``limit_req``, ``limit_conn`` or
    ``client_max_body_size`` refused."""
    zones_exhausted: int | None = None
    """New lines on a shared memory zone without room, such as for cache keys, limits, TLS sessions
    or an upstream."""
    ports_exhausted: int | None = None
    """New lines on a connection to an upstream that got no local port (EADDRNOTAVAIL)."""
    space_exhausted: int | None = None
    """New lines on a write that failed for lack of space or due to a quota (ENOSPC, EDQUOT)."""
    memory_exhausted: int | None = None
    """New lines on a call that got no memory (ENOMEM, ENOBUFS)."""
    workers_crashed: int | None = None
    """New lines on a process that a signal ended, or that was not started again."""
    spilled_to_disk: int | None = None
    """New lines on answers and request bodies that went to a temporary file; none below
    ``error_log … warn``."""
    log_messages: list[LoggedMessage] = []
    """The messages that name a cause, by subject, the most frequent first."""
    error_lines: dict[str, int] = {}
    """New error-log lines by level."""
    read_errors: int | None = None
    """New error-log lines on a call that failed with EIO, an error of a disk."""
    disk_read_errors: dict[str, int] = {}
    """Reads that a modelled disk of the lab failed with EIO, by disk with failures. The kernel
    retries failed read-ahead, so nginx does not see every failure."""
    refused_calls: list[str] = []
    """System calls that the sandbox refused, with the decisive argument."""
    listen_overflows: int | None = None
    listen_drops: int | None = None
    listeners: list[ListenerUse] = []
    loop_turn_seconds: LoopTurn | None = None
    block_io_delay_seconds: float | None = None
    """Sum over the workers' main threads."""
    block_io_delay_method: str = ""
    """``taskstats``, ``stat`` (10-ms ticks) or ``sched_switch`` (time in state D)."""
    state_d_ratio: float | None = None
    """Mean over the workers' main threads."""
    open_seconds: Latency | None = None
    """Times of the main threads' open() calls; only on request."""
    rename_seconds: Latency | None = None
    """Times of the main threads' rename() calls, which put files into a cache; measured together
    with ``open_seconds``."""
    open_disk_reads: dict[str, int] = {}
    """Number of open() calls by their number of disk reads, which are for directories and inodes
    that were not in memory; empty if unknown."""
    pool_queue_wait_seconds: Latency | None = None
    """Time from posting a task until a pool thread takes it; only on request."""
    cpu_seconds: float | None = None
    """CPU time of all threads of all nginx processes."""
    cpu_seconds_per_request: float | None = None
    run_queue_seconds: float | None = None
    """Sum over the workers' main threads."""
    cpu_samples: dict[str, int] = {}
    """Samples of computing main threads by library (``libz``), ``nginx``, ``kernel``, or
    ``generated code``."""
    quota: Quota | None = None
    """The CPU quota of the workers; null if there is no quota."""
    steal_ratio: float | None = None
    """Share of the host's CPU time that a hypervisor gave to others."""
    host_load: float | None = None
    """Mean number of the host's tasks that ran, waited for a CPU or slept uninterruptibly, as in
    the load average. Pool threads that wait for a disk are included."""
    iowait_ratio: float | None = None
    """Share of the host's CPU time that was idle while a task waited for a disk."""
    swapped_in_pages: int | None = None
    """Pages that the host read back from swap."""
    held_calls: list[HeldCall] = []
    """The system calls in which main threads waited, the most frequent first."""
    waiting: Waiting | None = None
    round_trips: RoundTrips | None = None
    """Round trips to the sampled clients; null without any, or where the kernel has none."""
    has_resolver: bool | None = None
    """True if nginx resolves names while it serves (``resolver``)."""
    resident_bytes_before: int | None = None
    """Dataset bytes in the page cache before the run."""
    resident_bytes_after: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    """Sum over all disks; writes of a disk on top of another count once."""
    disks: list[DiskUse] = []
    refaults: int | None = None
    """Pages of files that were read again after they had been evicted from the page cache."""
    refault_source: str = ""
    """``cgroup`` (the workers' own) or ``host``."""
    stub_status: StubStatus | None = None
    workers: list[WorkerUse] = []
    served_connections: dict[str, int] = {}
    """Connections that each process served in the measured time, if a log counted them."""
    series: list[ServerSecond] = []
    observer_late_seconds: float | None = None
    """The longest delay of a sample. Without a free CPU, nginx-tune takes too few samples, and
    takes them late."""
    observer_cpu_seconds: float | None = None
    """CPU time of nginx-tune and its tracer, without the cost of events inside nginx."""


Weight = Literal["never", "seldom", "sign"]
"""``never``: a single count is too many. ``seldom``: a few counts are normal, and only an increase
beyond chance is worse. ``sign``: an increase hints at harm, but is not harm itself."""

_WORSE_LEVELS = ("error", "crit", "alert", "emerg")


class Harm(NamedTuple):
    """A counter that should stay at zero."""

    name: str
    """The metric's name without ``server.``, as in comparisons."""
    words: str
    """The words after the number, as in ``12 pool overflows``."""
    weight: Weight
    is_logged: bool = True
    """True if the field of that name counts error-log lines; the field is null if the log hides
    them."""
    is_kind: bool = True
    """True for a kind of log lines that no other row counts; False for all other counters."""
    read: Callable[[ServerMeasurement], int | None] | None = None
    """The source of the count; null for the field with the row's name."""

    def counted(self, server: ServerMeasurement) -> int | None:
        """The count; None if unknown."""
        if self.read is not None:
            return self.read(server)
        found: int | None = getattr(server, self.name)
        return found


def error_line_count(server: ServerMeasurement) -> int | None:
    """The lines of level error or worse; None if no log was read."""
    if server.pool_overflow is None and not server.error_lines:
        return None
    return sum(n for level, n in server.error_lines.items() if level in _WORSE_LEVELS)


def _dropped(server: ServerMeasurement) -> int | None:
    return None if server.stub_status is None else server.stub_status.dropped


def _listener_drops(server: ServerMeasurement) -> int | None:
    drops = [listener.drops for listener in server.listeners]
    return None if not drops or None in drops else sum(n or 0 for n in drops)


HARMS = (
    Harm("pool_overflow", "pool overflows", "never"),
    Harm("operations_too_slow", "slow operations", "never"),
    Harm("connections_exhausted", "connections closed for lack of worker_connections", "never"),
    Harm("read_errors", "read errors", "never"),
    Harm("descriptors_exhausted", "calls without a descriptor", "never"),
    Harm("zones_exhausted", "entries that did not fit into a shared zone", "never"),
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
"""The fields of ``ServerMeasurement`` that count lines of error logs."""
