"""``experiment``: a comparison of two configurations, settled and written down before it runs.

    schema = "nginx-tune/experiment/1"
    baseline = "/etc/nginx/nginx.conf"
    candidate = "/tmp/candidate.conf"
    primary_metric = "hot.requests_per_second"

    [[load.classes]]
    name = "hot"
    source = "hot"
    connections = 16
    arrivals = { kind = "closed" }

``validate --dry-run`` prints one, ``scenario run`` runs it.
"""

from __future__ import annotations

from typing import Literal

from nginx_tune.documents.base import Document, Part
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.documents.workload import LocationShare

Protocol = Literal["2", "3"]
"""HTTP/2 over TLS, or HTTP/3."""


class SiteLoad(Part, frozen=True, kw_only=True):
    """The classes of a load, the metric that decides by default, and what to say of it."""

    classes: list[ScenarioClass]
    """Of the files of the first root, and of what needs no file."""
    primary_metric: str = ""
    notes: list[str] = []
    asks: Literal["all", "locations", "files"] = "files"
    """Whether other servers and locations are asked too: all, those of ``locations``, or none."""
    locations: list[LocationShare] = []
    """The share of each in the requests."""
    rate_per_second: float | None = None
    """Of all requests, where shares are told."""
    protocols: list[Protocol] = []
    """Over which other servers and locations are asked where they speak it, else HTTP/1.1; the
    classes say it of themselves."""
    manifest: str = ""
    """File of recorded requests."""
    hashed: bool = False
    """Whether the paths in it are hashes, which only a lab can have files of."""


class ExperimentSpec(Document, frozen=True, kw_only=True, tag="nginx-tune/experiment/1"):
    """Two configurations, where they run, what they are asked and what decides."""

    baseline: str = ""
    """Path of its nginx.conf; empty for the one that the host's nginx has."""
    candidate: str = ""
    """Path of its nginx.conf; empty with ``plan``."""
    plan: str = ""
    """File of a plan: the candidate is the baseline with it."""
    prefix: str | None = None
    """nginx's ``-p`` as it was asked for; null for the one that nginx has."""
    lab: Lab | None = None
    """The emulated host; null for this machine as it is."""
    starts: Literal["full", "cold"] = "full"
    """What of a lab's data is in memory as a block starts: as much as it holds, as in the long
    run, or nothing."""
    scale: float | None = None
    """Share of a manifest's objects that the lab has files of; null for about a GiB."""
    load: SiteLoad
    primary_metric: str | None = None
    """Null for the load's own."""
    requires: list[str] = []
    """Gate expressions."""
    objectives: list[str] = []
    """What the capacity of each arm is searched under; none for no search."""
    accept_worse: list[str] = []
    """Metrics that may become worse."""
    accept_lost: bool = False
    """Whether the candidate may serve less than the baseline."""
    pairs: int = 6
    warmup_seconds: float | None = None
    """Null has it found by a block of each arm."""
    duration_seconds: float = 8.0
    max_seconds: float | None = None
    """Pairs are added until it is settled or this is over; null for just ``pairs``."""
    self_check: bool = False
    """Whether the noise floor is measured first: the baseline against itself."""
    seed: int = 1
    found: list[str] = []
    """What a look at both showed, for people: what is asked and what it answers, what is not as
    configured. A run looks again."""
    lost: list[str] = []
    """What the baseline serves and the candidate does not, when it was looked at."""
