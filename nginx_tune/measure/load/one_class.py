"""The load plan of a single class, from the caller's options and within the caller's caps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from nginx_tune.documents.loadplan import (
    Arrivals,
    Caps,
    Http2,
    Http3,
    LoadClass,
    LoadPlan,
    Paths,
    RateStep,
    Stripe,
    Target,
)
from nginx_tune.errors import UsageError

OPEN_LOOP_CONNECTIONS = 1000
"""Maximum number of connections of an open loop. They are so many that arrivals never wait for a
free one, and few enough for a host's usual 28,000 local ports and nginx's usual 1,024 connections
per worker."""

CLOSED_LOOP_USERS = 10

MULTIPLEXED_CONNECTIONS = 32
"""Connections of an open loop over HTTP/2 or HTTP/3; each stays with one worker."""

MULTIPLEXED_STREAMS = 100
"""Maximum number of streams per connection of an open loop, as in browsers."""

MULTIPLEXED_USERS = 10
"""Users per connection of a closed loop."""

RATE_PER_THREAD = 40_000.0
"""The number of requests per second that one thread can send on time."""


@dataclass(frozen=True)
class Keepalive:
    """The lifetime of connections: unlimited, a number of requests, or random."""

    kept: bool = True
    requests: int | None = None
    close_probability: float | None = None


@dataclass(frozen=True)
class OfferedRate:
    """The rate of an open loop: one value, several equal steps, or a ramp from first to last."""

    values: tuple[float, ...]
    ramp: bool = False


@dataclass(frozen=True)
class Load:
    """The options of a load of one class."""

    http2: bool = False
    http3: bool = False
    streams: int | None = None
    """HTTP/2 and HTTP/3: requests at once per connection; in a closed loop, users per
    connection."""
    connections: int | None = None
    """Closed loop: users, each with a connection; open loop: connections used in turn."""
    rate: OfferedRate | None = None
    paths: Paths | None = None
    """Paths to request; None for the URL's own path."""
    headers: Mapping[str, str] = field(default_factory=dict)
    status: Sequence[int] = (200,)
    timeout_seconds: float = 30.0
    keepalive: Keepalive = field(default_factory=Keepalive)
    duration_seconds: float = 10.0
    warmup_seconds: float = 1.0
    threads: int = 1
    stripe: Stripe = field(default_factory=Stripe)
    start_at_unix_seconds: float | None = None


