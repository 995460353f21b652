"""Options that several commands have, and how people write durations."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from nginx_tune.errors import UsageError
from nginx_tune.host.parse_mountinfo import is_inside
from nginx_tune.report.terminal.saying import say

F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[Any], Any]


def option_group(options: Sequence[Option]) -> Callable[[F], F]:
    """The decorator that adds these options to a command, in their order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


prefix_option = click.option(
    "-p",
    "prefix",
    metavar="PREFIX",
    help="Prefix path, as nginx's own -p: relative names stand on it, that of CONF too.",
)


lab_option = click.option(
    "--lab",
    metavar="SPEC",
    help="Emulate a host with generated data (needs root): a class (hdd, ssd, nvme, memory), a "
    "TOML file that describes one, or the facts of one (JSON).",
)

_VERSION = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,4}){1,2}")

nginx_version_option = click.option(
    "--nginx-version",
    "nginx_version",
    metavar="V",
    callback=lambda _ctx, option, value: read_version(option, value),
    help="The nginx version it is for, such as 1.26.3; default: the facts'.",
)


def _tell_beyond(value: str, numbers: tuple[int, ...]) -> None:
    """That a version is newer than all that are known: what it brought is not."""
    from nginx_tune.conf.known_directives import newest_version  # noqa: PLC0415  # large tables

    newest = newest_version()
    if numbers > newest:
        known = ".".join(map(str, newest))
        say(
            f"nginx {value} is newer than {known}, the newest one known here: "
            "what came after is not judged"
        )


def read_version(option: click.Parameter, value: str | None) -> str | None:
    """A version as given; a usage error for what is none, a note where none is known so far."""
    if value is None:
        return None
    numbers = tuple(map(int, value.split("."))) if _VERSION.fullmatch(value) else ()
    if numbers[:2] > (0, 0):
        context = click.get_current_context(silent=True)
        if not (context and context.obj and context.obj.get("quiet")):
            _tell_beyond(value, numbers)
        return value
    raise click.BadParameter(f"{value}: give a version such as 1.26.3", param=option)


_WEAKER_WALLS = click.option(
    "--weaker-walls",
    "weaker_walls",
    multiple=True,
    type=click.Choice(["memory", "processes", "seccomp", "sockets"]),
    help="Go on where this host cannot have that wall around nginx; the result says so.",
)


def weaker_walls_option(function: F) -> F:
    """Add the option; the command itself is not called with it."""

    @functools.wraps(function)
    def called(*arguments: Any, weaker_walls: tuple[Any, ...], **options: Any) -> Any:
        if weaker_walls:
            from nginx_tune.nginx.lab.walls import give_up  # noqa: PLC0415  # only where asked for

            give_up(weaker_walls)
        return function(*arguments, **options)

    wrapped: Any = _WEAKER_WALLS(called)
    return wrapped  # type: ignore[no-any-return]  # the same but for its option


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|)")
_LONGEST_SECONDS = 366 * 86400.0
_LONGEST_TEXT = 60


_NO_DATA = ("/proc", "/sys", "/dev")
_MEMORY = "/dev/shm"  # noqa: S108  # where files lie in memory


def data_directories(
    _: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Directories of files: no kernel's own, whose "files" have no size and no end."""
    for value in values:
        real = os.path.realpath(value)
        if is_inside(real, _MEMORY):
            continue
        for place in _NO_DATA:
            if is_inside(real, place):
                raise UsageError(
                    f"{option.opts[0]} {value}: {place} holds no files that nginx serves",
                    hint="name the directory of the site's files",
                )
    return values


def parse_duration(text: str) -> float:
    """Seconds of ``10s``, ``1.5m``, ``200ms``; a bare number is seconds.

    Errors: UsageError for anything else, for nothing and for more than a year.
    """
    match = _FORM.fullmatch(text.strip())
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if match is None or seconds <= 0:
        raise UsageError(f"'{shown}' is no duration", hint="for example 10s, 1.5m, 200ms")
    if seconds > _LONGEST_SECONDS:
        raise UsageError(f"'{shown}' is too long", hint="a year, 8784h, is the longest")
    return seconds
