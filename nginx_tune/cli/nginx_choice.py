"""``--nginx`` and ``--trust``, the same in every command, and what is said of the choice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from nginx_tune.cli.options import option_group
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import UsageError
from nginx_tune.report.terminal.saying import say

_NAMED = ("nginx_binary", "against_nginx", "new_nginx")
"""The parameters that name a program; not every command has all of them."""

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--nginx",
        "nginx_binary",
        metavar="BIN",
        help="The nginx that is meant; default: the running one, else the installed one.",
    ),
    click.option(
        "--trust",
        "trusts_named",
        is_flag=True,
        help="As root, run the named programs though others than root could have written them.",
    ),
)


against_nginx_option = click.option(
    "--against-nginx",
    metavar="BIN",
    help="The baseline's nginx, where it is another one.",
)


def nginx_options(function: F) -> F:
    """Add both options; the command is called with ``nginx_binary`` alone."""

    @functools.wraps(function)
    def called(*arguments: Any, trusts_named: bool, **options: Any) -> Any:
        if trusts_named:
            _vouch(*filter(None, map(options.get, _NAMED)))
        return function(*arguments, **options)

    return option_group(_OPTIONS)(called)  # type: ignore[return-value]  # but for its options


def _vouch(*binaries: str) -> None:
    from nginx_tune.host import programs  # noqa: PLC0415  # only where it is asked for

    if not binaries:
        raise UsageError("--trust is about the program of --nginx", hint="name it with --nginx")
    for binary in binaries:
        places = [binary] if "/" in binary else [f"{p}/{binary}" for p in programs.search_path()]
        for place in places:
            programs.vouch_for(place)


def tell_choice(ctx: click.Context, nginx: Nginx) -> None:
    """Say on stderr which nginx was taken where another one could have been meant."""
    from nginx_tune.report.nginx_choice import choice_lines, is_doubtful  # noqa: PLC0415  # seldom

    if is_doubtful(nginx) and not ctx.obj["quiet"]:
        for line in choice_lines(nginx):
            say(line)
