"""``nginx-tune compare``: stored runs, observations or measurements, all of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.terminal.output import output_options
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen

if TYPE_CHECKING:
    from nginx_tune.documents.measurement import Measurement
    from nginx_tune.documents.observation import Observation
    from nginx_tune.documents.run import KeptRun, RunComparison
    from nginx_tune.documents.verdict import Comparison
    from nginx_tune.report.screen import Screen

    Compared = Observation | Measurement | KeptRun


@click.command()
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option(
    "--control",
    nargs=2,
    metavar="BEFORE AFTER",
    help="Observations of an unchanged server at the same two times; runs have their baseline.",
)
@click.option(
    "--primary", metavar="METRIC", help="The metric that decides; default for runs: that of BEFORE."
)
@click.option("--accept-inconclusive", is_flag=True, help="Exit 0 for an inconclusive comparison.")
@output_options(*SCREEN_FORMATS)
def command(
    *,
    before: str,
    after: str,
    control: tuple[str, str] | None,
    primary: str | None,
    accept_inconclusive: bool,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Compare two stored runs, two observations or two measurements of the same server.

    BEFORE and AFTER are files or stored runs. Name a run by its id, the first digits of its id, or
    'last'.

    Of two runs, the candidates are compared. If both runs had the same baseline, it is the control:
    a change of the host affects both and cancels out of the ratio.

    Of two observations or measurements without a control, the request rates are compared first. An
    outcome is then given only if a change of traffic cannot explain it.
    """
    from nginx_tune.measure.proof.compare import comparison_status  # noqa: PLC0415

    comparison = _compare(_read_alike([before, after, *(control or ())]), primary)
    write_screen(lambda: _screen(comparison), comparison, formats, output)
    return comparison_status(comparison, accept_inconclusive=accept_inconclusive)


def _read_alike(names: Sequence[str]) -> list[Compared]:
    """The documents in files (``-``: standard input), or the stored runs by id.

    Errors: UsageError for a document that cannot be read, or for two kinds of documents.
    """
    from nginx_tune.cli.inputs import decode_one_of, read_bytes  # noqa: PLC0415
    from nginx_tune.documents.measurement import Measurement  # noqa: PLC0415
    from nginx_tune.documents.observation import Observation  # noqa: PLC0415
    from nginx_tune.documents.run import KeptRun  # noqa: PLC0415
    from nginx_tune.experiment.store import is_run_name, read_run  # noqa: PLC0415

    nouns: dict[type[Compared], str] = {
        Observation: "an observation",
        Measurement: "a measurement",
        KeptRun: "a stored run",
    }

    def read(name: str) -> Compared:
        if is_run_name(name):
            return read_run(name)
        return decode_one_of(
            tuple(nouns),
            read_bytes(name),
            source="standard input" if name == "-" else name,
            refusal="which cannot be compared",
            hint="compare takes observations, measurements and stored runs",
        )

    documents = [read(name) for name in names]
    for name, document in zip(names, documents, strict=True):
        if type(document) is not type(documents[0]):
            raise UsageError(
                f"{names[0]} is {nouns[type(documents[0])]} and {name} is {nouns[type(document)]}: "
                "documents of two kinds cannot be compared"
            )
    return documents


def _compare(documents: Sequence[Compared], primary: str | None) -> Comparison | RunComparison:
    """Compare two documents of one kind, or four with a control."""
    from nginx_tune.documents.run import KeptRun  # noqa: PLC0415
    from nginx_tune.measure.proof.compare import compare  # noqa: PLC0415
    from nginx_tune.measure.proof.run_comparison import compare_runs  # noqa: PLC0415

    runs = [document for document in documents if isinstance(document, KeptRun)]
    windows = [document for document in documents if not isinstance(document, KeptRun)]
    if len(runs) > 2:  # noqa: PLR2004  # a control
        raise UsageError(
            "--control is only for observations; the baseline of a run is its control already"
        )
    if runs:
        return compare_runs(runs[0], runs[1], primary_metric=primary)
    control = (windows[2], windows[3]) if windows[2:] else None
    return compare(windows[0], windows[1], control, primary_metric=primary)


def _screen(comparison: Comparison | RunComparison) -> Screen:
    from nginx_tune.documents.verdict import Comparison  # noqa: PLC0415
    from nginx_tune.report.runs import comparison_screen, run_comparison_screen  # noqa: PLC0415

    if isinstance(comparison, Comparison):
        return comparison_screen(comparison)
    return run_comparison_screen(comparison)
