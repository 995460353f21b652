"""An experiment of ``validate`` or ``scenario run``: read both sides, run, store and print."""

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.cli.configurations import (
    believed_plan,
    full_path,
    host_configuration,
    read_configuration,
    read_plan,
    read_planned,
)
from nginx_tune.cli.options import keep_run, tell_choice
from nginx_tune.cli.signals import as_interrupt
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.scenario import ExperimentSpec
from nginx_tune.documents.verdict import Verdict
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.experiment.store import Clock
from nginx_tune.experiment.validate.validation import Sides, look_at, run_validation
from nginx_tune.host.door import Host
from nginx_tune.host.live import LiveHost
from nginx_tune.host.paths import absolute_path
from nginx_tune.measure.proof.verdict import verdict_status
from nginx_tune.nginx.binary import read_linked, read_nginx
from nginx_tune.nginx.lab.spec import LabPlan
from nginx_tune.nginx.subject import ConfigurationFiles, own_prefix
from nginx_tune.report.experiment import render_experiment, short_of_outcome
from nginx_tune.report.plan import plan_title
from nginx_tune.report.terminal.output import write_result
from nginx_tune.report.terminal.saying import clear_progress, progress_printer, say
from nginx_tune.report.terminal.writer import write_screen
from nginx_tune.report.verdict import verdict_screen

_LENGTHS = ("--pairs", "--max-time")


class Wanted(NamedTuple):
    """The programs of an experiment, how its verdict is used, and where results go."""

    nginx_binary: str | None
    against_nginx: str | None
    """The baseline's nginx, if different."""
    no_store: bool
    accept_inconclusive: bool
    formats: tuple[str, ...]
    output: str | None


def run_experiment(
    ctx: click.Context,
    spec: ExperimentSpec,
    lab: LabPlan | None,
    wanted: Wanted,
    *,
    settle_only: bool = False,
) -> ExitStatus:
    """Run an experiment, store it and print the verdict; or print the dry run."""
    clock, host = Clock(), LiveHost()
    meant = configuration_meant(spec)
    nginx, _ = read_nginx(host, binary=wanted.nginx_binary, conf_path=meant, to_run=True)
    other = nginx
    if wanted.against_nginx:
        other, _ = read_nginx(host, binary=wanted.against_nginx, conf_path=meant, to_run=True)
    with as_interrupt():
        sides = _read_sides(host, spec, lab, (other, nginx))
        tell_choice(ctx, nginx)
        if settle_only:
            return _dry_run(ctx, spec, sides, wanted)
        warn = partial(_warn, ctx)
        if short := short_of_outcome(spec):
            warn(f"too few pairs for an outcome: {short}")
        validation = run_validation(spec, sides, progress=progress_printer(ctx), warn=warn)
    if not wanted.no_store:
        keep_run(ctx, validation, kind="validate", name=sides.title, clock=clock)
    verdict = validation.verdict
    again = _without_length(ctx.obj["arguments"])
    write_screen(lambda: verdict_screen(verdict, again), verdict, wanted.formats, wanted.output)
    return exit_status(verdict, wanted)


def _without_length(arguments: Sequence[str]) -> str:
    """The command as it was typed, without the options that bound the number of pairs."""
    left, skips = [], False
    for argument in arguments:
        name = argument.partition("=")[0]
        if not skips and name not in _LENGTHS:
            left.append(argument)
        skips = not skips and argument in _LENGTHS
    return shlex.join(["nginx-tune", *left])


def _dry_run(ctx: click.Context, spec: ExperimentSpec, sides: Sides, wanted: Wanted) -> ExitStatus:
    """Print the complete experiment, after each side was started and requested once."""
    settled = replace(
        look_at(spec, sides, progress=progress_printer(ctx)),
        baseline="" if spec.plan else sides.baseline.path,
        candidate="" if spec.plan else sides.candidate.path,
        plan=absolute_path(spec.plan) if spec.plan else "",
    )
    renderers = {
        "toml": lambda: render_experiment(settled).encode(),
        "json": lambda: encode(settled),
    }
    write_result(renderers, wanted.formats, wanted.output)
    return ExitStatus.OK


