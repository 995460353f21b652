"""``--nginx-version``: another nginx than the facts', named by its version alone."""

from __future__ import annotations

import re

import click

_VERSION = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,4}){1,2}")

nginx_version_option = click.option(
    "--nginx-version",
    "nginx_version",
    metavar="V",
    callback=lambda _ctx, option, value: read_version(option, value),
    help="The nginx version it is for, such as 1.26.3; default: the facts'.",
)


def read_version(option: click.Parameter, value: str | None) -> str | None:
    """A version as given; a usage error for what is none."""
    if value is None or _VERSION.fullmatch(value):
        return value
    raise click.BadParameter(f"{value}: give a version such as 1.26.3", param=option)
