"""Pages that lie beside the package's code, one TOML file each, read and laid out."""

from __future__ import annotations

import textwrap
from importlib import resources
from typing import TypeVar

import msgspec

from nginx_tune.report.rule_page import WIDTH

P = TypeVar("P")


def read_pages(folder: str, kind: type[P]) -> dict[str, P]:
    """Every page of a folder of the package, by the name of its file."""
    files = sorted((resources.files("nginx_tune") / folder).iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".toml"): msgspec.toml.decode(file.read_bytes(), type=kind)
        for file in files
        if file.name.endswith(".toml")
    }


def section(title: str, text: str) -> str:
    """A paragraph below its title."""
    return f"{title}\n{_filled(text, '  ', '  ')}\n"


def item(text: str) -> str:
    """One of a list."""
    return _filled(text, "  - ", "    ") + "\n"


def _filled(text: str, first: str, then: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
    )
