"""``-p``, the same in every command that reads a configuration."""

from __future__ import annotations

import click

prefix_option = click.option(
    "-p",
    "prefix",
    metavar="PREFIX",
    help="Prefix path, as nginx's own -p: relative names stand on it, that of CONF too.",
)
