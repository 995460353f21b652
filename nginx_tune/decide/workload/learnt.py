"""The workload and the manifest of requests that a tally of access logs shows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from nginx_tune.decide.workload.popularity import (
    Counted,
    counted_objects,
    curve_error,
    curve_of,
    fewest_requests,
    fit_zipf,
)
from nginx_tune.documents.learning import (
    Connections,
    LearnPlan,
    Manifest,
    ManifestRequest,
    SampledRequest,
    Tally,
)
from nginx_tune.documents.learning import Timeline as Counts
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    HttpVersion,
    Kind,
    LocationShare,
    LogSummary,
    ObjectSizes,
    Popularity,
    Rate,
    Rejected,
    RoundTrip,
    ServedData,
    TlsUse,
    Traffic,
    Workload,
)

_DIGITS = 6
_LARGE_BYTES = 1 << 20
"""Mean size from which objects are media."""
_VERSIONS: tuple[Literal["1.0", "1.1", "2", "3"], ...] = ("1.0", "1.1", "2", "3")


def learnt_workload(
    tally: Tally,
    plan: LearnPlan,
    *,
    kind: Kind | None = None,
    locations: Sequence[LocationShare] = (),
) -> Workload:
    """The workload; what the log's format does not tell stays unknown."""
    counted = counted_objects(tally.objects, tally.data_requests)
    span = _span_seconds(tally.timeline)
    sizes = _sizes(tally, counted)
    found, provenance = (kind, "declared") if kind else _kind(tally, sizes)
    return Workload(
        kind=found,
        kind_provenance=provenance,  # type: ignore[arg-type]  # one of two words
        dataset=_dataset(counted),
        popularity=_popularity(counted, fewest_requests(tally.objects)),
        sizes=sizes,
        rate=_rate(tally.timeline, span),
        concurrency=_concurrency(tally.timeline, span),
        connection_reuse=_reuse(tally.connections, span),
        tls=_tls(tally.tls),
        http_version=_versions(tally.protocols),
        round_trip=_round_trip(tally.round_trips),
        traffic=Traffic(
            methods=_shares(tally.methods),
            statuses=_shares(tally.statuses),
            cache_statuses=_shares(tally.cache_statuses),
            locations=list(locations),
            location_error_ratio=_location_error(tally) if locations else None,
        ),
        log=_summary(tally, plan, span),
    )


def _span_seconds(timeline: Counts) -> int:
    return sum(last - first + 1 for first, last in timeline.stretches)


def _kind(tally: Tally, sizes: ObjectSizes) -> tuple[Kind, str]:
    cached = sum(tally.cache_statuses.values()) - tally.cache_statuses.get("none", 0)
    if 2 * cached >= tally.requests > 0:
        return "cache", "learnt"
    if 2 * tally.upstream_requests >= tally.requests > 0:
        return "proxy", "learnt"
    if (sizes.mean_bytes or 0) >= _LARGE_BYTES:
        return "media", "learnt"
    return "static", "assumed"


def _dataset(counted: Sequence[Counted]) -> ServedData:
    if not counted:
        return ServedData()
    return ServedData(
        files=round(sum(item.objects for item in counted)),
        bytes=round(sum(item.objects * item.size_bytes for item in counted)),
        provenance="learnt",
    )


def _popularity(counted: Sequence[Counted], fewest: int) -> Popularity:
    if not counted:
        return Popularity()
    curve = curve_of(counted)
    at = {point.requests_ratio: point.bytes for point in curve}
    fit = fit_zipf(counted, fewest)
    return Popularity(
        exponent=None if fit is None else round(fit.exponent, 4),
        curve=curve,
        working_set_50_bytes=at[0.5],
        working_set_90_bytes=at[0.9],
        working_set_99_bytes=at[0.99],
        exponent_error=None if fit is None else _rounded(fit.error, 2),
        fitted_objects=None if fit is None else fit.objects,
        fit_distance_ratio=None if fit is None else round(fit.distance, 4),
        curve_error_ratio=_rounded(curve_error(counted), 2),
        provenance="learnt",
    )


def _sizes(tally: Tally, counted: Sequence[Counted]) -> ObjectSizes:
    requests = sum(item.requests * item.objects for item in counted)
    if not requests:
        return ObjectSizes()
    asked = sum(item.requests * item.objects * item.size_bytes for item in counted)
    ascending = sorted(counted, key=lambda item: item.size_bytes)
    return ObjectSizes(
        mean_bytes=_rounded(asked / requests),
        p50_bytes=_size_quantile(ascending, 0.5 * requests),
        p90_bytes=_size_quantile(ascending, 0.9 * requests),
        p99_bytes=_size_quantile(ascending, 0.99 * requests),
        sent_mean_bytes=_rounded(tally.data_bytes / tally.data_requests),
        sent_ratio=_rounded(tally.data_bytes / asked) if asked else None,
        partial_ratio=_rounded(tally.partial_requests / tally.data_requests),
        provenance="learnt",
    )


