"""Decisions held against a configuration: ``recommend -c`` and ``plan``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.change.plan.configured import roots_in
from nginx_tune.change.plan.kind_in import kind_in
from nginx_tune.change.plan.naming import site_in
from nginx_tune.change.plan.settling import FittedDecisions, Settling
from nginx_tune.cli.deciding import Inputs, Standing, read_inputs
from nginx_tune.cli.piped_logs import with_seen_logs
from nginx_tune.cli.trees import full_path, host_configuration, read_configuration
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.site_defaults import log_of_build
from nginx_tune.decide.staying import Staying
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import AccessLog, Nginx
from nginx_tune.documents.site import Site
from nginx_tune.errors import ConfigurationError


class Held(NamedTuple):
    """A configuration and what is to be changed in it."""

    inputs: Inputs
    tree: ConfTree
    decisions: Decisions
    """As changes of the tree."""
    stays: Staying

    def without(self, written: Collection[str], chosen: Collection[str]) -> Held | None:
        """What is held where only those decisions are written; null where the chosen ones fit."""
        settled = FittedDecisions(self.inputs.decisions, self.decisions, self.stays)
        settling = Settling(self.inputs.decide, self.tree, self.inputs.facts)
        again = settling.without(settled, written, chosen)
        if again is None:
            return None
        inputs = self.inputs._replace(decisions=again.decided)
        return Held(inputs, self.tree, again.held, again.stays)


def read_held(ctx: click.Context, conf_path: str | None, prefix: str | None, **named: Any) -> Held:
    """The configuration (by default the one that the host's nginx has) and the decisions on it.

    Errors: ConfigurationError for one that could not be parsed.
    """
    tree: ConfTree | None = None

    def standing(site: Site, nginx: Nginx, recorded: Sequence[AccessLog] | None) -> Standing:
        nonlocal tree
        tree = _configuration(conf_path, prefix, nginx, is_recorded=recorded is not None)
        site = site_in(tree, site)
        site = replace(site, access_log=site.access_log or log_of_build(nginx))
        site = with_seen_logs(site, nginx, recorded, tree.opened_name)
        if site.roots == Site().roots:
            site = replace(site, roots=roots_in(tree) or site.roots)
        return site, kind_in(tree)

    meant = full_path(conf_path, prefix) if conf_path else None
    inputs = read_inputs(ctx, standing=standing, conf_path=meant, **named)
    if tree is None:
        raise AssertionError("read_inputs asks what stands")
    settled = Settling(inputs.decide, tree, inputs.facts).begin(inputs.decisions)
    inputs = inputs._replace(decisions=settled.decided)
    return Held(inputs, tree, settled.held, settled.stays)


def _configuration(
    path: str | None, prefix: str | None, nginx: Nginx, *, is_recorded: bool
) -> ConfTree:
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.subject import given_to, own_prefix  # noqa: PLC0415

    name = path or host_configuration(nginx)
    own = own_prefix(nginx, full_path(name, prefix))
    given = given_to(nginx, full_path(name, prefix))
    tree = read_configuration(
        *(LiveHost(), name, prefix),
        default_prefix=own,
        given=given,
        nginx=nginx,
        is_recorded=is_recorded,
    )
    if tree.unparsed:
        first = tree.unparsed[0]
        raise ConfigurationError(first.reason, file=first.file, line=first.line or 0)
    return tree
