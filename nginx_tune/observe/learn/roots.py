"""How often each directory of files is asked, from the shares of the locations that serve it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.workload import LocationShare


def requests_by_root(tree: ConfTree, shares: Sequence[LocationShare]) -> dict[str, float]:
    """Share of the requests by root or alias; empty where fewer than two can be told apart.

    A location whose root depends on the request, or is a cache's directory, belongs to none.
    """
    roots: dict[tuple[str, int], set[str]] = defaultdict(set)
    for served in served_paths(tree):
        if served.via != "cache":
            roots[served.scope.own.file, served.scope.own.line].add(served.root)
    found: dict[str, float] = defaultdict(float)
    for share in shares:
        own = roots.get((share.file, share.line), set())
        if len(own) == 1:
            found[next(iter(own))] += share.requests_ratio
    if len(found) < 2:  # noqa: PLR2004  # one against another
        return {}
    return {root: float(f"{ratio:.6g}") for root, ratio in sorted(found.items())}
