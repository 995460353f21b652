"""A page for every cause that observe can name, and none for one that it cannot."""

from typing import get_args

from command_line import RunCli
from rows import each_row

from nginx_tune.documents.observation import CauseId
from nginx_tune.report.explained import (
    CausePage,
    cause_pages,
    render_cause_markdown,
    render_cause_text,
)


def test_every_cause_has_a_page() -> None:
    assert set(cause_pages()) == set(get_args(CauseId))


@each_row(("name", "page"), cause_pages().items(), ids=list(cause_pages()))
def test_a_page_says_all(name: str, page: CausePage) -> None:
    assert page.steps
    assert page.beside
    assert page.sources
    text, markdown = render_cause_text(name, page), render_cause_markdown(name, page)
    for said in (name, page.title, *page.sources):
        assert said in text
        assert said in markdown
    assert max(map(len, text.splitlines())) <= 110


def test_pages_from_the_command_line(run_cli: RunCli) -> None:
    run = run_cli("explain", "loop-held-by-cpu")
    assert run.returncode == 0, run.stderr
    assert "gzip_static" in run.stdout
    run = run_cli("explain", "loop-held-by-cpu", "-f", "markdown")
    assert run.stdout.startswith("# loop-held-by-cpu: ")
    run = run_cli("explain", "loop-held-by-cp")
    assert run.returncode == 2
    assert "loop-held-by-cpu" in run.stderr
    assert "cause-not-known" in run_cli("explain", "--list").stdout
