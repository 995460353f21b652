"""``nginx-tune.toml`` and ``NGINX_TUNE_*``: every option by its long name.

A flag goes before ``NGINX_TUNE_COMMAND_OPTION``, that before the table ``[command]`` of the
settings file, that before the default. A setting that no option has is refused: a misspelt one
would do nothing. Of a file that was found, not named, `found_settings` says what it may hold.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from nginx_tune.errors import UsageError

FILE_NAME = "nginx-tune.toml"
SITE_TABLE = "site"
"""The table that is a document, not the settings of a command."""


class Settings(NamedTuple):
    """The tables of a settings file, and where they are from."""

    tables: dict[str, Any]
    file: Path | None
    is_found: bool
    """Searched upward, not named by who calls."""
    passed_over: str = ""
    """Reason for not reading a file that was found; empty when it is read."""


def read_settings(path: Path | None) -> Settings:
    """The tables of the named file, else of the nearest one upward; empty without one.

    Root reads nobody else's unasked; nor may somebody who can write beside root's working
    directory stop ``confirm`` or ``rollback``, so such a file is passed over and told.
    """
    found = path or _search_upward(FILE_NAME)
    if found is None:
        return Settings({}, None, is_found=False)
    if path is None:
        from nginx_tune.host.own_files import why_not_own  # noqa: PLC0415  # only with a file

        if why := why_not_own(found):
            why = f"{found}: not read as root unasked: {why} (name it with --config {found})"
            return Settings({}, found, is_found=True, passed_over=why)
    from nginx_tune.cli.inputs import read_toml  # noqa: PLC0415  # only when there is a file

    return Settings(read_toml(found), found, is_found=path is None)


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


def tell_found(command: click.Command) -> None:
    """Have a command say, before it begins, which of its settings a found file made."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            tell_found(below)
    elif command.callback is not None and not isinstance(command.callback, _Telling):
        command.callback = _Telling(command.callback)


class _Telling:
    """The callback of a command, after a line about the settings of a found file."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        self._callback = callback
        functools.update_wrapper(self, callback)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        context = click.get_current_context()
        file = context.obj.get("found")
        made = [] if file is None or context.obj["quiet"] else [*_made_by_file(context)]
        if made:
            from nginx_tune.report.terminal.saying import say  # noqa: PLC0415  # only with such a file

            say(f"settings from {file}: {', '.join(made)}")
        return self._callback(*arguments, **options)


def _made_by_file(context: click.Context) -> Iterator[str]:
    """The settings that neither a flag nor the environment made, by their full names."""
    place = ".".join(context.command_path.split()[1:])
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if isinstance(option, click.Option) and source is ParameterSource.DEFAULT_MAP:
            yield f"{place}.{_long_name(option).replace('_', '-')}"
    if "site_path" in context.params and context.params["site_path"] is None:
        yield from (f"{SITE_TABLE}.{key}" for key in context.obj["settings"].get(SITE_TABLE, ()))


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
        name = setting_name(key)
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


def setting_names(command: click.Command, place: str) -> Iterator[str]:
    """The full names of all settings of a command, such as ``scenario.run.max_time``."""
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"{place}.{_long_name(option)}"
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield f"{place}.{name}"
            yield from setting_names(below, f"{place}.{name}")


def setting_name(key: str) -> str:
    """A key as options are called: with dashes or underscores it is the same."""
    return key.replace("-", "_")


def _long_name(option: click.Option) -> str:
    longest = max(option.opts, key=len)
    return longest.lstrip("-").replace("-", "_")
