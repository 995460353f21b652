"""Documents as one HTML page that stands alone: no script runs, nothing is fetched.

The template escapes every value, and control characters and bidi overrides are made visible before
that. The documents themselves lie in the page (:mod:`nginx_tune.report.page.embedded`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec.structs import replace

from nginx_tune import __version__
from nginx_tune.documents.base import Document
from nginx_tune.documents.plan import Plan, PlannedFile
from nginx_tune.host.secret_texts import redact_text
from nginx_tune.report.folding import hold_units, let_go
from nginx_tune.report.page.embedded import embed
from nginx_tune.report.page.parts import Section
from nginx_tune.report.page.sections import section_of
from nginx_tune.report.screen import Line, Screen, Table, markdown
from nginx_tune.report.text import plain

_NO_BREAK = "\u00a0"
_GOOD = ("better", "held", "pass", "passed", "inside", "taken")
_BAD = ("worse", "NOT HELD", "FAIL", "OUTSIDE", "error", "REFUSED", "DOWN")


def render_page(documents: Sequence[Document], here: Mapping[str, str] | None = None) -> bytes:
    """The page in UTF-8; each document is a section, in the order given.

    ``here``: the SHA-256 of files of plans that are here, by their paths.
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
                [msgspec.json.encode(_to_send(one), order="deterministic") for one in documents]
            ),
            version=__version__,
        )
    )
    return shown.encode(errors="backslashreplace")


def _to_send(document: Document) -> Document:
    """Without what nobody sees on the page and only who applies it needs: whole configurations.

    A page is sent to others, and configurations hold secrets.
    """
    if not isinstance(document, Plan):
        return document
    return replace(document, files=list(map(_shown_file, document.files)))


def _shown_file(file: PlannedFile) -> PlannedFile:
    shown = [
        replace(one, before=redact_text(one.before), after=redact_text(one.after))
        for one in file.hunks
    ]
    return replace(file, content=b"", hunks=shown)


def render_report_markdown(
    documents: Sequence[Document], here: Mapping[str, str] | None = None
) -> bytes:
    """The same without plots, as a change ticket takes it.

    Errors: UsageError for a document that a report does not show.
    """
    parts = []
    for section in (section_of(one, here) for one in documents):
        heads: Screen = [[Line(section.title, "heading")]]
        parts.append(markdown(heads).replace("### ", "## ", 1) + "\n" + markdown(section.screen))
    return "\n".join(parts).encode(errors="backslashreplace")


def _title(sections: Sequence[Section]) -> str:
    if len(sections) == 1:
        return sections[0].title
    return f"{len(sections)} documents"


@lru_cache(maxsize=1)
def _environment() -> Environment:
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
    # Exactly str: what is markup already (macros, the embedded documents) stays.
    return plain(value) if type(value) is str else value


def _held(text: str) -> str:
    """No line ends between a number and its unit."""
    return let_go(hold_units(plain(text)), _NO_BREAK)


def _tone(cell: str) -> str:
    """The class of a cell that says an outcome; a mark of a note may follow."""
    words = cell.partition(" [")[0].partition(";")[0]
    return "good" if words in _GOOD else "bad" if words in _BAD else ""


def _is_note(part: object) -> bool:
    return isinstance(part, Line) and part.role == "note"


def _folded(screen: Screen) -> list[Line]:
    """The notes of all blocks."""
    return [part for block in screen for part in block if isinstance(part, Line) and _is_note(part)]


def _unfolded(screen: Screen) -> Screen:
    """The blocks without the answer (the first) and without notes."""
    kept = [[part for part in block if not _is_note(part)] for block in screen[1:]]
    return [block for block in kept if block]
