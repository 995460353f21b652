"""The sum of measurements of several load hosts.

Each host ran its stripe of one plan, or a load with a different seed. Counts and histograms add, so
quantiles are those of a single host that sent everything; percentiles are never averaged. Rates
cover only the time in which all hosts measured.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from nginx_tune.documents.loadplan import Stripe
from nginx_tune.documents.measured_class import (
    ClassMeasurement,
    Http2Streams,
    Latency,
    TlsSessions,
    WorkerShare,
)
from nginx_tune.documents.measured_server import ServerMeasurement, WorkerUse
from nginx_tune.documents.measurement import Agent, ClassSecond, Generator, Measurement, SeriesPoint
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.latency import merge_latencies
from nginx_tune.measure.proof.workers import with_imbalance

Streams = TypeVar("Streams", bound=Http2Streams)
_NO_SUMS = frozenset({"most_streams", "mean_streams", "peer_limit"})


def add_streams(parts: Sequence[Streams]) -> Streams | None:
    """The sum of stream counts; None if there are no counts."""
    if not parts:
        return None
    streams = sum(part.streams for part in parts)
    limits = [part.peer_limit for part in parts if part.peer_limit is not None]
    counts = [name for name in parts[0].__struct_fields__ if name not in _NO_SUMS]
    return msgspec.structs.replace(
        parts[0],
        most_streams=max(part.most_streams for part in parts),
        mean_streams=sum(part.mean_streams * part.streams for part in parts) / max(streams, 1),
        peer_limit=min(limits, default=None),
        **{name: sum(getattr(part, name) for part in parts) for name in counts},
    )


MOST_SKEW_SECONDS = 0.1
"""The largest time between the starts of load hosts; clocks kept by NTP are closer than that."""


@dataclass(frozen=True)
class HostMeasurement:
    """The measurement of a load host."""

    name: str
    measurement: Measurement


@dataclass(frozen=True)
class _Window:
    """The time in which all load hosts measured, in Unix seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def merge_measurements(parts: Sequence[HostMeasurement]) -> Measurement:
    """The sum of the measurements.

    Errors: UsageError for parts that cannot be added; it names two that do not fit.
    """
    _check(parts)
    measurements = [part.measurement for part in parts]
    first = measurements[0]
    known = _starts(measurements)
    starts = known or [0.0] * len(parts)
    window = _common_window(parts, starts)
    classes = {
        name: _merge_class(
            [item.classes[name] for item in measurements],
            _rates(name, measurements, starts, window),
        )
        for name in first.classes
    }
    skew = max(starts) - min(starts) if known else None
    return with_imbalance(
        Measurement(
            variant=first.variant if len({item.variant for item in measurements}) == 1 else "",
            number=first.number,
            seed=first.seed,
            plan_digest=first.plan_digest,
            stripe=first.stripe if len(parts) == 1 else Stripe(),
            started_unix_seconds=window.start if known else None,
            duration_seconds=window.seconds,
            classes=classes,
            server=_merge_server(parts),
            generator=_merge_generators([item.generator for item in measurements]),
            flags=[*_flags(parts), *_flags_of_all(measurements, skew)],
            series=_merge_series(measurements),
            agents=[agent for part in parts for agent in _agents(part)],
            start_skew_seconds=skew,
            unknown=list(dict.fromkeys(u for item in measurements for u in item.unknown)),
        )
    )


def _check(parts: Sequence[HostMeasurement]) -> None:
    first = parts[0]
    owners: dict[tuple[int, int], HostMeasurement] = {}
    counts: dict[int, HostMeasurement] = {}
    for part in parts:
        theirs, ours = part.measurement, first.measurement
        if theirs.classes.keys() != ours.classes.keys():
            raise UsageError(
                f"{part.name} has the classes {_listed(theirs.classes)}, "
                f"{first.name} has {_listed(ours.classes)}: they cannot be added"
            )
        if theirs.plan_digest and ours.plan_digest and theirs.plan_digest != ours.plan_digest:
            raise UsageError(f"{first.name} and {part.name} are of different load plans")
        other = counts.setdefault(theirs.seed, part)
        if other.measurement.stripe.count != theirs.stripe.count:
            raise _overlap(other, part)
        other = owners.setdefault((theirs.seed, theirs.stripe.index), part)
        if other is not part:
            raise _overlap(other, part)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _overlap(one: HostMeasurement, two: HostMeasurement) -> UsageError:
    of = " and ".join(
        f"stripe {part.measurement.stripe.index} of {part.measurement.stripe.count}"
        for part in (one, two)
    )
    return UsageError(
        f"{one.name} and {two.name} have the same arrivals (seed {two.measurement.seed}, {of})",
        hint="give each load host its own stripe or seed",
    )


def _starts(measurements: Sequence[Measurement]) -> list[float]:
    starts = [item.started_unix_seconds for item in measurements]
    return [start for start in starts if start is not None] if None not in starts else []


