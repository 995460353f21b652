"""``NGINX_TUNE_*`` in the environment: a name that no option has is told, as in a settings file.

A misspelt one would do nothing: ``NGINX_TUNE_AUDIT_FAILON=warning`` would let warnings pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import click

from nginx_tune.errors import UsageError

PREFIX = "NGINX_TUNE_"
_OF_ALL_COMMANDS = ("CONFIG", "VERBOSE", "QUIET", "NO_COLOR", "VERSION", "HELP")
_OWN = ("LAB", "OUTER_PROC", "REQUIRE", "REQUIRE_RUST", "PACKAGE", "WRITE_GOLDEN")
"""Not options: marks of our processes, and what the build, the tests and the examples take."""
_OF_TESTS = ("WALLS", "TEST", "TESTS", "FAULTS")


def check_variables(
    environment: Mapping[str, str],
    commands: Iterable[str],
    name: str,
    command: click.Command | None,
) -> list[str]:
    """A sentence for each name that belongs to no command.

    Errors: UsageError for one of the command that is called that none of its options has, and
            for one that looks like a misspelt one of it.
    """
    told = []
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
            told.append(f"{variable} in the environment: no command or option is called so")
    return told


def _names(command: click.Command, prefix: str) -> Iterable[str]:
    for option in command.params:
        if isinstance(option, click.Option):
            longest = max(option.opts, key=len).lstrip("-").replace("-", "_")
            yield f"{prefix}_{longest}".upper()
            yield from (
                f"{prefix}_{other}".upper().replace("-", "_")
                for other in (part.lstrip("-") for part in option.secondary_opts)
            )
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _names(below, f"{prefix}_{name.upper()}")
