"""The options of ``nginx-tune audit``, and what they name."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import click

from nginx_tune.cli.inputs import MOST_PIPED_BYTES, read_bytes
from nginx_tune.cli.nginx_choice import nginx_options
from nginx_tune.cli.numbers import Whole
from nginx_tune.cli.options import (
    nginx_version_option,
    option_group,
    prefix_option,
    read_version,
    weaker_walls_option,
)
from nginx_tune.report.terminal.output import RESULT_FILE

_OPTIONS = (
    click.argument("conf", required=False),
    click.option("-c", "conf_option", metavar="CONF", help="Configuration file (same as CONF)."),
    prefix_option,
    click.option(
        "--facts",
        "facts_source",
        metavar="FILE|live|none",
        help="Facts of the host it is for; default: live for the configuration of this host's "
        "nginx, otherwise none.",
    ),
    click.option(
        "--workload",
        "workload_path",
        metavar="FILE",
        help="What is served and asked for: advice then agrees with recommend --workload.",
    ),
    nginx_options,
    weaker_walls_option,
    nginx_version_option,
    click.option(
        "--upgrade-to",
        metavar="V",
        callback=lambda _ctx, option, value: read_version(option, value),
        help="What changes for this tree with that nginx version: only findings that are new with "
        "it, and defaults that move.",
    ),
    click.option(
        "--pid",
        type=Whole(min=1),
        metavar="PID",
        help="The nginx master whose configuration and facts are meant, where several run.",
    ),
    click.option(
        "--overlay",
        "overlays",
        multiple=True,
        metavar="PATH=NEW",
        help="Audit the tree with NEW in the place of PATH; may repeat.",
    ),
    click.option(
        "--plan",
        "plan_path",
        metavar="FILE",
        help="Audit the tree as a plan ('plan -f json') would have it.",
    ),
    click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="PREFIX=DIR",
        help="Files that the configuration names below PREFIX are below DIR here; may repeat. "
        "For a tree that is not this host's own: its absolute names are looked up by this alone.",
    ),
    click.option(
        "--accept-missing",
        multiple=True,
        metavar="GLOB",
        help="Includes that need not be here, by the name that nginx would look for; may repeat. "
        "Any other that is not here: exit 4.",
    ),
    click.option(
        "--select", multiple=True, metavar="RULES", help="Only these: ids, groups (io), patterns."
    ),
    click.option("--ignore", multiple=True, metavar="RULES", help="Without these."),
    click.option(
        "--profile",
        type=click.Choice(["default", "strict", "cis"]),
        default="default",
        show_default=True,
        help="strict: advice counts as warning; cis: where security guides conflict, theirs holds.",
    ),
    click.option("--baseline", metavar="FILE", help="Leave out what FILE says was there before."),
    click.option(
        "--write-baseline",
        type=RESULT_FILE,
        metavar="FILE",
        help="Write what is found to FILE, for --baseline.",
    ),
    click.option(
        "--diff-base", metavar="REV", help="Only what is new since that git revision of the tree."
    ),
    click.option(
        "--fix-diff",
        is_flag=True,
        help="Print the safe fixes as a diff (patch -p1), tried with nginx -t inside walls where "
        "it can be; write nothing.",
    ),
    click.option(
        "--test/--no-test",
        "runs_test",
        default=None,
        help="Also run nginx -t, inside walls; by itself only for what --fix-diff would change.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "advice", "info", "never"]),
        default="error",
        show_default=True,
        help="Exit 1 when a finding is at least as bad.",
    ),
    click.option("--require-facts", is_flag=True, help="Exit 4 when a rule lacks facts."),
    click.option(
        "--today",
        metavar="YYYY-MM-DD",
        callback=lambda _ctx, _option, value: _day(value),
        help="The day that ends suppressions; default: this day.",
    ),
)


audit_options = option_group(_OPTIONS)
"""Add the options, in the order above."""


def read_overlays(overlays: tuple[str, ...]) -> dict[str, bytes]:
    """The new bytes of each file named by ``PATH=NEW``."""
    files: dict[str, bytes] = {}
    for overlay in overlays:
        path, equals, new = overlay.partition("=")
        if not equals or not path or not new:
            raise click.UsageError(f"--overlay {overlay}: give PATH=NEW")
        if path in files:
            raise click.UsageError(f"--overlay {path}=…: given twice")
        if os.path.isfile(new) and os.path.getsize(new) > MOST_PIPED_BYTES:  # noqa: PTH113, PTH202
            raise click.UsageError(f"{new}: more than {MOST_PIPED_BYTES >> 20} MiB")
        files[path] = read_bytes(new)
    return files


def read_maps(maps: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The pairs of ``PREFIX=DIR``, without slashes at their ends."""
    pairs = []
    for one in maps:
        prefix, equals, directory = one.partition("=")
        if not equals or not prefix.startswith("/") or not directory:
            raise click.UsageError(f"--map {one}: give PREFIX=DIR with an absolute prefix")
        if not Path(directory).is_dir():
            raise click.UsageError(f"--map {one}: {directory} is no directory")
        here = directory.rstrip("/") or "/"
        pairs.append((prefix.rstrip("/"), "" if here == "." else here.removeprefix("./")))
    return tuple(pairs)


def _day(value: str | None) -> str:
    if value is None:
        return date.today().isoformat()  # noqa: DTZ011  # the operator's own day
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise click.BadParameter(f"{value}: no day of the form YYYY-MM-DD") from None
