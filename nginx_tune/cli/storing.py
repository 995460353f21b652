"""``--no-store``: keeping what validate, rehearse and scenario measured."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from nginx_tune.report.terminal.saying import say

if TYPE_CHECKING:
    from nginx_tune.documents.run import RunKind
    from nginx_tune.experiment.runs import Clock, Kept

store_option = click.option(
    "--no-store", is_flag=True, help="Do not keep the run for 'nginx-tune runs'."
)


def keep_run(
    ctx: click.Context,
    result: Kept,
    *,
    kind: RunKind,
    name: str,
    clock: Clock,
) -> None:
    """Store a run and say its id; where that fails the run is still good, so it is only said."""
    from nginx_tune.errors import UndecidedError  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.experiment.runs import store_run  # noqa: PLC0415

    # A path may hold bytes that are no UTF-8.
    shown = os.fsencode(name).decode(errors="backslashreplace")
    try:
        summary = store_run(result, kind=kind, name=shown, clock=clock)
        said, hint = f"stored as run {summary.id}", ""
    except UndecidedError as error:
        said, hint = error.message, error.hint
    if not (ctx.obj or {}).get("quiet"):
        say(said, hint)
