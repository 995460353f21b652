"""Documents as one self-contained HTML page: no script runs, nothing is fetched.

The template escapes every value, and control characters and bidi overrides are made visible before
that. The documents themselves are embedded in the page, as evidence and to be read back. Small ones
are JSON, escaped so that no HTML parser can end the element early. Large ones are two parts: the
JSON, and the bytes of its histograms, whose base64 hardly compresses. Both parts are compressed by
bzip2 and written in base 85. For runs with values by second, bzip2 gives a third fewer bytes than
zlib. Base 85 makes them a quarter longer, base64 a third.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from nginx_tune import __version__
from nginx_tune.conf.secret_values import redact_text
from nginx_tune.documents.base import Document
from nginx_tune.documents.plan import Plan, PlannedFile
from nginx_tune.errors import UsageError
from nginx_tune.report.folding import hold_units, let_go
from nginx_tune.report.page.sections import Section, section_of
from nginx_tune.report.screen import Line, Screen, Table, markdown, with_details
from nginx_tune.report.text import plain

if TYPE_CHECKING:
    from jinja2 import Environment

_NO_BREAK = "\u00a0"
_GOOD = ("better", "held", "pass", "passed", "inside", "taken")
_BAD = ("worse", "NOT HELD", "NOT AS WRITTEN", "FAIL", "OUTSIDE", "error", "REFUSED", "DOWN")


def render_page(documents: Sequence[Document], here: Mapping[str, str] | None = None) -> bytes:
    """The page in UTF-8; each document is a section, in the order given.

    ``here``: the SHA-256 of those files of plans that exist on this host, by path.
    Errors: UsageError for a document that a page does not show.
    """
    sections = [section_of(document, here) for document in documents]
    shown = (
        _environment()
        .get_template("report.html")
        .render(
            sections=sections,
            title=_title(sections),
            documents=embed(
                [
                    msgspec.json.encode(_to_send(document), order="deterministic")
                    for document in documents
                ]
            ),
            version=__version__,
        )
    )
    return shown.encode(errors="backslashreplace")


def _to_send(document: Document) -> Document:
    """The document without whole configurations, which only ``apply`` needs.

    A page may be sent to others, and configurations may contain secrets.
    """
    if not isinstance(document, Plan):
        return document
    return replace(document, files=list(map(_shown_file, document.files)))


def _shown_file(file: PlannedFile) -> PlannedFile:
    shown = [
        replace(hunk, before=redact_text(hunk.before), after=redact_text(hunk.after))
        for hunk in file.hunks
    ]
    return replace(file, content=b"", hunks=shown)


def render_report_markdown(
    documents: Sequence[Document], here: Mapping[str, str] | None = None
) -> bytes:
    """The page as Markdown without plots, for a change ticket.

    Errors: UsageError for a document that a report does not show.
    """
    parts = []
    for section in (section_of(document, here) for document in documents):
        heads: Screen = [[Line(section.title, "heading")]]
        parts.append(markdown(heads).replace("### ", "## ", 1) + "\n" + markdown(section.screen))
    return "\n".join(parts).encode(errors="backslashreplace")


def _title(sections: Sequence[Section]) -> str:
    if len(sections) == 1:
        return sections[0].title
    return f"{len(sections)} documents"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  # for HTML alone

    jinja = Environment(
        loader=PackageLoader("nginx_tune.report.page", "pages"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    jinja.tests["table"] = lambda part: isinstance(part, Table)
    jinja.filters["capital"] = lambda text: text[:1].upper() + text[1:]
    jinja.filters["held"] = _held
    jinja.filters["tone"] = _tone
    jinja.filters["folded"] = _folded
    jinja.filters["unfolded"] = _unfolded
    return jinja


def _visible(value: object) -> object:
    # Exactly str: markup (macros, the embedded documents) is not escaped.
    return plain(value) if type(value) is str else value


def _held(text: str) -> str:
    """The text with no line break between a number and its unit."""
    return let_go(hold_units(plain(text)), _NO_BREAK)


def _tone(cell: str) -> str:
    """The CSS class of a cell with an outcome, which may end with the mark of a note."""
    words = cell.partition(" [")[0].partition(";")[0]
    return "good" if words in _GOOD else "bad" if words in _BAD else ""


def _is_note(part: object) -> bool:
    return isinstance(part, Line) and part.role == "note"


def _folded(screen: Screen) -> list[Line]:
    """The notes of all blocks. The page folds them away."""
    return [part for block in screen for part in block if isinstance(part, Line) and _is_note(part)]


def _unfolded(screen: Screen) -> Screen:
    """The blocks without the answer (the first) and without notes."""
    kept = [[part for part in block if not _is_note(part)] for block in with_details(screen[1:])]
    return [block for block in kept if block]


COMPRESSED_FROM_BYTES = 16_384
LIMIT_BYTES = 256 << 20
"""Maximum number of bytes to unpack from a page, since a page may come from anybody."""

_JSON = "json"
_BZIP2 = "x-bzip2-base85"
_BASE64 = "x-bzip2-base64"
"""The encoding of older pages, which hold only the JSON."""
_TO_MARKUP = bytes.maketrans(b"<>&", b"[].")
"""Replaces three base 85 digits that have a meaning in markup."""
_FROM_MARKUP = bytes.maketrans(b"[].<>&", b"<>&[].")
_HIDDEN = [*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
"""Control characters and bidi overrides, which JSON may contain unescaped; they are escaped."""
_ESCAPES = {code: f"\\u{code:04x}" for code in [*map(ord, "<>&"), *_HIDDEN]}
_ELEMENT = re.compile(
    r'<script type="application/(json|x-bzip2-base64|x-bzip2-base85)" class="document">'
    r"([^<]*)</script>"
)
_HISTOGRAM = re.compile(rb'"histogram":"([A-Za-z0-9+/]+=*)"')
_TAKEN = re.compile(rb'"histogram":\0(\d{1,9})\0')
"""The mark in place of a histogram, with its length in bytes; JSON never has a NUL."""


def embed(documents: Sequence[bytes]) -> str:
    """The script elements that hold these documents (each JSON in UTF-8), in their order."""
    return "".join(_element(document) for document in documents)


def embedded_documents(page: str, *, source: str) -> list[bytes]:
    """The documents in a page that :func:`embed` wrote, as JSON that decodes to the same values.

    Errors: UsageError that names ``source`` if it has no document, or one that cannot be unpacked.
    """
    found = []
    left_bytes = LIMIT_BYTES
    for kind, content in _ELEMENT.findall(page):
        if kind == _JSON:
            data = content.encode()
        elif kind == _BASE64:
            data = _unpacked(_of_base64, content, left_bytes, source)
        else:
            data = _joined(content, left_bytes, source)
        left_bytes -= len(data)
        found.append(data)
    if not found:
        raise UsageError(f"{source}: no document in this page", hint="give a page of report")
    return found


def _element(document: bytes) -> str:
    if len(document) < COMPRESSED_FROM_BYTES:
        kind, content = _JSON, document.decode().translate(_ESCAPES)
    else:
        kind, content = _BZIP2, " ".join(map(_packed, _parted(document)))
    return f'<script type="application/{kind}" class="document">{content}</script>'


def _parted(document: bytes) -> tuple[bytes, bytes]:
    """The JSON without its histograms, and the bytes of all histograms, joined."""
    taken: list[bytes] = []

    def take(found: re.Match[bytes]) -> bytes:
        text = found[1]
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error:
            return found[0]
        if base64.b64encode(data) != text:
            return found[0]  # a different base64 spelling, which would be lost
        taken.append(data)
        return b'"histogram":\0%d\0' % len(data)

    return _HISTOGRAM.sub(take, document), b"".join(taken)


def _joined(content: str, limit_bytes: int, source: str) -> bytes:
    """The document from the two parts that :func:`_parted` made."""
    first, _, second = content.partition(" ")
    left = _unpacked(_of_base85, first, limit_bytes, source)
    histograms = _unpacked(_of_base85, second, limit_bytes - len(left), source)
    at = 0

    def put(found: re.Match[bytes]) -> bytes:
        nonlocal at
        at += int(found[1])
        return b'"histogram":"%b"' % base64.b64encode(histograms[at - int(found[1]) : at])

    document = _TAKEN.sub(put, left)
    if at != len(histograms):
        raise UsageError(
            f"{source}: a document in this page is damaged: its histograms do not match it"
        )
    return document


def _packed(data: bytes) -> str:
    return base64.b85encode(bz2.compress(data, 9)).translate(_TO_MARKUP).decode()


def _of_base64(content: str) -> bytes:
    return base64.b64decode(content, validate=True)


def _of_base85(content: str) -> bytes:
    return base64.b85decode(content.encode().translate(_FROM_MARKUP))


def _unpacked(read: Callable[[str], bytes], content: str, limit_bytes: int, source: str) -> bytes:
    unpacker = bz2.BZ2Decompressor()
    try:
        data = unpacker.decompress(read(content), max(1, limit_bytes))
    except (binascii.Error, OSError, EOFError, ValueError) as error:
        raise UsageError(f"{source}: a document in this page is damaged: {error}") from None
    if not unpacker.eof:
        raise UsageError(f"{source}: a document in this page is cut off or too large")
    return data
