"""``nginx-tune observe``."""

import click

from nginx_tune.cli.options import DURATION, Whole, parse_duration, tell_choice
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.terminal.output import named_results, output_options
from nginx_tune.report.terminal.saying import progress_printer
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen

_LONGEST_SECONDS = 24 * 3600.0


@click.command()
@click.option(
    "--duration", default="30s", show_default=True, type=DURATION, metavar="TIME", help="Window."
)
@click.option("--pid", type=Whole(min=1), metavar="PID", help="The nginx master.")
@click.option(
    "--tracing",
    "means",
    type=click.Choice(["auto", "bpftrace", "tracefs", "off"]),
    default="auto",
    show_default=True,
    help="Method of timing loop turns; auto uses the first that works.",
)
@click.option(
    "--queue-wait",
    is_flag=True,
    help="Time tasks in pool queues too, by probes on nginx itself (10 s at the most; each task "
    "costs nginx some microseconds).",
)
@click.option(
    "--objective",
    metavar="EXPR",
    help="Limit on request times, such as 'p99 <= 50ms' (default: 100 ms). Longer turns, and mean "
    "waits of a tenth of it, are always reported.",
)
@click.option("--no-stub-status", is_flag=True, help="Do not request the configured stub_status.")
@output_options(*SCREEN_FORMATS, "prometheus")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    duration: str,
    pid: int | None,
    means: str,
    queue_wait: bool,
    objective: str | None,
    no_stub_status: bool,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Causes of delay in the running nginx, under its own traffic.

    It adds no load and changes nothing. It times the turns of the event loops by kernel
    tracepoints, and reads how long the workers' main threads waited for disks and CPUs, their
    queues, drops and error logs. It names each cause with the figures that show it.
    """
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.measure.proof.objective import parse_allowed_seconds  # noqa: PLC0415
    from nginx_tune.observe.window.observation import WatchRequest, observe  # noqa: PLC0415
    from nginx_tune.report.observation import observation_screen  # noqa: PLC0415
    from nginx_tune.report.prometheus import (  # noqa: PLC0415
        render_observation_prometheus,
    )

    seconds = parse_duration(duration)
    if not 1.0 <= seconds <= _LONGEST_SECONDS:
        raise UsageError(f"--duration {duration}: from 1s to 24h")
    show = progress_printer(ctx)
    request = WatchRequest(
        duration_seconds=seconds,
        pid=pid,
        means=means,  # type: ignore[arg-type]  # click.Choice allows no other
        queue_wait=queue_wait,
        objective_seconds=None if objective is None else parse_allowed_seconds(objective),
        stub_status=not no_stub_status,
        results=named_results(),
    )
    observed = observe(
        LiveHost(show), request, progress=show, tell_choice=lambda nginx: tell_choice(ctx, nginx)
    )
    observation = observed.observation
    write_screen(
        lambda: observation_screen(observation),
        observation,
        formats,
        output,
        prometheus=lambda: render_observation_prometheus(observation),
    )
    if observed.interrupted:
        return ExitStatus.INTERRUPTED
    return ExitStatus.UNDECIDED if observed.has_ended else ExitStatus.OK
