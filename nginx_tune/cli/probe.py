"""``nginx-tune probe``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nginx_tune.cli.output import output_options, write_result
from nginx_tune.cli.probe_options import given_options, plan_of, url_options
from nginx_tune.cli.progress import progress_printer
from nginx_tune.errors import ExitStatus, UndecidedError, UsageError

if TYPE_CHECKING:
    from nginx_tune.documents.loadplan import LoadPlan


@click.command()
@click.argument("what", metavar="URL|LOADPLAN")
@url_options
@click.option(
    "--allow-target",
    "allow_targets",
    multiple=True,
    metavar="HOST",
    help="Load this other host too (name or address); may repeat.",
)
@click.option("--allow-live", is_flag=True, help="Load a server that nginx-tune did not start.")
@click.option(
    "--hlog",
    "histogram_log",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write each second's histograms there, tagged CLASS.METRIC (HdrHistogram log).",
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="EXPR",
    help="Search for the highest rate that meets it without failures: 'p99 <= 50ms'; may repeat. "
    "The search begins at --rate (100).",
)
@click.option(
    "--max-rate",
    type=click.FloatRange(min=1),
    metavar="R",
    help="No higher than this in a search.",
)
@click.option("--stripe", metavar="M/N", help="This is load host M of N: its share of the load.")
@click.option(
    "--start-at", metavar="TIME", help="Begin then, as all load hosts do: 2026-11-20T19:00:00Z."
)
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    what: str,
    allow_targets: tuple[str, ...],
    allow_live: bool,
    histogram_log: str | None,
    objectives: tuple[str, ...],
    max_rate: float | None,
    stripe: str | None,
    start_at: str | None,
    formats: tuple[str, ...],
    output: str | None,
    **load: Any,
) -> ExitStatus:
    """One load measurement of a URL, or of a load plan with several request classes.

    Asks this host's servers only, and of these only what nginx-tune itself started, unless told
    otherwise. Latency counts from the intended start of a request; a response that is cut short
    is a failure. Of a load plan (JSON, - for standard input) the run is taken whole; what it
    permits itself is not. With an objective, one run after another up to the highest rate that
    meets it.
    """
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.measure.probe_target import permit_target  # noqa: PLC0415

    if objectives and load["rate"] is None:
        load["rate"] = "100"
    plan = _read_plan(ctx, what, load, stripe=stripe, start_at=start_at)
    plan = permit_target(plan, LiveHost(), allow_targets=allow_targets, allow_live=allow_live)
    if not objectives:
        if max_rate is not None:
            raise UsageError("--max-rate goes with --objective")
        return _measure(ctx, plan, histogram_log, formats, output)
    if histogram_log is not None or plan.start_at_unix_seconds is not None:
        raise UsageError("--hlog and --start-at are for one run, not for a search")
    return _search(ctx, plan, objectives, max_rate, formats=formats, output=output)


def _measure(
    ctx: click.Context,
    plan: LoadPlan,
    histogram_log: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """One run."""
    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.measure.probe import ProbeInterrupted  # noqa: PLC0415
    from nginx_tune.measure.watched_probe import run_watched_probe  # noqa: PLC0415
    from nginx_tune.report.measurement import (  # noqa: PLC0415
        progress_text,
        render_measurement,
        unanswered_classes,
    )

    show = progress_printer(ctx)
    status = ExitStatus.OK
    try:
        measurement = run_watched_probe(
            plan,
            LiveHost(),
            on_progress=lambda line: show(progress_text(line)),
            histogram_log=histogram_log,
        )
    except ProbeInterrupted as interrupted:
        if interrupted.measurement is None:
            raise
        measurement, status = interrupted.measurement, ExitStatus.INTERRUPTED
    renderers = {
        "console": lambda: render_measurement(measurement).encode(),
        "json": lambda: encode(measurement),
    }
    write_result(renderers, formats, output)
    unanswered = unanswered_classes(measurement)
    if status is ExitStatus.OK and unanswered:
        raise UndecidedError(f"not one good response: {', '.join(unanswered)}")
    return status


def _search(
    ctx: click.Context,
    plan: LoadPlan,
    objectives: tuple[str, ...],
    max_rate: float | None,
    *,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Runs at one rate after another, to the highest that meets the objective."""
    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.measure.capacity import search_capacity  # noqa: PLC0415
    from nginx_tune.measure.probe import run_probe  # noqa: PLC0415
    from nginx_tune.report.capacity import render_capacity, step_text  # noqa: PLC0415

    show = progress_printer(ctx)
    capacity = search_capacity(
        plan,
        objectives,
        run=run_probe,
        highest_per_second=max_rate,
        on_step=lambda step: show(step_text(step)),
    )
    renderers = {
        "console": lambda: render_capacity(capacity).encode(),
        "json": lambda: encode(capacity),
    }
    write_result(renderers, formats, output)
    known = capacity.capacity_per_second is not None or capacity.limited_by == "bound"
    if not known:
        raise UndecidedError(f"no capacity found: {capacity.reason}")
    return ExitStatus.OK


def _read_plan(
    ctx: click.Context,
    what: str,
    load: dict[str, Any],
    *,
    stripe: str | None,
    start_at: str | None,
) -> LoadPlan:
    """The plan of a URL and its options, or of a file with this host's share and start."""
    import msgspec  # noqa: PLC0415

    from nginx_tune.cli.inputs import read_document  # noqa: PLC0415
    from nginx_tune.cli.probe_words import parse_moment, parse_stripe  # noqa: PLC0415
    from nginx_tune.documents.loadplan import LoadPlan  # noqa: PLC0415

    given = given_options(ctx)
    if "://" in what:
        for name in ("duration", "warmup"):
            load[f"{name}_given"] = name in given
        return plan_of(what, load, stripe=stripe, start_at=start_at)
    if given:
        raise UsageError(
            f"{next(iter(given.values()))} goes with a URL; a load plan says it itself",
            hint="a URL begins with http://",
        )
    plan = read_document(LoadPlan, what)
    if stripe is not None:
        plan = msgspec.structs.replace(plan, stripe=parse_stripe(stripe))
    if start_at is not None:
        plan = msgspec.structs.replace(plan, start_at_unix_seconds=parse_moment(start_at))
    return plan
