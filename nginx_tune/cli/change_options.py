"""What ``apply``, ``confirm``, ``rollback`` and ``history`` have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nginx_tune.cli.output import write_result

if TYPE_CHECKING:
    from nginx_tune.apply.journal import Journal, State
    from nginx_tune.documents.history import History

state_option = click.option(
    "--state-dir",
    "state_dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=Path("/var/lib/nginx-tune"),
    show_default=True,
    help="Where journals and the replaced files are kept.",
)


def state_of(directory: Path) -> State:
    """The state directory, with its path whole."""
    from nginx_tune.apply.journal import State  # noqa: PLC0415  # heavy imports stay here

    return State(directory.absolute())


def write_changes(history: History, formats: tuple[str, ...], output: str | None) -> None:
    """The changes as a table or as JSON."""
    from nginx_tune.documents.base import encode  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.report.history import render_history  # noqa: PLC0415

    renderers = {
        "console": lambda: render_history(history).encode(),
        "json": lambda: encode(history),
    }
    write_result(renderers, formats, output)


def write_change(
    journal: Journal, formats: tuple[str, ...], output: str | None, notes: tuple[str, ...] = ()
) -> None:
    """One change, as ``history`` shows it."""
    from nginx_tune.apply.history import describe_change  # noqa: PLC0415
    from nginx_tune.documents.history import History  # noqa: PLC0415

    change = describe_change(journal, notes)
    write_changes(History(changes=[] if change is None else [change]), formats, output)
