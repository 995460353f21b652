"""Pages of the documentation site that the code itself writes: commands, decisions, causes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

import click

from nginx_tune.cli.help import EXAMPLES
from nginx_tune.cli.main import GROUPS, cli
from nginx_tune.experiment.scenario.files import list_scenarios
from nginx_tune.report.decisions import decision_titles, render_decision_markdown
from nginx_tune.report.explained import (
    cause_pages,
    metric_pages,
    render_cause_markdown,
    render_metric_markdown,
)
from nginx_tune.report.scenario import render_scenario_markdown

PROGRAM = "nginx-tune"


def reference_pages() -> dict[str, str]:
    """Path of each generated page, below the site's root, to its Markdown."""
    scenarios = {scenario.name: scenario for scenario in list_scenarios()}
    metrics = metric_pages()
    causes = cause_pages()
    return command_pages() | {
        "reference/decisions.md": _one_page(
            "Decisions",
            "What `recommend` decides, and `plan` and `generate` write.",
            (render_decision_markdown(name) for name in decision_titles()),
        ),
        "reference/metrics.md": _one_page(
            "Metrics",
            "What verdicts, gates and claims name; CLASS is a class of load, such as `hot`.",
            (render_metric_markdown(page) for page in metrics.values()),
        ),
        "reference/causes.md": _one_page(
            "Causes",
            "What `observe` names when a running nginx is held up.",
            (render_cause_markdown(name, page) for name, page in causes.items()),
        ),
        "reference/scenarios.md": _one_page(
            "Scenarios",
            "The experiments that `scenario run` knows.",
            (render_scenario_markdown(scenario) for scenario in scenarios.values()),
        ),
    }


def command_pages() -> dict[str, str]:
    """A page for each command, with those below it, and their index."""
    top = click.Context(cli, info_name=PROGRAM)
    pages: dict[str, str] = {}
    index = [
        "# Commands",
        "",
        "In the order of the work; `nginx-tune COMMAND --help` says the same.",
    ]
    for group, names in GROUPS.items():
        index += ["", f"## {group}", "", "| command | gives |", "|---|---|"]
        for name in names:
            command = cli.get_command(top, name)
            assert command is not None  # noqa: S101  # GROUPS is held to COMMANDS by a test
            index.append(f"| [{name}]({name}.md) | {_cell(command.get_short_help_str(200))} |")
            ctx = click.Context(command, info_name=name, parent=top)
            pages[f"reference/commands/{name}.md"] = "\n".join(_command(command, ctx, "#"))
    return pages | {"reference/commands/index.md": "\n".join([*index, ""])}


def _command(command: click.Command, ctx: click.Context, level: str) -> Iterator[str]:
    words = ctx.command_path.removeprefix(f"{PROGRAM} ")
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    yield from (f"{level} {words}", "", *_description(command.help or ""))
    yield from ("```text", usage, "```", "")
    options = [record for option in command.params if (record := _record(option, ctx))]
    yield from ("| option | |", "|---|---|")
    yield from (f"| `{_cell(name)}` | {_cell(text)} |" for name, text in options)
    yield ""
    if examples := EXAMPLES.get(words):
        yield from ("```sh", *examples, "```", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child is not None and not child.hidden:
                below = click.Context(child, info_name=name, parent=ctx)
                yield from _command(child, below, f"{level}#")


def _description(text: str) -> Iterator[str]:
    r"""The paragraphs of a help text; those that click leaves as they are (\b) in a block."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from ("```text", paragraph.removeprefix("\b\n"), "```", "")
        else:
            yield from (_plain(" ".join(paragraph.split())), "")


def _record(option: click.Parameter, ctx: click.Context) -> tuple[str, str] | None:
    return option.get_help_record(ctx) if isinstance(option, click.Option) else None


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """Text in which Markdown finds nothing of its own, apart from what stands in backquotes."""
    parts = text.split("`")
    marked = "*_<[#"
    for at in range(0, len(parts), 2):
        parts[at] = "".join(f"\\{char}" if char in marked else char for char in parts[at])
    return "`".join(parts)


def _one_page(title: str, first: str, pages: Iterable[str]) -> str:
    """Pages below each other, their headings one level down."""
    return "\n\n".join([f"# {title}", first, *map(_lowered, pages)]) + "\n"


def _lowered(page: str) -> str:
    fenced = False
    lines = []
    for line in page.splitlines():
        fenced ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return "\n".join(lines)