def _common_window(parts: Sequence[HostMeasurement], starts: Sequence[float]) -> _Window:
    ends = [
        start + part.measurement.duration_seconds for start, part in zip(starts, parts, strict=True)
    ]
    window = _Window(max(starts), min(ends))
    if window.seconds <= 0 and len(parts) > 1:
        late, early = parts[starts.index(window.start)], parts[ends.index(window.end)]
        raise UsageError(
            f"{early.name} ended before {late.name} began: only loads that ran together can be "
            "added"
        )
    return window


def _rates(
    name: str, measurements: Sequence[Measurement], starts: Sequence[float], window: _Window
) -> tuple[float, float]:
    """Good requests and body bytes per second in the common time, by completion.

    A second that is only partly in it counts in proportion.
    """
    requests = size = 0.0
    for item, start in zip(measurements, starts, strict=True):
        for point in item.series:
            begin = start + point.second
            length = min(1.0, item.duration_seconds - point.second)
            inside = min(begin + length, window.end) - max(begin, window.start)
            second = point.classes.get(name)
            if second is not None and length > 0 and inside > 0:
                requests += second.requests * inside / length
                size += second.bytes * inside / length
    span = window.seconds
    return (requests / span, size / span) if span > 0 else (0.0, 0.0)


_ADDED = (
    "requests", "bytes", "intended", "truncated", "censored", "limited", "connections_opened",
    "retried", "stray", "at_cap", "ack_stall_suspects", "tls_resumed", "syn_retries", "retransmits",
)  # fmt: skip
_LATENCIES = (
    "response_seconds", "ttfb_seconds", "service_seconds", "failed_seconds", "lateness_seconds",
    "arrival_seconds", "connect_seconds", "tls_seconds", "round_trip_seconds",
)  # fmt: skip


def _merge_class(parts: Sequence[ClassMeasurement], rates: tuple[float, float]) -> ClassMeasurement:
    ages = [age for part in parts if (age := part.censored_from_seconds) is not None]
    return msgspec.structs.replace(
        parts[0],
        **{name: sum(getattr(part, name) for part in parts) for name in _ADDED},
        **{name: merge_latencies([getattr(part, name) for part in parts]) for name in _LATENCIES},
        users=sum(users) if (users := [p.users for p in parts if p.users is not None]) else None,
        requests_per_second=rates[0],
        bytes_per_second=rates[1],
        censored_from_seconds=min(ages, default=None),
        errors=_add_counts(part.errors for part in parts),
        statuses=_add_counts(part.statuses for part in parts),
        max_pending=max(part.max_pending for part in parts),
        workers=_add_counts(part.workers for part in parts),
        worker_shares=_merge_shares(parts),
        tls_sessions=add_sessions(part.tls_sessions for part in parts),
        http2=add_streams([part.http2 for part in parts if part.http2 is not None]),
        http3=add_streams([part.http3 for part in parts if part.http3 is not None]),
    )


def _add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of counts by kind."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _merge_shares(parts: Sequence[ClassMeasurement]) -> dict[str, WorkerShare]:
    shares: dict[str, list[WorkerShare]] = {}
    for part in parts:
        for worker, share in part.worker_shares.items():
            shares.setdefault(worker, []).append(share)
    return {
        worker: WorkerShare(
            requests=sum(share.requests for share in theirs),
            connections=sum(share.connections for share in theirs),
            response_seconds=merge_latencies([share.response_seconds for share in theirs]),
        )
        for worker, theirs in sorted(shares.items())
    }


def _merge_server(parts: Sequence[HostMeasurement]) -> ServerMeasurement:
    nothing = ServerMeasurement()
    watching = [part for part in parts if part.measurement.server != nothing]
    if len(watching) > 1 and all(map(_has_only_connections, watching)):
        # Stripes on the server's own host, each of which saw the connections of all.
        most: dict[int, WorkerUse] = {}
        for worker in (worker for part in watching for worker in part.measurement.server.workers):
            other = most.get(worker.pid)
            if other is None or (worker.connections or 0) > (other.connections or 0):
                most[worker.pid] = worker
        return ServerMeasurement(workers=list(most.values()))
    if len(watching) > 1:
        raise UsageError(
            f"{watching[0].name} and {watching[1].name} both have figures of the server: they are "
            "separate runs, not load hosts of one load"
        )
    return watching[0].measurement.server if watching else nothing


def _has_only_connections(part: HostMeasurement) -> bool:
    """True if the server's only figures are connections, which the probe itself counts."""
    server = part.measurement.server
    plain = [WorkerUse(pid=worker.pid, connections=worker.connections) for worker in server.workers]
    return server == ServerMeasurement(workers=plain)


