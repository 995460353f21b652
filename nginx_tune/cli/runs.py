"""``nginx-tune runs list`` and ``runs show ID``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nginx_tune.cli.options import histogram_option, histogram_text
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.terminal.output import output_options
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen

if TYPE_CHECKING:
    from nginx_tune.documents.run import KeptRun


@click.group()
def command() -> None:
    """List, show or judge again the stored runs of validate, rehearse and scenario run."""


@command.command("list")
@output_options(*SCREEN_FORMATS)
def list_command(formats: tuple[str, ...], output: str | None) -> None:
    """List the stored runs, newest first; other files there are named and skipped."""
    from nginx_tune.experiment.store import list_runs  # noqa: PLC0415
    from nginx_tune.report.runs import runs_screen  # noqa: PLC0415

    runs = list_runs()
    write_screen(lambda: runs_screen(runs), runs, formats, output)


@command.command("show")
@click.argument("run_id", metavar="ID|FILE")
@click.option(
    "--require",
    "requires",
    multiple=True,
    metavar="EXPR",
    help="Judge a validation or a rehearsal again with these gates; may repeat.",
)
@click.option("--primary", metavar="METRIC", help="Judge it again by another metric.")
@histogram_option
@output_options(*SCREEN_FORMATS)
def show_command(
    run_id: str,
    *,
    requires: tuple[str, ...],
    primary: str | None,
    histograms: tuple[str, ...],
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Show one run: by its id, the first digits of its id, 'last', or a file.

    The file is one that 'runs show' or 'report' wrote. The JSON is complete: every single run with
    its histograms and seconds, and both configurations. With new gates or another metric, the exit
    status is that of the new verdict. --histogram adds up the runs of each variant.
    """
    from nginx_tune.cli.report import is_page, read_page_run  # noqa: PLC0415
    from nginx_tune.documents.rehearsal import Rehearsal  # noqa: PLC0415
    from nginx_tune.experiment.store import read_run  # noqa: PLC0415
    from nginx_tune.measure.proof.rehearsal import rehearsal_status  # noqa: PLC0415
    from nginx_tune.measure.proof.verdict import verdict_status  # noqa: PLC0415
    from nginx_tune.report.runs import run_screen  # noqa: PLC0415

    run = read_page_run(run_id) if is_page(run_id) else read_run(run_id)
    again = bool(requires or primary)
    if again:
        run = _judge_again(run, requires, primary)
    result = run.result
    measured = [] if isinstance(result, Rehearsal) else result.measurements
    if isinstance(result, Rehearsal) and histograms:
        raise UsageError("a rehearsal keeps no histograms", hint="its JSON has the percentiles")
    below = histogram_text(measured, histograms, discard=True)
    # A whole run contains configurations: only the owner may read the file.
    write_screen(lambda: run_screen(run), run, formats, output, below=below, mode=0o600)
    if not again:
        return ExitStatus.OK
    if isinstance(result, Rehearsal):
        return rehearsal_status(result)
    return verdict_status(result.verdict)


def _judge_again(run: KeptRun, requires: tuple[str, ...], primary: str | None) -> KeptRun:
    import msgspec  # noqa: PLC0415

    from nginx_tune.documents.rehearsal import Rehearsal  # noqa: PLC0415
    from nginx_tune.documents.run import Validation  # noqa: PLC0415
    from nginx_tune.measure.proof.rehearsal import (  # noqa: PLC0415
        check_rehearsal_gates,
        judge_rehearsal,
        reload_name,
    )
    from nginx_tune.measure.proof.verdict import rejudge  # noqa: PLC0415

    if isinstance(run.result, Rehearsal):
        if primary:
            raise UsageError("a rehearsal has no primary metric", hint="--require judges it")
        reloads = run.result.reloads
        check_rehearsal_gates(requires, [reload_name(reload) for reload in reloads])
        gates = judge_rehearsal(requires, reloads)
        judged = msgspec.structs.replace(run.result, gates=gates)
        return msgspec.structs.replace(run, result=judged)
    if not isinstance(run.result, Validation):
        raise UsageError(
            "a scenario is judged by its own claims alone",
            hint="--require and --primary are for validations",
        )
    result = rejudge(run.result, requires=requires, primary_metric=primary)
    return msgspec.structs.replace(run, result=result)
