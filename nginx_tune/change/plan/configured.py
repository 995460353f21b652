"""The decisions for the site that a configuration describes, when nothing else is known of it."""

from __future__ import annotations

from msgspec.structs import replace

from nginx_tune.change.plan.kind_in import kind_in
from nginx_tune.change.plan.naming import site_in
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.engine import decide
from nginx_tune.decide.site_defaults import complete_site, log_of_build
from nginx_tune.decide.workload.profiles import workload_for
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, Workload


def roots_in(tree: ConfTree) -> list[str]:
    """Each root and alias that files are served from, in their order."""
    return list(dict.fromkeys(one.root for one in served_paths(tree) if one.via != "cache"))


def decide_configured(tree: ConfTree, facts: Facts, given: Workload | None = None) -> Decisions:
    """The decisions of ``recommend -c`` for a configuration, by a workload where one is given."""
    found = kind_in(tree)
    assumed: Kind = "static" if found is None else found.kind
    kind = given.kind if given is not None and given.kind_provenance != "assumed" else assumed
    site = site_in(tree, Site())
    site = replace(
        site,
        roots=roots_in(tree) or site.roots,
        access_log=site.access_log or log_of_build(facts.nginx),
    )
    site = complete_site(site, facts, kind)
    return decide(facts, workload_for(kind, facts, given, site=site), site=site)
