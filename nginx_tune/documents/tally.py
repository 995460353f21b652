"""``tally``: what a reader of access logs counted: integers alone, so that two readers agree."""

from __future__ import annotations

from nginx_tune.documents.base import Document, Part


class RefusedLines(Part, frozen=True, kw_only=True):
    """Lines that could not be used, for one reason."""

    lines: int
    first_lines: list[int]


class Objects(Part, frozen=True, kw_only=True):
    """Objects as [hash, requests, size in bytes], in the order of their hashes."""

    level: int
    """The sample holds the objects whose hash begins with so many zero bits; 0 is all."""
    sampled: list[tuple[int, int, int]]
    heavy: list[tuple[int, int, int]]
    """The most popular ones, once the sample is not all."""
    heavy_error: int
    """Requests that each count of ``heavy`` may lack."""


class Timeline(Part, frozen=True, kw_only=True):
    """Requests and time in flight over the log's time."""

    stretches: list[tuple[int, int]]
    """First and last second of each."""
    requests: int
    peak_1s: int
    peak_10s: int
    peak_60s: int
    busy_milliseconds: int
    busy_peak_milliseconds: int
    """Time in flight within the busiest second."""
    timed_requests: int
    """Requests with a request time."""
    backward_lines: int
    stray_lines: int


class Connections(Part, frozen=True, kw_only=True):
    """Client connections."""

    level: int
    distinct: int
    """Connection numbers whose hash begins with ``level`` zero bits."""
    numbered: int
    """Requests with a connection number."""
    nth_requests: list[int]
    """How many connections carried a first, second, third … request."""
    later_requests: int
    """Requests past the last of them."""


class SampledRequest(Part, frozen=True, kw_only=True, array_like=True):
    """A request that was kept."""

    number: int
    """Of its line, from 1."""
    stretch: int
    end_milliseconds: int
    """Since 1970."""
    duration_milliseconds: int
    object: int
    sent_bytes: int
    size_bytes: int
    """Full size; -1 when not known."""
    range: tuple[int, int] | None
    server: str
    path: str
    """Both empty where not kept."""


class Sample(Part, frozen=True, kw_only=True):
    """Requests whose numbers' hash begins with ``level`` zero bits."""

    level: int
    requests: list[SampledRequest]


class Tally(Document, frozen=True, kw_only=True, tag="nginx-tune/tally/1"):
    """All that is counted of a log."""

    lines: int
    refused: dict[str, RefusedLines]
    requests: int
    unreadable_requests: int
    methods: dict[str, int]
    statuses: dict[str, int]
    protocols: dict[str, int]
    tls: dict[str, int]
    cache_statuses: dict[str, int]
    upstream_requests: int
    sent_bytes: int
    data_requests: int
    """Those answered with (a part of) an object: GET with 200 or 206."""
    data_bytes: int
    partial_requests: int
    objects: Objects
    timeline: Timeline
    connections: Connections
    round_trips: list[tuple[int, int]]
    """Microseconds, down to a thirty-second of them, and requests with so long a round trip."""
    manifest: Sample
    places: Sample
