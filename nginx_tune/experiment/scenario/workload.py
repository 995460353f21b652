"""The site and workload of a scenario, and the popularity of its files."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from nginx_tune.decide.model.cache import zipf_classes
from nginx_tune.documents.facts import Dataset, Facts
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.scenario import WITHOUT_FILE, Scenario, ScenarioClass
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    CurveShare,
    HttpVersion,
    ObjectSizes,
    Popularity,
    Rate,
    ServedData,
    TlsUse,
    Workload,
)
from nginx_tune.measure.load.classes import ServedFile

PORT = 8080
HOST = "localhost"


def plan_workload(scenario: Scenario, facts: Facts) -> Workload:
    """The demand of the scenario as a declared workload, from which decisions predict its result.

    Requests in flight are the users of closed classes. Open classes add their rate, and so do users
    of random files who pause, since a read is short compared with a pause. Requests without a file
    do not count. At worst, all random requests miss the page cache at once; on average, only
    requests for files outside of it do.
    """
    scenario = msgspec.structs.replace(
        scenario, classes=[part for item in scenario.classes for part in _apart(item)]
    )
    reading = [c for c in scenario.classes if c.source not in WITHOUT_FILE]
    closed = [c for c in reading if c.arrivals.kind == "closed" and not _pausing_rate(c)]
    rates = [c.arrivals.rate_per_second or _pausing_rate(c) for c in reading]
    thinking = [c.arrivals.think_seconds for c in closed if c.source == "hot"]
    data, sizes = _data(facts.datasets), _sizes(facts.datasets)
    data = msgspec.structs.replace(data, requests_by_path=_by_path(scenario, reading))
    if (mean := requested_mean_bytes(scenario)) is not None:
        sizes = msgspec.structs.replace(sizes, mean_bytes=mean)
    return Workload(
        kind=scenario.kind,
        kind_provenance="declared",
        dataset=data,
        popularity=declare_popularity(scenario),
        sizes=sizes,
        rate=Rate(
            mean_per_second=sum(rates) or None,
            peak_per_second=sum(rates) or None,
            without_file_per_second=_without_file(scenario.classes),
            provenance="declared",
        ),
        concurrency=Concurrency(
            mean=float(_users(closed)) or None,
            peak=float(_users(closed)) or None,
            cold_peak=float(_users([c for c in closed if c.source == "random"])) or None,
            cold_by_popularity=True,
            client_bytes_per_second=_taken_by_client(reading),
            clients_keep_pace=scenario.lab.topology != "link"
            and all(c.read_bytes_per_second is None for c in reading),
            since_seconds=scenario.warmup_seconds + scenario.duration_seconds / 2,
            think_seconds=thinking[0] if thinking else None,
            provenance="declared",
        ),
        connection_reuse=ConnectionReuse(
            requests_per_connection=_requests_per_connection(scenario.classes),
            provenance="declared",
        ),
        tls=TlsUse(value=scenario.lab.tls, provenance="declared"),
        http_version=HttpVersion(value="1.1", provenance="declared"),
    )


def _apart(item: ScenarioClass) -> list[ScenarioClass]:
    """A class, split in two if it has a rate and some of its requests need no file."""
    rate, times = item.arrivals.rate_per_second, item.beside_memory
    if not times or rate is None:
        return [item]

    def at(each: float, **changes: object) -> ScenarioClass:
        arrivals = msgspec.structs.replace(item.arrivals, rate_per_second=each)
        return msgspec.structs.replace(item, arrivals=arrivals, beside_memory=0, **changes)

    each = rate / (1 + times)
    return [at(each), at(each * times, source="memory", once=False)]


def _data(datasets: Sequence[Dataset]) -> ServedData:
    """The number and size of the files on all disks."""
    if not datasets:
        return ServedData()
    return ServedData(
        path=datasets[0].path,
        files=_sum(item.files for item in datasets),
        bytes=_sum(item.bytes for item in datasets),
        provenance="measured",
    )


def _sizes(datasets: Sequence[Dataset]) -> ObjectSizes:
    """The file sizes: the mean over all disks, and the quantiles of the first."""
    first = datasets[0].sizes if datasets else None
    if first is None:
        return ObjectSizes(provenance="measured")
    files, total = _sum(d.files for d in datasets), _sum(d.bytes for d in datasets)
    return ObjectSizes(
        mean_bytes=total / files if files and total else first.mean_bytes,
        p50_bytes=first.p50_bytes,
        p90_bytes=first.p90_bytes,
        p99_bytes=first.p99_bytes,
        provenance="measured",
    )


def declare_workers(facts: Facts, workers: int) -> Facts:
    """The facts with at least as many CPUs as workers, so that decisions plan for them."""
    if (facts.cpu.effective or 0) >= workers:
        return facts
    cpu = msgspec.structs.replace(
        facts.cpu, online=workers, effective=float(workers), cpuset=workers
    )
    return msgspec.structs.replace(facts, cpu=cpu)


def _taken_by_client(reading: Sequence[ScenarioClass]) -> float | None:
    """The mean rate of a client in bytes per second, if all clients are slow."""
    clients = [
        c.connections if c.read_pace_of == "connection" else c.arrivals.users or c.connections
        for c in reading
    ]
    taken = [c.read_bytes_per_second for c in reading]
    if not sum(clients) or not all(taken):
        return None
    both = zip(taken, clients, strict=True)
    return sum((each or 0) * number for each, number in both) / sum(clients)


def _by_path(scenario: Scenario, reading: Sequence[ScenarioClass]) -> dict[str, float]:
    """Requests per second for random files by mount, if all classes are open loops.

    Closed-loop users request less from a slow disk, by an unknown amount.
    """
    lab = scenario.lab
    random = [item for item in reading if item.source == "random"]
    rates = [item.arrivals.rate_per_second for item in random]
    if lab.topology == "proxy" or not all(rates):
        return {}
    mounts = {disk.name: disk.mount for disk in lab.disks}
    found: dict[str, float] = {}
    for item, rate in zip(random, rates, strict=True):
        mount = mounts[item.disk or lab.disks[0].name]
        found[mount] = found.get(mount, 0.0) + (rate or 0.0)
    return found


def _without_file(classes: Sequence[ScenarioClass]) -> float | None:
    """Requests per second that are answered without a file."""
    return sum(c.arrivals.rate_per_second or 0.0 for c in classes if c.source == "memory") or None


def _requests_per_connection(classes: list[ScenarioClass]) -> float:
    return 1.0 if classes and not any(c.keepalive for c in classes) else 1000.0


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of the known counts; None if none is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _pausing_rate(item: ScenarioClass) -> float:
    """Requests per second of users who pause between random files; 0 for other classes."""
    if item.source != "random" or not item.arrivals.think_seconds:
        return 0.0
    return (item.arrivals.users or 0) / item.arrivals.think_seconds


def _users(classes: list[ScenarioClass]) -> int:
    return sum(c.arrivals.users or 0 for c in classes)


_EVEN = 1e-9
"""An exponent so small that requests are spread evenly. The ranks are numbered as with others."""


class _Files(NamedTuple):
    """The files of one disk."""

    number: int
    mean_bytes: float


class _Span(NamedTuple):
    """Files of neighbouring ranks with equal popularity."""

    first: float
    last: float
    share: float
    """The share of all requests."""


def declare_popularity(scenario: Scenario) -> Popularity:
    """The popularity of the files, from the classes.

    If all classes that read files have rates, their shares are known. Closed loops have no known
    rates: then only random requests count, weighted by users, or by files if only some classes are
    closed loops.
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
    """The mean size over requests, if all classes have rates; otherwise None."""
    reading = [c for c in scenario.classes if c.source not in WITHOUT_FILE]
    files = _files_by_disk(scenario.lab)
    rates = [c.arrivals.rate_per_second for c in reading]
    total = sum(rate or 0.0 for rate in rates)
    if not total or None in rates or not all(_disk_of(c, files) for c in reading):
        return None
    parts = zip(reading, rates, strict=True)
    return sum((rate or 0.0) / total * files[_disk_of(c, files)].mean_bytes for c, rate in parts)


