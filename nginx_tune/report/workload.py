"""``workload`` for people: what a log showed, and what it could not show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nginx_tune.documents.workload import LogSummary, Rejected, Traffic, Workload
from nginx_tune.report.columns import align
from nginx_tune.report.text import bytes_text, number_text, plain

_MOST_LOCATIONS = 12
_REASONS = {
    "empty": "empty",
    "too_long": "longer than 64 KiB",
    "format": "not in the format",
    "time": "without a readable time",
    "status": "without a status of three digits",
    "bytes": "without a readable size",
}


def render_workload(workload: Workload) -> bytes:
    """The screen, UTF-8, with a final newline."""
    lines = [
        *_log(workload.log),
        *_traffic(workload),
        *_locations(workload.traffic),
        *_rejected(workload.log),
    ]
    return ("\n".join(plain(line) for line in lines) + "\n").encode()


def _log(log: LogSummary | None) -> Iterator[str]:
    if log is None:
        return
    yield f"log          {log.lines:,} lines in format {log.format}, {log.requests:,} requests"
    if log.first is not None:
        apart = f" in {log.stretches} stretches" if log.stretches > 1 else ""
        yield f"time         {log.first} to {log.last}, {log.span_seconds or 0:,} s{apart}"
    if log.backward_lines or log.stray_lines:
        yield (
            f"order        {log.backward_lines:,} lines older than one before them, "
            f"{log.stray_lines:,} with a time far from their neighbours' (in no rate)"
        )


def _traffic(workload: Workload) -> Iterator[str]:
    yield f"kind         {workload.kind} ({workload.kind_provenance})"
    yield f"objects      {_objects(workload)}"
    popularity = workload.popularity
    if popularity.exponent is not None and popularity.fitted_objects is not None:
        yield (
            f"popularity   Zipf {popularity.exponent:.2f} ± {popularity.exponent_error or 0:.2g} "
            f"over the first {popularity.fitted_objects:,} objects, "
            f"off by at most {_percent(popularity.fit_distance_ratio)} of their requests"
        )
    if popularity.working_set_50_bytes is not None:
        error = popularity.curve_error_ratio
        yield (
            f"working set  {bytes_text(popularity.working_set_50_bytes)} for 50 % of requests, "
            f"{bytes_text(popularity.working_set_90_bytes)} for 90 %, "
            f"{bytes_text(popularity.working_set_99_bytes)} for 99 %"
            + (f" (shares ± {_percent(error)}, from a sample)" if error else "")
        )
    sizes = workload.sizes
    if sizes.p50_bytes is not None:
        yield (
            f"sizes        mean {bytes_text(sizes.mean_bytes)}, p50 {bytes_text(sizes.p50_bytes)}, "
            f"p90 {bytes_text(sizes.p90_bytes)}, p99 {bytes_text(sizes.p99_bytes)}; "
            f"{_percent(sizes.sent_ratio)} of it sent, {_percent(sizes.partial_ratio)} ranges"
        )
    rate = workload.rate
    if rate.mean_per_second is not None:
        yield (
            f"rate         {number_text(rate.mean_per_second)}/s; busiest second "
            f"{number_text(rate.peak_1s_per_second)}/s, "
            f"10 s {number_text(rate.peak_10s_per_second)}/s, "
            f"minute {number_text(rate.peak_60s_per_second)}/s"
        )
    at_once = workload.concurrency
    if at_once.mean is not None:
        yield (
            f"in flight    {number_text(at_once.mean)} on average, "
            f"{number_text(at_once.peak)} in the busiest second"
        )
    reuse = workload.connection_reuse
    if reuse.requests_per_connection is not None:
        single = reuse.single_request_ratio
        yield (
            f"connections  {number_text(reuse.requests_per_connection)} requests each"
            + (f", {_percent(single)} with one alone" if single is not None else "")
            + f"; {number_text(reuse.connections_per_second)} new ones a second"
        )
    yield from _shares("http", workload.http_version.shares)
    yield from _shares("tls", workload.tls.protocols)
    if workload.traffic is not None:
        yield from _shares("cache", workload.traffic.cache_statuses)
        yield from _shares("methods", workload.traffic.methods)
        yield from _shares("statuses", workload.traffic.statuses)


def _objects(workload: Workload) -> str:
    data = workload.dataset
    if data.files is None:
        return "none that were read"
    return f"{data.files:,} asked for, {bytes_text(data.bytes)}"


def _shares(name: str, shares: Mapping[str, float]) -> Iterator[str]:
    if shares:
        ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        yield f"{name:<12} " + ", ".join(f"{key} {_percent(value)}" for key, value in ordered[:8])


def _locations(traffic: Traffic | None) -> Iterator[str]:
    if traffic is None or not traffic.locations:
        return
    yield ""
    header = ("requests", "bytes", "server", "location", "")
    rows = [
        (
            _percent(share.requests_ratio),
            _percent(share.bytes_ratio),
            share.server or "_",
            share.location or "(none)",
            f"{share.file}:{share.line}",
        )
        for share in traffic.locations[:_MOST_LOCATIONS]
    ]
    yield from align([header, *rows], right=(0, 1)).splitlines()
    left = len(traffic.locations) - _MOST_LOCATIONS
    if left > 0:
        yield f"and {left} more"


def _rejected(log: LogSummary | None) -> Iterator[str]:
    if log is None:
        return
    if log.rejected or log.unreadable_requests or log.notes:
        yield ""
    for rejected in log.rejected:
        yield f"left out: {_reason(rejected)}"
    if log.unreadable_requests:
        yield f"counted: {log.unreadable_requests:,} requests that were not HTTP"
    for note in log.notes:
        yield f"note: {note}"


def _reason(rejected: Rejected) -> str:
    places = ", ".join(f"{number:,}" for number in rejected.first_lines)
    more = ", …" if rejected.lines > len(rejected.first_lines) else ""
    word = "line" if rejected.lines == 1 else "lines"
    reason = _REASONS.get(rejected.reason, rejected.reason)
    return f"{rejected.lines:,} {word} {reason} ({word} {places}{more})"


def _percent(ratio: float | None) -> str:
    if ratio is None:
        return "?"
    percent = ratio * 100
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"  # noqa: PLR2004
