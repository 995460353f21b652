"""A decision's page, from its module's own words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from inspect import getmodule

from nginx_tune.decide.engine import ALL
from nginx_tune.report.markup import markdown_text

_ON_THIS_HOST = (
    "On this host: nginx-tune recommend -f json shows the verdict on %s\n"
    "with its evidence; nginx-tune explain %s --facts FACTS.json where it flips, as a table."
)


def decision_pages() -> dict[str, str]:
    """The page of every decision under its id."""
    return dict(_pages())


def render_decision_markdown(name: str) -> str:
    """The page of a decision in Markdown."""
    head, _, body = decision_pages()[name].partition("\n")
    parts = [f"# {name}", markdown_text(head.partition(": ")[2])]
    parts += [markdown_text(part) for part in textwrap.dedent(body).strip().split("\n\n")]
    return "\n\n".join(parts) + "\n"


def decision_titles() -> dict[str, str]:
    """What every decision is about, by its id."""
    return {
        name: page.partition("\n")[0].partition(": ")[2] for name, page in decision_pages().items()
    }


def _pages() -> Iterator[tuple[str, str]]:
    for decide in ALL:
        module = getmodule(decide)
        if module is None or module.__doc__ is None:
            continue
        head, _, rest = module.__doc__.strip().partition("\n")
        name, _, title = head.replace("``", "").partition(": ")
        parts = [
            f"{name} (a decision of recommend): {title}",
            *([textwrap.indent(rest.strip("\n").replace("``", ""), "  ")] if rest.strip() else []),
            _ON_THIS_HOST % (name, name),
        ]
        yield name, "\n\n".join(parts) + "\n"
