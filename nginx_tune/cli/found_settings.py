"""The settings that a file may hold which was found, not named.

Whoever wrote a repository or a directory above it wrote this file too, and who works there has
asked for none of it. So it goes by a positive list: preferences, and inputs below the file's own
directory. A program, a result, trust, a wall, a guard rail, a command, what is judged or loaded,
and each option that nobody has put on the list need ``--config``, the environment or a flag.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from nginx_tune.cli.settings import SITE_TABLE, setting_name
from nginx_tune.errors import UsageError
from nginx_tune.host.below import steps_below, why_not_below

Rule = Callable[[Any, str], Any]
"""From a value and the file's directory to the value as it is taken; _RefusedError for none."""
Tables = Mapping[str, Any]


class _RefusedError(Exception):
    """Reason why a listed setting may not have this value; empty when it may."""


def preference(value: Any, _directory: str) -> Any:
    """A choice, a number or words: nothing is opened, run or written by it."""
    return value


def format_alone(value: Any, _directory: str) -> Any:
    """The name of a format; ``FORMAT=FILE`` would write."""
    if "=" in str(value):
        raise _RefusedError("names a file to write")
    return value


def input_below(value: Any, directory: str) -> Any:
    """A file or a directory below the file's own, by its absolute path; read as such later."""
    if value == "":
        return value  # refused as every empty text is
    if not isinstance(value, str):
        raise _RefusedError("is no name of a file")
    if value == "-":
        raise _RefusedError("is standard input")
    from nginx_tune.cli.inputs import keep_below  # noqa: PLC0415  # only where one is named
    from nginx_tune.host.own_files import why_not_own  # noqa: PLC0415

    why = why_not_below(directory, value)
    name = "/".join(steps_below(value) or ())
    path = f"{directory.rstrip('/')}/{name}"
    if why := why or why_not_own(Path(path)):
        raise _RefusedError(why)
    keep_below(path, directory, name)
    return path


def facts_below(value: Any, directory: str) -> Any:
    """The same, or ``none``; ``live`` would run the host's nginx."""
    if value == "live":
        raise _RefusedError("asks this host")
    return value if value == "none" else input_below(value, directory)


def map_below(value: Any, directory: str) -> Any:
    """``PREFIX=DIR``, whose directory is below the file's own."""
    if not isinstance(value, str):
        return value  # the option takes none
    prefix, equals, place = value.partition("=")
    return f"{prefix}={input_below(place, directory)}" if equals and place else value


def network_address(value: Any, _directory: str) -> Any:
    """Addresses and names of hosts; a socket's path leads to a program of this host."""
    if "unix:" in str(value).lower():
        raise _RefusedError("names a socket by its path")
    return value


_FORMAT: Mapping[str, Rule] = {"format": format_alone}
_DECIDING: Mapping[str, Rule] = {
    "facts": input_below,
    "workload": input_below,
    "kind": preference,
    "nginx_version": preference,
    "root": input_below,
    **_FORMAT,
}
_JUDGED: Mapping[str, Rule] = {"require": preference, "primary": preference, **_FORMAT}

ALLOWED: Mapping[str, Mapping[str, Rule]] = {
    "inspect": _FORMAT,
    "collector": {},
    "observe": {"objective": preference, **_FORMAT},
    "compare": {"primary": preference, **_FORMAT},
    "learn": {"log_format": preference, "kind": preference, **_FORMAT},
    "recommend": {"observation": input_below, **_DECIDING},
    "generate": _DECIDING,
    "plan": {
        "observation": input_below,
        "only": preference,
        "except": preference,
        "annotate": preference,
        **_DECIDING,
    },
    "audit": {
        "facts": facts_below,
        "workload": input_below,
        "map": map_below,
        "accept_missing": preference,
        "baseline": input_below,
        "nginx_version": preference,
        "upgrade_to": preference,
        "select": preference,
        "ignore": preference,
        "profile": preference,
        "fail_on": preference,
        "require_facts": preference,
        **_FORMAT,
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
        "cleartext_http2": preference,
        "http3": preference,
        "mime_types": input_below,
        "gzip": preference,
        "tcp_nopush": preference,
        "hot_locations": preference,
        "streams": preference,
        "live_files": preference,
        "stream_silence_seconds": preference,
        "log_files": preference,
        "listening_sockets": preference,
    },
}
"""By table, each setting that a found file may hold, by its option's long name."""


def confined(tables: Tables, file: Path, called: str, known: Collection[str]) -> dict[str, Any]:
    """The tables of a found file, with absolute paths for its inputs.

    The whole file is looked at, whatever command is called: all that is wrong is told at once.
    ``known`` are the settings of the called command, so that a misspelt one is told as such.
    Errors: UsageError naming every setting that may not stand there.
    """
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
    told = [f"{place} ({why})" if why else place for place, why in refused.items()]
    raise UsageError(
        f"{file}: a settings file that was found, not named, may not set {', '.join(told)}",
        hint=f"if you trust the file, name it: --config {shlex.quote(str(file))}",
    )


def _taken(table: Tables, place: str, directory: str, refused: dict[str, str]) -> dict[str, Any]:
    """Settings of a table that may be taken; full names of others are added to ``refused``."""
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
                [rule(one, directory) for one in value] if is_list else rule(value, directory)
            )
        except _RefusedError as error:
            refused[name] = str(error)
    return found
