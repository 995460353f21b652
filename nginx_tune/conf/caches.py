"""Caches of upstream responses: their directories, bounds, and the scopes that use them.

Source: ngx_http_file_cache.c, ngx_http_file_cache_set_slot.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.quantities import parse_bytes
from nginx_tune.conf.scopes import http_blocks
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass
from nginx_tune.conf.variables import Variables

MODULES = ("proxy", "fastcgi", "uwsgi", "scgi")
KEYS_PER_MEBIBYTE = 7000
"""That a zone of keys holds on to. Seen: 8095 fit into 1m (documented: about 8000), and of those
the cache manager leaves 7083: it removes entries until an eighth of the zone is free."""


class Cache(NamedTuple):
    """One ``*_cache_path`` line."""

    place: Directive
    module: str
    zone: str
    keys_bytes: int | None
    max_bytes: int | None
    """Null when there is no ``max_size``."""
    min_free_bytes: int | None
    has_own_temp: bool
    """``use_temp_path=off``: responses are written beside their final place."""

    @property
    def directory(self) -> str:
        """As written."""
        return self.place.value


class Caching(NamedTuple):
    """A scope that passes requests on and keeps the responses."""

    passed: Pass
    place: Directive
    """The ``*_cache`` line that holds."""
    caches: tuple[Cache, ...]
    """The ones it can name, as far as they are known."""


def caches(tree: ConfTree) -> list[Cache]:
    """The caches of http in order."""
    return [
        _read(module, line)
        for http in http_blocks(tree)
        for module in MODULES
        for line in (http.block or Block([])).all(f"{module}_cache_path")
        if line.args
    ]


def caching(passed: list[Pass], found: list[Cache], variables: Variables) -> list[Caching]:
    """The scopes among ``passed`` whose responses are kept."""
    by_zone = {cache.zone: cache for cache in found}
    result = []
    for one in passed:
        place = one.effective("cache")
        if one.module not in MODULES or place is None or place.value in {"", "off"}:
            continue
        names = variables.possible(place.value, one.scope).known
        result.append(
            Caching(one, place, tuple(by_zone[name] for name in sorted(names) if name in by_zone))
        )
    return result


def _read(module: str, line: Directive) -> Cache:
    given = dict(arg.split("=", 1) for arg in line.args[1:] if "=" in arg)
    zone, _, size = given.get("keys_zone", "").partition(":")
    return Cache(
        place=line,
        module=module,
        zone=zone,
        keys_bytes=parse_bytes(size),
        max_bytes=parse_bytes(given.get("max_size", "")),
        min_free_bytes=parse_bytes(given.get("min_free", "")),
        has_own_temp=given.get("use_temp_path") == "off",
    )