def _warn(ctx: click.Context, text: str) -> None:
    if not ctx.obj["quiet"]:
        clear_progress()
        say(f"warning: {text}")


def exit_status(verdict: Verdict, wanted: Wanted) -> ExitStatus:
    """The exit status of a verdict; an interruption comes first."""
    if verdict.stopped == "interrupted":
        return ExitStatus.INTERRUPTED
    return verdict_status(verdict, accept_inconclusive=wanted.accept_inconclusive)


def configuration_meant(spec: ExperimentSpec) -> str | None:
    """The absolute path of the configuration by which nginx is chosen; None if none is named.

    Also None for a plan from a pipe, which can be read only once, and is read later.
    """
    if spec.plan:
        is_here = Path(spec.plan).is_file()
        return believed_plan(spec.plan).conf_path if is_here else None
    named = spec.baseline or spec.candidate
    return full_path(named, spec.prefix) if named else None


def _read_sides(
    host: Host, spec: ExperimentSpec, lab: LabPlan | None, builds: tuple[Nginx, Nginx]
) -> Sides:
    """The two sides of an experiment; ``builds`` run the baseline and the candidate.

    If no baseline is named, it is the configuration of the host's nginx; with two builds, the
    candidate's. If no candidate is named, it is the baseline's configuration.
    """
    prefix = spec.prefix
    planned: Mapping[str, bytes] = {}
    trees: tuple[ConfTree, ConfTree]
    names: tuple[str, ...]
    if spec.plan:
        plan = read_plan(spec.plan)
        names = (plan.conf_path,)
        own = prefix or own_prefix(builds[1], *names)
        before, after, planned = read_planned(
            plan, spec.plan, ConfigurationFiles(host), prefix=own, to_run=True
        )
        trees, prefix = (before, after), plan.prefix or prefix
        title = plan_title(plan)
    else:
        same = spec.candidate if builds[0] is not builds[1] else ""
        baseline = spec.baseline or same or host_configuration(builds[1], "name it with --against")
        sides = (baseline, spec.candidate or baseline)
        # A candidate next to the running nginx's file is meant to be started as that nginx is.
        names = tuple(full_path(name, prefix) for name in sides)
        before, after = (
            read_configuration(
                *(host, name, prefix),
                default_prefix=own_prefix(build, *names),
                nginx=build,
                to_run=True,
            )
            for name, build in zip(sides, builds, strict=True)
        )
        if builds[0] is builds[1] and _is_one_file(*names) and after.complete:
            raise UsageError(
                f"{sides[1]} is both the candidate and the baseline: nothing would be compared",
                hint="name another file with --against; for the noise of this host, --self-check",
            )
        trees = (before, after)
        title = spec.candidate or after.path
    return Sides(
        baseline=trees[0],
        candidate=trees[1],
        lab=lab,
        prefixes=(started_with(prefix, builds[0], names), started_with(prefix, builds[1], names)),
        builds=(read_linked(host, builds[0]), read_linked(host, builds[1])),
        planned=planned,
        title=title,
    )


def _is_one_file(one: str, other: str) -> bool:
    """True if both paths are the same name in the same directory; copies and links are not."""
    return (
        Path(one).name == Path(other).name
        and Path(one).parent.resolve() == Path(other).parent.resolve()
    )


def started_with(prefix: str | None, nginx: Nginx, names: tuple[str, ...]) -> str | None:
    """The value of ``-p``: the option, or the running master's prefix if it is not the build's.

    The master counts only if it runs one of the files in ``names``.
    """
    if prefix:
        return prefix
    own = own_prefix(nginx, *names)
    return None if own == nginx.prefix else own
