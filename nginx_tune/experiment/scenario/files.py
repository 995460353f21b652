"""Experiments as files, checked: the built-in scenarios, and those of a caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nginx_tune.documents.base import Document, schema_of
from nginx_tune.documents.experiment import ExperimentSpec
from nginx_tune.documents.scenario import Scenario
from nginx_tune.errors import UsageError, name_meant
from nginx_tune.measure.load.families import family_faults

_MOST_PAIRS = 100


def check_experiment(spec: ExperimentSpec, source: str) -> None:
    """Nothing for one that can be run. Errors: UsageError that names the file and the field."""
    names = [item.name for item in spec.load.classes]
    faults = {
        "candidate: none": not (spec.candidate or spec.plan),
        "plan: it is about a configuration, so no baseline and no candidate go with it": bool(
            spec.plan and (spec.candidate or spec.baseline)
        ),
        "load.classes: none": not names,
        "load.classes: a name stands twice": len(set(names)) < len(names),
        "load.classes.source: events are those of a scenario's origin": any(
            item.source == "events" for item in spec.load.classes
        ),
        "load.classes: uploads change what they are sent to: only scenarios send them": any(
            item.source == "uploads" or item.upload is not None for item in spec.load.classes
        ),
        **{f"load.{fault}": True for fault in family_faults(spec.load.classes)},
        f"pairs: not from 1 to {_MOST_PAIRS}": not 1 <= spec.pairs <= _MOST_PAIRS,
        "duration_seconds: not above 0": spec.duration_seconds <= 0,
        "warmup_seconds: below 0": (spec.warmup_seconds or 0) < 0,
        "max_seconds: not above 0": spec.max_seconds is not None and spec.max_seconds <= 0,
        "scale: not above 0 and at most 1": spec.scale is not None and not 0 < spec.scale <= 1,
        "seed: below 0": spec.seed < 0,
    }
    for fault, stands in faults.items():
        if stands:
            raise UsageError(f"{source}: {fault}")


_NOUNS = {schema_of(Scenario): "a scenario", schema_of(ExperimentSpec): "an experiment"}
D = TypeVar("D", bound=Document)


def list_scenarios() -> list[Scenario]:
    """The built-in scenarios, by name."""
    folder = resources.files("nginx_tune") / "scenarios"
    files = [item for item in folder.iterdir() if item.name.endswith(".toml")]
    found = (_convert(_tables(file), file.name, Scenario) for file in files)
    return sorted(found, key=lambda one: one.name)


def is_file_name(name: str) -> bool:
    """Whether a file is meant, and no built-in scenario."""
    return name.endswith(".toml") or "/" in name


def scenario_text(name: str) -> str:
    """A built-in scenario's file. Errors: UsageError for an unknown name."""
    folder = resources.files("nginx_tune") / "scenarios"
    for file in folder.iterdir():
        if file.name.endswith(".toml") and _tables(file).get("name") == name:
            return file.read_text()
    raise _unknown_name(name, [one.name for one in list_scenarios()])


def load_experiment(
    name: str, read_toml: Callable[[Path], dict[str, Any]]
) -> Scenario | ExperimentSpec:
    """What ``scenario run`` is given: a scenario, or an experiment that ``--dry-run`` wrote.

    Errors: UsageError for an unknown name or a file that is neither.
    """
    if not is_file_name(name):
        return load_scenario(name, read_toml)
    tables = read_toml(Path(name))
    if tables.get("schema") == schema_of(ExperimentSpec):
        spec = _convert(tables, name, ExperimentSpec)
        check_experiment(spec, name)
        return spec
    return _convert(tables, name, Scenario)


def load_scenario(name: str, read_toml: Callable[[Path], dict[str, Any]]) -> Scenario:
    """A built-in scenario by name, or one from a TOML file.

    Errors: UsageError for an unknown name or a file that is no scenario.
    """
    if is_file_name(name):
        return _convert(read_toml(Path(name)), name, Scenario)
    known = {scenario.name: scenario for scenario in list_scenarios()}
    if name not in known:
        raise _unknown_name(name, list(known))
    return known[name]


def _unknown_name(name: str, known: Sequence[str]) -> UsageError:
    hint = name_meant(name, known) or f"one of {', '.join(known)}, or a TOML file"
    return UsageError(f"no scenario '{name}'", hint=hint)


def _tables(file: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = msgspec.toml.decode(file.read_bytes())
    return found


def _convert(tables: Mapping[str, Any], source: str, kind: type[D]) -> D:
    noun = _NOUNS[schema_of(kind)]
    unknown = sorted(set(tables) - {"schema", *kind.__struct_fields__})
    if unknown:  # people write it by hand: a misspelt word would do nothing
        raise UsageError(f"{source}: {noun} has no '{unknown[0]}'")
    try:
        return msgspec.convert(tables, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: not {noun}: {error}") from None
