"""What the tables of values say of a configuration, for the rules about values and repeats.

Silent wherever any version that may be meant takes the value: between two versions that the
tables were read from, what either takes is taken; past the newest one, words may have been added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nginx_tune.audit.directives import known_here
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.directive_values import Grammar, Version, grammars_of, seen_versions
from nginx_tune.conf.known_directives import DirectiveRow
from nginx_tune.conf.own_values import own_fault_of
from nginx_tune.conf.templates import is_open

if TYPE_CHECKING:
    from nginx_tune.audit.context import Context

_OWN_ONCE = frozenset(
    [
        "events",
        "http",
        "mail",
        "stream",
        "worker_processes",
        "worker_cpu_affinity",
        "worker_priority",
        "use",
        "worker_connections",
        "root",
        "alias",
        "proxy_pass",
        "fastcgi_pass",
        "uwsgi_pass",
        "scgi_pass",
        "grpc_pass",
        "memcached_pass",
        "try_files",
        "keepalive_timeout",
        "open_file_cache",
        "aio",
        "directio",
        "resolver",
        "expires",
        "charset",
        "proxy_cache",
        "fastcgi_cache",
        "uwsgi_cache",
        "scgi_cache",
        "limit_except",
        "keepalive",
        "real_ip_header",
        "proxy_store",
        "fastcgi_store",
        "uwsgi_store",
        "scgi_store",
        "proxy_cache_key",
        "fastcgi_cache_key",
        "uwsgi_cache_key",
        "scgi_cache_key",
        "open_log_file_cache",
        "auth_request",
        "secure_link",
        "slice",
        "limit_rate",
        "disable_symlinks",
        "userid",
    ]
)
"""Directives with a setter of their own that says "is duplicate", as tried on four versions.

Not ``user``: started by an ordinary user nginx leaves it aside.
"""

_NAMING = frozenset(
    [
        "thread_pool",
        "log_format",
        *(f"{name}_cache_path" for name in ("proxy", "fastcgi", "uwsgi", "scgi")),
    ]
)
"""Directives whose first argument may stand once. Source: ngx_thread_pool_add,
ngx_http_log_set_format, ngx_add_path."""


class Fault(NamedTuple):
    """A directive whose value nginx refuses, and what it takes."""

    place: Directive
    said: str


def value_faults(context: Context) -> Iterator[Fault]:
    """Directives with a value that no version that may be meant takes."""
    for kind, rows, directives in known_here(context):
        here = [row for row in rows if row.may_stand(kind.context) and row.takes(kind.arguments)]
        own = own_fault_of(kind.name, kind.context) if here else None
        if own is not None:
            yield from (Fault(one, said) for one in directives if (said := own(one.args)))
            continue
        grammars = _grammars(kind.name, here, context.version)
        if not grammars:
            continue
        for directive in directives:
            if not any(grammar.takes(directive.args) for grammar in grammars):
                yield Fault(directive, grammars[-1].said)


def repeated(context: Context) -> Iterator[tuple[Directive, Directive]]:
    """Directives that stand twice at a level where one is allowed: (the second, the first)."""
    once: dict[Directive, bool] = {}
    for kind, rows, directives in known_here(context):
        here = [row for row in rows if row.may_stand(kind.context)]
        grammars = _grammars(kind.name, here, context.version)
        is_once = kind.name in _OWN_ONCE and bool(here)
        if is_once or (grammars and all(grammar.once for grammar in grammars)):
            once.update(dict.fromkeys(directives, True))
    for block in _levels(context.tree.main):
        first: dict[str, Directive] = {}
        for directive in block:
            if directive in once and first.setdefault(directive.name, directive) is not directive:
                yield directive, first[directive.name]


def named_twice(context: Context) -> Iterator[tuple[Directive, Directive]]:
    """Lines that give one name to two things: (the second, the first)."""
    first: dict[tuple[str, str, str], Directive] = {}
    for kind, _, directives in known_here(context):
        if kind.name not in _NAMING or kind.context not in {"main", "http", "stream"}:
            continue
        what = "path" if kind.name.endswith("_path") else kind.name
        for directive in directives:
            if not is_open(directive.value):
                before = first.setdefault((kind.context, what, directive.value), directive)
                if before is not directive:
                    yield directive, before


def _levels(block: Block) -> Iterator[Block]:
    yield block
    for directive in block:
        if directive.block is not None:
            yield from _levels(directive.block)


def _grammars(name: str, rows: list[DirectiveRow], version: Version | None) -> list[Grammar]:
    """Those that may hold; none where some version that may be meant has another setter."""
    found = [
        grammar
        for grammar in grammars_of(name)
        if any(row.module == grammar.module for row in rows)
    ]
    if not found or {row.module for row in rows} != {grammar.module for grammar in found}:
        return []
    wanted = _meant(version)
    held = [grammar for grammar in found if grammar.versions & wanted]
    for one in wanted:
        there = [row for row in rows if row.first <= one <= row.last]
        if there and not any(one in grammar.versions for grammar in held):
            return []
    if version is not None and version > max(seen_versions()):
        held = [grammar for grammar in held if not grammar.words] if held else []
    return held


def _meant(version: Version | None) -> frozenset[Version]:
    """The versions of the tables that a version is like: itself, or those on both sides of it."""
    seen = seen_versions()
    if version is None:
        return seen
    if version in seen:
        return frozenset({version})
    older = [one for one in seen if one < version]
    newer = [one for one in seen if one > version]
    return frozenset([max(older)] if older else []) | frozenset([min(newer)] if newer else [])