def _size_quantile(ascending: Sequence[Counted], requests: float) -> int:
    below = 0.0
    for item in ascending:
        below += item.requests * item.objects
        if below >= requests:
            return item.size_bytes
    return ascending[-1].size_bytes


def _rate(timeline: Counts, span: int) -> Rate:
    if not span:
        return Rate()
    peaks = {
        seconds: _rounded(count / seconds) if span >= seconds else None
        for seconds, count in ((1, timeline.peak_1s), (10, timeline.peak_10s),
                               (60, timeline.peak_60s))
    }  # fmt: skip
    return Rate(
        mean_per_second=_rounded(timeline.requests / span),
        peak_per_second=peaks[60] or peaks[10] or peaks[1],
        peak_1s_per_second=peaks[1],
        peak_10s_per_second=peaks[10],
        peak_60s_per_second=peaks[60],
        provenance="learnt",
    )


def _concurrency(timeline: Counts, span: int) -> Concurrency:
    if not span or not timeline.timed_requests:
        return Concurrency()
    return Concurrency(
        mean=_rounded(timeline.busy_milliseconds / 1000 / span),
        peak=_rounded(timeline.busy_peak_milliseconds / 1000),
        provenance="learnt",
    )


def _reuse(connections: Connections, span: int) -> ConnectionReuse:
    nth = connections.nth_requests
    if nth and nth[0]:
        return ConnectionReuse(
            requests_per_connection=_rounded((sum(nth) + connections.later_requests) / nth[0]),
            p50_requests=_reached(nth, 0.5),
            p90_requests=_reached(nth, 0.1),
            p99_requests=_reached(nth, 0.01),
            single_request_ratio=_rounded(max(0.0, 1 - (nth[1] if len(nth) > 1 else 0) / nth[0])),
            connections_per_second=_rounded(nth[0] / span) if span else None,
            provenance="learnt",
        )
    distinct = connections.distinct << connections.level
    if not distinct:
        return ConnectionReuse()
    return ConnectionReuse(
        requests_per_connection=_rounded(max(1.0, connections.numbered / distinct)),
        connections_per_second=_rounded(distinct / span) if span else None,
        provenance="learnt",
    )


def _reached(nth: Sequence[int], ratio: float) -> int:
    """The most requests that more than this share of the connections came to."""
    return max((at for at, count in enumerate(nth, 1) if count > ratio * nth[0]), default=1)


def _round_trip(rows: Sequence[tuple[int, int]]) -> RoundTrip:
    """The quantiles over requests: who asks more often counts more often."""
    total = sum(count for _, count in rows)
    if not total:
        return RoundTrip()

    def quantile(share: float) -> float:
        below = 0
        for microseconds, count in rows:
            below += count
            if below >= share * total:
                return microseconds / 1e6
        return rows[-1][0] / 1e6

    return RoundTrip(
        p50_seconds=quantile(0.5),
        p90_seconds=quantile(0.9),
        p99_seconds=quantile(0.99),
        source=f"$tcpinfo_rtt of {total:,} requests",
        provenance="learnt",
    )


def _tls(protocols: Mapping[str, int]) -> TlsUse:
    total = sum(protocols.values())
    if not total:
        return TlsUse()
    ratio = 1 - protocols.get("none", 0) / total
    return TlsUse(
        value=ratio > 0.5,  # noqa: PLR2004  # most
        requests_ratio=_rounded(ratio),
        protocols=_shares(protocols),
        provenance="learnt",
    )


def _versions(protocols: Mapping[str, int]) -> HttpVersion:
    known = {version: protocols.get(version, 0) for version in _VERSIONS}
    if not any(known.values()):
        return HttpVersion()
    most = max(_VERSIONS, key=lambda version: known[version])
    shares = _shares(protocols)
    if known[most] < protocols.get("other", 0):  # of most requests it is not known
        return HttpVersion(shares=shares, provenance="learnt")
    return HttpVersion(value=most, shares=shares, provenance="learnt")


def _summary(tally: Tally, plan: LearnPlan, span: int) -> LogSummary:
    timeline = tally.timeline
    return LogSummary(
        format=plan.format.name,
        lines=tally.lines,
        requests=tally.requests,
        rejected=[
            Rejected(reason=name, lines=refusal.lines, first_lines=refusal.first_lines)
            for name, refusal in sorted(tally.refused.items())
        ],
        unreadable_requests=tally.unreadable_requests,
        first=_moment_text(min(s[0] for s in timeline.stretches)) if timeline.stretches else None,
        last=_moment_text(max(s[1] for s in timeline.stretches)) if timeline.stretches else None,
        span_seconds=span or None,
        stretches=len(timeline.stretches),
        backward_lines=timeline.backward_lines,
        stray_lines=timeline.stray_lines,
        notes=_notes(tally, plan),
    )


