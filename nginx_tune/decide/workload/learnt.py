"""Workload and request manifest from a tally of access logs."""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Literal

from nginx_tune.decide.workload.popularity import (
    Counted,
    counted_objects,
    curve_error,
    curve_of,
    fit_zipf,
)
from nginx_tune.documents.learning import (
    Configuration,
    ConnectionSample,
    LearnPlan,
    LogCounts,
    Manifest,
    ManifestRequest,
    ObjectPopularity,
    RequestSample,
    SampledRequest,
    Tally,
    Timeline,
)
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
"""Mean object size from which the kind of a site is ``media``."""
_VERSIONS: tuple[Literal["1.0", "1.1", "2", "3"], ...] = ("1.0", "1.1", "2", "3")


def learnt_workload(
    tally: Tally,
    timeline: Timeline,
    popularity: ObjectPopularity,
    plan: LearnPlan,
    places: RequestSample | None = None,
) -> Workload:
    """The workload; values that the log's format does not have stay unknown.

    ``places`` are requests whose paths are indices of the places in the plan's configuration.
    """
    counts = tally.counts
    counted = counted_objects(popularity)
    span = _span_seconds(timeline)
    sizes = _sizes(counts, counted, popularity.size_quantiles)
    found, provenance = (plan.kind, "declared") if plan.kind else _kind(counts, sizes)
    shares, notes = _locations(plan.configuration, places)
    return Workload(
        kind=found,
        kind_provenance=provenance,  # type: ignore[arg-type]  # one of two words
        dataset=_dataset(counted, plan.configuration, shares),
        popularity=_popularity(counted, popularity.known_from_requests),
        sizes=sizes,
        rate=_rate(timeline, span),
        concurrency=_concurrency(counts, timeline, span),
        connection_reuse=_reuse(counts, tally.connections, span),
        tls=_tls(counts.tls),
        http_version=_versions(counts.protocols),
        round_trip=_round_trip(counts.round_trips),
        traffic=Traffic(
            methods=_shares(counts.methods),
            statuses=_shares({f"{code:03}": count for code, count in counts.statuses.items()}),
            cache_statuses=_shares(counts.cache_statuses),
            locations=shares,
            location_error_ratio=_location_error(places) if places and shares else None,
        ),
        log=_summary(counts, timeline, plan, [*_notes(counts, plan), *notes]),
    )


def _span_seconds(timeline: Timeline) -> int:
    return sum(last - first + 1 for first, last in timeline.stretches)


def _kind(counts: LogCounts, sizes: ObjectSizes) -> tuple[Kind, str]:
    cached = sum(counts.cache_statuses.values()) - counts.cache_statuses.get("none", 0)
    if 2 * cached >= counts.requests > 0:
        return "cache", "learnt"
    if 2 * counts.upstream_requests >= counts.requests > 0:
        return "proxy", "learnt"
    if (sizes.mean_bytes or 0) >= _LARGE_BYTES:
        return "media", "learnt"
    return "static", "assumed"


def _dataset(
    counted: Sequence[Counted], configuration: Configuration | None, shares: list[LocationShare]
) -> ServedData:
    if not counted:
        return ServedData()
    return ServedData(
        files=round(sum(item.objects for item in counted)),
        bytes=round(sum(item.bytes for item in counted)),
        requests_by_path=_requests_by_root(configuration, shares) if configuration else {},
        provenance="learnt",
    )


def _popularity(counted: Sequence[Counted], known_from_requests: int) -> Popularity:
    if not counted:
        return Popularity()
    curve = curve_of(counted)
    at = {point.requests_ratio: point.bytes for point in curve}
    fit = fit_zipf(counted, known_from_requests)
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


def _sizes(
    counts: LogCounts, counted: Sequence[Counted], quantiles: tuple[int, int, int] | None
) -> ObjectSizes:
    requests = sum(item.requests * item.objects for item in counted)
    if not requests or quantiles is None:
        return ObjectSizes()
    asked = sum(item.requests * item.bytes for item in counted)
    p50_bytes, p90_bytes, p99_bytes = quantiles
    return ObjectSizes(
        mean_bytes=_rounded(asked / requests),
        p50_bytes=p50_bytes,
        p90_bytes=p90_bytes,
        p99_bytes=p99_bytes,
        sent_mean_bytes=_rounded(counts.data_bytes / counts.data_requests),
        sent_ratio=_rounded(counts.data_bytes / asked) if asked else None,
        partial_ratio=_rounded(counts.partial_requests / counts.data_requests),
        provenance="learnt",
    )


