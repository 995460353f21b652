"""Warnings about a reload: changes that nginx refuses, state that is lost, necessary steps; pure.

A zone with the same name, tag and size is kept in a reload; its key, path and levels must not
change. Source: ngx_init_cycle (src/core/ngx_cycle.c), ngx_http_limit_req_init_zone,
ngx_http_limit_conn_init_zone, ngx_http_file_cache_init.
"""

import re
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import ListenAddress, listeners
from nginx_tune.conf.scopes import http_directives
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.workers import declared_pools
from nginx_tune.documents.plan import ReloadWarning

_BARE = re.compile(r"[\w./:\[\]*@%+=,~-]*")
_KEYED = ("limit_req_zone", "limit_conn_zone")


class _Zone(NamedTuple):
    """A shared memory zone."""

    line: Directive
    size: str
    fixed: tuple[str, ...]
    """The words that must not change while nginx runs."""


def reload_warnings(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    """All warnings about a reload from the tree ``before`` to the tree ``after``."""
    return [
        *_of_zones(before, after),
        *_of_listeners(before, after),
        *_of_pools(before, after),
        *_of_caches(before, after),
        *_of_workers(before, after),
        *_of_main(before, after),
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
                f"the zone {_word(name)} has a different key, path or levels than the running one: "
                "nginx -t accepts it, but nginx refuses to reload; restart it, or rename the zone"
            )
            found.append(_warning("refused", text, zone.line))
        elif was.size != zone.size:
            text = f"the zone {_word(name)} changes its size, so it starts empty"
            if zone.line.name.endswith("_cache_path"):
                text += "; the cache loader fills it from disk"
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
    shared = [listener for listener in listeners(after) if listener.reuseport is None]
    return [
        _warning(
            "loses",
            f"{_word(listener.address)} loses reuseport: connections in the queues of all sockets "
            "but the first are reset",
            listener.reuseport,
        )
        for listener in listeners(before)
        if listener.reuseport is not None and any(_is_of(other, listener) for other in shared)
    ]


def _is_of(other: ListenAddress, one: ListenAddress) -> bool:
    if other.is_quic != one.is_quic:
        return False
    here, there = one.socket, other.socket
    return here == there or (here.host == there.host and here.meets(there))


def _of_pools(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    new = {
        name: pool
        for name, pool in declared_pools(after).items()
        if name not in declared_pools(before)
    }
    return [
        _warning(
            "needs",
            f"thread_pool {_word(name)}: during the reload both worker generations have threads; "
            "new workers do not start above a limit (TasksMax, pids.max, RLIMIT_NPROC)",
            pool.directive,
        )
        for name, pool in new.items()
    ]


def _of_caches(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    """Warnings about the parent directories of new caches.

    Source: ngx_create_paths (src/core/ngx_file.c), which creates only the last directory of a path.
    """
    old = {after.full_path(line.value) for line in _cache_lines(before)}
    return [
        _warning("needs", f"the parent directory of {_word(path)}, with room for the cache", line)
        for line in _cache_lines(after)
        if (path := after.full_path(line.value)) not in old
    ]


def _of_workers(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    """A warning if there are fewer workers than before and listeners with reuseport.

    Source: ngx_close_listening_sockets, ngx_clone_listening (a socket for each worker).
    """
    was, now = (tree.main.first("worker_processes") for tree in (before, after))
    if was is None or now is None or not (was.value.isdecimal() and now.value.isdecimal()):
        return []
    own = [listener.address for listener in listeners(after) if listener.reuseport is not None]
    if int(now.value) >= int(was.value) or not own:
        return []
    text = (
        f"{was.value} workers become {now.value}, each with its own socket ({_word(own[0])}): "
        "connections in the closed queues are reset, unless net.ipv4.tcp_migrate_req is 1 "
        "(Linux 5.14)"
    )
    return [_warning("loses", text, now)]


def _of_main(before: ConfTree, after: ConfTree) -> list[ReloadWarning]:
    """Warnings about ``quic_bpf`` and ``pid``.

    Source: ngx_quic_bpf_module_init; ngx_init_cycle, which creates the new pid file.
    """
    found = []
    bpf = [tree.main.first("quic_bpf") for tree in (before, after)]
    values = [line.value if line else "off" for line in bpf]
    if values[0] != values[1] and any(listener.is_quic for listener in listeners(after)):
        text = (
            "quic_bpf needs a restart: after a reload nginx may report an inconsistent state, and "
            "sockets keep their current BPF program"
        )
        line = bpf[1] or bpf[0]
        found += [_warning("needs", text, line)] if line else []
    pids = [tree.main.first("pid") for tree in (before, after)]
    if pids[1] is not None and pids[0] is not None and pids[0].value != pids[1].value:
        text = (
            f"the pid file moves to {_word(pids[1].value)}: update everything that uses the old "
            "one (PIDFile= of the unit, logrotate)"
        )
        found.append(_warning("needs", text, pids[1]))
    return found


def _word(text: str | None) -> str:
    """A name from the configuration, quoted if it could be read as part of the message."""
    shown = text or ""
    return shown if _BARE.fullmatch(shown) else f'"{shown.replace(chr(34), chr(39))}"'


def _cache_lines(tree: ConfTree) -> list[Directive]:
    return [
        line for line in http_directives(tree) if line.name.endswith("_cache_path") and line.args
    ]


def _warning(effect: str, text: str, line: Directive) -> ReloadWarning:
    return ReloadWarning(effect=effect, text=text, file=line.file, line=line.line)  # type: ignore[arg-type]
