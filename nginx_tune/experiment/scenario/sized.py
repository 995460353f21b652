"""A host of ``size`` as a scenario: a scale model in the lab, loaded at the rate it carries.

Memory and data are scaled down together, which keeps the share of requests answered from memory.
Disks, file sizes and rate are the host's. One disk represents all of them, with its share of
memory, data, link and rate, so that it is as busy as a disk of the host.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from nginx_tune.decide.model.answers import AnswerGoal, Server
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.size import HostSizes
from nginx_tune.documents.facts import Disk
from nginx_tune.documents.lab import DiskModel
from nginx_tune.documents.sizing import SizedHost, Sizing
from nginx_tune.documents.units import bytes_text
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.disk_models import LIMITS, MODELS, MOST_READS_PER_SECOND
from nginx_tune.nginx.lab.spec import model_of_curve

_MIB = 1 << 20
_MOST_DATA_BYTES = 1 << 30
_MOST_FILES = 40_000
_LEAST_MEMORY_BYTES = 96 * _MIB
_MOST_BYTES_PER_SECOND = 200e6
_MOST_REQUESTS_PER_SECOND = 4000.0
"""The highest rate at which the lab, which shares the machine with the load generator, is not the
bottleneck."""
_MOST_LINK_BITS_PER_SECOND = 2 * 10**9
_FEWEST_ANSWERS = 1500
"""Answers needed for the 99th percentile of a class, with a margin."""
_LONGEST_SECONDS = 60.0
_LONGEST_WARMUP_SECONDS = 40.0
_SETTLED = 1.5
"""Requests, per object in a full page cache, after which the cache has its long-run contents."""
_LARGER = 4.0
"""The factor by which a lab's data may exceed its usual size."""


def sized_scenario(sizes: HostSizes, sizing: Sizing) -> Mapping[str, Any]:
    """The tables of a scenario that measures the recommended host.

    That is the cheapest host that carries the requested rate; if none does, this host at the rate
    that it carries.
    Errors: UndecidedError if no lab can be its scale model.
    """
    host = nearest_host(sizing)
    column = sizes.columns[host.disks]
    server = sizes.server(column, float(host.memory_bytes))
    rate = sizing.asked_per_second
    if rate is None:
        rate = host.carried_per_second.low
    if rate <= 0:
        raise UndecidedError(
            "no host in the table is sure to carry any rate, so there is nothing to measure",
            hint="give --rate N, or another --objective",
        )
    exponent = sizes.situation.exponent.value or 0.0
    return scenario_tables(
        server,
        next(iter(column.situation.disks), Disk(name="disk1", class_="unknown")),
        disks=column.choice.count,
        rate=rate,
        goal=sizes.request.goal,
        objective=sizing.objective,
        exponent=exponent,
        pools=host.pools,
    )


def nearest_host(sizing: Sizing) -> SizedHost:
    """The cheapest host that carries the requested rate, else this host."""
    if sizing.cheapest is not None:
        return sizing.hosts[sizing.cheapest]
    return next(host for host in sizing.hosts if host.is_this)


def scenario_tables(
    server: Server,
    disk: Disk,
    *,
    disks: int,
    rate: float,
    goal: AnswerGoal | None,
    objective: str,
    exponent: float,
    pools: bool,
) -> Mapping[str, Any]:
    """The tables of a scenario with one of the host's ``disks``, stock and recommended settings.

    Errors: UndecidedError if no lab can be its scale model.
    """
    i = server.inputs
    scale = _scale(server, disks, rate)
    rate /= disks
    files = max(8, round(scale * i.objects))
    memory = round(scale * i.page_cache_bytes)
    size = max(1, round(i.object_bytes))
    lab: dict[str, Any] = {
        "name": f"{scale:.2g} of a host",
        "memory_bytes": memory,
        "worker_processes": min(2, i.workers),
        "tls": i.encrypts,
        "disks": [{"name": "disk1", "mount": "/srv/disk1", **_lab_disk(disk, i.disk)}],
        "data": [{"disk": "disk1", "files": files, "file_bytes": size}],
    }
    link = (i.link_bytes_per_second or math.inf) * 8 / disks
    if link <= _MOST_LINK_BITS_PER_SECOND:
        lab |= {"topology": "link", "link": {"bits_per_second": round(link)}}
    settled = _SETTLED * min(files, memory / size) / rate if exponent else 0.0
    classes = [_files(rate, exponent)]
    asked = "files"
    if goal is not None and goal.hits:
        classes.append(_memory())
        asked = "memory"
    settings = [{"context": "location", "directive": "aio", "args": ["threads"]}]
    return {
        "name": "size",
        "title": f"{rate:.3g} requests a second for files on one disk, with {memory // _MIB} MiB",
        "description": f"One of {disks} disks of a host of nginx-tune size, with {scale:.2g} of "
        f"the host's data and memory. Objective: {objective or 'none'}.",
        "kind": "static",
        "needs": ["--with-threads"] if pools else [],
        "primary_metric": f"{asked}.p99",
        "starts": "full",
        "pairs": 1,
        "warmup_seconds": round(min(_LONGEST_WARMUP_SECONDS, max(3.0, settled)), 1),
        "duration_seconds": round(min(_LONGEST_SECONDS, max(10.0, _FEWEST_ANSWERS / rate)), 1),
        "lab": lab,
        "baseline": {"decisions": "none"},
        "candidate": {"decisions": "recommended", "settings": settings if pools else []},
        "classes": classes,
        "claims": []
        if goal is None
        else [
            {
                "name": "meets the objective",
                "expression": f"{asked}.{goal.statistic} <= {goal.seconds:.6g}s",
            }
        ],
    }