def _rate(timeline: Timeline, span: int) -> Rate:
    if not span:
        return Rate()
    peaks = {
        seconds: _rounded(count / seconds) if count is not None and span >= seconds else None
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


def _concurrency(counts: LogCounts, timeline: Timeline, span: int) -> Concurrency:
    if not span or not counts.timed_requests:
        return Concurrency()
    return Concurrency(
        mean=_rounded(counts.busy_milliseconds / 1000 / span),
        peak=_rounded(timeline.busy_peak_milliseconds / 1000),
        provenance="learnt",
    )


def _reuse(counts: LogCounts, connections: ConnectionSample, span: int) -> ConnectionReuse:
    nth = counts.nth_requests
    if nth and nth[0]:
        return ConnectionReuse(
            requests_per_connection=_rounded((sum(nth) + counts.later_requests) / nth[0]),
            p50_requests=_reached(nth, 0.5),
            p90_requests=_reached(nth, 0.1),
            p99_requests=_reached(nth, 0.01),
            single_request_ratio=_rounded(max(0.0, 1 - (nth[1] if len(nth) > 1 else 0) / nth[0])),
            connections_per_second=_rounded(nth[0] / span) if span else None,
            provenance="learnt",
        )
    distinct = len(connections.gaps) << connections.level
    if not distinct:
        return ConnectionReuse()
    return ConnectionReuse(
        requests_per_connection=_rounded(max(1.0, counts.numbered_requests / distinct)),
        connections_per_second=_rounded(distinct / span) if span else None,
        provenance="learnt",
    )


def _reached(nth: Sequence[int], ratio: float) -> int:
    """The largest number of requests that more than ``ratio`` of the connections had."""
    return max((at for at, count in enumerate(nth, 1) if count > ratio * nth[0]), default=1)


def _round_trip(counts: Mapping[int, int]) -> RoundTrip:
    """Round-trip quantiles over requests, not clients."""
    rows = sorted(counts.items())
    total = sum(counts.values())
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
    if known[most] < protocols.get("other", 0):  # not known for most requests
        return HttpVersion(shares=shares, provenance="learnt")
    return HttpVersion(value=most, shares=shares, provenance="learnt")


def _summary(
    counts: LogCounts, timeline: Timeline, plan: LearnPlan, notes: list[str]
) -> LogSummary:
    stretches = timeline.stretches
    return LogSummary(
        format=plan.format.name,
        lines=counts.lines,
        requests=counts.requests,
        rejected=[
            Rejected(reason=name, lines=lines) for name, lines in sorted(counts.refused.items())
        ],
        unreadable_requests=counts.unreadable_requests,
        first=_moment_text(stretches[0][0]) if stretches else None,
        last=_moment_text(stretches[-1][1]) if stretches else None,
        span_seconds=_span_seconds(timeline) or None,
        stretches=len(stretches),
        stray_lines=timeline.stray_lines,
        notes=notes,
    )


def _notes(counts: LogCounts, plan: LearnPlan) -> list[str]:
    """Notes on values missing in the log, each with the variable to add."""
    slots = plan.format.slots
    notes = []
    if not counts.timed_requests:
        notes.append("concurrency is not known: log $request_time")
    if not counts.numbered_requests and not counts.nth_requests:
        notes.append("connection reuse is not known: log $connection_requests")
    if not slots & {"ssl_protocol", "scheme"}:
        notes.append("the share of TLS is not known: log $ssl_protocol")
    if counts.partial_requests and "content_range" not in slots:
        notes.append(
            "sizes of objects requested in ranges are lower bounds: log $sent_http_content_range"
        )
    if counts.data_requests and "upstream" not in slots and "cache_status" not in slots:
        notes.append("files and proxied responses look alike: log $upstream_cache_status")
    return notes


def _locations(
    configuration: Configuration | None, places: RequestSample | None
) -> tuple[list[LocationShare], list[str]]:
    """The share of each location in the sampled requests, and notes on unknown locations."""
    if configuration is None:
        return [], []
    requests = [request for _, request in places.requests] if places else []
    if not requests or not configuration.servers:
        return [], ["locations are not known: the configuration has no server"]
    if configuration.servers > 1 and not any(request.server for request in requests):
        count = configuration.servers
        return [], [f"locations are not known: log $server_name, since there are {count} servers"]
    counts: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for request in requests:
        counts[request.path] += request.times
        sent[request.path] += request.times * request.sent
    total_bytes = sent.total() or 1
    shares = []
    for index, count in counts.items():
        place = configuration.places[int(index)]
        shares.append(
            LocationShare(
                server=place.server,
                location=place.location,
                file=place.file,
                line=place.line,
                requests_ratio=_rounded(count / counts.total()),
                bytes_ratio=_rounded(sent[index] / total_bytes),
            )
        )
    shares.sort(key=lambda share: (-share.requests_ratio, share.file, share.line))
    return shares, configuration.notes


def _requests_by_root(
    configuration: Configuration, shares: Sequence[LocationShare]
) -> dict[str, float]:
    """Share of the requests by root or alias; empty with fewer than two distinct directories."""
    roots = {(place.file, place.line): place.root for place in configuration.places}
    found: Counter[str] = Counter()
    for share in shares:
        root = roots[share.file, share.line]
        if root is not None:
            found[root] += share.requests_ratio  # type: ignore[assignment]  # a Counter of ratios
    if len(found) < 2:  # noqa: PLR2004  # one against another
        return {}
    return {root: _rounded(ratio) for root, ratio in sorted(found.items())}


def _location_error(places: RequestSample) -> float:
    """Standard error of a share of one half, due to sampling; 0 if all requests were kept."""
    return _rounded(0.5 / math.sqrt(len(places.requests)), 2) if places.level else 0.0


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: _rounded(counts[name] / total) for name in sorted(counts)} if total else {}


