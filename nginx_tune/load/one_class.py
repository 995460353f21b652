"""The load plan of a single class, from what a caller asks for; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nginx_tune.documents.loadplan import (
    Arrivals,
    ByteRanges,
    LoadClass,
    LoadPlan,
    Paths,
    RateStep,
    Stripe,
    Target,
)
from nginx_tune.errors import UsageError

OPEN_LOOP_CONNECTIONS = 1000
"""Cap of an open loop: its arrivals should not wait for the probe, and a host's usual 28 000
local ports and nginx's usual 1 024 connections a worker bear it."""

CLOSED_LOOP_USERS = 10

RATE_PER_THREAD = 40_000.0
"""Requests a second that leave a thread time to be punctual."""

NEW_CONNECTIONS_CLASS = "connect"


@dataclass(frozen=True)
class Keepalive:
    """How long connections are kept: for ever, for some requests, or closed by chance."""

    kept: bool = True
    requests: int | None = None
    close_probability: float | None = None


@dataclass(frozen=True)
class OfferedRate:
    """An open loop's rate: one, several in equal steps, or growing from the first to the last."""

    values: tuple[float, ...]
    ramp: bool = False


@dataclass(frozen=True)
class Targets:
    """What is asked for: paths, or a manifest; the URL's own path when both are empty."""

    paths: Sequence[str] = ()
    bytes: Sequence[int] | None = None
    files: Sequence[str] | None = None
    manifest: str | None = None
    pick: Literal["uniform", "zipf", "once"] = "uniform"
    exponent: float | None = None


@dataclass(frozen=True)
class Load:
    """All that can be said of a load of one class."""

    connections: int | None = None
    """Closed loop: the users, each with its own; open loop: held open and used in turn."""
    think_seconds: float | None = None
    rate: OfferedRate | None = None
    gaps: Literal["constant", "poisson"] = "poisson"
    replay_speed: float | None = None
    most_connections: int | None = None
    asked: Targets = field(default_factory=Targets)
    method: Literal["GET", "HEAD"] = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    status: Sequence[int] = (200,)
    timeout_seconds: float = 30.0
    keepalive: Keepalive = field(default_factory=Keepalive)
    range: ByteRanges | None = None
    read_bytes_per_second: int | None = None
    hash_ratio: float = 0.01
    idle_connections: int = 0
    new_connections_per_second: float | None = None
    duration_seconds: float = 10.0
    warmup_seconds: float = 1.0
    threads: int = 1
    precise: bool = False
    seed: int = 1
    stripe: Stripe = field(default_factory=Stripe)
    start_at_unix_seconds: float | None = None


def default_threads(rate: OfferedRate | None, connections: int, cpus: int) -> int:
    """How many threads a load wants: one core sends some 70,000 small requests a second.

    Half of the CPUs are left to others, such as the server. What a closed loop will reach is not
    known; a run that its CPU time limits is flagged.
    """
    if rate is None:
        return 1
    wanted = math.ceil(max(rate.values) / RATE_PER_THREAD)
    return max(min(wanted, cpus // 2, connections), 1)


def plan_load(target: Target, path: str, load: Load) -> LoadPlan:
    """The load plan.

    Errors: UsageError for what contradicts itself.
    """
    if load.rate is not None and load.replay_speed is not None:
        raise UsageError("rate and replay exclude each other", hint="a manifest has its own times")
    arrivals = _arrivals(load)
    is_open = arrivals.kind != "closed"
    held = load.connections if is_open else None
    if held is not None and not load.keepalive.kept:
        raise UsageError(
            "connections of an open loop are held, and keepalive off closes them",
            hint="leave --connections out, or --keepalive off",
        )
    most = load.most_connections or load.connections
    most = most or (OPEN_LOOP_CONNECTIONS if is_open else CLOSED_LOOP_USERS)
    if held is not None and most < held:
        raise UsageError(f"{held} connections are to be held, and {most} is the most there may be")
    main = LoadClass(
        name="url",
        arrivals=arrivals,
        paths=_paths(path, load.asked),
        connections=most,
        connection_use="turns" if held is not None else "latest",
        held_connections=held,
        method=load.method,
        headers=dict(load.headers),
        status=list(load.status),
        timeout_seconds=load.timeout_seconds,
        keepalive=load.keepalive.kept,
        keepalive_requests=load.keepalive.requests,
        close_probability=load.keepalive.close_probability,
        range=load.range,
        read_bytes_per_second=load.read_bytes_per_second,
        hash_ratio=load.hash_ratio,
    )
    return LoadPlan(
        target=target,
        classes=[main, *_new_connections(path, load)],
        duration_seconds=load.duration_seconds,
        warmup_seconds=load.warmup_seconds,
        threads=load.threads,
        precise=load.precise,
        seed=load.seed,
        stripe=load.stripe,
        start_at_unix_seconds=load.start_at_unix_seconds,
        idle_connections=load.idle_connections,
    )


def _arrivals(load: Load) -> Arrivals:
    if load.replay_speed is not None:
        if load.asked.manifest is None:
            raise UsageError("only a manifest can be replayed", hint="give --paths-from MANIFEST")
        return Arrivals(kind="replay", speed=load.replay_speed)
    if load.rate is None:
        users = load.connections or CLOSED_LOOP_USERS
        return Arrivals(kind="closed", users=users, think_seconds=load.think_seconds)
    if len(load.rate.values) == 1:
        return Arrivals(kind=load.gaps, rate_per_second=load.rate.values[0])
    return Arrivals(kind="steps", gaps=load.gaps, steps=_steps(load))


def _steps(load: Load) -> list[RateStep]:
    """The rates over the measured time; the warm-up runs at the first."""
    assert load.rate is not None  # noqa: S101  # the caller has looked
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


def _paths(path: str, asked: Targets) -> Paths:
    if asked.manifest is not None:
        return Paths(kind="manifest", manifest=asked.manifest)
    listed = list(asked.paths) or [path]
    kind = asked.pick if asked.paths else "fixed"
    return Paths(
        kind=kind,
        paths=listed,
        exponent=(asked.exponent or 1.0) if kind == "zipf" else None,
        bytes=None if asked.bytes is None else list(asked.bytes),
        files=None if asked.files is None else list(asked.files),
    )


def _new_connections(path: str, load: Load) -> list[LoadClass]:
    """A class of its own whose every request opens a connection: the accept queue at work."""
    if load.new_connections_per_second is None:
        return []
    return [
        LoadClass(
            name=NEW_CONNECTIONS_CLASS,
            arrivals=Arrivals(kind="poisson", rate_per_second=load.new_connections_per_second),
            paths=Paths(kind="fixed", paths=[path]),
            connections=OPEN_LOOP_CONNECTIONS,
            method=load.method,
            headers=dict(load.headers),
            status=list(load.status),
            timeout_seconds=load.timeout_seconds,
            keepalive=False,
        )
    ]
