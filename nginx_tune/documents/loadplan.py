"""``loadplan``: everything the load probe needs for one measurement (one JSON in, one out)."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from nginx_tune.documents.base import Document, Part


class Target(Part, frozen=True, kw_only=True):
    """The one server address that is asked."""

    address: str
    """An IP address; the probe resolves no names."""
    port: int
    host: str = "localhost"
    """``Host`` header."""


class Arrivals(Part, frozen=True, kw_only=True):
    """When requests are due."""

    kind: Literal["closed", "constant", "poisson"]
    rate_per_second: float | None = None
    """Open loop: mean arrival rate."""
    users: int | None = None
    """Closed loop: requests in flight at once, each followed by the next."""
    think_seconds: float | None = None
    """Closed loop: pause between a response and the same user's next request."""


class Paths(Part, frozen=True, kw_only=True):
    """What is asked for: a pure function of seed, class and index."""

    kind: Literal["fixed", "uniform", "zipf", "once"]
    """``once`` asks for each path once in shuffled order, then starts over."""
    paths: list[str]
    exponent: float | None = None
    """Zipf exponent over ``paths`` in order of popularity."""
    bytes: list[int] | None = None
    """Expected body length per path; a response of another length is a ``length`` failure."""


class LoadClass(Part, frozen=True, kw_only=True):
    """One request class with its own connections."""

    name: str
    arrivals: Arrivals
    paths: Paths
    connections: int
    """Cap on connections; arrivals at the cap wait with their intended time."""
    method: Literal["GET", "HEAD"] = "GET"
    headers: dict[str, str] = {}
    status: list[int] = field(default_factory=lambda: [200])
    """Expected statuses; any other is a ``status`` failure."""
    timeout_seconds: float = 30.0
    """From the intended start."""
    keepalive: bool = True


class Caps(Part, frozen=True, kw_only=True):
    """Bounds the run cannot pass."""

    seconds: float = 600.0
    bytes: int = 1 << 42
    requests: int = 100_000_000
    connections: int = 4096
    rate_per_second: float = 200_000.0


class Permit(Part, frozen=True, kw_only=True):
    """Which targets the guard rails let through.

    An address of this host is fine when its port is listed (a server that nginx-tune started)
    or ``live`` is set; another address only when it is in ``hosts``.
    """

    ports: list[int] = []
    live: bool = False
    hosts: list[str] = []


class Stripe(Part, frozen=True, kw_only=True):
    """This load host's share of the arrivals."""

    index: int = 0
    count: int = 1


class LoadPlan(Document, frozen=True, kw_only=True, tag="nginx-tune/loadplan/1"):
    """One load measurement."""

    target: Target
    classes: list[LoadClass]
    duration_seconds: float
    """Measured time, after the warm-up."""
    warmup_seconds: float = 0.0
    """Requests intended before this are sent but not recorded."""
    drain_seconds: float = 5.0
    """Time that unfinished requests get after the last arrival; then they are censored."""
    seed: int = 1
    stripe: Stripe = Stripe()
    abort_error_ratio: float | None = None
    """Stop when more than this share of the requests failed in each of three seconds running."""
    cpus: list[int] = []
    """CPUs to pin the probe to; empty leaves it alone."""
    realtime: bool = False
    """Run the probe ahead of ordinary processes (SCHED_FIFO) where that is allowed; only for
    CPUs that it has to itself."""
    caps: Caps = Caps()
    permit: Permit = Permit()
