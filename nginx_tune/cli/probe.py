"""``nginx-tune probe``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nginx_tune.cli.options import histogram_text
from nginx_tune.cli.probe_options import InSections, given_options, probe_options
from nginx_tune.cli.signals import as_interrupt
from nginx_tune.errors import ExitStatus, UndecidedError, UsageError
from nginx_tune.report.terminal.output import output_options
from nginx_tune.report.terminal.saying import progress_printer, say
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from nginx_tune.documents.loadplan import LoadPlan
    from nginx_tune.documents.measurement import Measurement
    from nginx_tune.documents.verdict import GateResult


_URL_WITHOUT_SCHEME = re.compile(r"[\w.-]+(:\d{1,5})?(/.*)?|\[[0-9a-fA-F:.]+\](:\d{1,5})?(/.*)?")
"""A host, with a port or a path."""


@click.command(cls=InSections)
@click.argument("what", metavar="URL|LOADPLAN")
@probe_options
@output_options(*SCREEN_FORMATS, "prometheus", "csv")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    what: str,
    allow_targets: tuple[str, ...],
    allow_live: bool,
    objectives: tuple[str, ...],
    stripe: str | None,
    start_at: str | None,
    requires: tuple[str, ...],
    caps: tuple[str, ...],
    histograms: tuple[str, ...],
    formats: tuple[str, ...],
    output: str | None,
    **load: Any,
) -> ExitStatus:
    """Measure the load of a URL, or of a load plan with several request classes.

    Without --allow-live or --allow-target, requests go only to servers that nginx-tune started on
    this host. Latency counts from the intended start of a request. A truncated response is a
    failure. A load plan (JSON, - for standard input) defines the whole run, but cannot allow
    itself other targets or higher bounds. Only a plan can have slow clients, ranges, replays,
    priorities, client certificates and several classes. With --objective, several runs search for
    the highest rate that meets it.
    """
    from nginx_tune.cli.probe_load import parse_caps  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.measure.load.one_class import plan_within  # noqa: PLC0415
    from nginx_tune.measure.load.target import permit_target  # noqa: PLC0415

    if objectives and load["rate"] is None:
        load["rate"] = "100"
    plan = _read_plan(ctx, what, load, stripe=stripe, start_at=start_at)
    plan = plan_within(plan, parse_caps(caps))
    plan = permit_target(plan, allow_targets=allow_targets, allow_live=allow_live)
    if not objectives:
        return _measure(
            ctx, plan, formats, output, what=what, requires=requires, histograms=histograms
        )
    if requires:
        raise UsageError(
            "--require cannot be combined with --objective, which a search is judged by"
        )
    if plan.start_at_unix_seconds is not None or histograms:
        raise UsageError(
            "--start-at and --histogram cannot be combined with --objective, which makes many runs"
        )
    return _search(ctx, plan, objectives, formats=formats, output=output)


def _measure(
    ctx: click.Context,
    plan: LoadPlan,
    formats: tuple[str, ...],
    output: str | None,
    *,
    what: str,
    requires: tuple[str, ...],
    histograms: tuple[str, ...],
) -> ExitStatus:
    """Make one run, and print the result."""
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.measure.load.probe import ProbeInterrupted  # noqa: PLC0415
    from nginx_tune.measure.proof.objective import check_run_gates, judge_run_gates  # noqa: PLC0415
    from nginx_tune.measure.proof.power_of_two import check_latencies  # noqa: PLC0415
    from nginx_tune.observe.window.watched import run_watched_probe  # noqa: PLC0415
    from nginx_tune.report.measurement import (  # noqa: PLC0415
        measured_screen,
        render_measurement_csv,
        unanswered_classes,
    )
    from nginx_tune.report.probing import describe_load  # noqa: PLC0415
    from nginx_tune.report.prometheus import render_measurement_prometheus  # noqa: PLC0415
    from nginx_tune.report.verdict import gates_block  # noqa: PLC0415

    names = [item.name for item in plan.classes]
    check_run_gates(requires, names)
    check_latencies(histograms, names)
    show = progress_printer(ctx)
    status = ExitStatus.OK
    try:
        with as_interrupt():
            measurement = run_watched_probe(plan, LiveHost(), on_progress=_shower(show, plan))
    except ProbeInterrupted as interrupted:
        if interrupted.measurement is None:
            raise
        measurement, status = interrupted.measurement, ExitStatus.INTERRUPTED
    gates = judge_run_gates(requires, measurement)
    write_screen(
        lambda: measured_screen(measurement, describe_load(plan, what), gates_block(gates)),
        measurement,
        formats,
        output,
        below=histogram_text([measurement], histograms),
        prometheus=lambda: render_measurement_prometheus(measurement),
        csv=lambda: render_measurement_csv(measurement),
    )
    unanswered = unanswered_classes(measurement)
    if status is ExitStatus.OK and unanswered:
        parts = [measurement.classes[name] for name in unanswered]
        statuses = sorted(
            {status for part in parts if part.errors.get("status") for status in part.statuses}
        )
        hint = (
            f"give --status {','.join(statuses)} if that is right"
            if statuses and "://" in what
            else ""
        )
        raise UndecidedError(f"no good response: {', '.join(unanswered)}", hint=hint)
    return _gated(gates) if status is ExitStatus.OK else status


def _gated(gates: list[GateResult]) -> ExitStatus:
    """The exit status of the gates; failed gates are also printed on standard error."""
    for gate in gates:
        if not gate.passed and gate.measured is None:
            raise UndecidedError(f"not measured: {gate.expression} ({gate.reason})")
    failed = [gate for gate in gates if not gate.passed]
    for gate in failed:
        say(f"gate failed: {gate.expression}")
    return ExitStatus.FOUND if failed else ExitStatus.OK


def _shower(
    show: Callable[[str], None], plan: LoadPlan, head: str = ""
) -> Callable[[dict[str, Any]], None]:
    """A function that passes a run's progress events to ``show`` as lines."""
    from nginx_tune.report.probing import run_step  # noqa: PLC0415

    return lambda line: show(run_step(line, plan, head))


