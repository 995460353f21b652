"""Errors of the command line in the words of all others, and what was meant by a mistyped word."""

from __future__ import annotations

import re

import click

from nginx_tune.errors import name_meant

_NO_COMMAND = re.compile(r"No such command '(.*?)'\.")
_NO_CHOICE = re.compile(r"'([^']*)' is not one of ")
_GUESSED = re.compile(r"\.? \(?Did you mean (?:one of: )?(.*?)\?\)?$")
_QUOTED = re.compile(r"'([^']+)'")
_CHOICES = re.compile(r"\.\s*Choose from:?\s*")


def told_by(error: click.ClickException) -> tuple[str, str]:
    """The message in the words of all others, and a hint; empty where there is nothing to say.

    Click knows the names of a group only where its commands are imported, and says of a choice
    only which there are.
    """
    said = " ".join(error.format_message().split())
    guessed = _GUESSED.search(said)
    hint = _meant(error, said)
    if guessed is not None:
        said = said[: guessed.start()]
        hint = f"is {' or '.join(_QUOTED.findall(guessed[1]))} meant?"
    if isinstance(error, click.MissingParameter):
        hint = hint or _usage(error)
        choices = _CHOICES.search(said)
        if choices is not None:
            hint = f"one of {said[choices.end() :]}"
            said = said[: choices.start()]
    said = said.removesuffix(".")
    return said[:1].lower() + said[1:], hint


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context is not None else ""


def _meant(error: click.ClickException, said: str) -> str:
    context = getattr(error, "ctx", None)
    command = _NO_COMMAND.search(said)
    if command and context is not None and isinstance(context.command, click.Group):
        return name_meant(command[1], context.command.list_commands(context))
    choice = _NO_CHOICE.search(said)
    kind = getattr(getattr(error, "param", None), "type", None)
    if choice and isinstance(kind, click.Choice):
        return name_meant(choice[1], [str(one) for one in kind.choices])
    return ""
