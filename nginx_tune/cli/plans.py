"""A plan that a command is given, and that it is told to change nothing where it does."""

from __future__ import annotations

import click

from nginx_tune.cli.inputs import read_document
from nginx_tune.documents.plan import Plan
from nginx_tune.terminal.saying import say


def read_plan(path: str) -> Plan:
    """The plan of a file.

    What is said of a plan without changes would be taken for its proof: it is of the configuration
    as it stands.
    Errors: UsageError. Side effects: a line on standard error.
    """
    plan = read_document(Plan, path)
    if not plan.files and not click.get_current_context().obj["quiet"]:
        say(f"{path}: it changes no file: what follows is of {plan.conf_path} as it stands")
    return plan