def _search(
    ctx: click.Context,
    plan: LoadPlan,
    objectives: tuple[str, ...],
    *,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Make runs at one rate after another, up to the highest that meets the objective."""
    from nginx_tune.measure.load.classes import search_capacity  # noqa: PLC0415
    from nginx_tune.measure.load.probe import run_probe  # noqa: PLC0415
    from nginx_tune.report.probing import capacity_screen, step_text  # noqa: PLC0415

    show = progress_printer(ctx)
    rates: list[float] = []

    def run(planned: LoadPlan) -> Measurement:
        head = f"run {len(rates)} at {rates[-1]:,.0f}/s, "
        return run_probe(planned, on_progress=_shower(show, planned, head))

    with as_interrupt():
        capacity = search_capacity(
            plan,
            objectives,
            run=run,
            on_start=rates.append,
            on_step=lambda step: show(step_text(step)),
        )
    write_screen(lambda: capacity_screen(capacity), capacity, formats, output)
    if capacity.limited_by == "interrupted":
        return ExitStatus.INTERRUPTED
    known = capacity.capacity_per_second is not None or capacity.limited_by == "bound"
    if not known:
        raise UndecidedError(f"no capacity found: {capacity.reason}")
    return ExitStatus.OK


def _read_plan(
    ctx: click.Context, what: str, load: dict[str, Any], *, stripe: str | None, start_at: str | None
) -> LoadPlan:
    """The load plan from a URL and options, or from a file, with this host's stripe and start."""
    import msgspec  # noqa: PLC0415

    from nginx_tune.cli.inputs import read_document  # noqa: PLC0415
    from nginx_tune.cli.probe_load import parse_moment, parse_stripe, plan_of  # noqa: PLC0415
    from nginx_tune.documents.loadplan import LoadPlan  # noqa: PLC0415

    given = given_options(ctx)
    if "://" in what:
        return plan_of(what, load, stripe=stripe, start_at=start_at)
    if given:
        raise UsageError(
            f"{next(iter(given.values()))} needs a URL; a load plan has its own",
            hint="a URL begins with http://",
        )
    if what != "-" and not Path(what).exists() and _URL_WITHOUT_SCHEME.fullmatch(what):
        raise UsageError(
            f"'{what[:80]}' is not a file, and a URL needs its scheme",
            hint=f"write http://{what[:80]}",
        )
    plan = read_document(LoadPlan, what)
    if stripe is not None:
        plan = msgspec.structs.replace(plan, stripe=parse_stripe(stripe))
    if start_at is not None:
        plan = msgspec.structs.replace(plan, start_at_unix_seconds=parse_moment(start_at))
    return plan
