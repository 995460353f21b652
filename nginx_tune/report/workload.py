"""A workload as text: what a log shows, and what it does not."""

from collections.abc import Iterator, Mapping

from nginx_tune.documents.units import plural
from nginx_tune.documents.workload import LogSummary, Rejected, Traffic, Workload
from nginx_tune.report.screen import Line, Screen, ScreenBlock, Table
from nginx_tune.report.text import bytes_text, number_text, one_line, percent_text, seconds_text

_MOST_LOCATIONS = 12
_NAME_WIDTH = 11
_REASONS = {
    "empty": "empty",
    "too_long": "longer than 64 KiB",
    "format": "not in the format",
    "time": "without a readable time",
    "status": "without a status of three digits",
    "bytes": "without a readable size",
    "own": "with nginx-tune's own requests",
}


def workload_screen(workload: Workload) -> Screen:
    """A sentence on the kind of site and the number of requests, then the workload."""
    said = f"The traffic is that of a {one_line(workload.kind)} site"
    if workload.log is not None:
        said += f", by {plural(workload.log.requests, 'request')}"
        if workload.log.span_seconds:
            said += f" in {workload.log.span_seconds:,} s"
    return [[Line(f"{said}.", "answer")], *workload_blocks(workload)]


def workload_blocks(workload: Workload) -> Screen:
    """The workload, without the sentence."""
    # The names are padded, so that plain lines keep their columns.
    rows = [
        (name.ljust(_NAME_WIDTH), one_line(text))
        for name, text in [*_log(workload.log), *_traffic(workload)]
    ]
    return [
        [Table(rows, has_head=False)] if rows else [],
        _locations(workload.traffic),
        _rejected(workload.log),
    ]


def _log(log: LogSummary | None) -> Iterator[tuple[str, str]]:
    if log is None:
        return
    yield (
        "log",
        (f"{plural(log.lines, 'line')} in format {log.format}, {plural(log.requests, 'request')}"),
    )
    if log.first is not None:
        apart = f" in {log.stretches} stretches" if log.stretches > 1 else ""
        yield "time", f"{log.first} to {log.last}, {log.span_seconds or 0:,} s{apart}"
    if log.stray_lines:
        yield (
            "strays",
            (f"{plural(log.stray_lines, 'line')} far in time from all others, not in the rates"),
        )


def _traffic(workload: Workload) -> Iterator[tuple[str, str]]:
    yield "kind", f"{workload.kind} ({workload.kind_provenance})"
    yield "objects", _objects(workload)
    yield from _shares("roots", workload.dataset.requests_by_path)
    popularity = workload.popularity
    if popularity.exponent is not None and popularity.fitted_objects is not None:
        yield (
            "popularity",
            (
                f"Zipf {popularity.exponent:.2f} ± {popularity.exponent_error or 0:.2g} "
                f"over the first {popularity.fitted_objects:,} objects, "
                f"off by at most {percent_text(popularity.fit_distance_ratio, 2)} of their requests"
            ),
        )
    if popularity.working_set_50_bytes is not None:
        error = popularity.curve_error_ratio
        yield (
            "working set",
            f"{bytes_text(popularity.working_set_50_bytes)} for 50 % of requests, "
            f"{bytes_text(popularity.working_set_90_bytes)} for 90 %, "
            f"{bytes_text(popularity.working_set_99_bytes)} for 99 %"
            + (f" (shares ± {percent_text(error, 2)}, from a sample)" if error else ""),
        )
    sizes = workload.sizes
    if sizes.p50_bytes is not None:
        yield (
            "sizes",
            (
                f"mean {bytes_text(sizes.mean_bytes)}, p50 {bytes_text(sizes.p50_bytes)}, "
                f"p90 {bytes_text(sizes.p90_bytes)}, p99 {bytes_text(sizes.p99_bytes)}; "
                f"{percent_text(sizes.sent_ratio, 2)} of it sent, "
                f"{percent_text(sizes.partial_ratio, 2)} ranges"
            ),
        )
    rate = workload.rate
    if rate.mean_per_second is not None:
        busiest = [
            f"{name} {number_text(peak)}/s"
            for name, peak in (
                ("second", rate.peak_1s_per_second),
                ("10 s", rate.peak_10s_per_second),
                ("minute", rate.peak_60s_per_second),
            )
            if peak is not None  # None if the log is shorter than this span
        ]
        said = f"; busiest {', '.join(busiest)}" if busiest else ""
        yield "rate", f"{number_text(rate.mean_per_second)}/s{said}"
    at_once = workload.concurrency
    if at_once.mean is not None:
        yield (
            "in flight",
            (
                f"{number_text(at_once.mean)} on average, "
                f"{number_text(at_once.peak)} in the busiest second"
            ),
        )
    reuse = workload.connection_reuse
    if reuse.requests_per_connection is not None:
        single = reuse.single_request_ratio
        yield (
            "connections",
            f"{number_text(reuse.requests_per_connection)} requests each"
            + (f", {percent_text(single, 2)} with one alone" if single is not None else "")
            + f"; {number_text(reuse.connections_per_second)} new ones a second",
        )
    trip = workload.round_trip
    if trip.p90_seconds is not None:
        yield (
            "round trip",
            f"p50 {seconds_text(trip.p50_seconds)}, p90 {seconds_text(trip.p90_seconds)}, "
            f"p99 {seconds_text(trip.p99_seconds)}" + (f" ({trip.source})" if trip.source else ""),
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
    return f"{data.files:,} requested, {bytes_text(data.bytes)}"


def _shares(name: str, shares: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    if shares:
        ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        yield name, ", ".join(f"{key} {percent_text(value, 2)}" for key, value in ordered[:8])


def _locations(traffic: Traffic | None) -> ScreenBlock:
    if traffic is None or not traffic.locations:
        return []
    header = ("requests", "bytes", "server", "location", "place")
    rows = [
        (
            percent_text(share.requests_ratio, 2),
            percent_text(share.bytes_ratio, 2),
            one_line(share.server) or "_",
            one_line(share.location) or "(none)",
            one_line(f"{share.file}:{share.line}"),
        )
        for share in traffic.locations[:_MOST_LOCATIONS]
    ]
    left = len(traffic.locations) - _MOST_LOCATIONS
    more = [Line(f"and {left} more: -f json")] if left > 0 else []
    return [Table([header, *rows], right=(0, 1)), *more]


def _rejected(log: LogSummary | None) -> ScreenBlock:
    if log is None:
        return []
    lines = [Line(f"left out: {_reason(rejected)}", "warning") for rejected in log.rejected]
    if log.unreadable_requests:
        lines.append(Line(f"counted: {plural(log.unreadable_requests, 'request')} not in HTTP"))
    return [*lines, *(Line(f"note: {one_line(note)}", "note") for note in log.notes)]


def _reason(rejected: Rejected) -> str:
    reason = _REASONS.get(rejected.reason, one_line(rejected.reason))
    return f"{plural(rejected.lines, 'line')} {reason}"
