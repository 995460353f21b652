"""Findings, observations and measurements in Prometheus' text format.

For node_exporter's textfile collector. What was not measured is absent, never zero.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/: a HELP and a TYPE line per
        family before its samples, which must be together; no timestamps; a final newline.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Literal

from nginx_tune.documents.findings import Findings, Severity
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measured_server import HARMS, ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Observation
from nginx_tune.measure.proof.latency import QUANTILES, LatencySample, read_statistic, sample_of


@dataclass(frozen=True)
class MetricSample:
    """A value with its labels; ``suffix`` is appended to the name, such as ``_bucket``."""

    value: float
    labels: Mapping[str, str] | None = None
    suffix: str = ""


@dataclass(frozen=True)
class MetricFamily:
    """The samples of a metric; its name has a base unit, and ends in ``_total`` for a counter."""

    name: str
    kind: Literal["gauge", "counter", "histogram", "summary"]
    help: str
    samples: tuple[MetricSample, ...]


def render_exposition(families: Iterable[MetricFamily]) -> bytes:
    """The families that have samples, in their order."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {_help(family.help)}"]
        lines += [f"# TYPE {family.name} {family.kind}"]
        lines += [
            f"{family.name}{sample.suffix}{_labels(sample.labels)} {_value(sample.value)}"
            for sample in family.samples
        ]
    return "".join(f"{line}\n" for line in lines).encode()


def _labels(labels: Mapping[str, str] | None) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_label(value)}"' for name, value in labels.items()) + "}"


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _label(text: str) -> str:
    """A label value; bytes that are not Unicode (in file names) are escaped."""
    whole = text.encode(errors="backslashreplace").decode()
    return whole.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _value(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "advice", "info")


def render_findings_prometheus(findings: Findings) -> bytes:
    """The findings; counts by severity are always there, so that an alert sees a return to 0."""
    severities = Counter(finding.severity for finding in findings.findings)
    rules = Counter((finding.rule, finding.severity) for finding in findings.findings)
    return render_exposition(
        [
            MetricFamily(
                "nginx_tune_audit_findings",
                "gauge",
                "Findings of the audit by severity.",
                tuple(
                    MetricSample(severities[severity], {"severity": severity})
                    for severity in _SEVERITIES
                ),
            ),
            MetricFamily(
                "nginx_tune_audit_rule_findings",
                "gauge",
                "Findings of the audit by rule.",
                tuple(
                    MetricSample(count, {"rule": rule, "severity": severity})
                    for (rule, severity), count in sorted(rules.items())
                ),
            ),
            _count("files_parsed", "Configuration files that were read.", findings.files_parsed),
            _count(
                "files_unparsed",
                "Configuration files that could not be parsed.",
                findings.files_unparsed,
            ),
            _count(
                "includes_unread",
                "Includes that were not read because the files are not here.",
                findings.unread,
            ),
            _count(
                "rules_without_facts",
                "Rules that could not be checked for lack of facts.",
                findings.needs_facts,
            ),
            _count("suppressed", "Findings that a comment suppresses.", findings.suppressed),
        ]
    )


def _count(name: str, text: str, found: Sized) -> MetricFamily:
    return MetricFamily(f"nginx_tune_audit_{name}", "gauge", text, (MetricSample(len(found)),))


_OBSERVE_PREFIX = "nginx_tune_observe_"

_Labelled = tuple[Mapping[str, str], float | None]


def _family(name: str, text: str, samples: Iterable[_Labelled]) -> MetricFamily:
    known = tuple(MetricSample(value, labels) for labels, value in samples if value is not None)
    return MetricFamily(_OBSERVE_PREFIX + name, "gauge", text, known)


def _single(name: str, text: str, value: float | None) -> MetricFamily:
    return _family(name, text, [({}, value)])


def render_observation_prometheus(observation: Observation) -> bytes:
    """An observation's figures, all of them gauges over one window of time."""
    return render_exposition(observation_families(observation))


def observation_families(observation: Observation) -> list[MetricFamily]:
    """The metric families of an observation."""
    server = observation.server
    return [
        _single("window_seconds", "Length of the observation.", observation.duration_seconds),
        _family(
            "cause",
            "1 for every cause that the observation names.",
            [({"id": cause.id, "confidence": cause.confidence}, 1) for cause in observation.causes],
        ),
        _single("unfit", "1 if the window is unfit as evidence.", 1 if observation.flags else 0),
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


def _server(server: ServerMeasurement) -> list[MetricFamily]:
    status, turns, waiting = server.stub_status, server.loop_turn_seconds, server.waiting
    trips = server.round_trips
    singles: list[tuple[str, str, float | None]] = [
        ("pool_overflow", "Tasks refused by full pool queues in the window.", server.pool_overflow),
        ("operations_too_slow", "Slow operations logged in the window.",
         server.operations_too_slow),
        ("connections_exhausted", "Connections closed for lack of worker_connections.",
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
        ("clients_waiting", "Client connections without an answer so far, mean of the samples.",
         waiting.clients_waiting if waiting else None),
        ("upstreams_waiting", "Upstream connections without an answer so far, mean of the samples.",
         waiting.upstreams_waiting if waiting else None),
        ("client_round_trip_p50_seconds", "Median round-trip time of the client connections.",
         trips.p50_seconds if trips else None),
        ("client_round_trip_p90_seconds", "90th percentile of the client connections' round-trip.",
         trips.p90_seconds if trips else None),
        ("pool_busy_ratio", "Share of pool threads at work, mean of the samples.",
         waiting.pool_busy_ratio if waiting else None),
        ("observer_cpu_seconds", "CPU time that observing cost.", server.observer_cpu_seconds),
    ]  # fmt: skip
    return [
        *(_single(name, text, value) for name, text, value in singles),
        _observed_summary(
            "loop_turn_seconds", "Turns of the event loops.", server.loop_turn_seconds
        ),
        _observed_summary(
            "pool_queue_wait_seconds", "Tasks' wait for a thread.", server.pool_queue_wait_seconds
        ),
    ]


def _observed_summary(name: str, text: str, latency: Latency | None) -> MetricFamily:
    samples: list[MetricSample] = []
    if latency is not None and latency.mean is not None:
        for statistic, quantile in QUANTILES.items():
            value = getattr(latency, statistic)
            samples += [] if value is None else [MetricSample(value, {"quantile": f"{quantile:g}"})]
        samples.append(MetricSample(latency.mean * latency.count, suffix="_sum"))
        samples.append(MetricSample(latency.count, suffix="_count"))
    return MetricFamily(_OBSERVE_PREFIX + name, "summary", text, tuple(samples))


def _workers(server: ServerMeasurement) -> list[MetricFamily]:
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
            [
                ({"worker": str(i)}, getattr(worker, name))
                for i, worker in enumerate(server.workers)
            ],
        )
        for name, text in fields.items()
    ]


