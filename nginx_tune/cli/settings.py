"""``nginx-tune.toml`` and ``NGINX_TUNE_*``: every option by its long name.

Precedence: a flag, ``NGINX_TUNE_COMMAND_OPTION``, the table ``[command]`` of the settings file, the
default. An unknown setting is refused, since a misspelt one would have no effect:
``NGINX_TUNE_AUDIT_FAILON=warning`` would let warnings pass.

A file that was found, and not named by the user, was written by the author of the repository or of
a directory above it, whom the user may not trust. So only listed settings apply (``ALLOWED``):
preferences, and inputs below the file's own directory. All others (programs, results, trust,
commands, the subject and the load of a test) need ``--config``, the environment or a flag.
"""

import copy
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from nginx_tune.errors import UsageError, name_meant

FILE_NAME = "nginx-tune.toml"
SITE_TABLE = "site"
"""The table that holds a site document, not the settings of a command."""


class Settings(NamedTuple):
    """The tables of a settings file, and its path."""

    tables: dict[str, Any]
    file: Path | None
    is_found: bool
    """True if the file was found by a search upward, and not named."""
    passed_over: str = ""
    """The reason for not reading a file that was found; empty if it is read."""


def read_settings(path: Path | None) -> Settings:
    """The tables of the named file, else of the nearest file upward; empty if there is none.

    As root, a found file of another user is skipped with a note: it must not apply, and must not
    make ``confirm`` or ``rollback`` fail.
    """
    found = path or _search_upward(FILE_NAME)
    if found is None:
        return Settings({}, None, is_found=False)
    if path is None:
        from nginx_tune.host.paths import why_not_own  # noqa: PLC0415  # only with a file

        if why := why_not_own(found):
            why = f"{found}: not read as root: {why} (to read it, give --config {found})"
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
    """Name environment variables after the options, not after the Python parameters.

    The variable of a repeatable option has one value per line, since gates have spaces.
    """
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        option.envvar = f"{prefix}_{_long_name(option)}".upper()
        if option.multiple:
            option.type = copy.copy(option.type)
            option.type.envvar_list_splitter = "\n"  # type: ignore[misc]  # a copy
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            name_variables(below, f"{prefix}_{name}")


def refuse_empty(command: click.Command) -> None:
    """Refuse empty values: an unset shell variable would otherwise mean the default.

    ``-o "$OUT"`` would write elsewhere, and ``audit "$CONF"`` would check another file.
    """
    for parameter in command.params:
        is_text = isinstance(parameter.type, (click.types.StringParamType, click.Path))
        if is_text and not isinstance(
            parameter.callback, _NeverEmpty
        ):  # this may be called several times
            parameter.callback = _NeverEmpty(parameter.callback)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            refuse_empty(below)


def tell_found(command: click.Command) -> None:
    """Make a command first print which of its settings come from a file that was found."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            tell_found(below)
    elif command.callback is not None and not isinstance(command.callback, _Telling):
        command.callback = _Telling(command.callback)


class _Telling:
    """A command's callback that first prints the settings from a found file."""

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
    """The full names of the settings that came from the settings file."""
    place = ".".join(context.command_path.split()[1:])
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if isinstance(option, click.Option) and source is ParameterSource.DEFAULT_MAP:
            yield f"{place}.{_long_name(option).replace('_', '-')}"
    if "site_path" in context.params and context.params["site_path"] is None:
        yield from (f"{SITE_TABLE}.{key}" for key in context.obj["settings"].get(SITE_TABLE, ()))