def default_threads(rate: OfferedRate | None, connections: int, cpus: int) -> int:
    """The number of threads for a load; a core sends some 70,000 small requests per second.

    At least half of the CPUs are left to others, such as the server. A closed loop gets one thread,
    since its rate is unknown; a run limited by the probe's CPU time is flagged.
    """
    if rate is None:
        return 1
    needed = math.ceil(max(rate.values) / RATE_PER_THREAD)
    return max(min(needed, cpus // 2, connections), 1)


def plan_load(target: Target, path: str, load: Load) -> LoadPlan:
    """The load plan for some options.

    Errors: UsageError for options that contradict each other.
    """
    if load.http2 or load.http3:
        return _plan(target, load, _class_with_streams(target, path, load))
    if load.streams is not None:
        raise UsageError("only HTTP/2 and HTTP/3 have streams", hint="give --http2 or --http3 too")
    arrivals = _arrivals(load)
    is_open = arrivals.kind != "closed"
    held = load.connections if is_open else None
    if held is not None and not load.keepalive.kept:
        raise UsageError(
            "an open loop keeps its connections open, and --keepalive off closes them",
            hint="leave out either --connections or --keepalive off",
        )
    most = load.connections or (OPEN_LOOP_CONNECTIONS if is_open else CLOSED_LOOP_USERS)
    main = msgspec.structs.replace(
        _class(path, load, arrivals, most),
        connection_use="turns" if held is not None else "latest",
        held_connections=held,
        keepalive=load.keepalive.kept,
        keepalive_requests=load.keepalive.requests,
        close_probability=load.keepalive.close_probability,
    )
    return _plan(target, load, main)


def _class(path: str, load: Load, arrivals: Arrivals, connections: int) -> LoadClass:
    """The parts of a class that are the same for every protocol."""
    return LoadClass(
        name="url",
        arrivals=arrivals,
        paths=load.paths or Paths(kind="fixed", paths=[path]),
        connections=connections,
        headers=dict(load.headers),
        status=list(load.status),
        timeout_seconds=load.timeout_seconds,
    )


def _class_with_streams(target: Target, path: str, load: Load) -> LoadClass:
    """A class whose connections carry many requests at once.

    Errors: UsageError for options of HTTP/1.1, and targets without QUIC.
    """
    option = "--http3" if load.http3 else "--http2"
    if load.http2 and load.http3:
        raise UsageError("--http2 and --http3 exclude each other")
    if load.http3:
        _require_quic(target)
    if load.keepalive != Keepalive():
        raise UsageError(f"--keepalive needs HTTP/1.1 and cannot be combined with {option}")
    arrivals = _arrivals(load)
    if arrivals.kind == "closed":
        connections = load.connections or CLOSED_LOOP_USERS
        streams = load.streams or MULTIPLEXED_USERS
        arrivals = msgspec.structs.replace(arrivals, users=connections * streams)
    else:
        connections = load.connections or MULTIPLEXED_CONNECTIONS
        streams = load.streams or MULTIPLEXED_STREAMS
    return msgspec.structs.replace(
        _class(path, load, arrivals, connections),
        http2=Http2(streams=streams) if load.http2 else None,
        http3=Http3(streams=streams) if load.http3 else None,
    )


def _require_quic(target: Target) -> None:
    """Check that a target can use QUIC. Errors: UsageError."""
    if target.tls is None:
        raise UsageError(
            "--http3 is over QUIC, which is always encrypted", hint="give an https URL"
        )
    if target.unix is not None:
        raise UsageError("HTTP/3 needs UDP, so a unix socket excludes --http3")


def _plan(target: Target, load: Load, item: LoadClass) -> LoadPlan:
    return LoadPlan(
        target=target,
        classes=[item],
        duration_seconds=load.duration_seconds,
        warmup_seconds=load.warmup_seconds,
        threads=load.threads,
        stripe=load.stripe,
        start_at_unix_seconds=load.start_at_unix_seconds,
    )


def _arrivals(load: Load) -> Arrivals:
    if load.rate is None:
        users = load.connections or CLOSED_LOOP_USERS
        return Arrivals(kind="closed", users=users)
    if len(load.rate.values) == 1:
        return Arrivals(kind="poisson", rate_per_second=load.rate.values[0])
    return Arrivals(kind="steps", steps=_steps(load))


def _steps(load: Load) -> list[RateStep]:
    """The rates over the measured time; the warm-up has the first rate."""
    assert load.rate is not None  # noqa: S101  # the caller checked
    first, *_, last = load.rate.values
    steps = []
    if load.warmup_seconds:
        steps.append(RateStep(seconds=load.warmup_seconds, rate_per_second=first))
    if load.rate.ramp:
        ramp = RateStep(
            seconds=load.duration_seconds, rate_per_second=first, to_rate_per_second=last
        )
        return [*steps, ramp]
    length = load.duration_seconds / len(load.rate.values)
    return [*steps, *(RateStep(seconds=length, rate_per_second=r) for r in load.rate.values)]


CAP_NAMES = {
    "seconds": "seconds",
    "bytes": "bytes",
    "requests": "requests",
    "connections": "connections",
    "rate": "rate_per_second",
}
"""Fields of ``Caps`` by the names of the command line."""


def plan_within(plan: LoadPlan, given: Mapping[str, float]) -> LoadPlan:
    """The plan with the caps that apply to it.

    ``given``: the caller's caps by name; the others have their defaults. A plan's own caps apply
    only if they are lower, since a file must not raise its own bounds.
    """
    bounds = {}
    for name, cap in CAP_NAMES.items():
        default = getattr(Caps(), cap)
        callers = given.get(name, default)
        own = getattr(plan.caps, cap)
        # A plan without caps has the defaults, which the caller may exceed.
        has_none = own == default and name in given
        bounds[cap] = callers if has_none else min(callers, own)
    return msgspec.structs.replace(plan, caps=msgspec.convert(bounds, Caps))
