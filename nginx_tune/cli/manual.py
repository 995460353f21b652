"""The manual pages of every command, from the commands themselves."""

from __future__ import annotations

import inspect

import click

from nginx_tune import __version__
from nginx_tune.cli.examples import EXAMPLES
from nginx_tune.report.man_page import ManPage, render_man_page

PROGRAM = "nginx-tune"
_EXIT_CODES = [
    ("0", "Fine."),
    ("1", "Findings, a failed gate, a worse candidate, a claim that did not hold, a difference."),
    ("2", "Wrong usage, or an input that is missing or no document."),
    ("3", "A configuration could not be parsed, or the target's nginx -t rejects it."),
    ("4", "Something needed could not be measured or decided."),
    ("5", "A change could neither be kept nor taken back."),
    ("130", "Interrupted."),
]
_ENVIRONMENT = [
    ("NGINX_TUNE_COMMAND_OPTION", "The value of an option that is not given."),
    ("NGINX_TUNE_CONFIG", "The settings file."),
    ("NO_COLOR", "Plain output when set and not empty."),
]
_SETTINGS_FILE = """\
Settings: a table per command with its options by their long names. Searched upward from the
working directory, and then held to preferences and to inputs below its own directory. Its JSON
Schema: nginx-tune schema settings."""
_FILES = [("nginx-tune.toml", _SETTINGS_FILE)]


def manual_pages(cli: click.Group) -> dict[str, str]:
    """File name to man(7) source, for the program and each of its commands."""
    pages: dict[str, str] = {}
    _add_pages(pages, cli, click.Context(cli, info_name=PROGRAM))
    return pages


def _add_pages(pages: dict[str, str], command: click.Command, ctx: click.Context) -> None:
    name = ctx.command_path.replace(" ", "-")
    below: list[tuple[str, click.Command]] = []
    if isinstance(command, click.Group):
        found = [(one, command.get_command(ctx, one)) for one in command.list_commands(ctx)]
        below = [(one, child) for one, child in found if child is not None and not child.hidden]
    summary, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    page = ManPage(
        name=name,
        version=__version__,
        summary=" ".join(summary.split()),
        command=ctx.command_path,
        usage=" ".join(command.collect_usage_pieces(ctx)),
        description=rest or summary,
        options=[record for option in command.params if (record := _record(option, ctx))],
        commands=[(one, child.get_short_help_str(200)) for one, child in below],
        examples=[*EXAMPLES.get(ctx.command_path.removeprefix(f"{PROGRAM} "), ())],
        exit_codes=_EXIT_CODES,
        environment=_ENVIRONMENT if ctx.parent is None else [],
        files=_FILES if ctx.parent is None else [],
        see_also=[f"{name}-{one}" for one, _ in below]
        or [ctx.parent.command_path.replace(" ", "-") if ctx.parent else PROGRAM],
    )
    pages[f"{name}.1"] = render_man_page(page)
    for one, child in below:
        _add_pages(pages, child, click.Context(child, info_name=one, parent=ctx))


def _record(option: click.Parameter, ctx: click.Context) -> tuple[str, str] | None:
    return option.get_help_record(ctx) if isinstance(option, click.Option) else None
