"""``nginx-tune recommend``."""

import shlex
from typing import Any

import click

from nginx_tune.cli.configurations import tell_unread, with_typed_names
from nginx_tune.cli.deciding import deciding_options, read_held, read_hosts_own, read_inputs
from nginx_tune.cli.described import typed_words
from nginx_tune.cli.options import accept_missing_option, map_option, prefix_option
from nginx_tune.conf.tree import Maps
from nginx_tune.errors import ExitStatus
from nginx_tune.nginx.elsewhere import NONE_MISSING
from nginx_tune.report.decisions import (
    PROVES_PLAN,
    answer_screen,
    decisions_screen,
    prove_by_plan,
    with_inputs,
)
from nginx_tune.report.terminal.output import output_options
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen


@click.command()
@deciding_options
@click.option(
    "--observation",
    "observation_path",
    metavar="FILE",
    help="An observation of the running server ('observe'), which replaces assumed values.",
)
@click.option(
    "-c",
    "--conf",
    "conf_path",
    metavar="CONF",
    help="Show only what differs from this configuration, and what should be removed from it.",
)
@prefix_option
@map_option
@accept_missing_option
@output_options(*SCREEN_FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    conf_path: str | None,
    prefix: str | None,
    maps: Maps,
    accept_missing: tuple[str, ...],
    formats: tuple[str, ...],
    output: str | None,
    **named: Any,
) -> ExitStatus:
    """The settings that help on this host, with evidence, prediction, break-even and risk.

    Without -c, it reads the configuration of the host's nginx, as check does, unless another host
    or directories are named.
    """
    if (maps or accept_missing) and conf_path is None:
        option = "--map" if maps else "--accept-missing"
        raise click.UsageError(f"{option} needs -c CONF")
    if conf_path is None:
        held = read_hosts_own(ctx, named, prefix)
    else:
        held = read_held(ctx, conf_path, prefix, maps=maps, accept_missing=accept_missing, **named)
    if held is None:
        inputs, missing = read_inputs(ctx, **named), NONE_MISSING
        decisions, makes = inputs.decisions, "nginx-tune generate -o nginx.conf"
    else:
        inputs, decisions, missing = held.inputs, held.decisions, held.missing
        makes = shlex.join(["nginx-tune", "plan", *([conf_path] if conf_path else ())])
        makes += " -f json=plan.json"
    inputs.tell()
    options = typed_words(ctx)
    makes = with_inputs(makes, options)
    if held is not None:
        decisions = prove_by_plan(decisions, makes, conf_path or held.tree.path, options)
        makes += PROVES_PLAN if inputs.is_live and not held.is_moved else ""
    shown = with_typed_names(decisions, conf_path)
    status = tell_unread(missing._replace(files_missing=shown.files_missing))
    is_long = ctx.obj["verbose"]
    screen = decisions_screen(shown) if is_long else answer_screen(shown, makes, options)
    write_screen(lambda: screen, decisions, formats, output)
    return status
