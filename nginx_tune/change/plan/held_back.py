"""Safe fixes of the audit that would do what a decision refuses: not made, with the reason.

The audit cures a line at a time. A ``keepalive`` that a balancing method put out of effect works
again behind it, for a group of which ``upstream-keepalive`` says that nothing is to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.change.plan.kept import KeptConnections
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.findings import Finding, Findings

_WAKES_KEEPALIVE = "up-keepalive-before-lb"


def held_back(tree: ConfTree, findings: Findings) -> Iterator[tuple[Finding, str]]:
    """The findings of a tree that are not to be cured by their fixes, each with the reason."""
    concerned = [one for one in findings.findings if one.rule == _WAKES_KEEPALIVE]
    if not concerned:
        return
    kept = KeptConnections(tree)
    refused = {
        (as_utf8(own.file), own.line, own.column): kept.refused[group.name]
        for group in kept.groups
        if (own := group.keepalive) is not None and group.name in kept.refused
    }
    for one in concerned:
        if why := refused.get((one.file, one.line, one.column)):
            yield one, f"it would have connections kept, which are not to be: {why}"
