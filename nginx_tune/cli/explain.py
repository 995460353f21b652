"""``nginx-tune explain``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from nginx_tune.cli.options import facts_option, prefix_option
from nginx_tune.documents.scenario import Scenario
from nginx_tune.errors import ExitStatus, UsageError, name_meant
from nginx_tune.measure.proof.expression import subject_of
from nginx_tune.measure.proof.metrics import PARTS, metric_names, nearest_metrics
from nginx_tune.report.explained import (
    cause_pages,
    find_metric_page,
    metric_pages,
    render_cause_list,
    render_cause_markdown,
    render_cause_text,
    render_metric_list,
    render_metric_markdown,
    render_metric_text,
)
from nginx_tune.report.rule_page import (
    EVERY,
    render_index,
    render_markdown_page,
    render_text_list,
    render_text_page,
    rules_by_id,
)
from nginx_tune.report.scenario import (
    render_scenario_list,
    render_scenario_markdown,
    scenario_parts,
    scenario_words,
    summarise,
)
from nginx_tune.report.screen import Screen
from nginx_tune.report.terminal.output import output_options, write_result
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.terminal.writer import screen_bytes, text_bytes
from nginx_tune.report.text import align

if TYPE_CHECKING:
    from nginx_tune.decide.engine import SweepStep

_EXAMPLE_CLASS = "hot"
"""The request class assumed for a metric without a class; the scenarios have this class."""
_CLASS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--list", "lists", is_flag=True, help="List all pages, as without NAME.")
@facts_option("facts_path", "none. For a decision: a table of the values at which it flips")
@click.option(
    "--workload", "workload_path", metavar="FILE", help="With --facts: the workload of that host."
)
@click.option(
    "-c", "--conf", "conf_path", metavar="CONF", help="With --facts: the configuration there."
)
@prefix_option
@output_options("console", "md")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    name: str | None,
    lists: bool,
    facts_path: str | None,
    workload_path: str | None,
    conf_path: str | None,
    prefix: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """The page of a rule, a decision, a scenario, a metric or a cause.

    The page of a rule has its reason, examples, fix and sources. The page of a metric such as
    hot.p99 has its unit, its method, its pitfalls, and gates that use it. Without NAME, all pages
    are listed; as Markdown, only the rules.
    """
    if lists and name is not None:
        raise click.UsageError("give a NAME or --list")
    for option, value in (("--workload", workload_path), ("-c", conf_path), ("-p", prefix)):
        if value is not None and facts_path is None:
            raise click.UsageError(f"{option} needs --facts")
    name = None if name is None else _meant(subject_of(name))
    steps = None
    if facts_path is not None:
        given = {"facts_path": facts_path, "workload_path": workload_path}
        steps = _sweep(ctx, name, conf_path=conf_path, prefix=prefix, **given)
    write_result(
        {
            "console": lambda: _console(name, steps, formats, output),
            "md": lambda: _markdown(name, steps).encode(),
        },
        formats,
        output,
    )
    return ExitStatus.OK


def _sweep(
    ctx: click.Context,
    name: str | None,
    *,
    conf_path: str | None,
    prefix: str | None,
    **given: str | None,
) -> list[SweepStep]:
    from nginx_tune.cli.deciding import read_held, read_inputs  # noqa: PLC0415  # not for rules
    from nginx_tune.decide.engine import sweep  # noqa: PLC0415
    from nginx_tune.report.decisions import decision_pages  # noqa: PLC0415

    if name not in decision_pages():
        raise UsageError("--facts needs the name of a decision", hint="such as thread-pools")
    named: dict[str, Any] = {**given, "kind": None, "site_path": None, "nginx_binary": None}
    named |= dict.fromkeys(("datasets", "roots", "cache_dirs"), ())
    if conf_path is None:
        inputs = read_inputs(ctx, **named)
    else:
        inputs = read_held(ctx, conf_path, prefix, **named).inputs
    return sweep(str(name), inputs.facts, inputs.workload, inputs.site)


def _table(name: str | None, steps: list[SweepStep], *, markdown: bool = False) -> str:
    from nginx_tune.report.decisions import render_sweep, render_sweep_markdown  # noqa: PLC0415

    render = render_sweep_markdown if markdown else render_sweep
    return render(str(name), steps)


def _console(
    name: str | None, steps: list[SweepStep] | None, formats: tuple[str, ...], output: str | None
) -> bytes:
    return b"\n".join(
        text_bytes(part, formats, output)
        if isinstance(part, str)
        else screen_bytes(part, formats, output)
        for part in _parts(name, steps)
    )


def _parts(name: str | None, steps: list[SweepStep] | None) -> list[str | Screen]:
    from nginx_tune.report.decisions import decision_pages  # noqa: PLC0415  # not for rules

    if name is None:
        return [_everything()]
    if name in rules_by_id():
        return [render_text_page(rules_by_id()[name])]
    if name in cause_pages():
        return [render_cause_text(name, cause_pages()[name])]
    metric = find_metric_page(name) if _may_be_metric(name) else None
    if metric is not None:
        return [render_metric_text(metric)]
    pages, scenarios = decision_pages(), _scenarios()
    # Some experiments have the name of the decision that they are about.
    found: list[str | Screen] = [pages[name]] if name in pages else []
    if name in scenarios:
        found += [scenario_words(scenarios[name]), scenario_parts(scenarios[name])]
    if found:
        return [*found, *([_table(name, steps)] if steps is not None else [])]
    raise _unknown(name, [*pages, *rules_by_id(), *cause_pages(), *scenarios])


def _markdown(name: str | None, steps: list[SweepStep] | None) -> str:
    if name is None:
        return render_index(EVERY)
    if name in rules_by_id():
        return render_markdown_page(rules_by_id()[name])
    if name in cause_pages():
        return render_cause_markdown(name, cause_pages()[name])
    metric = find_metric_page(name) if _may_be_metric(name) else None
    if metric is not None:
        return render_metric_markdown(metric)
    from nginx_tune.report.decisions import (  # noqa: PLC0415  # not for rules
        decision_pages,
        render_decision_markdown,
    )

    pages, scenarios = decision_pages(), _scenarios()
    found = [render_decision_markdown(name)] if name in pages else []
    found += [render_scenario_markdown(scenarios[name])] if name in scenarios else []
    if found:
        table = [_table(name, steps, markdown=True)] if steps is not None else []
        return "\n".join([*found, *table])
    raise _unknown(name, [*pages, *rules_by_id(), *cause_pages(), *scenarios])


def _everything() -> str:
    from nginx_tune.report.decisions import decision_titles  # noqa: PLC0415  # not for rules

    sections = {
        "rules": render_text_list(EVERY),
        "decisions": align(list(decision_titles().items())),
        "scenarios": render_scenario_list(summarise(_scenarios().values())),
        "causes": render_cause_list(),
        "metrics": render_metric_list(metric_pages().values()),
    }
    return "\n".join(f"{title}\n{indent(text, '  ')}" for title, text in sections.items())


def _may_be_metric(name: str) -> bool:
    return "." in name


def _scenarios() -> dict[str, Scenario]:
    from nginx_tune.experiment.scenario.files import list_scenarios  # noqa: PLC0415  # heavy

    return {scenario.name: scenario for scenario in list_scenarios()}


def _meant(name: str) -> str:
    """The full name if only one page's name contains the word (decisions first), else the word."""
    from nginx_tune.report.decisions import decision_pages  # noqa: PLC0415  # not for rules

    kinds = (decision_pages, rules_by_id, cause_pages, _scenarios)
    if _WORD.fullmatch(name) is None or any(name in pages() for pages in kinds):
        return name
    for pages in kinds:
        found = _with_word(name, pages())
        if len(found) == 1:
            say(f"'{name}' is taken for {found[0]}")
            return found[0]
        if found:
            break
    return name


_WORD = re.compile(r"[a-z0-9]+")
_MOST_NAMED = 8


def _with_word(word: str, names: Iterable[str]) -> list[str]:
    """The names that have this word as one of their hyphenated parts."""
    return [name for name in names if word in name.split("-")]


def _unknown(name: str, known: list[str]) -> UsageError:
    if several := _with_word(name, known):
        more = "" if len(several) <= _MOST_NAMED else ", …: nginx-tune explain lists all"
        named = ", ".join(several[:_MOST_NAMED])
        return UsageError(f"nothing is called '{name}'", hint=f"one of {named}{more}")
    head, dot, _ = name.partition(".")
    has_class = bool(dot) and head not in PARTS and _CLASS.fullmatch(head) is not None
    names = metric_names([head if has_class else _EXAMPLE_CLASS])
    metrics = nearest_metrics(name, names)
    is_end = bool(metrics) and metrics[0].endswith(f".{name.lower()}")
    near = "" if dot or is_end else name_meant(name, known)
    if not near and metrics:
        near = f"is {metrics[0]} meant?"
    return UsageError(
        f"nothing is called '{name}'", hint=near or "nginx-tune explain lists what there is"
    )
