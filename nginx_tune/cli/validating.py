"""Running an experiment of two configurations, or only settling it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from nginx_tune.cli.nginx_choice import tell_choice
from nginx_tune.cli.output import write_result
from nginx_tune.cli.progress import progress_printer
from nginx_tune.cli.storing import keep_run
from nginx_tune.cli.terminal import screen_bytes
from nginx_tune.cli.termination import as_interrupt
from nginx_tune.errors import ExitStatus

if TYPE_CHECKING:
    from nginx_tune.documents.experiment import ExperimentSpec
    from nginx_tune.lab.spec import LabPlan


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

    from nginx_tune.cli.sides import configuration_meant, read_sides  # noqa: PLC0415
    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.prove.verdict import verdict_status  # noqa: PLC0415
    from nginx_tune.report.experiment import render_experiment  # noqa: PLC0415
    from nginx_tune.report.verdict import verdict_screen  # noqa: PLC0415
    from nginx_tune.store.runs import Clock  # noqa: PLC0415
    from nginx_tune.validate.run import look_at, run_validation  # noqa: PLC0415

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
