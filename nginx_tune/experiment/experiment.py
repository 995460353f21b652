"""An experiment: arms, what each is asked, and the interleaved blocks that a verdict stands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.progress import Glance, Step
from nginx_tune.experiment.arm import Arm
from nginx_tune.experiment.session import Session
from nginx_tune.measure.load.classes import for_seconds
from nginx_tune.measure.proof.blocks import count_valid, schedule_rounds
from nginx_tune.measure.proof.latency import read_statistic, sample_of
from nginx_tune.measure.proof.steady import warmup_seconds, with_steadiness

_MOST_ROUNDS = 1000
_LEAST_TRIAL_SECONDS = 10.0
GoesOn = Callable[[Sequence[Measurement]], bool]
"""Whether another round is wanted after these blocks."""


class Experiment(NamedTuple):
    """What ``validate`` and ``scenario run`` are compiled to."""

    arms: Sequence[Arm]
    """The baseline first."""
    plans: Mapping[str, LoadPlan]
    """What each arm is asked in a block, by its name; the seed is the round's."""

    def for_seconds(self, *, warmup: float, duration: float) -> Experiment:
        """The same in blocks of another length."""
        plans = {
            name: for_seconds(plan, warmup=warmup, duration=duration)
            for name, plan in self.plans.items()
        }
        return self._replace(plans=plans)

    def against_itself(self) -> Experiment:
        """The baseline as both arms: what differs then is noise."""
        baseline = self.arms[0]
        arms = [msgspec.structs.replace(baseline, name=arm.name) for arm in self.arms[:2]]
        return Experiment(arms, {arm.name: self.plans[baseline.name] for arm in arms})


def run_pairs(
    session: Session,
    experiment: Experiment,
    *,
    pairs: int,
    seed: int,
    progress: Callable[[str], None],
    goes_on: GoesOn | None = None,
    into: list[Measurement] | None = None,
    heeds: Callable[[Measurement], None] | None = None,
) -> list[Measurement]:
    """One measurement a block, in the order they ran.

    With two arms a round is a pair. The blocks of a round ask the same requests at the same times
    (one seed a round); the order inside rounds is randomised (ABBA/BAAB for two), so that drift
    of the machine falls on all arms. A round that its validity flags discard is run again, at
    most as many times as there are pairs: the flags know nothing of the result, so running on
    does not choose it. With ``goes_on`` it decides after each round instead. A list that is given
    (``into``) takes the measurements as they come, so that an interruption leaves those so far.
    ``heeds`` sees each, and ends the run with an error where nothing would come of it.
    """
    by_name = {arm.name: arm for arm in experiment.arms}
    names = list(by_name)
    whole = None if goes_on else pairs * len(names)
    progress(Step("the first block", done=0, total=whole, unit="block", live=True))
    measurements: list[Measurement] = [] if into is None else into
    most = _MOST_ROUNDS if goes_on else 2 * pairs
    for number, name in enumerate(schedule_rounds(names, most, seed)):
        if number % len(names) == 0 and not (
            goes_on(measurements) if goes_on else count_valid(measurements, names) < pairs
        ):
            break
        plan = msgspec.structs.replace(experiment.plans[name], seed=seed + number // len(names))
        measurement = with_steadiness(session.block(by_name[name], number, plan))
        if heeds is not None:
            heeds(measurement)
        measurements.append(measurement)
        if whole is not None and (number + 1) % len(names) == 0:
            missing = max(0, pairs - count_valid(measurements, names))
            whole = number + 1 + missing * len(names)
        progress(_step(measurement, number + 1, whole))
    return measurements


def find_warmup(
    session: Session,
    experiment: Experiment,
    *,
    duration: float,
    seed: int,
    progress: Callable[[str], None],
    heeds: Callable[[Measurement], None] | None = None,
) -> float:
    """The seconds after which no arm shows a trend any more, from one block of each.

    Where one never stops, half of the block: its blocks will be flagged.
    """
    duration = max(duration, _LEAST_TRIAL_SECONDS)
    trial = experiment.for_seconds(warmup=0.0, duration=duration)
    longest = 0.0
    for block in run_pairs(session, trial, pairs=1, seed=seed, progress=progress, heeds=heeds):
        cut = warmup_seconds(block)
        longest = max(longest, duration / 2 if cut is None else cut)
    # The first second is never steady: connections are made and workers woken.
    return longest + 1.0


def _step(measurement: Measurement, number: int, whole: int | None) -> Step:
    server = measurement.server
    return Step(
        f"block {number}, {measurement.arm}: {_glance(measurement)}",
        done=number,
        total=whole,
        unit="block",
        arm=measurement.arm or "",
        classes={
            name: Glance(
                item.requests_per_second,
                read_statistic([sample_of(item, "response_seconds")], "p99").value,
                sum(item.errors.values()),
            )
            for name, item in measurement.classes.items()
        },
        overflows=server.pool_overflow or 0,
    )


def _glance(measurement: Measurement) -> str:
    rates = [
        f"{name} {item.requests_per_second:.4g}/s" for name, item in measurement.classes.items()
    ]
    return ", ".join(rates + [f"[{flag}]" for flag in measurement.flags])
