"""The workload that a scenario's classes amount to; pure."""

from __future__ import annotations

import msgspec

from nginx_tune.documents.facts import Facts
from nginx_tune.documents.scenario import Scenario, ScenarioClass
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    HttpVersion,
    ObjectSizes,
    Popularity,
    Rate,
    ServedData,
    Tls,
    Workload,
)


def plan_workload(scenario: Scenario, facts: Facts) -> Workload:
    """What the scenario asks for, declared: the decisions then predict what it will show.

    Requests in flight are the users of closed classes; an open class adds its rate; what is
    answered without a file is no part of it. Random requests spread evenly over the files, and
    all of them may miss the page cache at once.
    """
    dataset = facts.datasets[0] if facts.datasets else None
    reading = [c for c in scenario.classes if c.source != "memory"]
    closed = [c for c in reading if c.arrivals.kind == "closed"]
    rates = [c.arrivals.rate_per_second or 0.0 for c in reading]
    thinking = [c.arrivals.think_seconds for c in closed if c.source == "hot"]
    return Workload(
        kind=scenario.kind,
        kind_provenance="declared",
        dataset=ServedData(
            path=dataset.path if dataset else None,
            files=dataset.files if dataset else None,
            bytes=dataset.bytes if dataset else None,
            provenance="measured" if dataset else "assumed",
        ),
        popularity=Popularity(exponent=0.0, provenance="declared"),
        sizes=ObjectSizes(
            mean_bytes=dataset.sizes.mean_bytes if dataset and dataset.sizes else None,
            p50_bytes=dataset.sizes.p50_bytes if dataset and dataset.sizes else None,
            p90_bytes=dataset.sizes.p90_bytes if dataset and dataset.sizes else None,
            p99_bytes=dataset.sizes.p99_bytes if dataset and dataset.sizes else None,
            provenance="measured",
        ),
        rate=Rate(
            mean_per_second=sum(rates) or None,
            peak_per_second=sum(rates) or None,
            provenance="declared",
        ),
        concurrency=Concurrency(
            mean=float(_users(closed)) or None,
            peak=float(_users(closed)) or None,
            cold_peak=float(_users([c for c in closed if c.source == "random"])) or None,
            think_seconds=thinking[0] if thinking else None,
            provenance="declared",
        ),
        connection_reuse=ConnectionReuse(
            requests_per_connection=_requests_per_connection(scenario.classes),
            provenance="declared",
        ),
        tls=Tls(value=scenario.lab.tls, provenance="declared"),
        http_version=HttpVersion(value="1.1", provenance="declared"),
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


def _requests_per_connection(classes: list[ScenarioClass]) -> float:
    return 1.0 if classes and not any(c.keepalive for c in classes) else 1000.0


def _users(classes: list[ScenarioClass]) -> int:
    return sum(c.arrivals.users or 0 for c in classes)