def _rounded(value: float, digits: int = _DIGITS) -> float:
    return float(f"{value:.{digits}g}")


def _moment_text(seconds: int) -> str:
    """A time in seconds since 1970 as text, such as ``2026-11-20T19:26:34Z``.

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
"""Characters; longer paths are attacks and are not replayed."""
_UNSAFE = re.compile(r"[^!-~]")


def manifest_of(
    tally: Tally, timeline: Timeline, plan: LearnPlan
) -> tuple[Manifest, list[ManifestRequest]]:
    """The manifest's first line and its requests in the order of their starts.

    If the log has whole seconds only, the requests of one second are spread evenly over it.
    """
    requests = list(_replayed(tally.manifest, plan.most_requests))
    sizes: dict[int, int] = {}
    for request in requests:
        sizes[request.object] = max(sizes.get(request.object, -1), request.size)
    starts = sorted(_starts(requests, timeline.stretches), key=lambda start: start[0])
    earliest = starts[0][0] if starts else 0
    lines = [
        ManifestRequest(
            offset_seconds=(start - earliest) / 1_000_000,
            path=_path(request, keeps_paths=plan.keeps_paths),
            bytes=sizes[request.object] if sizes[request.object] >= 0 else None,
            range=_range(request.range),
        )
        for start, request in starts
    ]
    return Manifest(
        requests=len(lines),
        duration_seconds=float(_span_seconds(timeline)),
        paths="kept" if plan.keeps_paths else "hashed",
    ), lines


def _replayed(sample: RequestSample, most: int) -> Iterator[SampledRequest]:
    """The sampled requests, each as often as in the log, and at most ``most`` in all."""
    for _, request in sample.requests:
        times = min(request.times, most)
        most -= times
        if len(request.path) <= _LONGEST_PATH:
            yield from repeat(request, times)


def _starts(
    requests: Sequence[SampledRequest], stretches: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, SampledRequest]]:
    """Requests with their starts in microseconds, on a clock without the gaps between stretches.

    Requests outside the stretches are left out.
    """
    firsts = [first for first, _ in stretches]
    befores = [0, *accumulate(last - first + 1 for first, last in stretches)]
    is_coarse = all(request.end % 1000 == 0 for request in requests)
    alike = Counter(request.end for request in requests)
    seen: Counter[int] = Counter()
    for request in requests:
        at = bisect_right(firsts, request.end // 1000) - 1
        if at < 0 or request.end // 1000 > stretches[at][1]:
            continue
        within = (2 * seen[request.end] + 1) * 500_000 // alike[request.end] if is_coarse else 0
        seen[request.end] += 1
        offset = (befores[at] - firsts[at]) * 1_000_000
        yield request.end * 1000 + offset + within - request.duration * 1000, request


def _range(asked: tuple[int, int] | None) -> tuple[int, int] | None:
    """The range if it is valid; None otherwise."""
    return asked if asked is not None and asked[0] <= asked[1] else None


def _path(request: SampledRequest, *, keeps_paths: bool) -> str:
    if not keeps_paths:
        return f"/{request.object:016x}"
    return _UNSAFE.sub(lambda match: "".join(f"%{b:02X}" for b in match[0].encode()), request.path)
