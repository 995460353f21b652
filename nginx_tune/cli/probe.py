"""``nginx-tune probe``."""

from __future__ import annotations

import click

from nginx_tune.cli.durations import parse_duration
from nginx_tune.cli.output import output_options, write_result
from nginx_tune.cli.progress import progress_printer
from nginx_tune.errors import ExitStatus, UndecidedError, UsageError

_URL_OPTIONS = frozenset(
    (
        "connections", "rate", "duration", "warmup", "timeout", "seed",
        "insecure", "ca_file", "no_resumption", "precise",
    )
)  # fmt: skip
"""What a load plan says itself."""


@click.command()
@click.argument("what", metavar="URL|LOADPLAN")
@click.option(
    "--connections",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Closed loop: N requests in flight at once, each followed by the next (default 10).",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="R",
    help="Open loop: R requests a second (Poisson), whether the server keeps up or not.",
)
@click.option("--duration", default="10s", show_default=True, metavar="TIME", help="Measured.")
@click.option(
    "--warmup", default="1s", show_default=True, metavar="TIME", help="Before it; 0 for none."
)
@click.option("--timeout", default="30s", show_default=True, metavar="TIME", help="Of a request.")
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
    "-k", "--insecure", is_flag=True, help="Take any certificate of an https server, as curl does."
)
@click.option(
    "--cacert",
    "ca_file",
    type=click.Path(dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="Trust the authorities in this PEM file, not the system's.",
)
@click.option(
    "--no-sessionid",
    "no_resumption",
    is_flag=True,
    help="Make every TLS handshake a full one; none takes up an earlier session.",
)
@click.option(
    "--precise",
    is_flag=True,
    help="Spin, not sleep, just before an arrival is due; takes a free CPU.",
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0))
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    what: str,
    connections: int | None,
    rate: float | None,
    duration: str,
    warmup: str,
    timeout: str,
    allow_targets: tuple[str, ...],
    allow_live: bool,
    histogram_log: str | None,
    insecure: bool,
    ca_file: str | None,
    no_resumption: bool,
    precise: bool,
    seed: int,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """One load measurement of a URL, or of a load plan with several request classes.

    Asks this host's servers only, and of these only what nginx-tune itself started, unless told
    otherwise. Latency counts from the intended start of a request; a response that is cut short
    is a failure. Of a load plan (JSON, - for standard input) the run is taken whole; what it
    permits itself is not.
    """
    from nginx_tune.cli.inputs import read_document  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.documents.loadplan import LoadPlan, Tls  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.measure.probe import ProbeInterrupted  # noqa: PLC0415
    from nginx_tune.measure.probe_target import (  # noqa: PLC0415
        permit_target,
        plan_url,
        resolve_url,
    )
    from nginx_tune.measure.watched_probe import run_watched_probe  # noqa: PLC0415
    from nginx_tune.report.measurement import (  # noqa: PLC0415
        progress_text,
        render_measurement,
        unanswered_classes,
    )

    if connections is not None and rate is not None:
        raise UsageError("--connections and --rate exclude each other", hint="closed or open loop")
    if "://" in what:
        plan = plan_url(
            resolve_url(
                what, Tls(verify=not insecure, ca_file=ca_file, resumption=not no_resumption)
            ),
            connections=connections or (None if rate else 10),
            rate_per_second=rate,
            duration_seconds=parse_duration(duration),
            warmup_seconds=0.0 if warmup in ("0", "0s") else parse_duration(warmup),
            timeout_seconds=parse_duration(timeout),
            seed=seed,
            precise=precise,
        )
    else:
        _refuse_url_options(ctx)
        plan = read_document(LoadPlan, what)
    plan = permit_target(plan, LiveHost(), allow_targets=allow_targets, allow_live=allow_live)
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


def _refuse_url_options(ctx: click.Context) -> None:
    options = {
        parameter.name: parameter.opts[-1]
        for parameter in ctx.command.params
        if parameter.name in _URL_OPTIONS
    }
    for name, option in options.items():
        source = ctx.get_parameter_source(name)
        if source is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option} goes with a URL; a load plan says it itself",
                hint="a URL begins with http://",
            )
