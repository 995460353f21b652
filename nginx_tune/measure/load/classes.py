"""From a scenario's classes and the files there are to a load plan; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from nginx_tune.documents.lab import EVENTS_PATH, UPLOADS_PATH
from nginx_tune.documents.loadplan import (
    Arrivals,
    EventStream,
    LoadClass,
    LoadPlan,
    Paths,
    Permit,
    RequestClass,
    Target,
)
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.event_text import LAST, STAMP

THINK_SECONDS = 0.02
_LEAST_DRAIN_SECONDS = 5.0

HELD_CONNECTIONS = 32
"""Of a class with a rate that is not told how many: some for each worker, and few beside nginx's
512 ``worker_connections``."""


STATUSES_OF_MEMORY = [200, 204]
"""What a location answers that is taken for one without a file (``return 200`` or ``204``)."""


_STAMPED = EventStream(stamp=STAMP, end=LAST)
"""How the origin's events are read."""


class ServedFile(NamedTuple):
    """A file that nginx serves."""

    url: str
    bytes: int


def default_classes() -> list[ScenarioClass]:
    """The sources' two loads (A4) scaled to one worker, and a location served without a file.

    Users pause 20 ms between requests: without, a closed loop over loopback saturates a CPU,
    and what is compared is the machine with itself. The memory class is paced so that its tail
    has samples and hardly any cost.
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
    """What an arm is asked; for how long and with which seed is settled later.

    The hot file is the first; the random class asks for all the others, so that the hot one is
    never evicted by being one of them. ``files_of`` are the files of each disk, for classes that
    name one. Errors: UndecidedError when a class has nothing to ask.
    """
    planned = []
    for item in classes:
        if item.source == "memory":
            if memory_url is None:
                raise UndecidedError(
                    f"class {item.name}: no location answers without a file",
                    hint="add 'location = /healthz { return 200; }' or leave the class out",
                )
            paths = Paths(kind="fixed", paths=[memory_url])
        elif item.source == "events":
            query = f"?{item.query}" if item.query else ""
            paths = Paths(kind="fixed", paths=[EVENTS_PATH + query])
        elif item.source == "uploads":
            paths = Paths(kind="fixed", paths=[UPLOADS_PATH])
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
                method="POST" if item.source == "uploads" else "GET",
                event_stream=_STAMPED if item.source == "events" else None,
            )
        )
    return LoadPlan(
        target=target,
        classes=planned,
        duration_seconds=0.0,
        permit=Permit(ports=[target.port] if target.unix is None else []),
    )


def for_seconds(plan: LoadPlan, *, warmup: float, duration: float) -> LoadPlan:
    """The plan for blocks of this length."""
    return msgspec.structs.replace(
        plan,
        warmup_seconds=warmup,
        duration_seconds=duration,
        drain_seconds=max(_LEAST_DRAIN_SECONDS, duration / 2),
    )


def hot_urls(classes: Sequence[ScenarioClass], files: Sequence[ServedFile]) -> list[str]:
    """What must be in the page cache before such a load."""
    return [files[0].url] if files and any(item.source == "hot" for item in classes) else []


def _choice(item: ScenarioClass) -> Literal["fixed", "once", "uniform", "zipf"]:
    """How the next file is chosen."""
    if item.source == "hot":
        return "fixed"
    if item.once:
        return "once"
    return "uniform" if item.exponent is None else "zipf"


def _beside_memory(paths: Paths, memory_url: str, times: int) -> Paths:
    """Each path with so many requests beside it that need no file; their length is not known."""
    more = [memory_url] * (times * len(paths.paths))
    return msgspec.structs.replace(paths, paths=[*paths.paths, *more], bytes=None)


def _files_for(item: ScenarioClass, files: Sequence[ServedFile]) -> Sequence[ServedFile]:
    random = files[1:] or files[:1]
    wanted = files[:1] if item.source == "hot" else random[: item.first_files]
    if not wanted:
        raise UndecidedError(
            f"class {item.name}: no file to ask for", hint="name a root with files in it"
        )
    return wanted
