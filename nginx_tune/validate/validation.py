"""From what was measured of two configurations to the validation that is stored and shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from nginx_tune.conf.secrets import redact_tree
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.capacity import Capacity
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ArmText
from nginx_tune.documents.validation import Validation
from nginx_tune.documents.verdict import Environment, Stopped
from nginx_tune.experiment.sequential import Looking
from nginx_tune.experiment.site_files import shown
from nginx_tune.lab.walls import given_up
from nginx_tune.nginx.builds import LinkedBuild, build_differences
from nginx_tune.prove.interim import FIRST_ALPHA
from nginx_tune.prove.statistics import ALPHA
from nginx_tune.prove.verdict import judge, measure_noise_floor


@dataclass
class Measured:
    """What there is so far: an interruption leaves it as it is."""

    looking: Looking | None
    """Where pairs are added until it is settled."""
    blocks: list[Measurement] = field(default_factory=list)
    checked: list[Measurement] = field(default_factory=list)
    """Of the baseline against itself."""
    capacities: dict[str, Capacity] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What is not as configured."""
    lost: list[str] = field(default_factory=list)
    """What the baseline serves and the candidate does not."""
    lab: str = "none"
    interrupted: bool = False


def conclude(
    measured: Measured,
    *,
    trees: Sequence[ConfTree],
    primary_metric: str,
    requires: Sequence[str],
    accept_worse: Sequence[str],
    builds: tuple[LinkedBuild, LinkedBuild],
    seed: int,
) -> Validation:
    """The validation; ``trees`` and ``builds`` are those of the baseline and the candidate."""
    nginx = builds[1].nginx
    floor = measure_noise_floor(measured.checked)
    looking = measured.looking
    if measured.interrupted and looking is not None:
        looking.look_now(measured.blocks)
    look = looking.look if looking else None
    # Who watches a run may end it for what is seen: that is one of several looks too.
    first = FIRST_ALPHA if measured.interrupted else ALPHA
    verdict = judge(
        measured.blocks,
        primary_metric=primary_metric,
        requires=requires,
        noise_floor=floor,
        alpha=look.alpha if look else first,
        accept_worse=accept_worse,
        lost=measured.lost,
        environment=Environment(
            nginx_version=nginx.version,
            nginx_binary=nginx.binary,
            nginx_choice=nginx.choice,
            build_differences=build_differences(*builds),
            kernel_release=os.uname().release,
            lab=measured.lab,
            seed=seed,
            weaker_walls=[*given_up()],
            differences=measured.notes,
        ),
    )
    verdict = msgspec.structs.replace(
        verdict,
        looks=look.number if look else 1,
        stopped=_why_stopped(measured),
        capacities=measured.capacities,
    )
    return Validation(
        verdict=verdict,
        requires=list(requires),
        noise_floor=floor,
        arms=[
            ArmText(arm=name, nginx_conf=_dump(tree))
            for name, tree in zip(("baseline", "candidate"), trees, strict=True)
        ],
        measurements=measured.blocks,
        self_check=measured.checked,
    )


def _why_stopped(measured: Measured) -> Stopped:
    if measured.interrupted:
        return "interrupted"
    if measured.looking is None:
        return "pairs"
    return "settled" if measured.looking.is_over else "time"


def _dump(tree: ConfTree) -> str:
    """The configuration in the form of ``nginx -T``, without its secrets."""
    return "\n".join(
        f"# configuration file {shown(file)}:\n{data.decode(errors='replace')}"
        for file, data in redact_tree(tree).items()
    )
