"""``nginx-tune explain``."""

from __future__ import annotations

from difflib import get_close_matches

import click

from nginx_tune.cli.output import output_options, write_result
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.rule_index import EVERY, rules_by_id
from nginx_tune.report.rule_page import (
    render_index,
    render_markdown_page,
    render_text_list,
    render_text_page,
)


@click.command()
@click.argument("name", metavar="ID", required=False)
@click.option("--list", "lists", is_flag=True, help="Every rule with its severity and proof.")
@output_options("console", "markdown")
def command(
    *, name: str | None, lists: bool, formats: tuple[str, ...], output: str | None
) -> ExitStatus:
    """What a rule of audit or a decision of recommend is about: why, examples, fix, sources."""
    if lists == (name is not None):
        raise click.UsageError("give an ID or --list")
    write_result(
        {
            "console": lambda: _text(name).encode(),
            "markdown": lambda: _markdown(name).encode(),
        },
        formats,
        output,
    )
    return ExitStatus.OK


def _text(name: str | None) -> str:
    from nginx_tune.report.decision_page import decision_pages  # noqa: PLC0415  # not for rules

    if name is None:
        return render_text_list(EVERY)
    if name in rules_by_id():
        return render_text_page(rules_by_id()[name])
    pages = decision_pages()
    if name in pages:
        return pages[name]
    raise _unknown(name, [*rules_by_id(), *pages])


def _markdown(name: str | None) -> str:
    if name is None:
        return render_index(EVERY)
    if name in rules_by_id():
        return render_markdown_page(rules_by_id()[name])
    raise _unknown(name, list(rules_by_id()))


def _unknown(name: str, known: list[str]) -> UsageError:
    near = get_close_matches(name, known, n=1)
    return UsageError(
        f"nothing is called '{name}'",
        hint=f"is {near[0]} meant?" if near else "nginx-tune explain --list",
    )
