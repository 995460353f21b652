"""Documents that somebody else wrote: read as they are or refused in one line, and then shown."""

import json
from typing import Any

import msgspec
import pytest
from fuzzing import changed, changed_tables, fuzzed
from hypothesis import given, settings
from pages import documents, of_a_site
from tiers import draws

from nginx_tune.documents.base import Document, decode, encode
from nginx_tune.errors import UsageError
from nginx_tune.report.page.render import render_page, render_report_markdown

SEEDS = [*documents(), *of_a_site()]
KINDS = {one.__struct_config__.tag: type(one) for one in SEEDS}


def read_and_show(kind: type[Document], data: bytes) -> None:
    try:
        document = decode(kind, data, source="a file")
    except UsageError:
        return
    assert decode(kind, encode(document)) == document
    for render in (render_page, render_report_markdown):
        assert b"\x1b" not in render([document])


@pytest.mark.long
@fuzzed
@settings(max_examples=draws(40, 200))
@given(changed_tables([json.loads(encode(one)) for one in SEEDS]))
def test_a_document_of_odd_values_is_shown_or_refused(tables: Any) -> None:
    kind = KINDS.get(str(tables.get("schema")), type(SEEDS[0]))
    read_and_show(kind, json.dumps(tables).encode())


@fuzzed
@settings(max_examples=draws(40, 200))
@given(changed([msgspec.json.encode(one) for one in SEEDS]))
def test_the_bytes_of_a_document_are_read_or_refused(data: bytes) -> None:
    for kind in KINDS.values():
        if kind.__struct_config__.tag.encode() in data[:60]:
            read_and_show(kind, data)
