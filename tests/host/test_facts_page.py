"""docs/facts.md: every fact in a table, and every file that the table names uses the fact."""

import json
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from recorded_hosts import NAMES, facts_bytes
from rows import each_row

from nginx_tune.documents.facts import Facts

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = ROOT / "nginx_tune"
WHOLE = (
    "storage.disks[].volume",
    "storage.disks[].curve",
    "storage.shared_curves[].curve",
    "unknown",
)
"""Parts with a document of their own."""
UNSEEN = frozenset(
    {
        "storage.disks[].volume",
        "storage.disks[].curve",
        "storage.shared_curves[].disks",
        "storage.shared_curves[].curve",
        "nginx.user",
        "nginx.gzip",
        "nginx.tcp_nopush",
        "nginx.mime_types_path",
        "memory.names_apart",
        "nginx.running.other_masters",
        "nginx.running.workers[].capabilities",
    }
)
"""No recorded host has them: they are measured, read by another command, or not usual."""
UNSCANNED = frozenset(
    {
        "datasets[].allocated_bytes",
        "datasets[].reason",
        "datasets[].residency.reason",
        "datasets[].residency.error_ratio",
    }
)
"""Facts of a dataset that no recorded host has."""


class Row(NamedTuple):
    """Facts of one object from one source."""

    facts: tuple[str, ...]
    source: str
    users: tuple[str, ...]


def rows() -> Iterator[Row]:
    lines = (ROOT / "docs/facts.md").read_text().splitlines()
    for line in lines:
        if line.startswith("| ") and not line.startswith("| of"):
            part, names, source, users = [cell.strip() for cell in line[1:-1].split("|")]
            prefix = "" if part == "–" else f"{part}."
            facts = tuple(f"{prefix}{name}" for name in names.split(", "))
            yield Row(facts, source, tuple(users.split(", ")))


ROWS = list(rows())
FACTS = [fact for row in ROWS for fact in row.facts]


def leaves(kind: Any, pointer: str) -> Iterator[str]:
    origin = typing.get_origin(kind)
    if pointer in WHOLE or pointer.removesuffix("[]") in WHOLE:
        yield pointer.removesuffix("[]")
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(kind):
            if part is not type(None):
                yield from leaves(part, pointer)
    elif origin is typing.Annotated:
        yield from leaves(typing.get_args(kind)[0], pointer)
    elif origin is list:
        yield from leaves(typing.get_args(kind)[0], f"{pointer}[]")
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield from leaves(field.type, f"{pointer}.{field.encode_name}".lstrip("."))
    else:
        yield pointer.removesuffix("[]")


def test_every_fact_stands_in_the_table_once() -> None:
    assert sorted(FACTS) == sorted(set(leaves(Facts, "")))


def code_name(fact: str) -> str:
    name = fact.rpartition(".")[2].removesuffix("[]")
    return "class_" if name == "class" else name


def code(file: str) -> str:
    return (PACKAGE / f"{file}.py").read_text()


@each_row("row", ROWS, ids=lambda row: row.facts[0])
def test_the_files_that_a_row_names_use_its_facts(row: Row) -> None:
    """Each fact has a user: what nobody looks at is not collected."""
    assert row.source
    uses = {user: code(user) for user in row.users}
    names = [code_name(fact) for fact in row.facts]
    for fact, name in zip(row.facts, names, strict=True):
        assert any(re.search(rf"\.{name}\b", text) for text in uses.values()), f"none uses {fact}"
    for user, text in uses.items():
        assert any(re.search(rf"\.{name}\b", text) for name in names), f"{user} uses none"


@cache
def recorded() -> list[Any]:
    return [json.loads(facts_bytes(name)) for name in NAMES]


def values(part: Any, names: list[str]) -> Iterator[Any]:
    if not names:
        yield part
    elif isinstance(part, dict) and (name := names[0].removesuffix("[]")) in part:
        found = part[name]
        for one in found if names[0].endswith("[]") and isinstance(found, list) else [found]:
            yield from values(one, names[1:])


@each_row("fact", FACTS)
def test_a_recorded_host_has_the_fact(fact: str) -> None:
    if fact in UNSEEN | UNSCANNED or fact.startswith(("error_logs", "access_logs", "declared")):
        return
    names = fact.split(".")
    seen = (value for host in recorded() for value in values(host, names))
    assert any(value not in (None, "", [], {}) for value in seen)