def _merge_generators(generators: Sequence[Generator]) -> Generator:
    """The sum of the probes' own costs; for ratios, the worst value."""

    def worst(read: Callable[[Generator], float | None]) -> float | None:
        return max((v for item in generators if (v := read(item)) is not None), default=None)

    return Generator(
        version=", ".join(dict.fromkeys(item.version for item in generators)),
        cpu_seconds=math.fsum(item.cpu_seconds for item in generators),
        cpu_ratio=max(item.cpu_ratio for item in generators),
        threads=sum(item.threads for item in generators),
        lateness_seconds=merge_latencies([item.lateness_seconds for item in generators]),
        receive_lag_seconds=merge_latencies([item.receive_lag_seconds for item in generators]),
        max_rss_bytes=max(item.max_rss_bytes for item in generators),
        foreign_cpu_ratio=worst(lambda item: item.foreign_cpu_ratio),
        steal_ratio=worst(lambda item: item.steal_ratio),
        clock_source=", ".join(dict.fromkeys(item.clock_source for item in generators)),
    )


def _flags(parts: Sequence[HostMeasurement]) -> list[str]:
    return [f"{flag} ({part.name})" for part in parts for flag in part.measurement.flags]


def _flags_of_all(measurements: Sequence[Measurement], skew: float | None) -> list[str]:
    flags = [f"agents_missing: {lost}" for lost in lost_stripes(measurements)]
    if skew is None and len(measurements) > 1:
        flags.append("start_unknown: a load host has no start time; all are taken as simultaneous")
    elif skew is not None and skew > MOST_SKEW_SECONDS:
        flags.append(f"start_skew: the load hosts began {skew:.2f} s apart")
    return flags


def lost_stripes(measurements: Sequence[Measurement]) -> list[str]:
    """A text on the missing stripes of each seed; empty if no stripe is missing."""
    stripes: dict[int, list[Stripe]] = {}
    for item in measurements:
        stripes.setdefault(item.seed, []).append(item.stripe)
    texts = []
    for seed, own in sorted(stripes.items()):
        missing = sorted(set(range(own[0].count)) - {stripe.index for stripe in own})
        if missing:
            numbers = ", ".join(map(str, missing))
            texts.append(f"of seed {seed}, stripes {numbers} of {own[0].count} are missing")
    return texts


def _merge_series(measurements: Sequence[Measurement]) -> list[SeriesPoint]:
    """The sum over hosts for each second of their own time; quantiles are left out."""
    seconds: dict[int, dict[str, list[ClassSecond]]] = {}
    for item in measurements:
        for point in item.series:
            by_class = seconds.setdefault(point.second, {})
            for name, second in point.classes.items():
                by_class.setdefault(name, []).append(second)
    return [
        SeriesPoint(second=k, classes={name: _add_seconds(v) for name, v in by_class.items()})
        for k, by_class in sorted(seconds.items())
    ]


def _add_seconds(seconds: Sequence[ClassSecond]) -> ClassSecond:
    if len(seconds) == 1:
        return seconds[0]
    return ClassSecond(
        requests=sum(second.requests for second in seconds),
        bytes=sum(second.bytes for second in seconds),
        errors=sum(second.errors for second in seconds),
        max=max((second.max for second in seconds if second.max is not None), default=None),
    )


def _agents(part: HostMeasurement) -> list[Agent]:
    """The load host, or the hosts of a merged measurement."""
    item = part.measurement
    if item.agents:
        return item.agents
    late: Latency = item.generator.lateness_seconds
    return [
        Agent(
            name=part.name,
            stripe=item.stripe,
            started_unix_seconds=item.started_unix_seconds,
            duration_seconds=item.duration_seconds,
            requests=sum(c.requests for c in item.classes.values()),
            requests_per_second=math.fsum(c.requests_per_second for c in item.classes.values()),
            cpu_ratio=item.generator.cpu_ratio,
            lateness_p99_seconds=late.p99,
            flags=item.flags,
        )
    ]


def add_sessions(parts: Iterable[Sequence[TlsSessions]]) -> list[TlsSessions]:
    """The connections of all parts by TLS version and cipher suite, the most frequent first."""
    total: Counter[tuple[str, str]] = Counter()
    for sessions in (sessions for part in parts for sessions in part):
        total[sessions.version, sessions.cipher] += sessions.connections
    return [
        TlsSessions(version=version, cipher=cipher, connections=count)
        for (version, cipher), count in sorted(total.items(), key=lambda item: (-item[1], item[0]))
    ]


def sessions_by_variant(measurements: Iterable[Measurement]) -> dict[str, list[TlsSessions]]:
    """The TLS connections of each variant that used TLS, over all runs and classes."""
    by_variant: dict[str, list[list[TlsSessions]]] = {}
    for run in measurements:
        own = by_variant.setdefault(run.variant, [])
        own.extend(part.tls_sessions for part in run.classes.values())
    added = {variant: add_sessions(parts) for variant, parts in by_variant.items()}
    return {variant: sessions for variant, sessions in added.items() if sessions}