def _scale(server: Server, disks: int, rate: float) -> float:
    """The share of the host's data and memory that the lab's disk has."""
    i = server.inputs
    bytes_per_second = rate / disks * i.object_bytes * server.sent_ratio
    if rate / disks > _MOST_REQUESTS_PER_SECOND or bytes_per_second > _MOST_BYTES_PER_SECOND:
        raise UndecidedError(
            f"{rate / disks:,.0f} requests per second of {bytes_text(i.object_bytes)} from one "
            "disk are more than a lab on one machine can send",
            hint="measure on the host itself: nginx-tune probe URL --objective EXPR",
        )
    data = i.objects * i.object_bytes
    usual = min(1 / disks, _MOST_DATA_BYTES / data, _MOST_FILES / i.objects)
    scale = max(usual, min(1 / disks, _LEAST_MEMORY_BYTES / i.page_cache_bytes))
    if scale > _LARGER * usual:
        raise UndecidedError(
            f"a scale model with a lab's least memory, {bytes_text(_LEAST_MEMORY_BYTES)}, has "
            f"{bytes_text(scale * data)} of data in {scale * i.objects:,.0f} files, too much for "
            "a lab",
            hint="measure on the host itself: nginx-tune probe URL --objective EXPR",
        )
    return scale


def _lab_disk(disk: Disk, model: ModelDisk) -> dict[str, Any]:
    """The lab's disk for a disk of the host: from the disk's curve, its class, or ``model``."""
    name = disk.class_ if disk.class_ in LIMITS else "hdd"
    if disk.curve is not None and disk.curve.points:
        found = model_of_curve(disk.curve, name)  # type: ignore[arg-type]  # a key of LIMITS
    elif name in MODELS:
        found = MODELS[name]
    elif disk.class_ in LIMITS:
        size, reads = LIMITS[name]
        return {
            "class_name": name,
            "kind": "limited",
            **({"bytes_per_second": size} if size else {}),
            **({"reads_per_second": reads} if reads else {}),
        }
    else:
        found = DiskModel(
            read_seconds=model.latency_seconds,
            spread_ratio=0.5,
            channels=max(1, round(model.heads / max(1, len(model.parts)))),
            bytes_per_second=min(1e12, model.bytes_per_second),
        )
    if found.read_seconds > 0 and found.channels / found.read_seconds > MOST_READS_PER_SECOND:
        most = round(found.bytes_per_second or LIMITS["nvme"][0] or 0)
        return {
            "class_name": name,
            "kind": "limited",
            "bytes_per_second": most,
            "reads_per_second": round(found.channels / found.read_seconds),
        }
    tables = {key: value for key, value in msgspec.to_builtins(found).items() if value is not None}
    return {"class_name": name, "kind": "modelled", "model": tables}


def _files(rate: float, exponent: float) -> dict[str, Any]:
    return {
        "name": "files",
        "source": "random",
        **({"exponent": round(exponent, 3)} if exponent else {}),
        "connections": 256,
        "connection_use": "turns",
        "held_connections": 64,
        "arrivals": {"kind": "poisson", "rate_per_second": round(rate, 4)},
    }


def _memory() -> dict[str, Any]:
    return {
        "name": "memory",
        "source": "memory",
        "connections": 64,
        "connection_use": "turns",
        "arrivals": {"kind": "poisson", "rate_per_second": 100.0},
    }
