"""Running an experiment of two configurations, or only settling it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from nginx_tune.cli.nginx_choice import tell_choice
from nginx_tune.cli.output import write_result
from nginx_tune.cli.progress import progress_printer
from nginx_tune.cli.storing import keep_run
from nginx_tune.cli.termination import as_interrupt
from nginx_tune.errors import ExitStatus

if TYPE_CHECKING:
    from nginx_tune.documents.experiment import ExperimentSpec
    from nginx_tune.lab.spec import LabPlan


class Wanted(NamedTuple):
    """What is done with an experiment, and where its result goes."""

    nginx_binary: str | None
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
    """Run it, keep it and print the verdict; or print what would be run.

    An empty baseline is the configuration of the host's nginx.
    """
    from msgspec.structs import replace  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.cli.trees import host_configuration, read_configuration  # noqa: PLC0415
    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.prove.verdict import verdict_status  # noqa: PLC0415
    from nginx_tune.report.experiment import render_experiment  # noqa: PLC0415
    from nginx_tune.report.verdict import render_verdict  # noqa: PLC0415
    from nginx_tune.store.runs import Clock  # noqa: PLC0415
    from nginx_tune.subject.subject import own_prefix  # noqa: PLC0415
    from nginx_tune.validate.run import Sides, look_at, run_validation  # noqa: PLC0415

    clock = Clock()
    host = LiveHost()
    nginx, _ = read_nginx(host, binary=wanted.nginx_binary, to_run=True)
    tell_choice(ctx, nginx)
    own = own_prefix(nginx)
    prefix = spec.prefix
    if spec.plan:
        from nginx_tune.audit_input.planned import read_planned  # noqa: PLC0415
        from nginx_tune.cli.inputs import read_document  # noqa: PLC0415
        from nginx_tune.documents.plan import Plan  # noqa: PLC0415
        from nginx_tune.subject.subject import ConfigurationFiles  # noqa: PLC0415

        plan = read_document(Plan, spec.plan)
        files = ConfigurationFiles(host)
        before, after, planned = read_planned(plan, spec.plan, files, prefix=prefix or own)
        prefix = plan.prefix or prefix
    else:
        baseline = spec.baseline or host_configuration(nginx)
        before = read_configuration(host, baseline, prefix, default_prefix=own)
        after = read_configuration(host, spec.candidate, prefix, default_prefix=own)
        planned = {}
    with as_interrupt():
        sides = Sides(
            candidate=after,
            baseline=before,
            lab=lab,
            prefix=_started_with(prefix, own, nginx.prefix),
            nginx=nginx,
            planned=planned,
        )
        progress = progress_printer(ctx)
        if settle_only:
            settled = replace(
                look_at(spec, sides, progress=progress),
                baseline="" if spec.plan else before.path,
                candidate="" if spec.plan else after.path,
                plan=os.path.abspath(spec.plan) if spec.plan else "",  # noqa: PTH100  # links stay
            )
            pages = {
                "toml": lambda: render_experiment(settled).encode(),
                "json": lambda: encode(settled),
            }
            write_result(pages, wanted.formats, wanted.output)
            return ExitStatus.OK
        validation = run_validation(spec, sides, progress=progress)
    if not wanted.no_store:
        keep_run(ctx, validation, kind="validate", name=spec.plan or spec.candidate, clock=clock)
    verdict = validation.verdict
    renderers = {
        "console": lambda: render_verdict(verdict).encode(),
        "json": lambda: encode(verdict),
    }
    write_result(renderers, wanted.formats, wanted.output)
    if verdict.stopped == "interrupted":
        return ExitStatus.INTERRUPTED
    return verdict_status(verdict, accept_inconclusive=wanted.accept_inconclusive)


def _started_with(prefix: str | None, own: str | None, built: str | None) -> str | None:
    """The -p of nginx: what is asked for, else the running master's where it is not the build's."""
    if prefix:
        return prefix
    return None if own == built else own
