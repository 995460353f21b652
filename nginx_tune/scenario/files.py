"""Experiments as files: the built-in scenarios, and those of a caller."""

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
from nginx_tune.experiment.spec_checks import check_experiment

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