class _NeverEmpty:
    """A parameter's callback that first refuses empty values."""

    def __init__(self, callback: Callable[..., Any] | None) -> None:
        self._callback = callback

    def __call__(self, context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        values = value if isinstance(value, tuple) else (value,)
        if any(isinstance(value, (str, PurePath)) and str(value) == "" for value in values):
            raise click.BadParameter("empty: is a variable not set?", context, parameter)
        return value if self._callback is None else self._callback(context, parameter, value)


def command_defaults(command: click.Command, table: Any, place: str) -> dict[str, Any]:
    """The values of a settings table as click's defaults, by parameter name.

    Errors: UsageError for an unknown option, or a value of the wrong type.
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
            found[str(option.name)] = _given_value(option, value, f"{place} {key}")
        else:
            raise UsageError(
                f"settings file: [{place}] has no setting '{key}'",
                hint=name_meant(name, [*options, *below])
                or f"one of {', '.join(sorted([*options, *below]))}",
            )
    return found


def _given_value(option: click.Option, value: Any, place: str) -> Any:
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
    """A key as the name of an option, with underscores for dashes."""
    return key.replace("-", "_")


def _long_name(option: click.Option) -> str:
    longest = max(option.opts, key=len)
    return longest.lstrip("-").replace("-", "_")


PREFIX = "NGINX_TUNE_"
_OF_ALL_COMMANDS = ("CONFIG", "VERBOSE", "QUIET", "COLOR", "NO_COLOR", "VERSION", "HELP")
_OWN = ("LAB", "OUTER_PROC", "REQUIRE", "REQUIRE_RUST", "PACKAGE", "WRITE_GOLDEN")
"""Endings of other ``NGINX_TUNE_*`` variables, for child processes, build, tests and examples."""
_OF_TESTS = ("SANDBOX", "TEST", "TESTS", "FAULTS", "FUZZ")


def check_variables(
    environment: Mapping[str, str],
    commands: Iterable[str],
    name: str,
    command: click.Command | None,
) -> list[str]:
    """A sentence for each variable that belongs to no command.

    Errors: UsageError for a variable that names no option of the called command, or that is
            probably misspelt.
    """
    notes = []
    words = [word.upper() for word in commands]
    known = sorted(_names(command, name.upper())) if command is not None else []
    for variable in sorted(environment):
        rest = variable.removeprefix(PREFIX)
        if rest == variable or rest in {*_OWN, *_OF_ALL_COMMANDS, *known}:
            continue
        first = rest.partition("_")[0]
        if first in _OF_TESTS:
            continue
        close = get_close_matches(rest, known, n=1, cutoff=0.85)
        if close or (command is not None and first == name.upper()):
            likely = close or get_close_matches(rest, known, n=1, cutoff=0.5) or known[:1]
            raise UsageError(
                f"{variable} in the environment: nginx-tune {name} has no such option",
                hint=f"perhaps {PREFIX}{likely[0]}" if likely else "unset it",
            )
        if first not in words:
            notes.append(f"{variable} in the environment: no command has such an option")
    return notes


def _names(command: click.Command, prefix: str) -> Iterable[str]:
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"{prefix}_{_long_name(option)}".upper()
            yield from (
                f"{prefix}_{other}".upper().replace("-", "_")
                for other in (part.lstrip("-") for part in option.secondary_opts)
            )
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _names(below, f"{prefix}_{name.upper()}")


SettingRule = Callable[[Any, str], Any]
"""A function that maps a value and the file's directory to the value to use. Errors:
_RefusedError."""
Tables = Mapping[str, Any]


class _RefusedError(Exception):
    """The reason why a setting that is allowed in a found file must not have this value."""


def preference(value: Any, _directory: str) -> Any:
    """A choice, a number or words, which cannot open, run or write anything."""
    return value


def format_alone(value: Any, _directory: str) -> Any:
    """The name of a format, but not ``FORMAT=FILE``, which would write a file."""
    if "=" in str(value):
        raise _RefusedError("names a file to write")
    return value


def input_below(value: Any, directory: str) -> Any:
    """The absolute path of a file or directory below the settings file's directory."""
    if value == "":
        return value  # refused later, like all empty values
    if not isinstance(value, str):
        raise _RefusedError("is not the name of a file")
    if value == "-":
        raise _RefusedError("is standard input")
    from nginx_tune.cli.inputs import keep_below  # noqa: PLC0415  # only with a name
    from nginx_tune.host.paths import (  # noqa: PLC0415
        steps_below,
        why_not_below,
        why_not_own,
    )

    why = why_not_below(directory, value)
    name = "/".join(steps_below(value) or ())
    path = f"{directory.rstrip('/')}/{name}"
    if why := why or why_not_own(Path(path)):
        raise _RefusedError(why)
    keep_below(path, directory, name)
    return path


def facts_below(value: Any, directory: str) -> Any:
    """``none``, or a file as in ``input_below``; not ``live``, which would run the host's nginx."""
    if value == "live":
        raise _RefusedError("asks this host")
    return value if value == "none" else input_below(value, directory)


def map_below(value: Any, directory: str) -> Any:
    """``PREFIX=DIR`` with a directory below that of the settings file."""
    if not isinstance(value, str):
        return value  # refused later, by the option
    prefix, equals, place = value.partition("=")
    return f"{prefix}={input_below(place, directory)}" if equals and place else value


def network_address(value: Any, _directory: str) -> Any:
    """Addresses and host names, but not the path of a socket, which belongs to a local program."""
    if "unix:" in str(value).lower():
        raise _RefusedError("names a socket by its path")
    return value


def feature_alone(value: Any, _directory: str) -> Any:
    """A feature of a site, without a file, directory or socket of this host."""
    name, _, text = str(value).partition("=")
    if "/" in text and name != "websocket":  # its value is a prefix of URLs
        raise _RefusedError("names a file or a socket by its path")
    return value


_FORMAT: Mapping[str, SettingRule] = {"format": format_alone}
_DESCRIBED: Mapping[str, SettingRule] = {
    "host": input_below,
    "workload": input_below,
    "kind": preference,
    "nginx_version": preference,
    "rate": preference,
    "objective": preference,
    **_FORMAT,
}
_DECIDING: Mapping[str, SettingRule] = {"facts": input_below, "root": input_below, **_DESCRIBED}
_JUDGED: Mapping[str, SettingRule] = {"require": preference, "primary": preference, **_FORMAT}

ALLOWED: Mapping[str, Mapping[str, SettingRule]] = {
    "check": {"map": map_below, "accept_missing": preference, "facts": input_below, **_DESCRIBED},
    "inspect": _FORMAT,
    "collector": {},
    "observe": {"objective": preference, **_FORMAT},
    "compare": {"primary": preference, **_FORMAT},
    "learn": {"log_format": preference, "kind": preference, **_FORMAT},
    "recommend": {
        "observation": input_below,
        "map": map_below,
        "accept_missing": preference,
        **_DECIDING,
    },
    "size": {"price": preference, **_DECIDING},
    "generate": {"with": feature_alone, **_DECIDING},
    "plan": {
        "observation": input_below,
        "map": map_below,
        "accept_missing": preference,
        "only": preference,
        "except": preference,
        "annotate": preference,
        **_DECIDING,
    },
    "audit": {
        "facts": facts_below,
        "map": map_below,
        "accept_missing": preference,
        "baseline": input_below,
        "upgrade_to": preference,
        "select": preference,
        "ignore": preference,
        "profile": preference,
        "fail_on": preference,
        "require_facts": preference,
        **_DESCRIBED,
    },
    "explain": _FORMAT,
    "probe": {"require": preference, "histogram": preference, **_FORMAT},
    "merge": {"histogram": preference, **_FORMAT},
    "validate": {
        "workload": input_below,
        "objective": preference,
        "pairs": preference,
        "duration": preference,
        "warmup": preference,
        "max_time": preference,
        "seed": preference,
        **_JUDGED,
    },
    "rehearse": {"require": preference, **_FORMAT},
    "apply": _FORMAT,
    "confirm": _FORMAT,
    "rollback": _FORMAT,
    "history": _FORMAT,
    "scenario": {},
    "scenario.list": _FORMAT,
    "scenario.run": {"pairs": preference, "duration": preference, "seed": preference, **_FORMAT},
    "runs": {},
    "runs.list": _FORMAT,
    "runs.show": {"histogram": preference, **_JUDGED},
    "report": _FORMAT,
    "lab": {},
    "lab.list": _FORMAT,
    "lab.clean": _FORMAT,
    "doctor": {"require": preference, **_FORMAT},
    "schema": _FORMAT,
    SITE_TABLE: {
        "listen": network_address,
        "server_names": preference,
        "roots": input_below,
        "root_prefixes": preference,
        "upstreams": network_address,
        "serves_files": preference,
        "cleartext_http2": preference,
        "http3": preference,
        "mime_types": input_below,
        "gzip": preference,
        "tcp_nopush": preference,
        "features": feature_alone,
        "hot_locations": preference,
        "streams": preference,
        "live_files": preference,
        "stream_silence_seconds": preference,
        "log_files": preference,
        "listening_sockets": preference,
    },
}
"""The settings that a found file may have, by table and long name of the option."""


def confined(tables: Tables, file: Path, called: str, known: Collection[str]) -> dict[str, Any]:
    """The tables of a found file, with absolute paths for its inputs.

    The whole file is checked, for any command, and the error has all faults. ``known`` are the
    settings of the called command, so that a misspelt one is reported as such.
    Errors: UsageError that names every setting not allowed in a found file.
    """
    import shlex  # noqa: PLC0415  # only with such a file

    refused: dict[str, str] = {}
    found = {
        name: _taken(table, name, str(file.parent), refused) if isinstance(table, dict) else table
        for name, table in tables.items()
    }
    if not refused:
        return found
    for place in refused:
        if place.startswith(f"{called}.") and setting_name(place) not in known:
            refused[place] = "no such setting"
    faults = [f"{place} ({why})" if why else place for place, why in refused.items()]
    raise UsageError(
        f"{file} was found by searching upward, not named with --config, so it may not set "
        f"{', '.join(faults)}",
        hint=f"if you trust the file, name it: --config {shlex.quote(str(file))}",
    )


def _taken(table: Tables, place: str, directory: str, refused: dict[str, str]) -> dict[str, Any]:
    """The allowed settings of a table; ``refused`` gets the others, with their reasons."""
    rules = ALLOWED.get(place, {})
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{place}.{key}"
        if name in ALLOWED and isinstance(value, dict):
            found[key] = _taken(value, name, directory, refused)
            continue
        rule = rules.get(setting_name(key))
        if rule is None:
            refused[name] = ""
            continue
        try:
            is_list = isinstance(value, list)
            found[key] = (
                [rule(item, directory) for item in value] if is_list else rule(value, directory)
            )
        except _RefusedError as error:
            refused[name] = str(error)
    return found
