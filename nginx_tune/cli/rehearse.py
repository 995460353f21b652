"""``nginx-tune rehearse``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nginx_tune.cli.nginx_choice import nginx_options
from nginx_tune.cli.numbers import DURATION, FiniteNumber, Whole
from nginx_tune.cli.options import lab_option, parse_duration, prefix_option, weaker_walls_option
from nginx_tune.cli.storing import store_option
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.report.terminal.output import output_options

if TYPE_CHECKING:
    from nginx_tune.documents.rehearsal import Manner
    from nginx_tune.experiment.rehearse.run import RehearseOptions

_MOST_HELD = 2000


@click.command()
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("-c", "conf_option", metavar="CONF", help="The same as OLD: what is left is NEW.")
@click.option(
    "--plan",
    "plan_path",
    metavar="FILE",
    help="In the place of OLD and NEW: what 'nginx-tune plan -f json' wrote, its files whole.",
)
@prefix_option
@nginx_options
@click.option(
    "--new-nginx",
    metavar="BIN",
    help="Exchange the program too, while it runs (USR2, WINCH, QUIT): a binary upgrade.",
)
@click.option(
    "--restart",
    "restarts",
    is_flag=True,
    help="Also as a package does it: stopped (QUIT, after 5 s TERM) and started again.",
)
@click.option(
    "--reload",
    "reloads",
    is_flag=True,
    help="With --new-nginx: also a reload of the old program, beside the upgrade.",
)
@click.option(
    "--back/--no-back",
    "goes_back",
    default=True,
    show_default=True,
    help="And back to OLD: a rollback is a reload too.",
)
@click.option(
    "--rate",
    default=200.0,
    show_default=True,
    type=FiniteNumber(1, 50_000),
    help="Requests a second, over all that is asked.",
)
@click.option(
    "--idle",
    default=20,
    show_default=True,
    type=Whole(0, _MOST_HELD),
    help="Connections kept open that ask nothing.",
)
@click.option(
    "--active",
    default=4,
    show_default=True,
    type=Whole(0, _MOST_HELD),
    help="Long connections of each kind that the site can hold: kept alive and asked on, "
    "WebSocket, slow download, slow upload.",
)
@click.option(
    "--before",
    default="3s",
    show_default=True,
    type=DURATION,
    metavar="TIME",
    help="Load before the change.",
)
@click.option(
    "--after",
    default="3s",
    show_default=True,
    type=DURATION,
    metavar="TIME",
    help="Load after the watch.",
)
@click.option(
    "--drain",
    default="15s",
    show_default=True,
    type=DURATION,
    metavar="TIME",
    help="Watch until the old workers are gone, or for so long.",
)
@click.option(
    "--sysctl",
    "sysctls",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of the sandbox's network, e.g. net.ipv4.tcp_migrate_req=1; may repeat.",
)
@lab_option
@click.option(
    "--scale",
    type=FiniteNumber(0, 1, min_open=True),
    help="Share of data and memory that a lab made from facts keeps.",
)
@click.option(
    "--require",
    "requires",
    multiple=True,
    metavar="EXPR",
    help="A gate, e.g. 'reload.failed == 0' or 'reload.drain <= 10s'; may repeat.",
)
@weaker_walls_option
@store_option
@output_options("console", "json", "md")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    old: str | None,
    new: str | None,
    conf_option: str | None,
    plan_path: str | None,
    prefix: str | None,
    nginx_binary: str | None,
    new_nginx: str | None,
    no_store: bool,
    formats: tuple[str, ...],
    output: str | None,
    **options: Any,
) -> ExitStatus:
    """The change itself, in the sandbox: reloaded from OLD to NEW under load, and back.

    OLD serves the site's load, with idle and long connections held, when its files get NEW's bytes
    and nginx is told. What it costs is counted: requests and connections that are lost, the time
    until the new workers answer on each listener, until the old ones are gone, memory, latency.
    Where nginx goes on with the old configuration, or nobody serves, the exit code is 1. Nothing
    of the host's nginx is touched.
    """
    from nginx_tune.cli.rehearsing import Named, run_named  # noqa: PLC0415  # heavy imports

    if conf_option is not None:
        if new is not None:
            raise UsageError("OLD is given twice", hint="name it once, with or without -c")
        old, new = conf_option, old
    if plan_path is not None and (old or new):
        raise UsageError("--plan says what OLD and NEW are", hint="leave them out")
    if plan_path is None and old is None:
        raise UsageError("no configuration", hint="nginx-tune rehearse OLD NEW")
    changes_program = new_nginx is not None or options["restarts"]
    if plan_path is None and new is None and not changes_program:
        raise UsageError(
            "no NEW configuration", hint="nginx-tune rehearse OLD NEW, or with --new-nginx BIN"
        )
    named = Named(old, new, plan_path, prefix, nginx_binary, new_nginx)
    wish = _wish(options, new_nginx)
    return run_named(ctx, named, wish, formats, output, no_store=no_store)


def _wish(options: dict[str, Any], new_nginx: str | None) -> RehearseOptions:
    from nginx_tune.cli.labs import read_lab_plan  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.experiment.rehearse.run import RehearseOptions  # noqa: PLC0415
    from nginx_tune.measure.proof.rehearsal import check_rehearsal_gates  # noqa: PLC0415

    manners: list[Manner] = []
    if new_nginx is None or options["reloads"]:
        manners.append("reload")
    if new_nginx is not None:
        manners.append("upgrade")
    if options["restarts"]:
        manners.append("restart")
    back = [f"{name}_back" for name in manners] if options["goes_back"] else []
    check_rehearsal_gates(options["requires"], [*manners, *back])
    return RehearseOptions(
        manners=manners,
        goes_back=options["goes_back"],
        rate_per_second=options["rate"],
        idle=options["idle"],
        active=options["active"],
        before_seconds=parse_duration(options["before"]),
        after_seconds=parse_duration(options["after"]),
        drain_seconds=parse_duration(options["drain"]),
        sysctls=dict(_sysctl(text) for text in options["sysctls"]),
        requires=options["requires"],
        lab=read_lab_plan(options["lab"], options["scale"]),
        scale=options["scale"],
    )


def _sysctl(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    known = name.startswith("net.") and not set(name) - set(_OF_NAMES) and ".." not in name
    if not equals or not value or not known:
        raise UsageError(
            f"--sysctl {text}: not NAME=VALUE of the network",
            hint="for example net.ipv4.tcp_migrate_req=1",
        )
    return name, value


_OF_NAMES = "abcdefghijklmnopqrstuvwxyz0123456789_."
