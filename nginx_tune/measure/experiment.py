"""Interleaved blocks of two arms: the measurements that a verdict stands on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.measure.plan_load import ServedFile, plan_load
from nginx_tune.measure.session import Arm, Session
from nginx_tune.prove.blocks import pair_blocks, schedule_blocks


class Load(NamedTuple):
    """What both arms are asked."""

    classes: Sequence[ScenarioClass]
    files: Sequence[ServedFile]
    """URLs, the hot one first."""
    port: int
    memory_url: str | None
    host: str
    warmup_seconds: float
    duration_seconds: float


def run_pairs(
    session: Session,
    arms: Sequence[Arm],
    load: Load,
    *,
    pairs: int,
    seed: int,
    progress: Callable[[str], None],
) -> list[Measurement]:
    """One measurement a block, in the order they ran.

    Both blocks of a pair ask the same requests at the same times (one seed a pair); the order
    inside pairs is randomised ABBA/BAAB, so that drift of the machine falls on both arms. A pair
    that its validity flags discard is run again, at most as many times as there are pairs: the
    flags know nothing of the result, so running on does not choose it.
    """
    by_name = {arm.name: arm for arm in arms}
    prime = [load.files[0].url] if any(c.source == "hot" for c in load.classes) else []
    measurements: list[Measurement] = []
    for number, name in enumerate(schedule_blocks(2 * pairs, seed)):
        if number % 2 == 0 and len(pair_blocks(measurements).pairs) == pairs:
            break
        plan = plan_load(
            load.classes,
            load.files,
            port=load.port,
            memory_url=load.memory_url,
            host=load.host,
            duration_seconds=load.duration_seconds,
            warmup_seconds=load.warmup_seconds,
            seed=seed + number // 2,
            cpus=session.probe_cpus,
            realtime=session.probe_cpus != session.nginx_cpus,
        )
        measurement = session.block(by_name[name], number, plan, prime=prime)
        progress(f"block {number + 1}, {name}: {_glance(measurement)}")
        measurements.append(measurement)
    return measurements


def _glance(measurement: Measurement) -> str:
    rates = [
        f"{name} {item.requests_per_second:.4g}/s" for name, item in measurement.classes.items()
    ]
    return ", ".join(rates + [f"[{flag}]" for flag in measurement.flags])
