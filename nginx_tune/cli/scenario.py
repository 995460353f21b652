"""``nginx-tune scenario list`` and ``nginx-tune scenario run NAME``."""

import os

import click

from nginx_tune.cli.options import (
    DURATION,
    Whole,
    against_nginx_option,
    keep_run,
    nginx_options,
    store_option,
    tell_choice,
    weaker_sandbox_option,
)
from nginx_tune.cli.signals import as_interrupt
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.terminal.output import output_options, write_result
from nginx_tune.report.terminal.saying import progress_printer
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen


@click.group()
def command() -> None:
    """Built-in experiments that reproduce claims of published sources on this host."""


@command.command("list")
@click.option(
    "--rows",
    is_flag=True,
    help="The facts of the sources, row by row, and the scenarios that show them.",
)
@output_options(*SCREEN_FORMATS)
def list_command(*, rows: bool, formats: tuple[str, ...], output: str | None) -> None:
    """List the built-in scenarios: name, rows of the sources, subject.

    With --rows, it lists the 33 facts of the sources instead: each with the source's figure and the
    scenarios, claims and commands that show it, or the reason why none does. Below are the claims
    that this host cannot test, with reasons. The formats json and md have every claim.
    """
    from nginx_tune.experiment.scenario.files import list_scenarios  # noqa: PLC0415  # heavy
    from nginx_tune.report.scenario import scenario_list_screen, summarise  # noqa: PLC0415

    if rows:
        _write_rows(formats, output)
        return
    found = summarise(list_scenarios())
    write_screen(lambda: scenario_list_screen(found), found, formats, output)


def _write_rows(formats: tuple[str, ...], output: str | None) -> None:
    from msgspec.structs import replace  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.experiment.scenario.files import (  # noqa: PLC0415
        list_scenarios,
        read_source_rows,
    )
    from nginx_tune.experiment.scenario.variants import untried_claims  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.report.scenario import (  # noqa: PLC0415
        render_source_rows_markdown,
        source_rows_screen,
    )

    scenarios = list_scenarios()
    nginx, _ = read_nginx(LiveHost(), to_run=True)
    table = replace(
        read_source_rows(scenarios),
        claims=sum(len(scenario.claims) for scenario in scenarios),
        untried=[*untried_claims(scenarios, nginx, is_root=os.geteuid() == 0)],
    )
    write_screen(
        lambda: source_rows_screen(table),
        table,
        formats,
        output,
        md=lambda: render_source_rows_markdown(table).encode(),
    )


@command.command("show")
@click.argument("name", metavar="NAME")
def show_command(name: str) -> None:
    """Print a built-in scenario as TOML; 'scenario run' also takes an edited copy."""
    from nginx_tune.experiment.scenario.files import scenario_text  # noqa: PLC0415  # heavy

    text = scenario_text(name)
    write_result({"toml": text.encode}, (), None)


@command.command("run")
@click.argument("name", metavar="NAME|FILE")
@click.option("--pairs", type=Whole(1, 100), help="Pairs of runs; default: the scenario's.")
@click.option(
    "--duration", "duration", type=DURATION, metavar="TIME", help="Measured time of a run, e.g. 8s."
)
@click.option(
    "--seed",
    type=Whole(0),
    help="Seed for the order of runs and requests; default: the scenario's.",
)
@nginx_options
@against_nginx_option
@weaker_sandbox_option
@store_option
@output_options(*SCREEN_FORMATS)
@click.pass_context
def run_command(  # one parameter an option
    ctx: click.Context,
    name: str,
    *,
    pairs: int | None,
    duration: str | None,
    seed: int | None,
    nginx_binary: str | None,
    against_nginx: str | None,
    no_store: bool,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Run an experiment in the lab; exit 1 if one of its claims does not hold.

    FILE is a scenario of your own, or an experiment from 'validate --dry-run', which runs as with
    validate.
    """
    from nginx_tune.change.generate.nginx_conf import write_variant  # noqa: PLC0415
    from nginx_tune.cli.experiments import Wanted, run_experiment  # noqa: PLC0415
    from nginx_tune.cli.inputs import read_toml  # noqa: PLC0415
    from nginx_tune.cli.options import parse_duration  # noqa: PLC0415  # heavy imports below
    from nginx_tune.documents.scenario import ExperimentSpec  # noqa: PLC0415
    from nginx_tune.experiment.scenario.files import load_experiment  # noqa: PLC0415
    from nginx_tune.experiment.scenario.run import Shorter, run_scenario  # noqa: PLC0415
    from nginx_tune.experiment.store import Clock  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.measure.proof.verdict import scenario_status  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.nginx.lab.spec import plan_of_lab  # noqa: PLC0415
    from nginx_tune.report.scenario import scenario_screen  # noqa: PLC0415

    loaded = load_experiment(name, read_toml)
    shorter = Shorter(pairs, parse_duration(duration) if duration else None, seed)
    if isinstance(loaded, ExperimentSpec):
        return run_experiment(
            ctx,
            shorter.of(loaded),
            plan_of_lab(loaded.lab, name) if loaded.lab else None,
            Wanted(nginx_binary, against_nginx, no_store, False, formats, output),
        )
    if against_nginx:
        raise UsageError(
            "--against-nginx needs an experiment from 'validate --dry-run', but this is a scenario",
            hint='a variant of a scenario names its nginx itself: series = "1.30"',
        )
    clock = Clock()
    nginx, _ = read_nginx(LiveHost(), binary=nginx_binary, to_run=True)
    tell_choice(ctx, nginx)
    with as_interrupt():
        run = run_scenario(
            loaded,
            nginx=nginx,
            write_variant=write_variant,
            shorter=shorter,
            progress=progress_printer(ctx),
        )
    if not no_store:
        keep_run(ctx, run, kind="scenario", name=run.name, clock=clock)
    write_screen(lambda: scenario_screen(run), run, formats, output)
    if run.verdict.stopped == "interrupted":
        return ExitStatus.INTERRUPTED
    return scenario_status(run)
