"""What was meant by a word that the command line does not know."""

from __future__ import annotations

import re

import click

from nginx_tune.errors import name_meant

_NO_COMMAND = re.compile(r"No such command '(.*?)'\.")
_NO_CHOICE = re.compile(r"'([^']*)' is not one of ")


def meant_by(error: click.ClickException) -> str:
    """A hint for a mistyped command or choice; empty where click gives one, or none is near.

    Click knows the names of a group only where its commands are imported, and says of a choice
    only which there are.
    """
    said = error.format_message()
    context = getattr(error, "ctx", None)
    if "Did you mean" in said:
        return ""
    command = _NO_COMMAND.search(said)
    if command and context is not None and isinstance(context.command, click.Group):
        return name_meant(command[1], context.command.list_commands(context))
    choice = _NO_CHOICE.search(said)
    kind = getattr(getattr(error, "param", None), "type", None)
    if choice and isinstance(kind, click.Choice):
        return name_meant(choice[1], [str(one) for one in kind.choices])
    return ""
