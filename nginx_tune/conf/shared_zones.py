"""The names of shared memory: each is one zone, whichever module asks for it first.

Source: ngx_shared_memory_add(): a name that another module has taken already is "already bound to
another key" or "already declared for a different use", and nginx does not start.
"""

from __future__ import annotations

import re

from nginx_tune.conf.tree import ConfTree

_NAMED = re.compile(r"(?:\w*zone=|shared[:=])([^:]+)")
"""``keys_zone=NAME:SIZE``, ``zone=NAME:SIZE``, ``shared:NAME:SIZE``."""
_FIRST = frozenset({"zone", "lua_shared_dict", "status_zone"})
"""Directives whose first argument is the name; ``zone`` of stream is one of another kind."""


def zone_names(tree: ConfTree) -> set[str]:
    """Every name of shared memory in a configuration, of http, stream and other modules."""
    found: set[str] = set()
    for line in tree.main.walk():
        found.update(match[1] for arg in line.args if (match := _NAMED.match(arg)))
        if line.name in _FIRST and line.args:
            found.add(line.value)
    return found
