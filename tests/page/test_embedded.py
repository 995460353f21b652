"""Documents inside of a page: read back the same, and never markup."""

import bz2
import json
import random
from base64 import b64encode, b85encode

import pytest
from rows import each_row

from nginx_tune.errors import UsageError
from nginx_tune.report.page import render
from nginx_tune.report.page.render import embed, embedded_documents


def packed(data: bytes) -> str:
    return b85encode(bz2.compress(data)).decode().translate(str.maketrans("<>&", "[]."))


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


def test_histograms_come_back_letter_by_letter_and_cost_their_bytes() -> None:
    chance = random.Random(85)
    texts = [b64encode(chance.randbytes(chance.randrange(1, 900))).decode() for _ in range(99)]
    odd = ["QQ=", "QR==", "Q===", "QQ==QQ==", '"', '\\"histogram":"QQ=="', "[].<>&", ""]
    values = [{"histogram": text, "other": text} for text in [*texts, *odd]]
    document = json.dumps(values, separators=(",", ":")).encode()
    page = embed([document])
    assert embedded_documents(page, source="x") == [document]


def test_a_page_of_before_is_read() -> None:
    content = b64encode(bz2.compress(b'{"a": 1}')).decode()
    page = f'<script type="application/x-bzip2-base64" class="document">{content}</script>'
    assert embedded_documents(page, source="x") == [b'{"a": 1}']


@each_row(
    "content",
    [
        "!",
        "",
        packed(b"{}"),
        packed(b'{"histogram":\0009\0}') + " " + packed(b"12345678"),
        packed(b"{}") + " " + packed(b"1"),
        packed(b"{}") + " " + packed(b"")[:-3],
    ],
)
def test_damaged_parts_are_refused(content: str) -> None:
    page = f'<script type="application/x-bzip2-base85" class="document">{content}</script>'
    with pytest.raises(UsageError, match=r"damaged|cut off"):
        embedded_documents(page, source="x")


@each_row(
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
    monkeypatch.setattr(render, "LIMIT_BYTES", 4000)
    page = f'<script type="application/x-bzip2-base64" class="document">{content}</script>'
    with pytest.raises(UsageError, match=said):
        embedded_documents(page, source="x")


def test_a_page_of_others_is_refused() -> None:
    with pytest.raises(UsageError, match="no document"):
        embedded_documents("<p>hello</p>", source="x")
