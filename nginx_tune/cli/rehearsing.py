"""Reading the two sides of a rehearsal, running it, writing what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from nginx_tune.cli.nginx_choice import tell_choice
from nginx_tune.cli.overlaid import Overlaid
from nginx_tune.cli.planned import read_planned
from nginx_tune.cli.plans import believed_plan
from nginx_tune.cli.storing import keep_run
from nginx_tune.cli.termination import as_interrupt
from nginx_tune.cli.trees import full_path, read_configuration
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.plan import Plan
from nginx_tune.errors import ConfigurationError, ExitStatus
from nginx_tune.experiment.rehearse.change import change_between, read_name
from nginx_tune.experiment.rehearse.run import OldAndNew, run_rehearsal
from nginx_tune.experiment.runs import Clock
from nginx_tune.host.climbing import absolute_path
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.proof.rehearsal import rehearsal_status
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.reload.host_refusals import Looked, masters_of, refused_here
from nginx_tune.nginx.subject import ConfigurationFiles, own_prefix
from nginx_tune.report.rehearsal import rehearsal_screen, render_rehearsal_markdown
from nginx_tune.report.terminal.output import refuse_results, write_result
from nginx_tune.report.terminal.progress import progress_printer
from nginx_tune.report.terminal.writer import screen_bytes

if TYPE_CHECKING:
    from nginx_tune.experiment.rehearse.run import RehearseOptions


class Named(NamedTuple):
    """What the command line names."""

    old: str | None
    new: str | None
    plan_path: str | None
    prefix: str | None
    nginx_binary: str | None
    new_nginx: str | None

    @property
    def title(self) -> str:
        """What a list of runs calls it by: what is new in it."""
        return self.plan_path or self.new or self.new_nginx or self.old or ""


def run_named(
    ctx: click.Context,
    named: Named,
    wish: RehearseOptions,
    formats: tuple[str, ...],
    output: str | None,
    *,
    no_store: bool,
) -> ExitStatus:
    """Rehearse what is named, and keep what came of it; the exit status."""
    clock = Clock()
    host = LiveHost()
    plan = believed_plan(named.plan_path) if named.plan_path else None
    meant = plan.conf_path if plan else full_path(named.old or "", named.prefix)
    nginx, _ = read_nginx(host, binary=named.nginx_binary, conf_path=meant, to_run=True)
    tell_choice(ctx, nginx)
    new_nginx = None
    if named.new_nginx is not None:
        new_nginx, _ = read_nginx(host, binary=named.new_nginx, to_run=True)
    with as_interrupt():
        sides = _sides(host, named, plan, nginx, new_nginx, emulates=wish.lab is not None)
        rehearsal = run_rehearsal(sides, wish, progress=progress_printer(ctx))
    if not no_store:
        keep_run(ctx, rehearsal, kind="rehearse", name=named.title, clock=clock)
    renderers = {
        "console": lambda: screen_bytes(rehearsal_screen(rehearsal), formats, output),
        "json": lambda: encode(rehearsal),
        "md": lambda: render_rehearsal_markdown(rehearsal).encode(errors="backslashreplace"),
    }
    write_result(renderers, formats, output)
    if rehearsal.interrupted:
        return ExitStatus.INTERRUPTED
    return rehearsal_status(rehearsal)


def _sides(
    host: LiveHost,
    named: Named,
    plan: Plan | None,
    nginx: Nginx,
    new_nginx: Nginx | None,
    *,
    emulates: bool,
) -> OldAndNew:
    prefix = named.prefix
    meant = [plan.conf_path] if plan else [named.old or "", named.new or named.old or ""]
    own = own_prefix(nginx, *(full_path(name, prefix) for name in meant))
    reader = ConfigurationFiles(host)
    change: Mapping[str, bytes] = {}
    if plan is not None:
        prefix = plan.prefix or prefix
        old, after, change = read_planned(plan, named.plan_path or "", reader, prefix=prefix or own)
    else:
        old = read_configuration(host, named.old or "", prefix, default_prefix=own, nginx=nginx)
        if named.new is not None:
            new = read_configuration(host, named.new, prefix, default_prefix=own, nginx=nginx)
            new = _whole(new)
            change = change_between(_whole(old), new)
        after = read_tree(old.path, Overlaid(reader, change), prefix=old.prefix)
    refuse_results((*old.files, *after.files), (*old.asked, *after.asked))
    new_path = "" if named.new is None else absolute_path(named.new)
    # An emulated host has other disks, and other places on them.
    looked = Looked([], [])
    if not emulates:
        running = [(one.pid, one.conf_path or nginx.conf_path) for one in nginx.instances]
        looked = refused_here(old, after, masters_of(running, {old.path, new_path or old.path}))
    return OldAndNew(
        old=_whole(old),
        new=_whole(after),
        change=change,
        prefix=_started_with(prefix, own, nginx.prefix),
        nginx=nginx,
        new_nginx=new_nginx,
        new_path=new_path,
        refused_here=[
            one.said_of(partial(read_name, laid=old.path, read=new_path or old.path))
            for one in looked.refusals
        ],
        unseen=looked.notes,
    )


def _whole(tree: ConfTree) -> ConfTree:
    if tree.unparsed:
        first = tree.unparsed[0]
        raise ConfigurationError(first.reason, file=first.file, line=first.line or 0)
    return tree


def _started_with(prefix: str | None, own: str | None, built: str | None) -> str | None:
    """The -p of nginx: what is asked for, else the running master's where it is not the build's."""
    if prefix:
        return absolute_path(prefix)
    return None if own == built else own
