"""What a reload does with a change: what nginx refuses, and what it loses; pure.

Source: ngx_init_cycle (src/core/ngx_cycle.c): a zone of the same name, tag and size is kept;
ngx_http_limit_req_init_zone, ngx_http_limit_conn_init_zone, ngx_http_file_cache_init: of these
the key, the path and the levels must be the old ones.
"""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.scopes import http_directives
from nginx_tune.conf.thread_pools import declared_pools
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.plan import ReloadWarning

_KEYED = ("limit_req_zone", "limit_conn_zone")


class _Zone(NamedTuple):
    """A shared zone."""

    line: Directive
    size: str
    fixed: tuple[str, ...]
    """What must not change while nginx runs."""


def reload_warnings(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    """What the operator must know before the running nginx reads the new files."""
    return [
        *_of_zones(before, after),
        *_of_listeners(before, after),
        *_of_pools(before, after),
        *_of_caches(before, after),
    ]


def _of_zones(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    found = []
    old = _zones(before)
    for name, zone in _zones(after).items():
        was = old.get(name)
        if was is None:
            continue
        if was.fixed != zone.fixed and was.size == zone.size:
            text = (
                f"the zone {name} has another key, path or levels than the running one: nginx -t "
                "accepts it, a reload is refused; restart nginx, or give the zone another name"
            )
            found.append(_warning("refused", text, zone.line))
        elif was.size != zone.size:
            text = f"the zone {name} has another size, so it begins empty"
            if zone.line.name.endswith("_cache_path"):
                text += "; the cache loader reads what lies on the disk into it"
            found.append(_warning("loses", text, zone.line))
    return found


def _zones(tree: ConfTree) -> dict[str, _Zone]:
    found = {}
    for line in http_directives(tree):
        words = dict(arg.partition("=")[::2] for arg in line.args[1:])
        if line.name in _KEYED and "zone" in words:
            name, _, size = words["zone"].partition(":")
            found[name] = _Zone(line, size, (line.value,))
        elif line.name.endswith("_cache_path") and "keys_zone" in words:
            name, _, size = words["keys_zone"].partition(":")
            path = tree.full_path(line.value) or line.value
            found[name] = _Zone(line, size, (path, words.get("levels", "")))
    return found


def _of_listeners(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    now = {(one.address, one.is_quic): one for one in listeners(after)}
    return [
        _warning(
            "loses",
            f"{one.address} loses reuseport: connections that wait in the queues of all sockets "
            "but the first are reset",
            one.reuseport,
        )
        for one in listeners(before)
        if one.reuseport is not None
        and (other := now.get((one.address, one.is_quic))) is not None
        and other.reuseport is None
    ]


def _of_pools(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    new = {
        name: pool
        for name, pool in declared_pools(after).items()
        if name not in declared_pools(before)
    }
    return [
        _warning(
            "needs",
            f"thread_pool {name}: both generations of workers have their threads for a while; "
            "where a limit (TasksMax, pids.max, RLIMIT_NPROC) is lower no worker starts",
            pool.directive,
        )
        for name, pool in new.items()
    ]


def _of_caches(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    """Source: ngx_create_paths (src/core/ngx_file.c) makes the last directory of a path alone."""
    old = {after.full_path(one.value) for one in _cache_lines(before)}
    return [
        _warning("needs", f"the directory that {path} is to lie in, with room for it", line)
        for line in _cache_lines(after)
        if (path := after.full_path(line.value)) not in old
    ]


def _cache_lines(tree: ConfTree) -> list[Directive]:
    return [
        line for line in http_directives(tree) if line.name.endswith("_cache_path") and line.args
    ]


def _warning(effect: str, text: str, line: Directive) -> ReloadWarning:
    return ReloadWarning(effect=effect, text=text, file=line.file, line=line.line)  # type: ignore[arg-type]
