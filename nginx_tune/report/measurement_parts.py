"""Parts of a measurement as text: by worker, by load host, and for some kinds of classes."""

import math
from collections.abc import Mapping, Sequence

from nginx_tune.documents.measured_class import (
    ClassMeasurement,
    Http2Streams,
    Http3Streams,
    Imbalance,
    Latency,
    TlsSessions,
)
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import plural
from nginx_tune.measure.proof.histogram import decode_histogram
from nginx_tune.measure.proof.latency import LatencySample, read_statistic
from nginx_tune.report.screen import Line, ScreenBlock, ScreenPart, Table
from nginx_tune.report.text import number_text, one_line, percent_text, seconds_text

_NOT_MEASURED = "–"
_BARS = "▁▂▃▄▅▆▇█"
_BINS = 32
_NANOSECONDS = 1e9


def table_of(
    head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, right: Sequence[int] = ()
) -> list[ScreenPart]:
    """A table of the rows; empty without rows."""
    return [Table([head, *rows], right=right)] if rows else []


def shape_of(latency: Latency) -> str:
    """The distribution from the minimum to the maximum value, in bins of equal ratio.

    Heights are the square roots of the shares, so that every bin with a sample is visible. Empty if
    all values are equal, or there are none.
    """
    if not latency.histogram or latency.count < 2:  # noqa: PLR2004  # no shape
        return ""
    histogram = decode_histogram(latency.histogram)
    values = [(histogram.layout.middle_value(i) or 1, n) for i, n in histogram.counts.items()]
    least, most = values[0][0], values[-1][0]
    if most <= least:
        return ""
    bins = [0] * _BINS
    span = math.log(most / least)
    for value, count in values:
        bins[min(int(math.log(value / least) / span * _BINS), _BINS - 1)] += count
    top = math.sqrt(max(bins))
    bars = "".join(
        _BARS[min(int(math.sqrt(n) / top * len(_BARS)), len(_BARS) - 1)] if n else " " for n in bins
    )
    return f"{seconds_text(least / _NANOSECONDS)} {bars} {seconds_text(most / _NANOSECONDS)}"


def streams_text(streams: Http2Streams, connections: int) -> str:
    """The connections and streams of a class, and the server's refusals and resets."""
    protocol = "HTTP/3" if isinstance(streams, Http3Streams) else "HTTP/2"
    said = [
        f"{protocol}, {plural(connections, 'connection')} opened",
        f"streams at once {streams.mean_streams:.1f} on average, {streams.most_streams:,} at most",
    ]
    if streams.peer_limit is not None:
        said.append(f"the server takes {streams.peer_limit:,}")
    if streams.goaways:
        said.append(f"it left {plural(streams.goaways, 'connection')} (GOAWAY)")
    if streams.refused:
        said.append(f"{streams.refused:,} requests that it had not processed were sent again")
    if streams.resets:
        said.append(f"{streams.resets:,} streams reset")
    if streams.window_stalls:
        said.append(f"the probe's own windows ran low {plural(streams.window_stalls, 'time')}")
    if isinstance(streams, Http3Streams):
        said.extend(_beneath(streams))
    return "; ".join(said)


def _beneath(streams: Http3Streams) -> list[str]:
    """The handshakes and datagrams of HTTP/3."""
    said = [
        f"{streams.handshakes:,} handshakes",
        f"{streams.datagrams_sent:,} datagrams sent and {streams.datagrams_received:,} received",
    ]
    if streams.lost_packets:
        said.append(f"{streams.lost_packets:,} packets of the probe lost")
    if streams.dropped_datagrams:
        said.append(
            f"{streams.dropped_datagrams:,} datagrams were dropped: the probe's buffer was full"
        )
    return said


def sessions_text(sessions: Sequence[TlsSessions]) -> str:
    """The kinds of TLS sessions, as ``TLS 1.3 TLS_AES_256_GCM_SHA384``.

    Several kinds are each shown with their connections.
    """
    if len(sessions) == 1:
        return f"TLS {_agreed(sessions[0])}"
    said = (
        f"{_agreed(session)} ({plural(session.connections, 'connection')})" for session in sessions
    )
    return "TLS " + ", ".join(said)


