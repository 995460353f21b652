"""What a validation asks for: recorded requests, a learnt workload, or the loads of the sources."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.documents.experiment import SiteLoad
from nginx_tune.documents.loadplan import Arrivals
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.documents.workload import Workload
from nginx_tune.errors import UsageError
from nginx_tune.load.classes import HELD_CONNECTIONS, default_classes

SITE = "site"
"""The class of the site's own traffic."""
_CONNECTIONS = 512
"""Arrivals are not to wait for the probe."""
_DEFAULT_EXPONENT = 0.8
_LEAST_RATIO = 0.001
"""Of all requests; below, a class of its own tells nothing."""


def default_load() -> SiteLoad:
    """A hot file and random ones, and two users of every other place."""
    return SiteLoad(classes=default_classes(), primary_metric="hot.requests_per_second", asks="all")


def replay_load(manifest: str, *, speed: float, hashed: bool = False) -> SiteLoad:
    """The requests of a manifest at the times they came, beside a location without a file."""
    site = ScenarioClass(
        name=SITE,
        source="random",
        manifest=manifest,
        connections=_CONNECTIONS,
        connection_use="turns",
        held_connections=HELD_CONNECTIONS,
        arrivals=Arrivals(kind="replay", speed=speed),
    )
    pace = "as recorded" if speed == 1 else f"{speed:g} times as fast as recorded"
    return SiteLoad(
        classes=[site, _memory()],
        primary_metric=f"{SITE}.mean",
        notes=[f"requests of a manifest, {pace}"],
        manifest=manifest,
        hashed=hashed,
    )


def workload_load(workload: Workload) -> SiteLoad:
    """The rate and popularity of a workload over the files that are served.

    Which file is popular is not known, so the files stand in an order of their own.
    Errors: UsageError for a workload without a rate.
    """
    rate = workload.rate.peak_per_second or workload.rate.mean_per_second
    if not rate:
        raise UsageError(
            "the workload has no request rate", hint="learn it from a log, or declare rate"
        )
    exponent = workload.popularity.exponent
    site = ScenarioClass(
        name=SITE,
        source="random",
        exponent=_DEFAULT_EXPONENT if exponent is None else exponent,
        connections=_CONNECTIONS,
        connection_use="turns",
        held_connections=HELD_CONNECTIONS,
        arrivals=Arrivals(kind="poisson", rate_per_second=rate),
    )
    said = f"{rate:g} requests a second, popularity exponent {site.exponent:g}"
    locations = workload.traffic.locations if workload.traffic else []
    return SiteLoad(
        classes=[site, _memory()],
        primary_metric=f"{SITE}.mean",
        notes=[f"load of the workload: {said}"],
        asks="locations" if locations else "files",
        locations=locations,
        rate_per_second=rate,
    )


def share_of(load: SiteLoad, server: str, location: str) -> float | None:
    """The share of the requests that a place has; None where none is told."""
    shares = [
        one.requests_ratio
        for one in load.locations
        if (one.server, one.location) == (server, location)
    ]
    return sum(shares) if shares else None


def with_rest(classes: Sequence[ScenarioClass], ratio: float) -> list[ScenarioClass]:
    """The classes with this share of the site's own rate: what is asked elsewhere is not here.

    Without any of it the class is left out.
    """
    return [
        msgspec.structs.replace(
            item,
            arrivals=msgspec.structs.replace(
                item.arrivals, rate_per_second=(item.arrivals.rate_per_second or 0.0) * ratio
            ),
        )
        if _is_site(item) and item.arrivals.kind == "poisson"
        else item
        for item in classes
        if not _is_site(item) or ratio > _LEAST_RATIO
    ]


def _is_site(item: ScenarioClass) -> bool:
    """Over whatever protocol."""
    return item.name == SITE or item.name.startswith(f"{SITE}-http")


def _memory() -> ScenarioClass:
    return next(item for item in default_classes() if item.source == "memory")
