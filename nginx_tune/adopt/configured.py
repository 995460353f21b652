"""The decisions for the site that a configuration describes, when nothing else is known of it."""

from __future__ import annotations

from nginx_tune.adopt.naming import site_in
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.engine import decide
from nginx_tune.decide.site_defaults import complete_site
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, Workload


def roots_in(tree: ConfTree) -> list[str]:
    """Each root and alias that files are served from, in their order."""
    return list(dict.fromkeys(one.root for one in served_paths(tree) if one.via != "cache"))


def decide_configured(tree: ConfTree, facts: Facts) -> Decisions:
    """What ``recommend`` decides for the directories and caches of a configuration."""
    roots = roots_in(tree)
    kind: Kind = "static" if roots else "cache" if served_paths(tree) else "proxy"
    site = site_in(tree, Site(roots=roots))
    workload = Workload(kind=kind)
    return decide(facts, workload, site=complete_site(site, facts, kind))
