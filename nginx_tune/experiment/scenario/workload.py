"""The workload that a scenario's classes amount to; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from nginx_tune.documents.facts import Dataset, Facts
from nginx_tune.documents.scenario import WITHOUT_FILE, Scenario, ScenarioClass
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    HttpVersion,
    ObjectSizes,
    Rate,
    ServedData,
    TlsUse,
    Workload,
)
from nginx_tune.experiment.scenario.popularity import declare_popularity, requested_mean_bytes


def plan_workload(scenario: Scenario, facts: Facts) -> Workload:
    """What the scenario asks for, declared: the decisions then predict what it will show.

    Requests in flight are the users of closed classes; an open class adds its rate, and so do
    users of random files who pause, since a read is short beside a pause; what is answered
    without a file is no part of it. All random requests may miss the page cache at once, and on
    average those do that it does not hold.
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
    """A class with a rate, some of whose requests need no file, as two."""
    rate, times = item.arrivals.rate_per_second, item.beside_memory
    if not times or rate is None:
        return [item]

    def at(each: float, **changes: object) -> ScenarioClass:
        arrivals = msgspec.structs.replace(item.arrivals, rate_per_second=each)
        return msgspec.structs.replace(item, arrivals=arrivals, beside_memory=0, **changes)

    each = rate / (1 + times)
    return [at(each), at(each * times, source="memory", once=False)]


def _data(datasets: Sequence[Dataset]) -> ServedData:
    """The files of all disks together."""
    if not datasets:
        return ServedData()
    return ServedData(
        path=datasets[0].path,
        files=_sum(item.files for item in datasets),
        bytes=_sum(item.bytes for item in datasets),
        provenance="measured",
    )


def _sizes(datasets: Sequence[Dataset]) -> ObjectSizes:
    """Sizes of the files; several disks have the mean of all and the quantiles of the first."""
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
    """The facts of a host with at least as many CPUs as the experiment has workers.

    The decisions then reckon with these workers, and both kinds of arms have them.
    """
    if (facts.cpu.effective or 0) >= workers:
        return facts
    cpu = msgspec.structs.replace(
        facts.cpu, online=workers, effective=float(workers), cpuset=workers
    )
    return msgspec.structs.replace(facts, cpu=cpu)


def _taken_by_client(reading: Sequence[ScenarioClass]) -> float | None:
    """What a client takes, on average, where all of them are slow."""
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
    """Requests a second for random files of each disk, where all come by themselves.

    Users who wait for their answers ask a slow disk less often, nobody knows beforehand how much.
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
    """Requests a second that are answered from nginx's own memory."""
    return sum(c.arrivals.rate_per_second or 0.0 for c in classes if c.source == "memory") or None


def _requests_per_connection(classes: list[ScenarioClass]) -> float:
    return 1.0 if classes and not any(c.keepalive for c in classes) else 1000.0


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known; None where nothing is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _pausing_rate(item: ScenarioClass) -> float:
    """Requests a second of users who pause between random files; 0 of all others."""
    if item.source != "random" or not item.arrivals.think_seconds:
        return 0.0
    return (item.arrivals.users or 0) / item.arrivals.think_seconds


def _users(classes: list[ScenarioClass]) -> int:
    return sum(c.arrivals.users or 0 for c in classes)
