"""``nginx-tune explain``."""

from __future__ import annotations

from difflib import get_close_matches

import click

from nginx_tune.cli.output import output_options, write_result
from nginx_tune.documents.scenario import Scenario
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.rule_index import EVERY, rules_by_id
from nginx_tune.report.rule_page import (
    render_index,
    render_markdown_page,
    render_text_list,
    render_text_page,
)
from nginx_tune.report.scenario_page import render_scenario_markdown, render_scenario_page


@click.command()
@click.argument("name", metavar="ID", required=False)
@click.option("--list", "lists", is_flag=True, help="Every rule with its severity and proof.")
@output_options("console", "markdown")
def command(
    *, name: str | None, lists: bool, formats: tuple[str, ...], output: str | None
) -> ExitStatus:
    """What a rule, a decision or a scenario is about: why, examples, fix, sources."""
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
    pages, scenarios = decision_pages(), _scenarios()
    # Some experiments have the name of the decision that they are about.
    found = [pages[name]] if name in pages else []
    found += [render_scenario_page(scenarios[name])] if name in scenarios else []
    if found:
        return "\n".join(found)
    raise _unknown(name, [*rules_by_id(), *pages, *scenarios])


def _markdown(name: str | None) -> str:
    if name is None:
        return render_index(EVERY)
    if name in rules_by_id():
        return render_markdown_page(rules_by_id()[name])
    scenarios = _scenarios()
    if name in scenarios:
        return render_scenario_markdown(scenarios[name])
    raise _unknown(name, [*rules_by_id(), *scenarios])


def _scenarios() -> dict[str, Scenario]:
    from nginx_tune.measure.scenario import list_scenarios  # noqa: PLC0415  # heavy

    return {scenario.name: scenario for scenario in list_scenarios()}


def _unknown(name: str, known: list[str]) -> UsageError:
    near = get_close_matches(name, known, n=1)
    return UsageError(
        f"nothing is called '{name}'",
        hint=f"is {near[0]} meant?" if near else "nginx-tune explain --list",
    )
