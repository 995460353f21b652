"""Interleaved blocks of two or more arms: the measurements that a verdict stands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.documents.loadplan import LoadClass, LoadPlan, Permit, Tls
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.measure.plan_further import spoken_first, with_further
from nginx_tune.measure.plan_load import ServedFile, plan_load
from nginx_tune.measure.session import Arm, Session
from nginx_tune.prove.rounds import count_valid, schedule_rounds
from nginx_tune.prove.steady import warmup_seconds, with_steadiness

_MOST_ROUNDS = 1000
GoesOn = Callable[[Sequence[Measurement]], bool]
"""Whether another round is wanted after these blocks."""


class Door(NamedTuple):
    """Where an arm is asked."""

    address: str
    port: int
    host: str
    """``Host`` header."""
    memory_url: str | None
    tls: bool = False
    proxied: bool = False
    """Whether its listener takes the PROXY protocol."""
    unix: str | None = None
    """Path of a unix socket, in the place of address and port."""


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
    files_of: Mapping[str, Sequence[ServedFile]] = {}
    """The files of each disk, for classes that name one."""
    classes_of: Mapping[str, Sequence[ScenarioClass]] = {}
    """What an arm is asked that is not asked what the others are."""
    doors: Mapping[str, Door] = {}
    """Of arms that are asked elsewhere than at loopback, ``port`` and ``host``."""
    further: Mapping[str, Sequence[LoadClass]] = {}
    """What each arm is asked at other servers and locations."""

    def asked_of_all(self, arm: str) -> Load:
        """The load in which both arms are asked as one of them is."""
        arms = ("baseline", "candidate")
        return self._replace(
            doors=dict.fromkeys(arms, self.door_of(arm)),
            further=dict.fromkeys(arms, self.further.get(arm, ())),
        )

    def plan(
        self, session: Session, arm: str, *, seed: int, classes: Sequence[ScenarioClass]
    ) -> LoadPlan:
        """The load plan of a block of an arm."""
        door = self.door_of(arm)
        plan = plan_load(
            classes,
            self.files,
            address=door.address,
            port=door.port,
            memory_url=door.memory_url,
            host=door.host,
            duration_seconds=self.duration_seconds,
            warmup_seconds=self.warmup_seconds,
            seed=seed,
            cpus=session.probe_cpus,
            realtime=session.probe_cpus != session.nginx_cpus,
            files_of=self.files_of,
        )
        target = msgspec.structs.replace(
            plan.target,
            unix=door.unix,
            tls=Tls(verify=False) if door.tls else plan.target.tls,
            proxy_protocol=spoken_first(door.unix) if door.proxied else None,
        )
        permit = plan.permit if door.unix is None else Permit()
        plan = msgspec.structs.replace(plan, target=target, permit=permit)
        return with_further(plan, self.further.get(arm, ()))

    def door_of(self, arm: str) -> Door:
        """Where an arm is asked."""
        default = Door("127.0.0.1", self.port, self.host, self.memory_url)
        return self.doors.get(arm, default)


def run_pairs(
    session: Session,
    arms: Sequence[Arm],
    load: Load,
    *,
    pairs: int,
    seed: int,
    progress: Callable[[str], None],
    goes_on: GoesOn | None = None,
    into: list[Measurement] | None = None,
) -> list[Measurement]:
    """One measurement a block, in the order they ran.

    With two arms a round is a pair. The blocks of a round ask the same requests at the same times
    (one seed a round); the order inside rounds is randomised (ABBA/BAAB for two), so that drift
    of the machine falls on all arms. A round that its validity flags discard is run again, at
    most as many times as there are pairs: the flags know nothing of the result, so running on
    does not choose it. With ``goes_on`` it decides after each round instead. A list that is given
    (``into``) takes the measurements as they come, so that an interruption leaves those so far.
    """
    by_name = {arm.name: arm for arm in arms}
    names = list(by_name)
    measurements: list[Measurement] = [] if into is None else into
    most = _MOST_ROUNDS if goes_on else 2 * pairs
    for number, name in enumerate(schedule_rounds(names, most, seed)):
        if number % len(names) == 0 and not (
            goes_on(measurements) if goes_on else count_valid(measurements, names) < pairs
        ):
            break
        classes = load.classes_of.get(name, load.classes)
        prime = [load.files[0].url] if any(c.source == "hot" for c in classes) else []
        plan = load.plan(session, name, seed=seed + number // len(names), classes=classes)
        measurement = with_steadiness(session.block(by_name[name], number, plan, prime=prime))
        measurements.append(measurement)
        progress(f"block {number + 1}, {name}: {_glance(measurement)}")
    return measurements


def find_warmup(
    session: Session,
    arms: Sequence[Arm],
    load: Load,
    *,
    seed: int,
    progress: Callable[[str], None],
) -> float:
    """The seconds after which no arm shows a trend any more, from one block of each.

    Where one never stops, half of the block: its blocks will be flagged.
    """
    trial = load._replace(warmup_seconds=0.0, duration_seconds=max(load.duration_seconds, 10.0))
    longest = 0.0
    for block in run_pairs(session, arms, trial, pairs=1, seed=seed, progress=progress):
        cut = warmup_seconds(block)
        longest = max(longest, trial.duration_seconds / 2 if cut is None else cut)
    # The first second is never steady: connections are made and workers woken.
    return longest + 1.0


def _glance(measurement: Measurement) -> str:
    rates = [
        f"{name} {item.requests_per_second:.4g}/s" for name, item in measurement.classes.items()
    ]
    return ", ".join(rates + [f"[{flag}]" for flag in measurement.flags])