def _known_requests(scenario: Scenario, counted: Sequence[ScenarioClass]) -> float | None:
    """The number of requests in a run up to halfway through the measured time.

    None for a warm start, or if some classes are closed loops.
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
    """The disk whose files a class requests; empty if unknown."""
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
    """Cumulative shares of requests over bytes, the most popular first."""
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
    """The spans of a class's files by rank, with their shares; the hot file is rank 0."""
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
    """The ranks in pieces, each as its number of files and their share of all requests."""
    edges = sorted({0.0, float(files.number), *(e for s in spans for e in (s.first, s.last))})
    for low, high in pairwise(edges):
        share = sum(
            s.share * (high - low) / (s.last - s.first)
            for s in spans
            if s.first <= low and high <= s.last
        )
        yield high - low, share


def share_out(lab: Lab, objects: Sequence[ServedFile], *, host: str) -> dict[str, list[ServedFile]]:
    """The objects, by the disk that holds their cache.

    Key (``$scheme$host$request_uri``) and disk order are those of ``decide.cache_layout``.
    """
    disks = [disk.name for disk in lab.disks if disk.writable and not disk.spare]
    scheme = "https" if lab.tls else "http"
    found: dict[str, list[ServedFile]] = {name: [] for name in disks}
    for item in objects:
        key = f"{scheme}{host}{item.url}"
        found[disks[even_part(key.encode(), len(disks))]].append(item)
    return found


