"""``nginx-tune.toml`` and ``NGINX_TUNE_*``: every option by its long name.

A flag goes before ``NGINX_TUNE_COMMAND_OPTION``, that before the table ``[command]`` of the
settings file, that before the default. A setting that no option has is refused: a misspelt one
would do nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import click

from nginx_tune.errors import UsageError

FILE_NAME = "nginx-tune.toml"
SITE_TABLE = "site"
"""The table that is a document, not the settings of a command."""


def read_settings(path: Path | None) -> tuple[dict[str, Any], str]:
    """The tables of the named file, else of the nearest one upward; empty without one.

    Shape: and why one that was found is not read, empty where it is. It would name programs and
    files, and root believes nobody else's unasked; nor may somebody who can write beside root's
    working directory stop ``confirm`` or ``rollback``, so it is passed over and told.
    """
    found = settings_file(path)
    if found is None:
        return {}, ""
    if path is None:
        from nginx_tune.host.own_files import why_not_own  # noqa: PLC0415  # only with a file

        if why := why_not_own(found):
            return {}, f"{found}: not read as root unasked: {why} (name it with --config {found})"
    from nginx_tune.cli.inputs import read_toml  # noqa: PLC0415  # only when there is a file

    return read_toml(found), ""


def settings_file(path: Path | None) -> Path | None:
    """The file that is named, else the nearest one upward, whoever wrote it."""
    return path or _search_upward(FILE_NAME)


def _search_upward(name: str) -> Path | None:
    try:
        here = Path.cwd()
    except OSError:  # the working directory is gone
        return None
    return next((d / name for d in (here, *here.parents) if (d / name).is_file()), None)


def name_variables(command: click.Command, prefix: str) -> None:
    """Let environment variables be called as the options are, not as our parameters are.

    Of an option that may repeat the values stand on a line each: gates hold spaces.
    """
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        option.envvar = f"{prefix}_{_long_name(option)}".upper()
        if option.multiple:
            option.type = copy.copy(option.type)
            option.type.envvar_list_splitter = "\n"  # type: ignore[misc]  # of our own copy
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            name_variables(below, f"{prefix}_{name}")


def refuse_empty(command: click.Command) -> None:
    """Have no text be empty: a shell's variable that is not set would mean the default.

    ``-o "$OUT"`` would write where nobody asked, ``audit "$CONF"`` judge another file.
    """
    for parameter in command.params:
        is_text = isinstance(parameter.type, (click.types.StringParamType, click.Path))
        if is_text and not isinstance(parameter.callback, _NeverEmpty):  # once, however often asked
            parameter.callback = _NeverEmpty(parameter.callback)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            refuse_empty(below)


class _NeverEmpty:
    """The callback of a parameter, asked only for what is not empty."""

    def __init__(self, callback: Callable[..., Any] | None) -> None:
        self._callback = callback

    def __call__(self, context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        values = value if isinstance(value, tuple) else (value,)
        if any(isinstance(one, (str, PurePath)) and str(one) == "" for one in values):
            raise click.BadParameter("empty: is a variable not set?", context, parameter)
        return value if self._callback is None else self._callback(context, parameter, value)


def command_defaults(command: click.Command, table: Any, place: str) -> dict[str, Any]:
    """A table of the settings file as defaults by parameter.

    Errors: UsageError for what the command has no option for, and for values of another shape.
    """
    if not isinstance(table, dict):
        raise UsageError(f"settings file: {place} is not a table")
    options = {_long_name(o): o for o in command.params if isinstance(o, click.Option)}
    below = command.commands if isinstance(command, click.Group) else {}
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if key in below:
            found[key] = command_defaults(below[key], value, f"{place}.{key}")
        elif name in options:
            option = options[name]
            found[str(option.name)] = _value(option, value, f"{place} {key}")
        else:
            raise UsageError(
                f"settings file: [{place}] has no setting '{key}'",
                hint=f"one of {', '.join(sorted([*options, *below]))}",
            )
    return found


def _value(option: click.Option, value: Any, place: str) -> Any:
    values = value if isinstance(value, list) else [value]
    if any(isinstance(item, (dict, list)) for item in values) or (
        isinstance(value, list) and not option.multiple
    ):
        wanted = "a value or a list of values" if option.multiple else "one value"
        raise UsageError(f"settings file: {place}: expected {wanted}")
    return values if option.multiple else value


def _long_name(option: click.Option) -> str:
    longest = max(option.opts, key=len)
    return longest.lstrip("-").replace("-", "_")
