"""``nginx-tune history``, and the output of ``apply``, ``confirm`` and ``rollback``."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nginx_tune.errors import NginxTuneError, UsageError
from nginx_tune.report.terminal.output import named_results, output_options, write_result
from nginx_tune.report.terminal.saying import discard, say, shown_line
from nginx_tune.report.terminal.writer import text_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nginx_tune.change.apply.journal import Journal, State
    from nginx_tune.change.apply.run import Ahead
    from nginx_tune.documents.plan import History


class _StateDirectory(click.Path):
    """A path that must not be empty, since ``Path("")`` is the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "":
            self.fail("empty: is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


state_option = click.option(
    "--state-dir",
    "state_dir",
    type=_StateDirectory(path_type=Path, readable=False),
    metavar="DIR",
    default=Path("/var/lib/nginx-tune"),
    show_default=True,
    help="Directory of the journals and the replaced files.",
)


def state_of(directory: Path) -> State:
    """The state of ``apply`` in a directory, by its absolute path.

    Errors: UsageError if a result of this command would overwrite its files, or files of a change.
    """
    from nginx_tune.change.apply.journal import State  # noqa: PLC0415  # heavy imports stay here

    state = State(directory.absolute())
    if results := named_results():
        _refuse_changed(results, state)
    return state


def _refuse_changed(results: Sequence[str], state: State) -> None:
    from nginx_tune.host.parse_storage import is_inside  # noqa: PLC0415  # only with a result
    from nginx_tune.nginx.overwriting import refuse_overwriting  # noqa: PLC0415

    for file in results:
        if is_inside(os.path.realpath(file), os.path.realpath(state.path)):
            raise UsageError(
                f"{file}: is in the directory of the journals",
                hint="name another file for the result",
            )
    for journal in state.all():
        changed: list[str] = []
        with contextlib.suppress(OSError, NginxTuneError):  # another user's files
            begin = journal.read().begin
            changed = [entry.path for entry in begin.entries] if begin else []
        refuse_overwriting(results, changed)


def write_changes(
    history: History,
    formats: tuple[str, ...],
    output: str | None,
    *,
    none: str = "no change was made here",
) -> None:
    """Print the changes as a table or as JSON; ``none`` is printed if there are none.

    A reason may quote nginx's message about a configuration, so secrets in it are redacted. The
    journal, which only root can read, has the full text.
    """
    from msgspec.structs import replace  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.documents.base import encode  # noqa: PLC0415
    from nginx_tune.report.listings import render_history  # noqa: PLC0415

    shown = [replace(change, reason=shown_line(change.reason)) for change in history.changes]
    history = replace(history, changes=shown)

    renderers = {
        "console": lambda: text_bytes(render_history(history, none), formats, output),
        "json": lambda: encode(history),
    }
    write_result(renderers, formats, output)


def write_ahead(ahead: Ahead, formats: tuple[str, ...], output: str | None) -> None:
    """Print a dry run as ``history`` shows a change."""
    from nginx_tune.change.apply.history import describe_ahead  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.documents.plan import History  # noqa: PLC0415

    write_changes(History(changes=[describe_ahead(ahead)]), formats, output)


def tell_way_back(ctx: click.Context, journal: Journal) -> None:
    """Print the command that undoes a kept change."""
    if not ctx.obj["quiet"]:
        say(f"to take it back: {journal.command('rollback')}")


def write_change(
    journal: Journal, formats: tuple[str, ...], output: str | None, notes: tuple[str, ...] = ()
) -> None:
    """Print a change as ``history`` shows it."""
    write_done([journal], formats, output, notes)


def write_done(
    journals: Sequence[Journal],
    formats: tuple[str, ...],
    output: str | None,
    notes: tuple[str, ...] = (),
    none: str = "no change was made here",
) -> None:
    """Print changes as ``history`` shows them.

    The changes are done even if the output fails, so the exit status stays the same.
    """
    from nginx_tune.change.apply.history import describe_change  # noqa: PLC0415
    from nginx_tune.documents.plan import History  # noqa: PLC0415

    try:
        found = [describe_change(journal, notes) for journal in journals]
        write_changes(
            History(changes=[change for change in found if change]), formats, output, none=none
        )
    except BrokenPipeError:
        discard(sys.stdout)
    except (OSError, NginxTuneError) as error:
        why = error.message if isinstance(error, NginxTuneError) else error.strerror or str(error)
        say(f"the changes are made, but the result could not be written: {why}")
        discard(sys.stdout)


@click.command()
@state_option
@output_options("console", "json")
def command(state_dir: Path, *, formats: tuple[str, ...], output: str | None) -> None:
    """The changes that apply made on this host, and their outcomes, newest first."""
    from nginx_tune.change.apply.history import read_history  # noqa: PLC0415  # heavy imports stay here

    write_changes(read_history(state_of(state_dir)), formats, output)
