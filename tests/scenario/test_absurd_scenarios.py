"""Numbers that nobody can mean in a scenario: refused before anything runs, by their field."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import resources
from typing import Any

import msgspec

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


def of_every_kind() -> Iterator[tuple[str, Any, Path]]:
    """A place of each field that the built-in scenarios have."""
    seen: set[Path] = set()
    for file in sorted((resources.files("nginx_tune") / "scenarios").iterdir(), key=str):
        if file.name.endswith(".toml"):
            tables = msgspec.toml.decode(file.read_bytes())
            for path in numbers(tables):
                field = tuple(one for one in path if isinstance(one, str))
                if field not in seen:
                    seen.add(field)
                    yield ".".join(field), tables, path


def refusal(tables: Any, path: Path, absurd: object) -> str:
    """What is said of a number; empty where it is taken."""
    changed = copy.deepcopy(tables)
    part = changed
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = absurd
    try:
        check_scenario(load_scenario("mine.toml", lambda _: changed))
    except UsageError as error:
        return error.message
    return ""


def test_a_number_that_cannot_be_is_refused() -> None:
    fields = list(of_every_kind())
    assert len(fields) > 50
    said = {
        (name, absurd): refusal(tables, path, absurd)
        for name, tables, path in fields
        for absurd in ABSURD
    }
    assert [where for where, message in said.items() if not message or "\n" in message] == []


def test_those_that_are_built_in_are_taken() -> None:
    for scenario in list_scenarios():
        check_scenario(scenario)
