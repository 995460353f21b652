"""docs/facts.md: every fact in a table, and every file that the table names reads the fact."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from recorded_hosts import capture_bytes, facts_bytes
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


class Row(NamedTuple):
    fact: str
    reader: str
    source: str
    recorded: str
    collector: str
    sample: str
    user: str

    @property
    def field(self) -> str:
        return self.fact.rpartition(".")[2].removesuffix("[]")


def rows() -> list[Row]:
    lines = (ROOT / "docs/facts.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines
             if line.startswith("| ") and not line.startswith("| fact")]  # fmt: skip
    return [Row(*row) for row in cells]


ROWS = rows()


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
    assert [row.fact for row in ROWS] == list(dict.fromkeys(leaves(Facts, "")))


def code_name(row: Row) -> str:
    return "class_" if row.field == "class" else row.field


@each_row("row", ROWS, ids=lambda row: row.fact)
def test_the_files_that_a_row_names_have_the_fact(row: Row) -> None:
    assert row.source
    name = code_name(row)
    reader = (PACKAGE / row.reader).read_text()
    if row.fact not in UNSEEN:
        assert re.search(rf"\b{name}\b|/{name}\b", reader), f"{row.reader} does not read it"
    user = (PACKAGE / row.user).read_text()
    assert re.search(rf"\.{name}\b", user), f"{row.user} does not use it"


@cache
def facts_of(sample: str) -> Any:
    return json.loads(facts_bytes(sample))


@cache
def asked(sample: str) -> set[str]:
    """The kinds of question that a capture answers."""
    return {question.split()[0] for question in json.loads(capture_bytes(sample))["answers"]}


def values(part: Any, names: list[str]) -> Iterator[Any]:
    if not names:
        yield part
    elif isinstance(part, dict) and (name := names[0].removesuffix("[]")) in part:
        found = part[name]
        for one in found if names[0].endswith("[]") and isinstance(found, list) else [found]:
            yield from values(one, names[1:])


@each_row("row", ROWS, ids=lambda row: row.fact)
def test_the_host_that_a_row_names_has_the_fact(row: Row) -> None:
    if row.sample == "–":
        # None that was recorded: each kind of them has a test of its own.
        assert (
            row.fact.split("[")[0] in {"datasets", "error_logs", "access_logs", "declared"}
            or row.fact in UNSEEN
        )
        return
    facts = facts_of(row.sample)
    assert any(value not in (None, "", [], {}) for value in values(facts, row.fact.split(".")))


@each_row("row", ROWS, ids=lambda row: row.fact)
def test_what_a_row_says_is_recorded_is_recorded(row: Row) -> None:
    """The collector asks what the readers ask: test_collector.py compares their facts."""
    verbs = set() if row.recorded == "–" else set(row.recorded.split(", "))
    assert (row.collector == "yes") == bool(verbs - {"dataset", "activity"})
    if row.sample != "–":
        # The others are asked where the first do not tell.
        assert not verbs or verbs & asked(row.sample)


def test_every_fact_has_a_user() -> None:
    """What nobody looks at is not collected."""
    assert [row.fact for row in ROWS if row.user == "–"] == []
