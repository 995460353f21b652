"""The load plan of a scenario's classes, and the search for the capacity under an objective.

The search runs the probe through a function that its caller passes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from nginx_tune.documents.loadplan import (
    Arrivals,
    LoadClass,
    LoadPlan,
    Paths,
    Permit,
    Priority,
    RequestClass,
    Target,
)
from nginx_tune.documents.measurement import Capacity, CapacityStep, Measurement
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.measure.proof.objective import (
    Bounds,
    judge_run,
    next_rate,
    parse_objective,
    settle,
    so_far,
)

THINK_SECONDS = 0.02
_LEAST_DRAIN_SECONDS = 5.0

HELD_CONNECTIONS = 32
"""Default connections of a class with a rate: several per worker, but few compared with nginx's 512
``worker_connections``."""


STATUSES_OF_MEMORY = [200, 204]
"""Statuses of a location without a file (``return 200`` or ``204``)."""


class ServedFile(NamedTuple):
    """A file that nginx serves."""

    url: str
    bytes: int


def default_classes() -> list[ScenarioClass]:
    """Two closed loops, one on a hot file and one on random files, and a class with a rate.

    The closed loops are scaled to one worker. Their users pause 20 ms between requests: a closed
    loop without pauses saturates a CPU over loopback and compares the machine with itself. The
    class without a file has a rate that gives its tail enough samples at hardly any cost.
    """
    return [
        ScenarioClass(
            name="cold",
            source="random",
            connections=20,
            arrivals=Arrivals(kind="closed", users=20, think_seconds=THINK_SECONDS),
        ),
        ScenarioClass(
            name="hot",
            source="hot",
            connections=4,
            arrivals=Arrivals(kind="closed", users=4, think_seconds=THINK_SECONDS),
        ),
        ScenarioClass(
            name="memory",
            source="memory",
            connections=64,
            connection_use="turns",
            held_connections=HELD_CONNECTIONS,
            arrivals=Arrivals(kind="poisson", rate_per_second=200.0),
        ),
    ]


def plan_load(
    classes: Sequence[ScenarioClass],
    files: Sequence[ServedFile],
    *,
    target: Target,
    memory_url: str | None,
    files_of: Mapping[str, Sequence[ServedFile]] | None = None,
) -> LoadPlan:
    """The load plan of a variant; its length and seed are not set yet.

    The first file is the hot one; the random class requests all others. ``files_of``: files by
    disk, for classes that name a disk. Errors: UndecidedError if a class has nothing to request.
    """
    planned = []
    for item in classes:
        if item.source == "memory":
            if memory_url is None:
                raise UndecidedError(
                    f"class {item.name}: no location answers without a file",
                    hint="add 'location = /healthz { return 200; }', or leave out the class",
                )
            paths = Paths(kind="fixed", paths=[memory_url])
        elif item.manifest:
            paths = Paths(kind="manifest", manifest=item.manifest)
        else:
            served = _files_for(item, (files_of or {}).get(item.disk, files))
            kind = _choice(item)
            paths = Paths(
                kind=kind,
                exponent=item.exponent if kind == "zipf" else None,
                paths=[file.url for file in served],
                bytes=[file.bytes for file in served] if item.checks_length else None,
            )
            if item.beside_memory and memory_url is not None:
                paths = _beside_memory(paths, memory_url, item.beside_memory)
        planned.append(
            LoadClass(
                **{name: getattr(item, name) for name in RequestClass.__struct_fields__},
                paths=paths,
                status=STATUSES_OF_MEMORY if item.source == "memory" else [200],
            )
        )
    return LoadPlan(
        target=target,
        classes=planned,
        duration_seconds=0.0,
        permit=Permit(ports=[target.port] if target.unix is None else []),
    )


def for_seconds(plan: LoadPlan, *, warmup: float, duration: float) -> LoadPlan:
    """The plan with another length."""
    return msgspec.structs.replace(
        plan,
        warmup_seconds=warmup,
        duration_seconds=duration,
        drain_seconds=max(_LEAST_DRAIN_SECONDS, duration / 2),
    )


def hot_urls(classes: Sequence[ScenarioClass], files: Sequence[ServedFile]) -> list[str]:
    """The URLs whose files must be in the page cache before the load."""
    return [files[0].url] if files and any(item.source == "hot" for item in classes) else []


def _choice(item: ScenarioClass) -> Literal["fixed", "once", "uniform", "zipf"]:
    """The way in which a class chooses its next file."""
    if item.source == "hot":
        return "fixed"
    if item.once:
        return "once"
    return "uniform" if item.exponent is None else "zipf"


def _beside_memory(paths: Paths, memory_url: str, times: int) -> Paths:
    """The paths, with ``times`` requests without a file added for each; lengths become unknown."""
    more = [memory_url] * (times * len(paths.paths))
    return msgspec.structs.replace(paths, paths=[*paths.paths, *more], bytes=None)


def _files_for(item: ScenarioClass, files: Sequence[ServedFile]) -> Sequence[ServedFile]:
    random = files[1:] or files[:1]
    own = files[:1] if item.source == "hot" else random[: item.first_files]
    if not own:
        raise UndecidedError(
            f"class {item.name}: no file to request", hint="name a root with files in it"
        )
    return own


_MOST_WEIGHT = 256
_MOST_URGENCY = 7


def family_faults(classes: Sequence[RequestClass]) -> list[str]:
    """The faults in shared connections, priorities and reading paces, each with its field.

    The probe checks again (``probes/src/plan/family.rs``), since a plan may come from anywhere.
    """
    named = {item.name: item for item in classes}
    faults = []
    for item in classes:
        if item.priority is not None:
            faults += [f"classes.priority: {what}" for what in _of_priority(item, item.priority)]
            for name in item.priority.depends_on:
                if name not in named or _family(named[name]) != _family(item):
                    faults.append(
                        "classes.priority.depends_on: no class with connections for it: "
                        f"{name[:60]!a}"
                    )
        if item.read_pace_of == "connection" and (
            item.http2 is None or item.read_bytes_per_second is None
        ):
            faults.append("classes.read_pace_of: needs http2 and read_bytes_per_second")
        if item.connections_of is not None:
            faults += [
                f"classes.connections_of: {what}"
                for what in _of_guest(item, named.get(item.connections_of))
            ]
    return faults


def _family(item: RequestClass) -> str:
    return item.connections_of or item.name


def _of_priority(item: RequestClass, priority: Priority) -> list[str]:
    weight, urgency = priority.weight, priority.urgency
    has_place = bool(priority.depends_on) or priority.exclusive or priority.frame != "headers"
    faults = {
        "neither weight nor urgency": weight is None and urgency is None,
        f"weight: not from 1 to {_MOST_WEIGHT}": weight is not None
        and not 1 <= weight <= _MOST_WEIGHT,
        f"urgency: not from 0 to {_MOST_URGENCY}": urgency is not None
        and not 0 <= urgency <= _MOST_URGENCY,
        "weight: only for HTTP/2": weight is not None and item.http2 is None,
        "weight: missing": weight is None and has_place,
        "urgency: missing": urgency is None and priority.incremental,
        "urgency: headers have a priority already": urgency is not None
        and any(name.lower() == "priority" for name in item.headers),
    }
    return [fault for fault, stands in faults.items() if stands]


def _of_guest(item: RequestClass, owner: RequestClass | None) -> list[str]:
    if owner is None or owner is item or owner.connections_of is not None or owner.http2 is None:
        return ["not an HTTP/2 class with its own connections"]
    faults = {
        "http2 and connections are taken from the other class": item.http2 != owner.http2
        or item.connections != owner.connections,
        "its connections are shared, so read_pace_of must be stream": item.read_pace_of
        == "connection",
    }
    return [fault for fault, stands in faults.items() if stands]


LOWEST_PER_SECOND = 1.0


def search_capacity(
    plan: LoadPlan,
    objectives: Sequence[str],
    *,
    run: Callable[[LoadPlan], Measurement],
    on_start: Callable[[float], None] | None = None,
    on_step: Callable[[CapacityStep], None] | None = None,
) -> Capacity:
    """The capacity of a server under an objective.

    The search starts at the plan's own rate; ``run`` measures a plan. Ctrl-C ends it with the steps
    so far.
    Errors: UsageError for an objective that cannot be read or a plan without a rate.
    """
    objective = parse_objective(objectives, [item.name for item in plan.classes])
    bounds = Bounds(
        first=total_rate(plan), lowest=LOWEST_PER_SECOND, highest=plan.caps.rate_per_second
    )
    steps: list[CapacityStep] = []
    runs: dict[float, Measurement] = {}
    interrupted = False
    try:
        while (rate := next_rate(steps, bounds)) is not None:
            # A seed for each run, so that runs at one rate are independent.
            number = plan.seed + len(steps)
            planned = plan_at_rate(plan, rate, samples=objective.samples, seed=number)
            if on_start is not None:
                on_start(rate)
            measurement = run(planned)
            step = judge_run(objective, measurement, rate)
            steps.append(step)
            if step.met:
                runs[rate] = measurement
            if on_step is not None:
                on_step(step)
    except KeyboardInterrupt:
        interrupted = True
    answer = so_far(steps) if interrupted else settle(steps, bounds)
    return Capacity(
        objectives=list(objective.texts),
        **answer._asdict(),
        steps=steps,
        measurement=runs.get(answer.at_least_per_second or 0.0),
    )


_LONGEST_SECONDS = 120.0
"""The longest time to which a step is prolonged to get enough samples."""
_DRAIN_SECONDS = 2.0
"""The wait after a step; requests still unanswered then count as failed."""


def total_rate(plan: LoadPlan) -> float:
    """The total rate of the classes whose rate a search can change.

    Errors: UsageError if there is none, or if a class follows steps or a manifest.
    """
    moving = [item for item in plan.classes if item.arrivals.kind in ("steps", "replay")]
    if moving:
        raise UsageError(
            f"class {moving[0].name}: a search needs one rate, not {moving[0].arrivals.kind}"
        )
    rate = sum(item.arrivals.rate_per_second or 0.0 for item in plan.classes if _is_open(item))
    if rate <= 0:
        raise UsageError(
            "a search for the capacity needs a class with a rate",
            hint="use arrivals of kind poisson or constant, not closed",
        )
    return rate


def plan_at_rate(plan: LoadPlan, rate_per_second: float, *, samples: int, seed: int) -> LoadPlan:
    """The plan with its open-loop classes at a total rate.

    Each keeps its share; closed loops stay as they are. Within bounds, the measured time is long
    enough for ``samples`` requests of the rarest class.
    """
    factor = rate_per_second / total_rate(plan)
    classes = [
        msgspec.structs.replace(
            item,
            arrivals=msgspec.structs.replace(
                item.arrivals, rate_per_second=(item.arrivals.rate_per_second or 0.0) * factor
            ),
        )
        if _is_open(item)
        else item
        for item in plan.classes
    ]
    rarest = min(item.arrivals.rate_per_second or 0.0 for item in classes if _is_open(item))
    needed = min(samples / rarest, _LONGEST_SECONDS) if rarest > 0 else 0.0
    return msgspec.structs.replace(
        plan,
        classes=classes,
        duration_seconds=max(plan.duration_seconds, needed),
        drain_seconds=min(plan.drain_seconds, _DRAIN_SECONDS),
        seed=seed,
    )


def _is_open(item: LoadClass) -> bool:
    return item.arrivals.kind in ("constant", "poisson")
