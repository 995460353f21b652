"""``nginx-tune apply``."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nginx_tune.cli.history import state_of, state_option, tell_way_back, write_ahead, write_change
from nginx_tune.cli.inputs import read_overlays
from nginx_tune.cli.options import DURATION, Whole, parse_duration, prefix_option, trusting_options
from nginx_tune.cli.signals import as_interrupt
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.host.paths import absolute_path
from nginx_tune.report.terminal.output import named_results, output_options
from nginx_tune.report.terminal.saying import discard, say
from nginx_tune.report.text import plain, shown_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nginx_tune.change.apply.examine import Examined, Proposed
    from nginx_tune.change.apply.run import ApplyOptions
    from nginx_tune.conf.tree import ConfTree

_STATUS = {"kept": ExitStatus.OK, "awaiting": ExitStatus.OK, "rolled_back": ExitStatus.FOUND}


@click.command()
@click.argument("plan_path", metavar="[PLAN]", required=False)
@click.option(
    "--overlay",
    "overlays",
    multiple=True,
    metavar="PATH=NEW",
    help="Replace PATH by NEW, or create PATH; may repeat.",
)
@click.option(
    "-c",
    "conf_path",
    metavar="CONF",
    help="The main configuration file; default: that of the running nginx.",
)
@prefix_option
@trusting_options
@click.option(
    "--pid",
    type=Whole(min=1),
    metavar="PID",
    help="Process id of the nginx master to reload, if several run.",
)
@click.option(
    "--watch",
    "watch",
    type=DURATION,
    metavar="TIME",
    default="30s",
    show_default=True,
    help="Time to watch error logs, workers and canaries before the change is kept.",
)
@click.option(
    "--canary",
    "canaries",
    multiple=True,
    metavar="URL",
    help="A URL of this nginx to request before the change and during the watch. Failures, any "
    "status except 2xx and 3xx, and much slower answers take the change back. May repeat.",
)
@click.option(
    "--confirm",
    "confirm",
    type=DURATION,
    metavar="TIME",
    help="Exit after the watch, and take the change back after TIME unless "
    "'nginx-tune confirm' is run first.",
)
@click.option(
    "--reload-command",
    metavar="COMMAND",
    help="Run this instead of sending SIGHUP to the master, such as 'systemctl reload nginx'.",
)
@click.option(
    "--reload-time",
    type=DURATION,
    metavar="TIME",
    default="15s",
    show_default=True,
    help="Time limit for the new workers to start serving.",
)
@click.option("--no-reload", is_flag=True, help="Only change and test the files; do not reload.")
@click.option(
    "--managed-anyway",
    is_flag=True,
    help="Also change files with a comment that another program (Ansible, certbot, ...) writes "
    "them.",
)
@click.option(
    "--accept-lost", is_flag=True, help="Accept that nginx listens on fewer addresses afterwards."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only make the checks that write nothing, and print what would be done.",
)
@click.option(
    "--diff",
    "shows_diff",
    is_flag=True,
    help="First print the diff against the current files; also with --dry-run.",
)
@state_option
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    plan_path: str | None,
    state_dir: Path,
    dry_run: bool,
    shows_diff: bool,
    formats: tuple[str, ...],
    output: str | None,
    **options: Any,
) -> ExitStatus:
    """Change the files of a running nginx, and put them back unless its new workers answer.

    PLAN is a file from 'nginx-tune plan -f json'. The exit status is 0 if the change is kept, 1 if
    every byte is put back, and 5 if neither could be done. It is 2 if the change is refused before
    anything is touched, or 3 if nginx -t rejects the files as they are or as they would be. If
    apply is killed, at any moment, its next start takes the change back.
    A plan is refused if it writes anything that its hunks do not show. The steps left to you and
    the effects of a reload are computed from the files, not read from the plan.
    """  # fmt: skip
    from nginx_tune.change.apply.run import (  # noqa: PLC0415  # heavy imports stay here
        Onlooker,
        apply_change,
        look_at_change,
    )
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415

    if shows_diff and output is None and "json" in formats:
        raise UsageError(
            "--diff and JSON would share standard output", hint="name a file: -f json=FILE"
        )
    proposed, reads, options = _change_of(plan_path, options)
    state = state_of(state_dir)

    def tell(text: str) -> None:
        if not ctx.obj["quiet"]:
            say(text)

    onlooker = Onlooker(say=tell)
    if shows_diff:
        onlooker = onlooker._replace(show=_show_diff)
    if plan_path is not None:
        onlooker = onlooker._replace(judge=_judge_reload)
    if dry_run:
        wish = _wish(options)
        ahead = look_at_change(LiveHost(), state, proposed, reads, wish, onlooker=onlooker)
        write_ahead(ahead, formats, output)
        return ExitStatus.OK
    with as_interrupt(once=True):
        applied = apply_change(
            LiveHost(), state, proposed, reads, _wish(options), onlooker=onlooker
        )
    write_change(applied.journal, formats, output, tuple(applied.notes))
    if applied.outcome == "kept":
        tell_way_back(ctx, applied.journal)
    return _STATUS[applied.outcome]


def _change_of(
    plan_path: str | None, options: dict[str, Any]
) -> tuple[list[Proposed], dict[str, str], dict[str, Any]]:
    """The files that a plan or ``--overlay`` changes, SHA-256 by path, and nginx's options.

    The last two come from a plan, and are empty for ``--overlay``.
    """
    from nginx_tune.change.apply.examine import Proposed  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.change.generate.plan_files import checked_host_parts  # noqa: PLC0415
    from nginx_tune.cli.configurations import believed_plan  # noqa: PLC0415

    handed = [option.partition("=")[2] for option in options["overlays"]]
    _check_handed(handed if plan_path is None else [plan_path], trusted=options["trust"])
    if plan_path is None:
        return _proposed(options["overlays"]), {}, options
    if options["overlays"]:
        raise UsageError("PLAN and --overlay exclude each other")
    plan = believed_plan(plan_path)
    for part in checked_host_parts(plan.host):
        names = ", ".join(f"{setting.name} {setting.value}" for setting in part.settings)
        say(f"left to you: {names} in {part.path}, then {'; '.join(part.commands)}")
    proposed = [
        Proposed(file.path, file.content, file.sha256_before, file.sha256_after)
        for file in plan.files
    ]
    own = {
        "conf_path": options["conf_path"] or plan.conf_path,
        "prefix": options["prefix"] or plan.prefix,
    }
    return proposed, plan.reads, options | own


def _judge_reload(before: ConfTree, after: ConfTree) -> None:
    """Print the effects of a reload on a plan, computed from the files.

    Errors: UsageError if nginx would refuse the reload.
    """
    from nginx_tune.change.generate.reload_warnings import reload_warnings  # noqa: PLC0415  # with a plan

    for warning in reload_warnings(before, after):
        said = f"{shown_path(warning.file)}:{warning.line}: {warning.text}"
        if warning.effect == "refused":
            raise UsageError(said, hint="leave that out: nginx-tune plan --except")
        say(said)


def _show_diff(found: Sequence[Examined]) -> None:
    """Print the diff; an error of the output does not affect the change."""
    from nginx_tune.report.plan import render_diff  # noqa: PLC0415  # only with a diff

    diff = render_diff((file.entry.path, file.original, file.content) for file in found)
    try:
        lines = diff.decode("utf-8", "backslashreplace").split("\n")
        click.echo("\n".join(map(plain, lines)), nl=False)
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)


def _check_handed(paths: list[str], *, trusted: bool) -> None:
    """Raise UsageError for files that others may write: as root, nginx would run their code."""
    from nginx_tune.host.paths import why_not_handed  # noqa: PLC0415  # heavy imports stay here

    for path in paths:
        why = "" if trusted or path in ("", "-") else why_not_handed(path)
        if why:
            raise UsageError(
                f"{path}: refused as root: {why}",
                hint="review it and copy it to a file that only root may write, or give --trust",
            )


def _wish(options: dict[str, Any]) -> ApplyOptions:
    from nginx_tune.change.apply.examine import Permissions  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.change.apply.run import ApplyOptions  # noqa: PLC0415
    from nginx_tune.nginx.subject import place_of  # noqa: PLC0415

    try:
        reload_command = shlex.split(options["reload_command"] or "")
    except ValueError as error:
        raise UsageError(f"--reload-command: {error}") from None
    if options["reload_command"] is not None and not reload_command:
        raise UsageError("--reload-command: is empty", hint="leave it out for SIGHUP to the master")
    conf, prefix = options["conf_path"], options["prefix"]
    return ApplyOptions(
        # Links are not resolved: includes are relative to the directory as named.
        conf_path=None if conf is None else absolute_path(place_of(conf, prefix)),
        prefix=prefix,
        binary=options["nginx_binary"],
        pid=options["pid"],
        reload_command=reload_command,
        reloads=not options["no_reload"],
        reload_seconds=parse_duration(options["reload_time"]),
        watch_seconds=parse_duration(options["watch"]),
        confirm_seconds=parse_duration(options["confirm"]) if options["confirm"] else 0.0,
        canaries=options["canaries"],
        permissions=Permissions(
            managed=options["managed_anyway"],
            trusted=options["trust"],
            loses=options["accept_lost"],
        ),
        results=named_results(),
    )


def _proposed(overlays: tuple[str, ...]) -> list[Proposed]:
    """The files that ``--overlay`` names; each is later compared with the current file."""
    from nginx_tune.change.apply.examine import Proposed  # noqa: PLC0415  # heavy imports stay here

    found = []
    for path, content in read_overlays(overlays).items():
        full = absolute_path(path)
        try:
            now = Path(full).read_bytes() if Path(full).exists() else None
        except OSError as error:
            raise UsageError(f"{path}: cannot read: {error.strerror}") from None
        before = None if now is None else hashlib.sha256(now).hexdigest()
        after = hashlib.sha256(content).hexdigest()
        found.append(Proposed(full, content, before, after))
    if not found:
        raise UsageError(
            "nothing to change",
            hint="give a plan (nginx-tune plan -f json -o plan.json), or --overlay PATH=NEW",
        )
    return found