def _notes(tally: Tally, plan: LearnPlan) -> list[str]:
    """Gaps that the log leaves, and what to log so that it can tell."""
    slots = plan.format.slots
    notes = []
    if not tally.timeline.timed_requests:
        notes.append("concurrency is not known: log $request_time")
    if not tally.connections.numbered and not tally.connections.nth_requests:
        notes.append("connection reuse is not known: log $connection_requests")
    if not slots & {"ssl_protocol", "scheme"}:
        notes.append("whether clients speak TLS is not known: log $ssl_protocol")
    if tally.partial_requests and "content_range" not in slots:
        notes.append(
            "full sizes of objects asked for in ranges are lower bounds: "
            "log $sent_http_content_range"
        )
    if tally.data_requests and "upstream" not in slots and "cache_status" not in slots:
        notes.append("files or upstreams cannot be told apart: log $upstream_cache_status")
    return notes


def _location_error(tally: Tally) -> float:
    """Standard error of a share of one half, told from so many requests; 0 when all were kept."""
    kept = len(tally.places.requests)
    return _rounded(0.5 / math.sqrt(kept), 2) if tally.places.level and kept else 0.0


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: _rounded(counts[name] / total) for name in sorted(counts)} if total else {}


def _rounded(value: float, digits: int = _DIGITS) -> float:
    return float(f"{value:.{digits}g}")


def _moment_text(seconds: int) -> str:
    """``2026-11-20T19:26:34Z`` of seconds since 1970.

    Source: the days by Hinnant, chrono-Compatible Low-Level Date Algorithms.
    """
    days, rest = divmod(seconds, 86400)
    era, of_era = divmod(days + 719468, 146097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9  # noqa: PLR2004  # March is 0
    year = year_of_era + era * 400 + (month <= 2)  # noqa: PLR2004
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{year:04}-{month:02}-{day:02}T{clock}Z"


_LONGEST_PATH = 2048
"""Characters; longer ones are attacks, and would not be replayed."""
_UNSAFE = re.compile(r"[^!-~]")


def manifest_of(tally: Tally, *, keeps_paths: bool) -> tuple[Manifest, list[ManifestRequest]]:
    """The manifest's first line and its requests in the order of their starts.

    Requests of one second, where the log knows no finer time, are spread evenly over it.
    """
    requests = tally.manifest.requests
    starts = _starts(requests, tally.timeline.stretches)
    sizes: dict[int, int] = {}
    for request in requests:
        sizes[request.object] = max(sizes.get(request.object, -1), request.size_bytes)
    order = sorted(range(len(requests)), key=lambda at: (starts[at], requests[at].number))
    earliest = starts[order[0]] if order else 0
    span = sum(last - first + 1 for first, last in tally.timeline.stretches)
    lines = [
        ManifestRequest(
            offset_seconds=(starts[at] - earliest) / 1_000_000,
            path=_path(requests[at], keeps_paths=keeps_paths),
            bytes=sizes[requests[at].object] if sizes[requests[at].object] >= 0 else None,
            range=_range(requests[at].range),
        )
        for at in order
        if len(requests[at].path) <= _LONGEST_PATH
    ]
    return Manifest(
        requests=len(lines),
        duration_seconds=float(span),
        paths="kept" if keeps_paths else "hashed",
    ), lines


def _starts(requests: Sequence[SampledRequest], stretches: list[tuple[int, int]]) -> list[int]:
    """Starts of the requests, in microseconds from the start of the log, gaps left out."""
    before = []
    seconds = 0
    for first, last in stretches:
        before.append((seconds - first) * 1_000_000)
        seconds += last - first + 1
    is_coarse = all(request.end_milliseconds % 1000 == 0 for request in requests)
    alike = Counter((request.stretch, request.end_milliseconds) for request in requests)
    seen: Counter[tuple[int, int]] = Counter()
    starts = []
    for request in requests:
        key = (request.stretch, request.end_milliseconds)
        within = (2 * seen[key] + 1) * 500_000 // alike[key] if is_coarse else 0
        seen[key] += 1
        end = request.end_milliseconds * 1000 + before[request.stretch] + within
        starts.append(end - request.duration_milliseconds * 1000)
    return starts


def _range(asked: tuple[int, int] | None) -> tuple[int, int] | None:
    """A range that can be asked for; what a log says is not always one."""
    return asked if asked is not None and asked[0] <= asked[1] else None


def _path(request: SampledRequest, *, keeps_paths: bool) -> str:
    if not keeps_paths:
        return f"/{request.object:016x}"
    return _UNSAFE.sub(lambda match: "".join(f"%{b:02X}" for b in match[0].encode()), request.path)
