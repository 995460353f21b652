"""Whether a scenario can be run as it is written, said before anything runs; pure."""

from __future__ import annotations

from nginx_tune.documents.lab import Lab, has_origin
from nginx_tune.documents.scenario import Scenario
from nginx_tune.errors import UsageError
from nginx_tune.experiment.scenario.arm_checks import check_arms
from nginx_tune.measure.proof.gates import check_expressions
from nginx_tune.nginx.lab.check import check_lab

_MOST_PAIRS = 100


def check_scenario(scenario: Scenario) -> None:
    """Nothing for a scenario that can be run.

    Errors: UsageError that names the field: a misspelt claim must not cost the whole run.
    """
    names = [item.name for item in scenario.classes]
    _check(len(names) > 0, "classes: none")
    _check(len(set(names)) == len(names), "classes: a name stands twice")
    _check(1 <= scenario.pairs <= _MOST_PAIRS, f"pairs: not from 1 to {_MOST_PAIRS}")
    _check(scenario.duration_seconds > 0, "duration_seconds: not above 0")
    _check(scenario.warmup_seconds >= 0, "warmup_seconds: below 0")
    _check((scenario.drain_seconds or 0) >= 0, "drain_seconds: below 0")
    _check(scenario.seed >= 0, "seed: below 0")
    _check_lab(scenario.lab)
    _check(
        scenario.starts != "full" or scenario.lab.memory_bytes is not None,
        "lab.memory_bytes: none, which starts = 'full' needs",
    )
    _check(
        scenario.starts == "cold" or not scenario.lab.cold_names,
        "starts: files that were read have no cold names",
    )
    check_arms(scenario, _check)
    claimed = [claim.expression for claim in scenario.claims]
    check_expressions([*claimed, f"{scenario.primary_metric} >= 0"], names)


def _check_lab(lab: Lab) -> None:
    _check(len(lab.disks) > 0, "lab.disks: none")
    check_lab(lab, "scenario: lab.")
    for disk in lab.disks:
        _check(disk.mount != "", f"lab.disks.mount: none of disk {disk.name}")
        _check(
            disk.writable or any(item.disk == disk.name for item in lab.data),
            f"lab.data: none on disk {disk.name}",
        )
    if has_origin(lab):
        _check(any(disk.writable for disk in lab.disks), "lab.disks: none is writable, for a cache")


def _check(holds: bool, fault: str) -> None:
    if not holds:
        raise UsageError(f"scenario: {fault}")
