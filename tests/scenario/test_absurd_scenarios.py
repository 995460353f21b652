"""Numbers that nobody can mean in a scenario: refused before anything runs, by their field."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import resources
from typing import Any

import msgspec
import pytest

from nginx_tune.errors import UsageError
from nginx_tune.scenario.checks import check_scenario
from nginx_tune.scenario.files import list_scenarios, load_scenario

ABSURD = (-1, -0.5, 1e300, 10**30, True)
Path = tuple[str | int, ...]


def numbers(tables: Any, path: Path = ()) -> Iterator[Path]:
    """The places of all numbers."""
    if isinstance(tables, dict | list):
        pairs = tables.items() if isinstance(tables, dict) else enumerate(tables)
        for key, value in pairs:
            yield from numbers(value, (*path, key))
    elif isinstance(tables, int | float) and not isinstance(tables, bool):
        yield path


def of_every_kind() -> Iterator[Any]:
    """A place of each field that the built-in scenarios have."""
    seen: set[Path] = set()
    for file in sorted((resources.files("nginx_tune") / "scenarios").iterdir(), key=str):
        if file.name.endswith(".toml"):
            tables = msgspec.toml.decode(file.read_bytes())
            for path in numbers(tables):
                field = tuple(one for one in path if isinstance(one, str))
                if field not in seen:
                    seen.add(field)
                    yield pytest.param(tables, path, id=".".join(field))


@pytest.mark.parametrize(("tables", "path"), list(of_every_kind()))
def test_a_number_that_cannot_be_is_refused(tables: Any, path: Path) -> None:
    for absurd in ABSURD:
        changed = copy.deepcopy(tables)
        part = changed
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = absurd
        with pytest.raises(UsageError) as error:
            check_scenario(load_scenario("mine.toml", lambda _, found=changed: found))
        assert "\n" not in error.value.message


def test_those_that_are_built_in_are_taken() -> None:
    for scenario in list_scenarios():
        check_scenario(scenario)
