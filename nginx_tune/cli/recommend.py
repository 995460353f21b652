"""``nginx-tune recommend``."""

from __future__ import annotations

import shutil
from typing import Any

import click

from nginx_tune.cli.conf_names import prefix_option
from nginx_tune.cli.deciding import Standing, deciding_options, read_inputs
from nginx_tune.cli.output import is_screen, output_options, write_result
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.adopting import site_in
from nginx_tune.decide.kind_in import kind_in
from nginx_tune.decide.standing import hold_against
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.errors import ConfigurationError
from nginx_tune.report.decisions import render_decisions


@click.command()
@deciding_options
@click.option(
    "--observation",
    "observation_path",
    metavar="FILE",
    help="What observe saw of the running server; outranks what is assumed.",
)
@click.option(
    "-c",
    "--conf",
    "conf_path",
    metavar="CONF",
    help="A configuration: only what differs from it is said, and what in it is to go.",
)
@prefix_option
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    conf_path: str | None,
    prefix: str | None,
    formats: tuple[str, ...],
    output: str | None,
    **named: Any,
) -> None:
    """Which switches help on this host, with evidence, prediction, break-even and risk."""
    tree = None

    def standing(site: Site, facts: Facts) -> Standing:
        nonlocal tree
        tree = None if conf_path is None else _configuration(conf_path, prefix, facts)
        return (site, None) if tree is None else (site_in(tree, site), kind_in(tree))

    decisions = read_inputs(ctx, standing=standing, **named).decisions
    if tree is not None:
        decisions = hold_against(decisions, tree)
    on_screen = is_screen(output)
    width = shutil.get_terminal_size().columns if on_screen else None
    write_result(
        {
            "console": lambda: render_decisions(decisions, width=width).encode(),
            "json": lambda: encode(decisions),
        },
        formats,
        output,
    )


def _configuration(path: str, prefix: str | None, facts: Facts) -> ConfTree:
    from nginx_tune.cli.trees import read_configuration  # noqa: PLC0415  # not without --conf
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.subject.subject import own_prefix  # noqa: PLC0415

    tree = read_configuration(LiveHost(), path, prefix, default_prefix=own_prefix(facts.nginx))
    if tree.unparsed:
        first = tree.unparsed[0]
        raise ConfigurationError(first.reason, file=first.file, line=first.line or 0)
    return tree
