"""``nginx-tune schema NAME``."""

from __future__ import annotations

import click

from nginx_tune.documents.base import json_schema
from nginx_tune.documents.registry import DOCUMENTS
from nginx_tune.report.terminal.output import output_options, write_result

_SETTINGS = "settings"


@click.command()
@click.argument("name", metavar="NAME", type=click.Choice(sorted([*DOCUMENTS, _SETTINGS])))
@output_options("json")
def command(name: str, formats: tuple[str, ...], output: str | None) -> None:
    """JSON Schema of a document, or of nginx-tune.toml ("settings")."""
    write_result({"json": lambda: _schema(name)}, formats, output)


def _schema(name: str) -> bytes:
    if name != _SETTINGS:
        return json_schema(DOCUMENTS[name])
    from nginx_tune.cli.main import COMMANDS, cli  # noqa: PLC0415  # imports every command
    from nginx_tune.cli.settings_schema import settings_schema  # noqa: PLC0415

    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in COMMANDS}
    return settings_schema({name: one for name, one in found.items() if one is not None})
