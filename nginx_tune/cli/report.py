"""``nginx-tune report``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.terminal.output import is_screen, output_options, write_result

if TYPE_CHECKING:
    from nginx_tune.documents.base import Document

_MARKDOWN_ENDINGS = (".md", ".markdown")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE|ID...")
@output_options("html", "markdown", "json")
def command(*, files: tuple[str, ...], formats: tuple[str, ...], output: str | None) -> ExitStatus:
    """One page of results to send: the answer first, then the evidence.

    Takes verdicts, runs and scenario runs, measurements, findings, plans, rehearsals, observations,
    facts, workloads and decisions as -f json wrote them, stored runs by their id or 'last', and
    pages that it wrote. The page stands alone: no script, no network, light, dark and print. It
    holds the documents: -f json gives those back, 'runs show PAGE' the run. With -o FILE.md it is
    Markdown, without plots.
    """
    if is_screen(output) and formats in {(), ("html",)}:
        named = " ".join(map(shlex.quote, files))
        raise UsageError(
            "a page is for a browser, not for a terminal",
            hint=f"nginx-tune report {named} -o report.html",
        )
    from nginx_tune.cli.report_inputs import plan_files, read_shown  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.report.page.render import render_page, render_report_markdown  # noqa: PLC0415

    documents: list[Document] = []
    here: dict[str, str] = {}
    for name in files:
        found = read_shown(name)
        here |= plan_files(found, name)
        documents += found
    renderers = {
        "html": lambda: render_page(documents, here),
        "markdown": lambda: render_report_markdown(documents, here),
        "json": lambda: _json(documents),
    }
    if not formats and output is not None and Path(output).suffix in _MARKDOWN_ENDINGS:
        formats = ("markdown",)
    # Runs and plans hold configurations: for nobody else.
    write_result(renderers, formats, output, mode=0o600)
    return ExitStatus.OK


def _json(documents: list[Document]) -> bytes:
    """The one document; of several a list."""
    from nginx_tune.documents.base import encode  # noqa: PLC0415

    if len(documents) == 1:
        return encode(documents[0])
    return b"[\n" + b",\n".join(encode(one).rstrip() for one in documents) + b"\n]\n"
