"""What the documentation says to type, and where it points."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner
from rows import each_row

from nginx_tune.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md")
    if path.name != "CHANGELOG.md" and path.parent.name != "rules"
)
PROSE = [
    ROOT / "README.md",
    *(
        page
        for page in PAGES
        if page.is_relative_to(ROOT / "docs")
        # Written by programs, or tables of what they found.
        and not re.match(r"audit-|behaviour|copied|facts|plan-|sites", page.name)
    ),
]
OF_THE_CODE = re.compile(
    r"\b(?:walls?|arms?|standing|turnovers?|came to (?:its|their) end|(?<!worker )generations?)\b"
)
"""Words of the code and of documents; a page has the reader's (docs/glossary.md, CONTRIBUTING)."""
_LINK = re.compile(r"\]\(([^)#\s]+)?(?:#([^)\s]+))?\)")


def commands(text: str) -> Iterator[str]:
    """Each command line of an indented or fenced block, continuations joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    fenced = "".join(re.findall(r"^```\w*\n(.*?)^```", joined, re.MULTILINE | re.DOTALL))
    inside = re.sub(r"^", "    ", fenced, flags=re.MULTILINE)
    for found in re.findall(r"^ {4,}(.+)$", f"{joined}\n{inside}", re.MULTILINE):
        line = re.sub(r"^(\$ |sudo )+", "", found)
        if re.match(r"nginx-tune [a-z]", line) and "…" not in line:
            yield line


def anchors(text: str) -> set[str]:
    """The names by which headings are linked to, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@each_row("page", PAGES)
def test_each_command_is_one_that_the_program_takes(page: Path) -> None:
    """Its options exist: with --help at its end the program reads all of the line first."""
    for line in commands(page.read_text()):
        words = re.split(r"\s[|>#&]|\s\d?>|;", line)[0]
        run = CliRunner().invoke(cli, [*shlex.split(words)[1:], "--help"], prog_name="nginx-tune")
        assert run.exit_code == 0, f"{line}: {run.output}"


@each_row("page", PAGES)
def test_each_link_leads_somewhere(page: Path) -> None:
    for name, anchor in _LINK.findall(re.sub(r"`[^`\n]*`", "", page.read_text())):
        if re.match(r"[a-z]+:", name):
            continue
        target = page.parent / name if name else page
        assert target.exists(), name
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text()), f"{name}#{anchor}"


@each_row("page", PROSE)
def test_a_page_has_the_words_of_its_readers(page: Path) -> None:
    text = re.sub(
        r"```.*?```|^ {4}[^\n]*$|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    assert OF_THE_CODE.findall(text) == []


def test_the_readme_stays_short() -> None:
    """What it does not say stands in docs/, where its reader looks."""
    assert len((ROOT / "README.md").read_text().split()) <= 1200
