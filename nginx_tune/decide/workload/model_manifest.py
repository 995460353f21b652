"""A manifest from the requests that a reader kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from nginx_tune.documents.manifest import Manifest, ManifestRequest
from nginx_tune.documents.tally import SampledRequest, Tally

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
    """When each request started, in microseconds from the start of the log, gaps left out."""
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
