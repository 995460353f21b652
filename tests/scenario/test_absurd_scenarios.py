"""Numbers that nobody can mean in a scenario: refused before anything runs, by their field."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from nginx_tune.errors import UsageError
from nginx_tune.experiment.scenario.files import check_scenario, load_scenario

ABSURD = (-1, -0.5, 1e300, 10**30, True)
Place = tuple[str | int, ...]
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "nginx_tune" / "scenarios", ROOT / "benchmarks" / "scenarios")


def numbers(tables: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all numbers."""
    if isinstance(tables, dict | list):
        pairs = tables.items() if isinstance(tables, dict) else enumerate(tables)
        for key, value in pairs:
            yield from numbers(value, (*place, key))
    elif isinstance(tables, int | float) and not isinstance(tables, bool):
        yield place


def of_every_kind() -> Iterator[tuple[str, Any, Place]]:
    """A place of each field that the built-in scenarios have, and those of the benchmarks."""
    seen: set[Place] = set()
    for file in sorted(file for folder in FOLDERS for file in folder.glob("*.toml")):
        tables = msgspec.toml.decode(file.read_bytes())
        for place in numbers(tables):
            field = tuple(one for one in place if isinstance(one, str))
            if field not in seen:
                seen.add(field)
                yield ".".join(field), tables, place


def refusal(tables: Any, place: Place, absurd: object) -> str:
    """What is said of a number; empty where it is taken."""
    changed = copy.deepcopy(tables)
    part = changed
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = absurd
    try:
        check_scenario(load_scenario("mine.toml", lambda _: changed))
    except UsageError as error:
        return error.message
    return ""


def test_a_number_that_cannot_be_is_refused() -> None:
    fields = list(of_every_kind())
    assert len(fields) > 50
    said = {
        (name, absurd): refusal(tables, place, absurd)
        for name, tables, place in fields
        for absurd in ABSURD
    }
    assert [where for where, message in said.items() if not message or "\n" in message] == []
