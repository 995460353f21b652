"""``observation`` as metrics for Prometheus; what was not measured is absent, never zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nginx_tune.documents.harms import HARMS
from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.observation import Observation
from nginx_tune.measure.proof.latency import QUANTILES
from nginx_tune.report.prometheus import Family, MetricSample, render_exposition

_PREFIX = "nginx_tune_observe_"

_Labelled = tuple[Mapping[str, str], float | None]


def _family(name: str, text: str, samples: Iterable[_Labelled]) -> Family:
    known = tuple(MetricSample(value, labels) for labels, value in samples if value is not None)
    return Family(_PREFIX + name, "gauge", text, known)


def _single(name: str, text: str, value: float | None) -> Family:
    return _family(name, text, [({}, value)])


def render_observation_prometheus(observation: Observation) -> bytes:
    """An observation's figures, all of them gauges of one window."""
    return render_exposition(observation_families(observation))


def observation_families(observation: Observation) -> list[Family]:
    """The families of an observation."""
    server = observation.server
    return [
        _single("window_seconds", "Length of the observation.", observation.duration_seconds),
        _family(
            "cause",
            "1 for every cause that the observation names.",
            [({"id": one.id, "confidence": one.confidence}, 1) for one in observation.causes],
        ),
        _single("unfit", "1 when the window is unfit.", 1 if observation.flags else 0),
        _family(
            "harm",
            "Harm that was counted in the window, by kind.",
            [({"kind": harm.name}, harm.counted(server)) for harm in HARMS],
        ),
        *_server(server),
        *_workers(server),
        *_listeners(server),
        *_disks(server),
    ]


def _server(server: ServerMeasurement) -> list[Family]:
    status, turns, waiting = server.stub_status, server.loop_turn_seconds, server.waiting
    trips = server.round_trips
    singles: list[tuple[str, str, float | None]] = [
        ("pool_overflow", "Tasks refused by full pool queues in the window.", server.pool_overflow),
        ("operations_too_slow", "Slow operations logged in the window.",
         server.operations_too_slow),
        ("connections_exhausted", "Connections closed for want of worker_connections.",
         server.connections_exhausted),
        ("read_errors", "Calls that failed with EIO, by nginx's error logs.", server.read_errors),
        ("listen_overflows", "Accept queues found full, in nginx's network namespace.",
         server.listen_overflows),
        ("listen_drops", "Connection attempts dropped, in nginx's network namespace.",
         server.listen_drops),
        ("block_io_delay_seconds", "Time that main threads waited for block I/O.",
         server.block_io_delay_seconds),
        ("state_d_ratio", "Share of samples with a main thread in state D.",
         server.state_d_ratio),
        ("cpu_seconds", "CPU time of all nginx processes.", server.cpu_seconds),
        ("run_queue_seconds", "Time that main threads waited for a CPU.",
         server.run_queue_seconds),
        ("refaults", "File pages read again after eviction.", server.refaults),
        ("requests_per_second", "Requests a second by stub_status.",
         status.requests_per_second if status else None),
        ("connections_dropped", "Connections accepted and dropped by stub_status.",
         status.dropped if status else None),
        ("loop_blocked_seconds", "Time in state D inside loop turns.",
         turns.blocked_seconds if turns else None),
        ("arrival_wait_seconds", "Mean wait of an arrival for its loop.",
         turns.arrival_wait_seconds if turns else None),
        ("throttled_periods", "Periods in which a CPU quota was used up.",
         server.quota.throttled_periods if server.quota else None),
        ("steal_ratio", "Share of the CPU time that the hypervisor gave to others.",
         server.steal_ratio),
        ("clients_waiting", "Client connections without an answer so far, mean over looks.",
         waiting.clients_waiting if waiting else None),
        ("upstreams_waiting", "Upstream connections without an answer so far, mean over looks.",
         waiting.upstreams_waiting if waiting else None),
        ("client_round_trip_p50_seconds", "Half of the client connections have a shorter one.",
         trips.p50_seconds if trips else None),
        ("client_round_trip_p90_seconds", "Nine in ten client connections have a shorter one.",
         trips.p90_seconds if trips else None),
        ("pool_busy_ratio", "Share of pool threads that were at work, mean over looks.",
         waiting.pool_busy_ratio if waiting else None),
        ("observer_cpu_seconds", "CPU time that observing cost.", server.observer_cpu_seconds),
    ]  # fmt: skip
    return [
        *(_single(name, text, value) for name, text, value in singles),
        _summary("loop_turn_seconds", "Turns of the event loops.", server.loop_turn_seconds),
        _summary(
            "pool_queue_wait_seconds", "Tasks' wait for a thread.", server.pool_queue_wait_seconds
        ),
    ]


def _summary(name: str, text: str, latency: Latency | None) -> Family:
    samples: list[MetricSample] = []
    if latency is not None and latency.mean is not None:
        for statistic, quantile in QUANTILES.items():
            value = getattr(latency, statistic)
            samples += [] if value is None else [MetricSample(value, {"quantile": f"{quantile:g}"})]
        samples.append(MetricSample(latency.mean * latency.count, suffix="_sum"))
        samples.append(MetricSample(latency.count, suffix="_count"))
    return Family(_PREFIX + name, "summary", text, tuple(samples))


def _workers(server: ServerMeasurement) -> list[Family]:
    fields = {
        "cpu_seconds": "CPU time of a worker, all threads.",
        "main_thread_cpu_seconds": "CPU time of a worker's loop.",
        "state_d_ratio": "Share of samples with the main thread in state D.",
        "block_io_delay_seconds": "Time that the main thread waited for block I/O.",
        "run_queue_seconds": "Time that the main thread waited for a CPU.",
        "connections": "Established client connections.",
        "loop_blocked_seconds": "Time in state D inside loop turns.",
    }
    # By place, not by process id: a label that changes at every reload makes new series.
    return [
        _family(
            f"worker_{name}",
            text,
            [({"worker": str(i)}, getattr(one, name)) for i, one in enumerate(server.workers)],
        )
        for name, text in fields.items()
    ]


def _listeners(server: ServerMeasurement) -> list[Family]:
    fields = {
        "backlog": "Effective backlog.",
        "accept_queue_max": "Longest accept queue seen.",
        "drops": "Connection attempts dropped in the window.",
    }
    return [
        _family(
            f"listener_{name}",
            text,
            [
                ({"address": one.address, "port": str(one.port)}, getattr(one, name))
                for one in server.listeners
            ],
        )
        for name, text in fields.items()
    ]


def _disks(server: ServerMeasurement) -> list[Family]:
    fields = {
        "utilisation_ratio": "Share of the time with a request under way.",
        "reads_per_second": "Reads a second.",
        "read_bytes_per_second": "Bytes read a second.",
        "read_await_seconds": "Mean time of a read.",
        "in_flight": "Mean number of requests under way.",
        "writes_per_second": "Writes a second.",
        "write_bytes_per_second": "Bytes written a second.",
        "write_await_seconds": "Mean time of a write.",
    }
    return [
        _family(f"disk_{name}", text, [({"disk": d.name}, getattr(d, name)) for d in server.disks])
        for name, text in fields.items()
    ]
