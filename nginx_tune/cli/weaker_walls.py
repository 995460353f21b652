"""``--weaker-walls``, the same in every command that starts an nginx."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_OPTION = click.option(
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
            from nginx_tune.lab.walls import give_up  # noqa: PLC0415  # only where asked for

            give_up(weaker_walls)
        return function(*arguments, **options)

    wrapped: Any = _OPTION(called)
    return wrapped  # type: ignore[no-any-return]  # the same but for its option
