"""``--nginx-version``: another nginx than the facts', named by its version alone."""

from __future__ import annotations

import re

import click
import msgspec

from nginx_tune.documents.facts import Facts

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


def with_version(facts: Facts | None, version: str) -> Facts:
    """The facts with that version; of its build nothing is known unless the facts say it."""
    known = facts if facts is not None else Facts()
    nginx = msgspec.structs.replace(
        known.nginx,
        product=known.nginx.product or "nginx",
        version=known.nginx.version and version,
        nginx_version=version,
    )
    return msgspec.structs.replace(known, nginx=nginx)
