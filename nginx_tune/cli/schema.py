"""``nginx-tune schema NAME``."""

from __future__ import annotations

import click

from nginx_tune.cli.output import output_options, write_result
from nginx_tune.documents.base import json_schema
from nginx_tune.documents.registry import DOCUMENTS


@click.command()
@click.argument("name", metavar="NAME", type=click.Choice(sorted(DOCUMENTS)))
@output_options("json")
def command(name: str, formats: tuple[str, ...], output: str | None) -> None:
    """JSON Schema of a document."""
    write_result({"json": lambda: json_schema(DOCUMENTS[name])}, formats, output)
