"""Figures of an observation of the running server, in the terms of the model.

Observed values replace assumed values, but neither learnt nor declared values. Load average, iowait
and virtual size are left out: all three rise even when thread pools help (source row A6).
"""

import math
from dataclasses import dataclass

from msgspec.structs import replace

from nginx_tune.decide.answer import Quantity
from nginx_tune.decide.hindrances import FEW_LOST
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.facts_machine import Listener
from nginx_tune.documents.observation import FEWEST_CPU_SECONDS, FEWEST_REQUESTS, Observation
from nginx_tune.documents.workload import RoundTrip, Workload

_USUAL_PORTS = frozenset({80, 443})
LEAST_SECONDS = 1.0
"""Shortest window that is used."""


@dataclass(frozen=True)
class Seen:
    """Figures of one window; unknown ones are None."""

    blocked: Quantity
    """Share of time that a worker's loop blocks in disk reads."""
    pools_in_use: bool | None
    """True if workers have pool threads, so that ``blocked`` does not show the need for pools."""
    pool_overflow: Quantity
    listen_overflows: Quantity
    """Overflows in the observed window. Without a window: drops at nginx's sockets since they began
    to listen, or the count of the network namespace."""
    connections_refused: Quantity
    backlog: Quantity
    """The smallest effective backlog of the listeners."""
    busiest_share: Quantity
    """Share of all connections in the busiest worker."""

    @property
    def blocked_without_pools(self) -> float | None:
        """Share of time that loops block without pools; None if pools are in use."""
        return None if self.pools_in_use is not False else self.blocked.value


def see(facts: Facts, observation: Observation | None) -> Seen:
    """The figures of an observation; all are None without a usable observation."""
    o = observation if observation is not None and _is_fit(observation) else Observation()
    server = o.server
    backlogs = [listener.backlog for listener in server.listeners if listener.backlog]
    overflows = Quantity("server.listen_overflows", server.listen_overflows, "events")
    if server.listen_overflows is None:
        ours = [listener for listener in facts.listeners if _is_nginx(listener)]
        dropping = [socket for socket in ours if socket.drops]
        counted = facts.network.listen_overflows or 0
        if ours and counted >= FEW_LOST and all(socket.drops is None for socket in ours):
            # An ordinary user without sock_diag cannot read the drops of single sockets. The kernel
            # counts the drops of all listeners, and a longer queue costs next to nothing.
            overflows = Quantity("network.listen_overflows", counted, "connections, any listener")
        if dropping:
            dropped = sum(socket.drops or 0 for socket in dropping)
            overflows = Quantity("drops at nginx's listening sockets", dropped, "connections")
            backlogs = [socket.backlog for socket in dropping if socket.backlog]
    shares = [w.connection_ratio for w in server.workers if w.connection_ratio is not None]
    return Seen(
        blocked=Quantity("share of time a loop blocks in disk reads", _blocked(o)),
        pools_in_use=_pools_in_use(facts),
        pool_overflow=Quantity("server.pool_overflow", server.pool_overflow, "tasks refused"),
        listen_overflows=overflows,
        connections_refused=Quantity(
            "server.connections_exhausted", server.connections_exhausted, "lines"
        ),
        backlog=Quantity("effective backlog", min(backlogs, default=None), "connections"),
        busiest_share=Quantity("share of the busiest worker", max(shares, default=None)),
    )


def _is_nginx(one: Listener) -> bool:
    """True if a socket is nginx's, or has an HTTP port and an unknown owner."""
    return one.of_nginx or (one.of_nginx is None and one.port in _USUAL_PORTS)


