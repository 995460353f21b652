"""Reading the two sides of a rehearsal, running it, writing what came of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from nginx_tune.audit_input.overlaid import Overlaid
from nginx_tune.audit_input.planned import read_planned
from nginx_tune.cli.inputs import read_document
from nginx_tune.cli.nginx_choice import tell_choice
from nginx_tune.cli.output import write_result
from nginx_tune.cli.progress import progress_printer
from nginx_tune.cli.termination import as_interrupt
from nginx_tune.cli.trees import read_configuration
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.plan import Plan
from nginx_tune.errors import ConfigurationError, ExitStatus
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.prove.rehearsal import rehearsal_status
from nginx_tune.rehearse.change import change_between
from nginx_tune.rehearse.run import Sides, run_rehearsal
from nginx_tune.report.rehearsal import render_rehearsal, render_rehearsal_markdown
from nginx_tune.subject.subject import ConfigurationFiles, own_prefix

if TYPE_CHECKING:
    from nginx_tune.rehearse.run import Wish


class Named(NamedTuple):
    """What the command line names."""

    old: str | None
    new: str | None
    plan_path: str | None
    prefix: str | None
    nginx_binary: str | None
    new_nginx: str | None


def run_named(
    ctx: click.Context, named: Named, wish: Wish, formats: tuple[str, ...], output: str | None
) -> ExitStatus:
    """Rehearse what is named; the exit status."""
    host = LiveHost()
    nginx, _ = read_nginx(host, binary=named.nginx_binary, to_run=True)
    tell_choice(ctx, nginx)
    new_nginx = None
    if named.new_nginx is not None:
        new_nginx, _ = read_nginx(host, binary=named.new_nginx, to_run=True)
    with as_interrupt():
        sides = _sides(host, named, nginx, new_nginx)
        rehearsal = run_rehearsal(sides, wish, progress=progress_printer(ctx))
    renderers = {
        "console": lambda: render_rehearsal(rehearsal).encode(errors="backslashreplace"),
        "json": lambda: encode(rehearsal),
        "md": lambda: render_rehearsal_markdown(rehearsal).encode(errors="backslashreplace"),
    }
    write_result(renderers, formats, output)
    if rehearsal.interrupted:
        return ExitStatus.INTERRUPTED
    return rehearsal_status(rehearsal.turnovers, rehearsal.gates)


def _sides(host: LiveHost, named: Named, nginx: Nginx, new_nginx: Nginx | None) -> Sides:
    own = own_prefix(nginx)
    reader = ConfigurationFiles(host)
    prefix = named.prefix
    change: Mapping[str, bytes] = {}
    if named.plan_path is not None:
        plan = read_document(Plan, named.plan_path)
        prefix = plan.prefix or prefix
        old, after, change = read_planned(plan, named.plan_path, reader, prefix=prefix or own)
    else:
        old = read_configuration(host, named.old or "", prefix, default_prefix=own)
        if named.new is not None:
            new = _whole(read_configuration(host, named.new, prefix, default_prefix=own))
            change = change_between(_whole(old), new)
        after = read_tree(old.path, Overlaid(reader, change), prefix=old.prefix)
    return Sides(
        old=_whole(old),
        new=_whole(after),
        change=change,
        prefix=_started_with(prefix, own, nginx.prefix),
        nginx=nginx,
        new_nginx=new_nginx,
        new_path="" if named.new is None else os.path.abspath(named.new),  # noqa: PTH100  # links stay
    )


def _whole(tree: ConfTree) -> ConfTree:
    if tree.unparsed:
        first = tree.unparsed[0]
        raise ConfigurationError(first.reason, file=first.file, line=first.line or 0)
    return tree


def _started_with(prefix: str | None, own: str | None, built: str | None) -> str | None:
    """The -p of nginx: what is asked for, else the running master's where it is not the build's."""
    if prefix:
        return os.path.abspath(prefix)  # noqa: PTH100  # links stay
    return None if own == built else own
