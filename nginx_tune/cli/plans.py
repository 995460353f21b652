"""A plan that a command is given, and that it is told to change nothing where it does."""

from __future__ import annotations

import click

from nginx_tune.cli.inputs import read_document
from nginx_tune.cli.planned import check_plan
from nginx_tune.documents.plan import Plan
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.subject import ConfigurationFiles
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.text import shown_path


def believed_plan(path: str) -> Plan:
    """The plan of a file, of which nothing is told before it was worked out again.

    Errors: UsageError.
    """
    plan = read_document(Plan, path)
    check_plan(plan, path, ConfigurationFiles(LiveHost()))
    return plan


def read_plan(path: str) -> Plan:
    """The same, for a command that goes on where nothing is changed.

    What is said of a plan without changes would be taken for its proof: it is of the configuration
    as it stands.
    Errors: UsageError. Side effects: a line on standard error.
    """
    plan = believed_plan(path)
    if not plan.files and not click.get_current_context().obj["quiet"]:
        conf = shown_path(plan.conf_path)
        say(f"{path}: it changes no file: what follows is of {conf} as it stands")
    return plan
