"""``tools/draw-pictures``: a terminal as a picture, and the pictures that pages show."""

import importlib.machinery
import importlib.util
import re
import sys
from html import unescape
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

from nginx_tune.documents.base import decode
from nginx_tune.documents.run import KeptRun
from nginx_tune.report.page.render import embedded_documents
from nginx_tune.report.verdict import verdict_sentence

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
SAYS = """\
import os, sys
columns = os.get_terminal_size(sys.stdout.fileno()).columns
print(f"\\x1b[32m{columns} columns, {sys.stdout.isatty()}\\x1b[0m, <&> [not markup]")
print("second")
"""


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("pictures", str(ROOT / "tools/draw-pictures"))
    spec = importlib.util.spec_from_loader("pictures", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def rows(svg: str) -> list[str]:
    """The lines of text of a picture, from top to bottom."""
    at: dict[float, str] = {}
    for y, text in re.findall(r'<text [^>]*\by="([\d.]+)" textLength[^>]*>([^<]*)</text>', svg):
        at[float(y)] = at.get(float(y), "") + unescape(text).replace("\xa0", " ")
    return [at[y].rstrip() for y in sorted(at)]


def test_a_command_is_drawn_as_a_terminal_of_that_width_shows_it(
    pictures: ModuleType, tmp_path: Path
) -> None:
    said = pictures.run_in_terminal([sys.executable, "-c", SAYS], 72, tmp_path)
    assert said.splitlines()[0] == "\x1b[32m72 columns, True\x1b[0m, <&> [not markup]"
    svg = pictures.draw(said, "a title", 72)
    assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314  # our own
    assert [row for row in rows(svg) if row] == [
        "72 columns, True, <&> [not markup]", "second",
    ]  # fmt: skip
    assert "#82be6e" in svg, "the green of the theme"


def test_the_pictures_of_the_pages_are_of_the_command_that_makes_them(pictures: ModuleType) -> None:
    svg = (PICTURES / "terminal.svg").read_text()
    assert "$ " + " ".join(pictures.SHOWN) in rows(svg)
    (kept,) = embedded_documents(pictures.PAGE.read_text(), source="validate.html")
    run = decode(KeptRun, kept)
    shown = " ".join(" ".join(rows(svg)).split())
    assert run.summary.id[:10] in shown
    assert verdict_sentence(run.result.verdict) in shown, "of the run that examples/reports has"
    assert (PICTURES / "report.png").stat().st_size <= pictures.MOST_BYTES
    for page, picture in (
        ("README.md", "docs/pictures/terminal.svg"),
        ("docs/report.md", "pictures/report.png"),
    ):
        shown = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", (ROOT / page).read_text())
        assert [name for alt, name in shown if len(alt) > 20] == [picture]
