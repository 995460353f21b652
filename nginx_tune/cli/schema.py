"""``nginx-tune schema NAME``: the JSON Schema of a document, or of ``nginx-tune.toml``.

The schema of the settings file is derived from the commands' options. Editors with Taplo or Even
Better TOML use it to complete and check the file.
"""

from collections.abc import Mapping
from typing import Any

import click
import msgspec

from nginx_tune.cli.settings import SITE_TABLE
from nginx_tune.documents.base import json_schema
from nginx_tune.documents.registry import DOCUMENTS
from nginx_tune.documents.site import Site
from nginx_tune.report.terminal.output import output_options, write_result

Schema = dict[str, Any]
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

    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in COMMANDS}
    return settings_schema({name: child for name, child in found.items() if child is not None})


def settings_schema(commands: Mapping[str, click.Command]) -> bytes:
    """The schema of the settings file as JSON, from the commands by the names of their tables."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "nginx-tune/settings/1",
        "title": "nginx-tune.toml",
        "description": "Flags and NGINX_TUNE_COMMAND_OPTION take precedence. A file that is found, "
        "not named with --config, may only have preferences and inputs below its directory.",
        "type": "object",
        "properties": {
            **{name: _table(command) for name, command in commands.items()},
            SITE_TABLE: _site(),
        },
        "additionalProperties": False,
        "$defs": _definitions(),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _table(command: click.Command) -> Schema:
    """A command's table, with an entry per option; dashes may be written as underscores."""
    known: dict[str, Schema] = {}
    spellings: dict[str, Schema] = {}
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_eager:
            continue
        name = max(option.opts, key=len).lstrip("-")
        known[name] = _option(option)
        if "-" in name:
            spellings[f"^{name.replace('-', '[-_]')}$"] = known[name]
    if isinstance(command, click.Group):
        known |= {name: _table(below) for name, below in command.commands.items()}
    table: Schema = {"type": "object", "properties": known, "additionalProperties": False}
    if command.help:
        table["description"] = command.help.partition("\n")[0]
    if spellings:
        table["patternProperties"] = spellings
    return table


def _option(option: click.Option) -> Schema:
    value = _value(option)
    if option.multiple:
        value = {"anyOf": [value, {"type": "array", "items": value}]}
    return {**value, **({"description": option.help} if option.help else {})}


def _value(option: click.Option) -> Schema:
    """The schema of an option's value; TOML may have a number where the command line has text."""
    kind = option.type
    if option.is_flag:
        return {"type": "boolean"}
    if option.count:
        return {"type": "integer", "minimum": 0}
    if isinstance(kind, click.Choice):
        return {"enum": list(kind.choices)}
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        return _range(kind)
    if isinstance(kind, click.types.IntParamType):
        return {"type": "integer"}
    if isinstance(kind, click.types.FloatParamType):
        return {"type": "number"}
    return {"type": ["string", "integer", "number"]}


def _range(kind: click.IntRange | click.FloatRange) -> Schema:
    found: Schema = {"type": "integer" if isinstance(kind, click.IntRange) else "number"}
    if kind.min is not None:
        found["exclusiveMinimum" if kind.min_open else "minimum"] = kind.min
    if kind.max is not None:
        found["exclusiveMaximum" if kind.max_open else "maximum"] = kind.max
    return found


def _site() -> Schema:
    """The schema of the ``[site]`` table: the site document without its schema line."""
    whole = msgspec.json.schema(Site)["$defs"]["Site"]
    properties = {name: part for name, part in whole["properties"].items() if name != "schema"}
    return {**whole, "properties": properties, "required": [], "additionalProperties": False}


def _definitions() -> Schema:
    parts: Schema = msgspec.json.schema(Site)["$defs"]
    return {name: part for name, part in parts.items() if name != "Site"}
