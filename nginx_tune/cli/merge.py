"""``nginx-tune merge``."""

from pathlib import Path

import click

from nginx_tune.cli.options import histogram_option, histogram_text
from nginx_tune.errors import ExitStatus, UndecidedError, UsageError
from nginx_tune.report.terminal.output import RESULT_FILE, output_options, write_file
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@histogram_option
@click.option("--partial", "partial_path", type=RESULT_FILE, metavar="FILE",
              help="Write the sum of learn's partial results, for a further merge.")  # fmt: skip
@click.option("--manifest", "manifest_path", type=RESULT_FILE, metavar="FILE",
              help="Write requests for a replay to FILE, as learn does.")  # fmt: skip
@output_options(*SCREEN_FORMATS)
def command(
    *,
    files: tuple[str, ...],
    histograms: tuple[str, ...],
    partial_path: str | None,
    manifest_path: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Add the measurements of several load hosts, or several partial results of learn.

    Each load host ran its stripe of one load plan, or a load with a seed of its own. Histograms
    are added count by count, so the quantiles are exact. Rates are those of the time in which all
    hosts measured. The flags of every host are kept. Measurements that would count an arrival
    twice are refused.

    Partial results of learn, from files or URLs, give the workload of all their logs. Their order
    and grouping do not matter.
    """
    from nginx_tune.observe.log_partials import is_partial  # noqa: PLC0415  # heavy imports
    from nginx_tune.observe.object_storage import is_url  # noqa: PLC0415

    if any(is_url(file) or is_partial(file) for file in files):
        if histograms:
            raise UsageError(
                "--histogram is only for measurements, but these files are partial results of learn"
            )
        return _merge_partials(files, partial_path, manifest_path, formats, output)
    for option in (partial_path and "--partial", manifest_path and "--manifest"):
        if option:
            raise UsageError(
                f"{option} is only for partial results of learn, but these files are measurements"
            )
    from nginx_tune.cli.inputs import read_document  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.documents.measurement import Measurement  # noqa: PLC0415
    from nginx_tune.measure.proof.merge import (  # noqa: PLC0415
        HostMeasurement,
        lost_stripes,
        merge_measurements,
    )
    from nginx_tune.report.measurement import measured_screen  # noqa: PLC0415

    parts = [HostMeasurement(name, read_document(Measurement, name)) for name in files]
    merged = merge_measurements(parts)
    below = histogram_text([merged], histograms)
    write_screen(lambda: measured_screen(merged), merged, formats, output, below=below)
    if lost := lost_stripes([part.measurement for part in parts]):
        raise UndecidedError(f"part of the load is lost: {'; '.join(lost)}")
    return ExitStatus.OK


def _merge_partials(
    files: tuple[str, ...],
    partial_path: str | None,
    manifest_path: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    from nginx_tune.cli.learn import PRIVATE, write_learnt  # noqa: PLC0415
    from nginx_tune.observe.log_partials import (  # noqa: PLC0415
        merge_results,
        pack_partial,
        read_result,
    )
    from nginx_tune.observe.object_storage import find_logs  # noqa: PLC0415

    for form in formats:
        if form.partition("=")[0] not in {"console", "json"}:
            raise UsageError(
                f"-f {form} is only for measurements, but these files are partial results of learn"
            )
    learnt, result = merge_results(read_result(found.name) for found in find_logs(files))
    partial = result.partial
    if manifest_path is not None and not partial.plan.most_requests:
        raise UsageError(
            "the partial results hold no requests to replay",
            hint="run learn with both --manifest and --partial",
        )
    if partial_path is not None:
        write_file(Path(partial_path), pack_partial(partial), mode=PRIVATE)
    return write_learnt(learnt, partial.plan, manifest_path, formats, output)