def declared_site(scenario: Scenario) -> Site:
    """The site as given to the decisions, before it gets its place in the lab."""
    mounts = mounts_of(scenario.lab)
    return Site(
        listen=[f"127.0.0.1:{PORT}"],
        server_names=[HOST],
        roots=mounts or ["/srv"],
        root_prefixes=_prefixes(scenario.lab),
        hot_locations=scenario.hot_locations,
    )


def mounts_of(lab: Lab) -> list[str]:
    """The mounts of a lab's disks with served files."""
    return [disk.mount for disk in lab.disks if not disk.spare]


def _prefixes(lab: Lab) -> list[str]:
    """The URL prefix of each disk's files, if the prefixes distinguish the disks."""
    named = [{f"/{item.prefix}" for item in lab.data if item.disk == d.name} for d in lab.disks]
    found = [next(iter(prefixes)) for prefixes in named if len(prefixes) == 1]
    several = len(lab.disks) > 1
    return found if several and "/" not in found and len(set(found)) == len(lab.disks) else []


_FACTOR = 0x5BD1E995
_ALL = 0xFFFFFFFF
_HUNDREDTHS = 10_000


def murmur_hash2(data: bytes) -> int:
    """The 32-bit hash that nginx makes of a key."""
    value = len(data) & _ALL
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _FACTOR & _ALL
        word = (word ^ word >> 24) * _FACTOR & _ALL
        value = value * _FACTOR & _ALL ^ word
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _ALL
    value = (value ^ value >> 13) * _FACTOR & _ALL
    return value ^ value >> 15


def part_of(key: bytes, shares: Sequence[int]) -> int:
    """The index of the key's part; ``shares`` are hundredths of a percent, the rest is ``*``."""
    value = murmur_hash2(key)
    total = 0
    for index, share in enumerate(shares):
        total += share
        if value < total * _ALL // _HUNDREDTHS:
            return index
    return len(shares)


def even_part(key: bytes, count: int) -> int:
    """The part of a key among ``count`` equal parts, as ``decide.cache_layout`` writes them."""
    return part_of(key, [int(1000 / count) * 10] * (count - 1))
