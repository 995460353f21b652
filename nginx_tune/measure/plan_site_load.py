"""What a validation asks for: recorded requests, a learnt workload, or the loads of the sources."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.documents.loadplan import Arrivals
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.documents.workload import Workload
from nginx_tune.errors import UsageError
from nginx_tune.measure.plan_load import default_classes

SITE = "site"
"""The class of the site's own traffic."""
_CONNECTIONS = 512
"""Arrivals are not to wait for the probe."""
_DEFAULT_EXPONENT = 0.8


class SiteLoad(NamedTuple):
    """The classes of a load, the metric that decides by default, and what to say of it."""

    classes: list[ScenarioClass]
    primary_metric: str
    notes: list[str]


def default_load() -> SiteLoad:
    """A hot file and random ones."""
    return SiteLoad(default_classes(), "hot.requests_per_second", [])


def replay_load(manifest: str, *, speed: float) -> SiteLoad:
    """The requests of a manifest at the times they came, beside a location without a file."""
    site = ScenarioClass(
        name=SITE,
        source="random",
        manifest=manifest,
        connections=_CONNECTIONS,
        arrivals=Arrivals(kind="replay", speed=speed),
    )
    pace = "as recorded" if speed == 1 else f"{speed:g} times as fast as recorded"
    return SiteLoad([site, _memory()], f"{SITE}.mean", [f"requests of a manifest, {pace}"])


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
        arrivals=Arrivals(kind="poisson", rate_per_second=rate),
    )
    said = f"{rate:g} requests a second, popularity exponent {site.exponent:g}"
    return SiteLoad([site, _memory()], f"{SITE}.mean", [f"load of the workload: {said}"])


def _memory() -> ScenarioClass:
    return next(item for item in default_classes() if item.source == "memory")
