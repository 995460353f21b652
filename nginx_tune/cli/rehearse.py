"""``nginx-tune rehearse``: the change itself, in the sandbox and under load."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from nginx_tune.cli.options import (
    DURATION,
    FiniteNumber,
    Whole,
    keep_run,
    lab_option,
    nginx_options,
    parse_duration,
    prefix_option,
    store_option,
    tell_choice,
    weaker_sandbox_option,
)
from nginx_tune.cli.signals import as_interrupt
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.host.paths import absolute_path
from nginx_tune.report.terminal.output import output_options, refuse_results
from nginx_tune.report.terminal.saying import progress_printer, say
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen

if TYPE_CHECKING:
    from nginx_tune.documents.facts import Nginx
    from nginx_tune.documents.plan import Plan
    from nginx_tune.documents.rehearsal import Manner
    from nginx_tune.experiment.rehearse.run import OldAndNew, RehearseOptions
    from nginx_tune.host.live import LiveHost

_MOST_HELD = 2000
_OF_NAMES = "abcdefghijklmnopqrstuvwxyz0123456789_."


@click.command()
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option(
    "-c", "conf_option", metavar="CONF", help="The same as OLD; the only argument is then NEW."
)
@click.option(
    "--plan",
    "plan_path",
    metavar="FILE",
    help="A plan ('nginx-tune plan -f json') instead of OLD and NEW.",
)
@prefix_option
@nginx_options
@click.option(
    "--new-nginx",
    metavar="BIN",
    help="Also replace the running program (USR2, WINCH, QUIT): a binary upgrade.",
)
@click.option(
    "--restart",
    "restarts",
    is_flag=True,
    help="Also restart as a package does: stop (QUIT, after 5 s TERM) and start.",
)
@click.option(
    "--reload",
    "reloads",
    is_flag=True,
    help="With --new-nginx: also reload the old program, apart from the upgrade.",
)
@click.option(
    "--back/--no-back",
    "goes_back",
    default=True,
    show_default=True,
    help="Also reload back to OLD, as a rollback does.",
)
@click.option(
    "--rate",
    default=200.0,
    show_default=True,
    type=FiniteNumber(1, 50_000),
    help="Requests per second, over all targets.",
)
@click.option(
    "--idle",
    default=20,
    show_default=True,
    type=Whole(0, _MOST_HELD),
    help="Idle connections that are kept open.",
)
@click.option(
    "--active",
    default=4,
    show_default=True,
    type=Whole(0, _MOST_HELD),
    help="Long connections of each kind that the site allows: keepalive with requests, WebSocket, "
    "slow download, slow upload.",
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
    help="Longest watch; it ends when the old workers are gone.",
)
@click.option(
    "--sysctl",
    "sysctls",
    multiple=True,
    metavar="NAME=VALUE",
    help="A sysctl of the sandbox's network, e.g. net.ipv4.tcp_migrate_req=1; may repeat.",
)
@lab_option
@click.option(
    "--scale",
    type=FiniteNumber(0, 1, min_open=True),
    help="For a lab made from facts: the share of the host's data and memory to keep.",
)
@click.option(
    "--require",
    "requires",
    multiple=True,
    metavar="EXPR",
    help="A gate, e.g. 'reload.failed == 0' or 'reload.drain <= 10s'; may repeat.",
)
@weaker_sandbox_option
@store_option
@output_options(*SCREEN_FORMATS)
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
    """Make the change in the sandbox: reload from OLD to NEW under load, and back.

    nginx serves OLD under the site's load, with idle and long connections. Then the files are
    replaced by NEW and nginx is reloaded. The costs are measured: lost requests and connections,
    the time until new workers answer on each listener and until the old workers are gone, memory
    and latency. If nginx keeps the old configuration or stops serving, the exit status is 1. The
    host's nginx is not touched.
    """
    if conf_option is not None:
        if new is not None:
            raise UsageError("OLD is given twice", hint="name it once, with or without -c")
        old, new = conf_option, old
    if plan_path is not None and (old or new):
        raise UsageError("--plan already has OLD and NEW", hint="leave them out")
    if plan_path is None and old is None:
        raise UsageError("no configuration", hint="nginx-tune rehearse OLD NEW")
    changes_program = new_nginx is not None or options["restarts"]
    if plan_path is None and new is None and not changes_program:
        raise UsageError(
            "no NEW configuration", hint="nginx-tune rehearse OLD NEW, or with --new-nginx BIN"
        )
    named = _Named(old, new, plan_path, prefix, nginx_binary, new_nginx)
    wish = _wish(options, new_nginx)
    return _run_named(ctx, named, wish, formats, output, no_store=no_store)


def _wish(options: dict[str, Any], new_nginx: str | None) -> RehearseOptions:
    from nginx_tune.cli.inputs import read_lab_plan  # noqa: PLC0415  # heavy imports stay here
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


class _Named(NamedTuple):
    """The configurations and programs that the command line names."""

    old: str | None
    new: str | None
    plan_path: str | None
    prefix: str | None
    nginx_binary: str | None
    new_nginx: str | None

    @property
    def title(self) -> str:
        """The title of the run in lists; for a plan, that of the plan is used."""
        return self.new or self.new_nginx or self.old or ""


def _run_named(
    ctx: click.Context,
    named: _Named,
    wish: RehearseOptions,
    formats: tuple[str, ...],
    output: str | None,
    *,
    no_store: bool,
) -> ExitStatus:
    """Rehearse the named change and store the result; returns the exit status."""
    from nginx_tune.cli.configurations import believed_plan, full_path  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.experiment.rehearse.run import run_rehearsal  # noqa: PLC0415
    from nginx_tune.experiment.store import Clock  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.measure.proof.rehearsal import rehearsal_status  # noqa: PLC0415
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415
    from nginx_tune.report.plan import plan_title  # noqa: PLC0415
    from nginx_tune.report.rehearsal import rehearsal_screen  # noqa: PLC0415

    clock = Clock()
    host = LiveHost()
    plan = believed_plan(named.plan_path) if named.plan_path else None
    meant = plan.conf_path if plan else full_path(named.old or "", named.prefix)
    nginx, _ = read_nginx(host, binary=named.nginx_binary, conf_path=meant, to_run=True)
    tell_choice(ctx, nginx)
    new_nginx = None
    if named.new_nginx is not None:
        new_nginx, _ = read_nginx(host, binary=named.new_nginx, to_run=True)
    with as_interrupt():
        sides = _sides(host, named, plan, nginx, new_nginx, emulates=wish.lab is not None)
        rehearsal = run_rehearsal(sides, wish, progress=progress_printer(ctx))
    if not no_store:
        title = plan_title(plan) if plan else named.title
        keep_run(ctx, rehearsal, kind="rehearse", name=title, clock=clock)
    write_screen(lambda: rehearsal_screen(rehearsal), rehearsal, formats, output)
    if rehearsal.interrupted:
        return ExitStatus.INTERRUPTED
    status = rehearsal_status(rehearsal)
    following = _next_command(named, sides)
    if status == ExitStatus.OK and following and not ctx.obj["quiet"]:
        say(f"next: {following}")
    return status


def _next_command(named: _Named, sides: OldAndNew) -> str:
    """The dry run of the rehearsed change; empty unless one file changes or a plan is named."""
    command = ["nginx-tune", "apply", "--dry-run"]
    if named.plan_path is not None:
        return shlex.join([*command, named.plan_path]) if sides.change else ""
    path = sides.old.path
    if named.new_nginx or set(sides.change) != {path}:
        return ""
    return shlex.join([*command, "-c", path, "--overlay", f"{path}={sides.new_path}"])


def _sides(
    host: LiveHost,
    named: _Named,
    plan: Plan | None,
    nginx: Nginx,
    new_nginx: Nginx | None,
    *,
    emulates: bool,
) -> OldAndNew:
    from nginx_tune.cli.configurations import (  # noqa: PLC0415
        Overlaid,
        full_path,
        parsed,
        read_configuration,
        read_planned,
    )
    from nginx_tune.conf.tree import read_tree  # noqa: PLC0415
    from nginx_tune.experiment.rehearse.change import change_between, read_name  # noqa: PLC0415
    from nginx_tune.experiment.rehearse.run import OldAndNew  # noqa: PLC0415
    from nginx_tune.nginx.reload.host_refusals import Looked, masters_of, refused_here  # noqa: PLC0415
    from nginx_tune.nginx.subject import ConfigurationFiles, own_prefix  # noqa: PLC0415

    prefix = named.prefix
    meant = [plan.conf_path] if plan else [named.old or "", named.new or named.old or ""]
    own = own_prefix(nginx, *(full_path(name, prefix) for name in meant))
    reader = ConfigurationFiles(host)
    change: Mapping[str, bytes] = {}
    if plan is not None:
        prefix = plan.prefix or prefix
        old, after, change = read_planned(
            plan, named.plan_path or "", reader, prefix=prefix or own, to_run=True
        )
    else:
        read = partial(
            read_configuration, host, prefix=prefix, default_prefix=own, nginx=nginx, to_run=True
        )
        old = read(named.old or "")
        if named.new is not None:
            change = change_between(parsed(old), parsed(read(named.new)))
        after = read_tree(old.path, Overlaid(reader, change), prefix=old.prefix)
    refuse_results((*old.files, *after.files), (*old.asked, *after.asked))
    new_path = "" if named.new is None else absolute_path(named.new)
    # An emulated host has other disks and directories.
    looked = Looked([], [])
    if not emulates:
        running = [
            (instance.pid, instance.conf_path or nginx.conf_path) for instance in nginx.instances
        ]
        looked = refused_here(old, after, masters_of(running, {old.path, new_path or old.path}))
    return OldAndNew(
        old=parsed(old),
        new=parsed(after),
        change=change,
        prefix=_started_with(prefix, own, nginx.prefix),
        nginx=nginx,
        new_nginx=new_nginx,
        new_path=new_path,
        refused_here=[
            refusal.answer_clause(partial(read_name, laid=old.path, read=new_path or old.path))
            for refusal in looked.refusals
        ],
        unseen=looked.notes,
    )


def _started_with(prefix: str | None, own: str | None, built: str | None) -> str | None:
    """The value of ``-p``: the option, or the running master's prefix if it is not the build's.

    ``own`` is the master's prefix, ``built`` the build's. None if nginx needs no ``-p``.
    """
    if prefix:
        return absolute_path(prefix)
    return None if own == built else own
