"""The page of each cause that ``observe`` names, one file each beside the package's code."""

from __future__ import annotations

from functools import cache

import msgspec

from nginx_tune.documents.log_messages import LOG_MESSAGES
from nginx_tune.report.package_pages import item, read_pages, section
from nginx_tune.report.text import align


class CausePage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be known about a cause."""

    title: str
    what: str
    shown_by: str
    """What it stands on."""
    steps: list[str]
    """What to do, the first thing first."""
    beside: list[str]
    """What it is mistaken for, and what it does not say."""
    sources: list[str]


@cache
def cause_pages() -> dict[str, CausePage]:
    """Every page by the cause's id."""
    return read_pages("observe/causes", CausePage)


def _messages(name: str) -> list[str]:
    """What the error log has of a cause: level, what a line tells, what to change, and where."""
    return [
        f"{row.id} ({row.level}{f', {row.older}' if row.older else ''}; {row.source}; nginx "
        f"{row.since} and later): {row.tells}; to change: {row.change}"
        for row in LOG_MESSAGES
        if row.cause == name
    ]


def render_cause_text(name: str, page: CausePage) -> str:
    """The page for a terminal."""
    parts = [
        f"{name}: {page.title}\n",
        section("What it is", page.what),
        section("What it is told by", page.shown_by),
        "What to do\n" + "".join(map(item, page.steps)),
        "Traps\n" + "".join(map(item, page.beside)),
        *(["Messages\n" + "".join(map(item, messages))] if (messages := _messages(name)) else []),
        "Sources\n" + "".join(f"  - {source}\n" for source in page.sources),
    ]
    return "\n".join(parts)


def render_cause_markdown(name: str, page: CausePage) -> str:
    """The page as Markdown."""
    parts = [
        f"# {name}: {page.title}",
        page.what,
        "## What it is told by",
        page.shown_by,
        "## What to do",
        "\n".join(f"- {step}" for step in page.steps),
        "## Traps",
        "\n".join(f"- {one}" for one in page.beside),
        *(
            ["## Messages", "\n".join(f"- {one}" for one in _messages(name))]
            * bool(_messages(name))
        ),
        "## Sources",
        "\n".join(f"- {source}" for source in page.sources),
    ]
    return "\n\n".join(parts) + "\n"


def render_cause_list() -> str:
    """Every cause with the title of its page."""
    return align([(name, page.title) for name, page in cause_pages().items()])