def with_observation(workload: Workload, observation: Observation | None) -> Workload:
    """The workload, in which observed values replace assumed and unknown values."""
    if observation is None or not _is_fit(observation):
        return workload
    status, server = observation.server.stub_status, observation.server
    changes: dict[str, object] = {}
    rate, reuse, cpu = workload.rate, workload.connection_reuse, workload.cpu_per_request
    if status is not None and status.requests_per_second > 0:
        if rate.provenance == "assumed" or (rate.peak_per_second or rate.mean_per_second) is None:
            changes["rate"] = replace(
                rate,
                mean_per_second=status.requests_per_second,
                peak_per_second=_peak(observation),
                provenance="measured",
            )
        if status.accepts > 0 and reuse.provenance == "assumed":
            requests = max(1.0, status.requests / status.accepts)
            changes["connection_reuse"] = replace(
                reuse, requests_per_connection=requests, provenance="measured"
            )
        concurrency = workload.concurrency
        peak = concurrency.peak or concurrency.mean
        if concurrency.provenance == "assumed" and (peak is None or peak > status.active > 0):
            # An upper bound: at most one transfer per connection, and none on idle connections.
            changes["concurrency"] = replace(
                concurrency, peak=float(status.active), provenance="measured"
            )
    seconds = server.cpu_seconds_per_request
    if seconds is None and status is not None and status.requests > 0 and server.cpu_seconds:
        seconds = server.cpu_seconds / status.requests
    if seconds and (cpu.provenance == "assumed" or cpu.mean_seconds is None):
        changes["cpu_per_request"] = replace(cpu, mean_seconds=seconds, provenance="measured")
    trips, known = server.round_trips, workload.round_trip
    is_open = known.provenance == "assumed" or known.p90_seconds is None
    if is_open and trips is not None and trips.p90_seconds is not None:
        changes["round_trip"] = RoundTrip(
            p90_seconds=trips.p90_seconds,
            p50_seconds=trips.p50_seconds,
            p99_seconds=trips.p99_seconds,
            source=f"tcpi_rtt of {trips.connections:,} client connections",
            provenance="measured",
        )
    return replace(workload, **changes) if changes else workload


def _is_fit(observation: Observation) -> bool:
    return not observation.flags and observation.duration_seconds >= LEAST_SECONDS


def _peak(observation: Observation) -> float | None:
    status = observation.server.stub_status
    mean = status.requests_per_second if status else None
    seconds = [
        series.requests for series in observation.server.series if series.requests is not None
    ]
    return max([float(max(seconds))] if seconds else [], default=mean)


def _blocked(o: Observation) -> float | None:
    """Time in disk reads as a share of the time of all loops, by the best of three methods.

    Waits for log writes, directory entries and swap do not count, since no pool takes them over.
    None if there were too few requests.
    """
    share = _blocked_at_all(o)
    if not share and _was_idle(o):
        return None
    waits = [call for call in o.server.held_calls if call.state == "D"]
    whole = math.fsum(call.ratio for call in waits)
    if share is None or not whole:
        return share
    return share * math.fsum(call.ratio for call in waits if call.kind == "read") / whole


def _was_idle(o: Observation) -> bool:
    """True if there were too few requests to show waits under load."""
    server = o.server
    if server.stub_status is not None:
        # ``requests`` excludes our own polls of stub_status, which also take turns of the loop.
        return server.stub_status.requests < FEWEST_REQUESTS
    if server.loop_turn_seconds is not None:
        return server.loop_turn_seconds.count < FEWEST_REQUESTS
    return server.cpu_seconds is not None and server.cpu_seconds < FEWEST_CPU_SECONDS


def _blocked_at_all(o: Observation) -> float | None:
    workers = o.worker_processes or len(o.server.workers)
    if not workers or o.duration_seconds < LEAST_SECONDS:
        return None
    turns = o.server.loop_turn_seconds
    if turns is not None and turns.blocked_seconds is not None:
        traced = o.duration_seconds * (turns.traced_ratio or 1.0)
        return _ratio(turns.blocked_seconds / traced / workers)
    if o.server.block_io_delay_seconds is not None:
        return _ratio(o.server.block_io_delay_seconds / o.duration_seconds / workers)
    return None if o.server.state_d_ratio is None else _ratio(o.server.state_d_ratio)


def _ratio(value: float) -> float | None:
    return value if 0 <= value <= 1 else None


def _pools_in_use(facts: Facts) -> bool | None:
    """True if workers have threads in addition to the loop's (ngx_thread_pool_init_worker())."""
    running = facts.nginx.running
    threads = [w.threads for w in running.workers if w.threads is not None] if running else []
    return any(count > 1 for count in threads) if threads else None
