"""Running an experiment of two configurations, or only settling it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from nginx_tune.cli.nginx_choice import tell_choice
from nginx_tune.cli.planned import read_planned
from nginx_tune.cli.plans import believed_plan, read_plan
from nginx_tune.cli.storing import keep_run
from nginx_tune.cli.termination import as_interrupt
from nginx_tune.cli.trees import full_path, host_configuration, read_configuration
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.experiment import ExperimentSpec
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.experiment.validate.validation import Sides
from nginx_tune.host.climbing import absolute_path
from nginx_tune.host.door import Host
from nginx_tune.nginx.binary import read_linked
from nginx_tune.nginx.lab.spec import LabPlan
from nginx_tune.nginx.subject import ConfigurationFiles, own_prefix
from nginx_tune.report.terminal.output import write_result
from nginx_tune.report.terminal.progress import progress_printer
from nginx_tune.report.terminal.writer import screen_bytes


def configuration_meant(spec: ExperimentSpec) -> str | None:
    """The file by which the nginx that is meant is told, in full; None where none is named.

    A plan that comes by a pipe is read once only, later.
    """
    if spec.plan:
        is_here = Path(spec.plan).is_file()
        return believed_plan(spec.plan).conf_path if is_here else None
    named = spec.baseline or spec.candidate
    return full_path(named, spec.prefix) if named else None


def read_sides(
    host: Host, spec: ExperimentSpec, lab: LabPlan | None, builds: tuple[Nginx, Nginx]
) -> Sides:
    """What an experiment is of; ``builds`` run the baseline and the candidate.

    An empty baseline is the configuration of the host's nginx, or with two builds the candidate's
    own; an empty candidate then the baseline's.
    """
    prefix = spec.prefix
    planned: Mapping[str, bytes] = {}
    trees: tuple[ConfTree, ConfTree]
    names: tuple[str, ...]
    if spec.plan:
        plan = read_plan(spec.plan)
        names = (plan.conf_path,)
        own = prefix or own_prefix(builds[1], *names)
        before, after, planned = read_planned(plan, spec.plan, ConfigurationFiles(host), prefix=own)
        trees, prefix = (before, after), plan.prefix or prefix
    else:
        same = spec.candidate if builds[0] is not builds[1] else ""
        baseline = spec.baseline or same or host_configuration(builds[1])
        sides = (baseline, spec.candidate or baseline)
        # A candidate beside the running nginx's own is meant to be started as that one is.
        names = tuple(full_path(name, prefix) for name in sides)
        before, after = (
            read_configuration(
                host, name, prefix, default_prefix=own_prefix(build, *names), nginx=build
            )
            for name, build in zip(sides, builds, strict=True)
        )
        if builds[0] is builds[1] and _is_one_file(*names) and after.complete:
            raise UsageError(
                f"{sides[1]} is both the candidate and the baseline: nothing would be compared",
                hint="name another file with --against; for the noise of this host, --self-check",
            )
        trees = (before, after)
    return Sides(
        baseline=trees[0],
        candidate=trees[1],
        lab=lab,
        prefixes=(
            _started_with(prefix, builds[0], names),
            _started_with(prefix, builds[1], names),
        ),
        builds=(read_linked(host, builds[0]), read_linked(host, builds[1])),
        planned=planned,
    )


def _is_one_file(one: str, other: str) -> bool:
    """Whether both are a name in a directory; a copy and a link may stand beside other files."""
    return (
        Path(one).name == Path(other).name
        and Path(one).parent.resolve() == Path(other).parent.resolve()
    )


def _started_with(prefix: str | None, nginx: Nginx, names: tuple[str, ...]) -> str | None:
    """The -p of nginx: what is asked for, else the running master's where it is not the build's."""
    if prefix:
        return prefix
    own = own_prefix(nginx, *names)
    return None if own == nginx.prefix else own


if TYPE_CHECKING:
    from nginx_tune.documents.experiment import ExperimentSpec
    from nginx_tune.nginx.lab.spec import LabPlan


class Wanted(NamedTuple):
    """What is done with an experiment, and where its result goes."""

    nginx_binary: str | None
    against_nginx: str | None
    """The baseline's, where it is another one."""
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
    """Run it, keep it and print the verdict; or print what would be run."""
    from msgspec.structs import replace  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.cli.validating import configuration_meant, read_sides  # noqa: PLC0415
    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.experiment.runs import Clock  # noqa: PLC0415
    from nginx_tune.experiment.validate.validation import look_at, run_validation  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.measure.proof.verdict import verdict_status  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.report.experiment import render_experiment  # noqa: PLC0415
    from nginx_tune.report.verdict import verdict_screen  # noqa: PLC0415

    clock = Clock()
    host = LiveHost()
    meant = configuration_meant(spec)
    nginx, _ = read_nginx(host, binary=wanted.nginx_binary, conf_path=meant, to_run=True)
    other = nginx
    if wanted.against_nginx:
        other, _ = read_nginx(host, binary=wanted.against_nginx, conf_path=meant, to_run=True)
    with as_interrupt():
        sides = read_sides(host, spec, lab, (other, nginx))
        tell_choice(ctx, nginx)
        progress = progress_printer(ctx)
        if settle_only:
            settled = replace(
                look_at(spec, sides, progress=progress),
                baseline="" if spec.plan else sides.baseline.path,
                candidate="" if spec.plan else sides.candidate.path,
                plan=absolute_path(spec.plan) if spec.plan else "",
            )
            pages = {
                "toml": lambda: render_experiment(settled).encode(),
                "json": lambda: encode(settled),
            }
            write_result(pages, wanted.formats, wanted.output)
            return ExitStatus.OK
        validation = run_validation(spec, sides, progress=progress)
    if not wanted.no_store:
        keep_run(
            ctx,
            validation,
            kind="validate",
            name=spec.plan or spec.candidate or sides.candidate.path,
            clock=clock,
        )
    verdict = validation.verdict
    renderers = {
        "console": lambda: screen_bytes(verdict_screen(verdict), wanted.formats, wanted.output),
        "json": lambda: encode(verdict),
    }
    write_result(renderers, wanted.formats, wanted.output)
    if verdict.stopped == "interrupted":
        return ExitStatus.INTERRUPTED
    return verdict_status(verdict, accept_inconclusive=wanted.accept_inconclusive)