def _listeners(server: ServerMeasurement) -> list[MetricFamily]:
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
                ({"address": listener.address, "port": str(listener.port)}, getattr(listener, name))
                for listener in server.listeners
            ],
        )
        for name, text in fields.items()
    ]


def _disks(server: ServerMeasurement) -> list[MetricFamily]:
    fields = {
        "utilisation_ratio": "Share of the time with a request in progress.",
        "reads_per_second": "Reads a second.",
        "read_bytes_per_second": "Bytes read a second.",
        "read_await_seconds": "Mean time of a read.",
        "in_flight": "Mean number of requests in progress.",
        "writes_per_second": "Writes a second.",
        "write_bytes_per_second": "Bytes written a second.",
        "write_await_seconds": "Mean time of a write.",
    }
    return [
        _family(f"disk_{name}", text, [({"disk": d.name}, getattr(d, name)) for d in server.disks])
        for name, text in fields.items()
    ]


_PROBE_PREFIX = "nginx_tune_probe_"


def render_measurement_prometheus(measurement: Measurement) -> bytes:
    """A run's figures, all of them gauges and summaries of one run."""
    classes = measurement.classes
    kinds = {name: sorted(item.errors.items()) for name, item in classes.items()}
    errors = tuple(
        MetricSample(count, {"class": name, "kind": kind})
        for name, counted in kinds.items()
        for kind, count in counted
    )
    agreed = tuple(
        MetricSample(
            session.connections,
            {"class": name, "version": session.version, "cipher": session.cipher},
        )
        for name, item in classes.items()
        for session in item.tls_sessions
    )
    return render_exposition(
        [
            _gauge("run_seconds", "Measured time of the run.", measurement.duration_seconds),
            _gauge("degraded", "Flags that make the run doubtful.", len(measurement.flags)),
            _of_classes("requests", "Complete, correct responses.", classes, "requests"),
            _of_classes("intended", "Requests that were due.", classes, "intended"),
            _of_classes("unfinished", "Requests unanswered at the end.", classes, "censored"),
            _of_classes("body_bytes", "Body bytes received.", classes, "bytes"),
            MetricFamily(f"{_PROBE_PREFIX}failures", "gauge", "Failed requests by kind.", errors),
            MetricFamily(
                f"{_PROBE_PREFIX}tls_connections",
                "gauge",
                "Connections by negotiated TLS parameters.",
                agreed,
            ),
            _summary("response_seconds", "From when a request was due to its last byte.", classes),
            _summary("ttfb_seconds", "From when a request was due to its first byte.", classes),
            _summary("service_seconds", "From the send of a request to its last byte.", classes),
        ]
    )


def _gauge(name: str, text: str, value: float) -> MetricFamily:
    return MetricFamily(_PROBE_PREFIX + name, "gauge", text, (MetricSample(value),))


def _of_classes(
    name: str, text: str, classes: dict[str, ClassMeasurement], field: str
) -> MetricFamily:
    samples = tuple(
        MetricSample(getattr(item, field), {"class": class_name})
        for class_name, item in classes.items()
    )
    return MetricFamily(_PROBE_PREFIX + name, "gauge", text, samples)


def _summary(field: str, text: str, classes: dict[str, ClassMeasurement]) -> MetricFamily:
    """A summary over all classes."""
    return _summary_of(field, text, {n: sample_of(item, field) for n, item in classes.items()})


def _summary_of(field: str, text: str, measured: dict[str, LatencySample]) -> MetricFamily:
    """A summary; unmeasured quantiles are left out; ``_sum`` and ``_count`` cover all samples."""
    samples: list[MetricSample] = []
    for name, sample in measured.items():
        latency: Latency = sample.latency
        for statistic, quantile in QUANTILES.items():
            value = read_statistic([sample], statistic).value
            if value is not None:
                samples.append(MetricSample(value, {"class": name, "quantile": f"{quantile:g}"}))
        if latency.mean is not None:
            samples.append(MetricSample(latency.mean * latency.count, {"class": name}, "_sum"))
            samples.append(MetricSample(latency.count, {"class": name}, "_count"))
    return MetricFamily(_PROBE_PREFIX + field, "summary", text, tuple(samples))
