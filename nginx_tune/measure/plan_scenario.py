"""Whether a scenario can be run as it is written, said before anything runs; pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from nginx_tune.documents.lab import Lab
from nginx_tune.documents.scenario import Scenario
from nginx_tune.errors import UsageError
from nginx_tune.prove.gates import check_expressions

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)
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
    _check(scenario.seed >= 0, "seed: below 0")
    _check_lab(scenario.lab)
    claimed = [claim.expression for claim in scenario.claims]
    check_expressions([*claimed, f"{scenario.primary_metric} >= 0"], names)


def _check_lab(lab: Lab) -> None:
    names = {disk.name for disk in lab.disks}
    _check(len(lab.disks) > 0, "lab.disks: none")
    _check(len(names) == len(lab.disks), "lab.disks: a name stands twice")
    for disk in lab.disks:
        mount = PurePosixPath(disk.mount)
        _check(_NAME.fullmatch(disk.name) is not None, f"lab.disks: no name: {disk.name[:60]!a}")
        _check(
            mount.is_absolute() and ".." not in mount.parts and mount != PurePosixPath("/"),
            f"lab.disks.mount: no absolute path below /: {disk.mount[:60]!a}",
        )
        _check(
            any(item.disk == disk.name for item in lab.data), f"lab.data: none on disk {disk.name}"
        )
    for item in lab.data:
        _check(item.disk in names, f"lab.data: no disk {item.disk[:60]!a}")
        _check(item.files > 0 and item.file_bytes > 0, "lab.data: files and file_bytes above 0")


def _check(holds: bool, fault: str) -> None:
    if not holds:
        raise UsageError(f"scenario: {fault}")