def variants_text(by_variant: Mapping[str, Sequence[TlsSessions]]) -> str:
    """The TLS of both variants, separately if it differs; empty without TLS."""
    kinds = {tuple(sorted(map(_agreed, sessions))) for sessions in by_variant.values()}
    if len(kinds) == 1:
        agreed = sorted(
            {_agreed(session) for sessions in by_variant.values() for session in sessions}
        )
        return f"TLS {', '.join(agreed)}"
    return "; ".join(
        f"{one_line(variant)}: {sessions_text(sessions)}"
        for variant, sessions in by_variant.items()
    )


def _agreed(one: TlsSessions) -> str:
    return f"{one_line(one.version)} {one_line(one.cipher)}".strip()


_MOST_WORKERS = 32
"""Rows for one class; if there are more workers, only the busiest are shown."""


def workers_block(measurement: Measurement) -> ScreenBlock:
    """Requests, connections and latency by class and worker, with their imbalance."""
    header = ("class", "worker", "good", "share", "connections", "p50", "p99")
    rows, notes = [], []
    for name, part in measurement.classes.items():
        rows += _worker_rows(one_line(name), part)
        for what, imbalance in (
            ("requests", part.worker_requests),
            ("connections", part.worker_connections),
        ):
            if imbalance is not None:
                notes.append(Line(f"{one_line(name)}: {what} {_imbalance(imbalance)}"))
    return [*table_of(header, rows, right=range(1, len(header))), *notes] if rows else []


def _worker_rows(name: str, part: ClassMeasurement) -> list[tuple[str, ...]]:
    total = sum(part.workers.values()) or 1
    busiest = sorted(part.worker_shares.items(), key=lambda item: -item[1].requests)
    rows = [
        (
            "" if row else name,
            one_line(worker),
            f"{share.requests:,}",
            percent_text(share.requests / total, 2),
            f"{share.connections:,}",
            *(_quantile(LatencySample(share.response_seconds), q) for q in ("p50", "p99")),
        )
        for row, (worker, share) in enumerate(busiest[:_MOST_WORKERS])
    ]
    left = len(busiest) - len(rows)
    rows += [("", f"{left} more", "", "", "", "", "")] if left else []
    there = part.worker_requests.workers if part.worker_requests else len(busiest)
    idle = there - len(busiest)
    return [*rows, ("", f"{idle} idle", "0", "0 %", "0", "", "")] if idle > 0 and rows else rows


def _quantile(sample: LatencySample, name: str) -> str:
    value = read_statistic([sample], name).value
    return _NOT_MEASURED if value is None else seconds_text(value)


def _imbalance(imbalance: Imbalance) -> str:
    return (
        f"over {plural(imbalance.workers, 'worker')}: "
        f"busiest {imbalance.max_to_mean:.2f}× the mean, "
        f"variation {percent_text(imbalance.variation, 2)}, probability by chance alone "
        f"{_chance(imbalance.p_value)}"
    )


def _chance(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.3f}"  # noqa: PLR2004


def agents_block(measurement: Measurement) -> ScreenBlock:
    """The load hosts of a merged measurement."""
    if not measurement.agents:
        return []
    header = ("load host", "stripe", "good", "per second", "CPU", "late p99", "flags")
    rows = [
        (
            one_line(agent.name),
            f"{agent.stripe.index} of {agent.stripe.count}",
            f"{agent.requests:,}",
            f"{number_text(agent.requests_per_second)}/s",
            percent_text(agent.cpu_ratio, 2),
            _NOT_MEASURED
            if agent.lateness_p99_seconds is None
            else seconds_text(agent.lateness_p99_seconds),
            str(len(agent.flags)),
        )
        for agent in measurement.agents
    ]
    block = table_of(header, rows, right=range(1, len(header)))
    if measurement.start_skew_seconds is not None:
        skew = seconds_text(measurement.start_skew_seconds)
        block.append(Line(f"began within {skew} of each other"))
    return block
