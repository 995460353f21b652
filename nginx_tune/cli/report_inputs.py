"""Documents of many kinds by the names of files: what ``report`` reads, and ``runs show``."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.cli.inputs import decode_one_of, read_bytes
from nginx_tune.documents.base import Document
from nginx_tune.documents.plan import Plan
from nginx_tune.documents.run import Run
from nginx_tune.errors import UsageError
from nginx_tune.experiment.runs import is_run_name, read_run
from nginx_tune.report.page.embedded import embedded_documents
from nginx_tune.report.page.sections import PAGE_KINDS, kinds_text

_PAGE_ENDINGS = (".html", ".htm")


def is_page(name: str) -> bool:
    """Whether a file is named as a page is."""
    return name.endswith(_PAGE_ENDINGS)


def read_shown(name: str) -> list[Document]:
    """The documents in a file (``-``: standard input) or page, or the stored run of an id.

    Errors: UsageError that names the file: not there, no document, or one that no page shows.
    """
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


def plan_files(documents: Sequence[Document], name: str) -> dict[str, str]:
    """The SHA-256 of the files of plans among some documents that are here, by their paths.

    Errors: UsageError where a plan shows other lines than it writes.
    """
    from nginx_tune.cli.planned import check_plan  # noqa: PLC0415  # with a plan alone
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.subject import ConfigurationFiles  # noqa: PLC0415

    reader = ConfigurationFiles(LiveHost())
    found: dict[str, str] = {}
    for plan in (one for one in documents if isinstance(one, Plan)):
        found |= check_plan(plan, name, reader, may_lack_content=True)
    return found


def read_page_run(name: str) -> Run:
    """The one run in a page.

    Errors: UsageError when it holds none, or several.
    """
    runs = [one for one in read_shown(name) if isinstance(one, Run)]
    if len(runs) != 1:
        raise UsageError(
            f"{name}: {len(runs) or 'no'} stored run{'s' if runs else ''} in this page",
            hint="nginx-tune report PAGE -f json gives all documents in it",
        )
    return runs[0]
