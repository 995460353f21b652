"""Documents inside of a page: read back the same, and never markup."""

from __future__ import annotations

import bz2
import json
import random
from base64 import b64encode

import pytest

from nginx_tune.errors import UsageError
from nginx_tune.report import embedded
from nginx_tune.report.embedded import embed, embedded_documents

HOSTILE = [
    "</script><script>alert(1)</script>", "<!--<script>", "]]>", "&lt;", "\\u003c", "\u2028\u2029",
    "\x00\x1b[31m", "\u202e\u2066", "'\"`${x}", "\\", "é\U0001f600",
]  # fmt: skip


def test_hostile_documents_come_back_and_open_no_element() -> None:
    chance = random.Random(19)
    for _ in range(300):
        values = [
            {"".join(chance.choices(HOSTILE, k=2)): "".join(chance.choices(HOSTILE, k=5))}
            for _ in range(chance.randrange(1, 4))
        ]
        page = embed([json.dumps(value, ensure_ascii=False).encode() for value in values])
        assert page.count("<") == page.count(">") == 2 * len(values)
        assert [json.loads(data) for data in embedded_documents(page, source="x")] == values


def test_a_large_document_is_packed() -> None:
    document = json.dumps({"a": "</script>" * 10_000}).encode()
    page = embed([document])
    assert len(page) < len(document) / 20
    assert embedded_documents(page, source="x") == [document]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("!", "damaged"),
        (b64encode(b"no").decode(), "damaged"),
        (b64encode(bz2.compress(b"[]" * 99)[:-4]).decode(), "cut off"),
        (b64encode(bz2.compress(bytes(5000))).decode(), "too large"),
    ],
)
def test_a_damaged_page_is_refused(
    content: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "LIMIT_BYTES", 4000)
    page = f'<script type="application/x-bzip2-base64" class="document">{content}</script>'
    with pytest.raises(UsageError, match=said):
        embedded_documents(page, source="x")


def test_a_page_of_others_is_refused() -> None:
    with pytest.raises(UsageError, match="no document"):
        embedded_documents("<p>hello</p>", source="x")
