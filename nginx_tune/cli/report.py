"""``nginx-tune report``: a page from documents of many kinds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.terminal.output import is_screen, output_options, tell_written, write_result

if TYPE_CHECKING:
    from nginx_tune.documents.base import Document
    from nginx_tune.documents.run import KeptRun

_MARKDOWN_ENDINGS = (".md", ".markdown")
_PAGE_ENDINGS = (".html", ".htm")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE|ID...")
@output_options("html", "md", "json")
def command(*, files: tuple[str, ...], formats: tuple[str, ...], output: str | None) -> ExitStatus:
    """A page of results to send to others: first the answer, then the evidence.

    DOCUMENT is a file that -f json wrote (verdict, run, scenario run, measurement, findings, plan,
    rehearsal, observation, facts, workload, decisions, sizes), a stored run by its id or 'last', or
    an earlier page. The page needs no script, network or other file, and has light, dark and print
    styles. It contains the documents: -f json extracts them, 'runs show PAGE' shows the run. With
    -o FILE.md it is Markdown, without plots.
    """
    if is_screen(output) and formats in {(), ("html",)}:
        named = " ".join(map(shlex.quote, files))
        raise UsageError(
            "a page is HTML and is not written to a terminal",
            hint=f"nginx-tune report {named} -o report.html",
        )
    from nginx_tune.report.page.render import (  # noqa: PLC0415  # heavy imports stay here
        render_page,
        render_report_markdown,
    )

    documents: list[Document] = []
    here: dict[str, str] = {}
    for name in files:
        found = _read_shown(name)
        here |= _plan_files(found, name)
        documents += found
    renderers = {
        "html": lambda: render_page(documents, here),
        "md": lambda: render_report_markdown(documents, here),
        "json": lambda: _json(documents),
    }
    if not formats and output is not None and Path(output).suffix in _MARKDOWN_ENDINGS:
        formats = ("md",)
    # Runs and plans contain configurations: only the owner may read the file.
    write_result(renderers, formats, output, mode=0o600)
    tell_written("the report", formats, output)
    return ExitStatus.OK


def _json(documents: list[Document]) -> bytes:
    """The document as JSON; a list if there are several."""
    from nginx_tune.documents.base import encode  # noqa: PLC0415

    if len(documents) == 1:
        return encode(documents[0])
    return b"[\n" + b",\n".join(encode(document).rstrip() for document in documents) + b"\n]\n"


def is_page(name: str) -> bool:
    """True for a file that has the name of a page."""
    return name.endswith(_PAGE_ENDINGS)


def _read_shown(name: str) -> list[Document]:
    """The documents in a file (``-``: standard input) or page, or the stored run of an id.

    Errors: UsageError for a missing file, no document, or a kind of document that no page shows.
    """
    from nginx_tune.cli.inputs import decode_one_of, read_bytes  # noqa: PLC0415
    from nginx_tune.experiment.store import is_run_name, read_run  # noqa: PLC0415
    from nginx_tune.report.page.render import embedded_documents  # noqa: PLC0415
    from nginx_tune.report.page.sections import PAGE_KINDS, kinds_text  # noqa: PLC0415

    if is_run_name(name):
        return [read_run(name)]
    source = "standard input" if name == "-" else name
    data = read_bytes(name)
    contents = [data]
    if is_page(name) or data.lstrip()[:15].lower().startswith(b"<!doctype html"):
        contents = embedded_documents(data.decode("utf-8", "replace"), source=source)
    return [
        decode_one_of(
            PAGE_KINDS,
            content,
            source=source,
            refusal="which a report does not show",
            hint=f"it shows {kinds_text()}",
        )
        for content in contents
    ]


def _plan_files(documents: Sequence[Document], name: str) -> dict[str, str]:
    """The SHA-256, by path, of each existing file that a plan among the documents changes.

    Errors: UsageError if a plan shows other lines than it writes.
    """
    from nginx_tune.documents.plan import Plan  # noqa: PLC0415

    plans = [document for document in documents if isinstance(document, Plan)]
    if not plans:
        return {}
    from nginx_tune.cli.configurations import check_plan  # noqa: PLC0415  # with a plan alone
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.subject import ConfigurationFiles  # noqa: PLC0415

    reader = ConfigurationFiles(LiveHost())
    found: dict[str, str] = {}
    for plan in plans:
        found |= check_plan(plan, name, reader, may_lack_content=True)
    return found


def read_page_run(name: str) -> KeptRun:
    """The one run in a page.

    Errors: UsageError if the page holds no run, or several.
    """
    from nginx_tune.documents.run import KeptRun  # noqa: PLC0415

    runs = [document for document in _read_shown(name) if isinstance(document, KeptRun)]
    if len(runs) != 1:
        raise UsageError(
            f"{name}: {len(runs) or 'no'} stored run{'s' if runs else ''} in this page",
            hint="nginx-tune report PAGE -f json gives all documents in it",
        )
    return runs[0]
