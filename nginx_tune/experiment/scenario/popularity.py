"""How a scenario's requests spread over its files, as its classes declare it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from nginx_tune.decide.model.cache import zipf_classes
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.scenario import WITHOUT_FILE, Scenario, ScenarioClass
from nginx_tune.documents.workload import CurveShare, Popularity

_EVEN = 1e-9
"""An exponent that spreads requests evenly, over the same ranks as any other."""


class _Files(NamedTuple):
    """What is on one disk."""

    number: int
    mean_bytes: float


class _Span(NamedTuple):
    """Files next to each other in rank that are asked for alike."""

    first: float
    last: float
    share: float
    """Of all requests."""


def declare_popularity(scenario: Scenario) -> Popularity:
    """What the classes say of who is asked for how often.

    Where all classes that read files have rates, the shares of all of them are known. Who waits
    for answers asks as often as they come: then it is the popularity of the random requests
    alone, each class by its users, or by its files where only some of them wait.
    """
    reading = [c for c in scenario.classes if c.source not in WITHOUT_FILE]
    rated = all(c.arrivals.rate_per_second is not None for c in reading)
    counted = reading if rated else [c for c in reading if c.source == "random"]
    files = _files_by_disk(scenario.lab)
    known = _known_requests(scenario, counted)
    asked = Popularity(
        exponent=0.0,
        requests_seen=known,
        began_full=known is not None and scenario.starts == "full",
        began_empty=known is None and bool(counted) and scenario.starts == "cold",
        once=bool(counted) and all(c.once for c in counted),
        provenance="declared",
    )
    if not counted or not files or not all(_disk_of(c, files) for c in counted):
        return asked
    even = all(c.source == "random" and not c.exponent and not c.first_files for c in counted)
    if even and len(files) == 1:
        return asked
    return Popularity(
        curve=_curve(counted, files),
        requests_seen=asked.requests_seen,
        began_full=asked.began_full,
        began_empty=asked.began_empty,
        once=asked.once,
        provenance="declared",
    )


def requested_mean_bytes(scenario: Scenario) -> float | None:
    """Mean size over requests, where all classes have rates; None where it is not known."""
    reading = [c for c in scenario.classes if c.source not in WITHOUT_FILE]
    files = _files_by_disk(scenario.lab)
    rates = [c.arrivals.rate_per_second for c in reading]
    total = sum(rate or 0.0 for rate in rates)
    if not total or None in rates or not all(_disk_of(c, files) for c in reading):
        return None
    parts = zip(reading, rates, strict=True)
    return sum((rate or 0.0) / total * files[_disk_of(c, files)].mean_bytes for c, rate in parts)


def _known_requests(scenario: Scenario, counted: Sequence[ScenarioClass]) -> float | None:
    """Requests of these that a block's page cache has seen in the middle of what is measured.

    None where it has seen all files before, and where some of who asks waits for answers.
    """
    rates = [c.arrivals.rate_per_second for c in counted]
    if scenario.starts == "warm" or None in rates:
        return None
    seconds = scenario.warmup_seconds + scenario.duration_seconds / 2
    return seconds * sum(rate or 0.0 for rate in rates) or None


def _files_by_disk(lab: Lab) -> dict[str, _Files]:
    found: dict[str, _Files] = {}
    for disk in lab.disks:
        sizes = [
            size
            for data in lab.data
            if data.disk == disk.name
            for size in (data.sizes.values() or [data.file_bytes] * data.files)
        ]
        if sizes and sum(sizes):
            found[disk.name] = _Files(len(sizes), sum(sizes) / len(sizes))
    return found


def _disk_of(item: ScenarioClass, files: dict[str, _Files]) -> str:
    """The disk whose files a class asks for; empty for none that is known."""
    name = item.disk or next(iter(files), "")
    return name if name in files else ""


def _weights(counted: Sequence[ScenarioClass], files: dict[str, _Files]) -> list[float]:
    rates = [c.arrivals.rate_per_second or 0.0 for c in counted]
    users = [float(c.arrivals.users or 0) for c in counted]
    if all(rates):
        return rates
    if all(users):
        return users
    return [float(files[_disk_of(c, files)].number) for c in counted]


def _curve(counted: Sequence[ScenarioClass], files: dict[str, _Files]) -> list[CurveShare]:
    """Shares of the requests over bytes, the most popular first."""
    weights = _weights(counted, files)
    total = sum(weights)
    groups: list[tuple[float, float]] = []
    for disk, there in files.items():
        spans = [
            span
            for c, weight in zip(counted, weights, strict=True)
            if total and _disk_of(c, files) == disk
            for span in _spans(c, there.number, weight / total)
        ]
        groups += [(size * there.mean_bytes, share) for size, share in _together(spans, there)]
    groups.sort(key=lambda group: -group[1] / group[0])
    curve, bytes_, share = [], 0.0, 0.0
    for own_bytes, own_share in groups:
        bytes_, share = bytes_ + own_bytes, share + own_share
        curve.append(CurveShare(requests_ratio=min(1.0, share), bytes=round(bytes_)))
    return curve


def _spans(item: ScenarioClass, files: int, share: float) -> list[_Span]:
    """Who of the files, in the order of the plan, is asked for how often: the hot one first."""
    if item.source == "hot":
        return [_Span(0.0, 1.0, share)]
    first = 1.0 if files > 1 else 0.0
    count = min(files - first, item.first_files or files)
    spans, begin = [], first
    for objects, probability in zipf_classes(float(count), item.exponent or _EVEN):
        spans.append(_Span(begin, begin + objects, share * objects * probability))
        begin += objects
    return spans


def _together(spans: Sequence[_Span], files: _Files) -> Iterable[tuple[float, float]]:
    """Pieces of the ranks with the requests of all classes for them: files, and their share."""
    edges = sorted({0.0, float(files.number), *(e for s in spans for e in (s.first, s.last))})
    for low, high in pairwise(edges):
        share = sum(
            s.share * (high - low) / (s.last - s.first)
            for s in spans
            if s.first <= low and high <= s.last
        )
        yield high - low, share
