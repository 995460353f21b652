"""The names, places, values and references of a configuration, held against the tables of nginx.

The tables are silent about a fork, whose directives may differ, and where a module is loaded that
nobody here knows: it may bring directives of any name, and make variables by code. A configuration
of thousands of servers has a few hundred kinds of directives (by name, context and number of
arguments), each of which is judged once.

A value is a fault only if no version that may be meant takes it: between two versions that the
tables were read from, what either takes is taken; past the newest one, words may have been added.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from nginx_tune.audit.context import Context, DirectiveKind
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.known_directives import (
    DirectiveRow,
    Version,
    is_known,
    is_listed,
    is_outside_history,
    known_modules,
    lacks_a_version,
    nearest,
    rows_of,
    slip_of,
)
from nginx_tune.conf.known_variables import (
    COMPILED,
    EVALUATED,
    has_stray_dollar,
    is_known_variable,
    is_listed_variable,
    made_variables,
    used_variables,
)
from nginx_tune.conf.own_values import own_fault_of
from nginx_tune.conf.values import Grammar, grammars_of, is_open, parameter, versions_read


def known_here(
    context: Context,
) -> Iterator[tuple[DirectiveKind, tuple[DirectiveRow, ...], list[Directive]]]:
    """Directives whose name is known, with the rows that this nginx may have."""
    for kind, directives in _judged(context).items():
        rows = rows_of(kind.name)
        if context.version is not None:
            rows = tuple(
                row.as_in(context.version)
                for row in rows
                if not row.is_surely_absent(context.version)
            )
        if rows:
            yield kind, rows, directives


def not_in_version(context: Context) -> Iterator[tuple[tuple[DirectiveRow, ...], list[Directive]]]:
    """Directives that this version surely lacks, or might lack while it is not known."""
    version = context.version
    for kind, directives in _judged(context).items():
        rows = rows_of(kind.name)
        if (not rows and version is not None and is_outside_history(kind.name, version)) or (
            lacks_a_version(kind.name)
            if version is None
            else rows and all(row.is_surely_absent(version) for row in rows)
        ):
            yield rows, directives


class UnknownNames(NamedTuple):
    """Directives whose name nobody knows."""

    directives: list[Directive]
    meant: str | None
    """The known name that it is probably a slip of."""
    doubt: str
    """A reason why some nginx may know it all the same; empty where it is surely refused."""


def unknown(context: Context) -> Iterator[UnknownNames]:
    """Directives whose name nobody knows, and how sure it is that nginx refuses them.

    Only what looks misspelt of a part of a configuration, which does not say which modules are
    loaded, and beside a module that is not known here.
    """
    foreign = _foreign_module(context) or _module_built(context)
    if _is_fork(context):
        return
    for kind, directives in context.kinds.items():
        if is_known(kind.name):
            continue
        slip = slip_of(kind.name)
        meant = slip or nearest(kind.name)
        if foreign is not None:
            if slip is not None:
                yield UnknownNames(directives, meant, f"{foreign}, which is not known here, has it")
        elif slip is not None:
            yield UnknownNames(directives, meant, "")
        elif meant is not None or not context.tree.is_part:
            is_listed = bool(context.flags) and context.tree.is_whole
            doubt = "" if is_listed else "a module that nginx is built with or loads has it"
            yield UnknownNames(directives, meant, doubt)


def judges_names(context: Context) -> bool:
    """True where all names of this nginx are known: it is no fork and loads no foreign module."""
    return not _is_fork(context) and _foreign_module(context) is None


def _is_fork(context: Context) -> bool:
    return context.facts.nginx.product not in {None, "nginx"}


def _foreign_module(context: Context) -> str | None:
    """A module that this nginx has and whose directives are not known here, in words."""
    if context.flags is not None and "--add-module" in context.flags:
        return "a module built into it"
    known = known_modules()
    for line in context.tree.main.all("load_module"):
        name = posixpath.basename(line.value)
        if name.removesuffix(".so") not in known:
            return name
    return None


def _module_built(context: Context) -> str | None:
    """The module of a name that only the list of names has, in words: others may be built too."""
    names = (kind.name for kind in context.kinds)
    name = next((one for one in names if not rows_of(one) and is_listed(one)), None)
    return None if name is None else f'a module beside that of "{name}"'


def _judged(context: Context) -> dict[DirectiveKind, list[Directive]]:
    return context.kinds if judges_names(context) else {}


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


class DirectiveFault(NamedTuple):
    """A directive whose value nginx refuses, and what it takes."""

    place: Directive
    said: str


def value_faults(context: Context) -> Iterator[DirectiveFault]:
    """Directives with a value that no version that may be meant takes."""
    for kind, rows, directives in known_here(context):
        here = [row for row in rows if row.may_stand(kind.context) and row.takes(kind.arguments)]
        judge = own_fault_of(kind.name, kind.context) if here else None
        if judge is None:
            grammars = _grammars(kind.name, here, context.version)
            judge = partial(_fault_of, grammars) if grammars else None
        if judge is not None:
            faults = {args: judge(args) for args in {one.args for one in directives}}
            yield from (
                DirectiveFault(one, faults[one.args]) for one in directives if faults[one.args]
            )


def _fault_of(grammars: Sequence[Grammar], args: Sequence[str]) -> str:
    """The newest grammar in words; empty if any of them takes the arguments."""
    return "" if any(grammar.takes(args) for grammar in grammars) else grammars[-1].said


def repeated(context: Context) -> Iterator[tuple[Directive, Directive]]:
    """Directives that stand twice at a level where one is allowed: (the second, the first)."""
    several = list(_several(context.tree.main))
    names = {lines[0].name for lines in several}
    once: set[Directive] = set()
    for kind, rows, directives in known_here(context):
        if kind.name not in names:
            continue
        here = [row for row in rows if row.may_stand(kind.context)]
        grammars = _grammars(kind.name, here, context.version)
        is_once = kind.name in _OWN_ONCE and bool(here)
        if is_once or (grammars and all(grammar.once for grammar in grammars)):
            once.update(directives)
    wanted = {line.name for line in once}
    for lines in several:
        if lines[0].name not in wanted:
            continue
        same = [line for line in lines if line in once]
        yield from ((line, same[0]) for line in same[1:] if line is not same[0])


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


def _several(block: Block) -> Iterator[list[Directive]]:
    """The lines of each level that have one name, where there are several."""
    blocks = [block]
    for one in blocks:
        for lines in one.lines.values():
            if len(lines) > 1:
                yield lines
            blocks += [line.block for line in lines if line.block is not None]


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
    if version is not None and version > max(versions_read()):
        held = [grammar for grammar in held if not grammar.words] if held else []
    return held


def _meant(version: Version | None) -> frozenset[Version]:
    """The versions of the tables that a version is like: itself, or those on both sides of it."""
    seen = versions_read()
    if version is None:
        return seen
    if version in seen:
        return frozenset({version})
    older = [one for one in seen if one < version]
    newer = [one for one in seen if one > version]
    return frozenset([max(older)] if older else []) | frozenset([min(newer)] if newer else [])


HTTP_CONTEXTS = frozenset(
    {"http", "server", "location", "server-if", "location-if", "limit_except", "upstream"}
)
_CACHE_MODULES = ("proxy", "fastcgi", "uwsgi", "scgi")


class Unmade(NamedTuple):
    """A name that is used and not made."""

    place: Directive
    kind: str
    name: str


def unknown_zones(context: Context) -> Iterator[Unmade]:
    """Zones and log formats of http that no line declares."""
    made = {
        "limit_req_zone": _zones(context, "limit_req_zone", "zone"),
        "limit_conn_zone": _zones(context, "limit_conn_zone", "zone"),
        **{
            f"{one}_cache_path": _zones(context, f"{one}_cache_path", "keys_zone")
            for one in _CACHE_MODULES
        },
        "log_format": {"combined", *(line.value for line in http_lines(context, "log_format"))},
    }
    for maker, kind, place, name in _uses(context):
        if name and name not in made[maker] and not is_open(name):
            yield Unmade(place, kind, name)


def unknown_variables(context: Context) -> Iterator[Unmade]:
    """Variables of http that neither nginx nor the configuration makes."""
    if any(not any(row.is_own for row in rows_of(kind.name)) for kind in context.kinds):
        return  # a module that is not nginx's own
    if has_doubled_dollars(context):
        return
    made: set[str] | None = None
    for kind, directives in context.kinds.items():
        if kind.name not in EVALUATED or kind.context not in HTTP_CONTEXTS:
            continue
        for directive in directives:
            for name in used_variables(directive):
                if is_known_variable(name):
                    continue
                if made is None:
                    lines = context.tree.main.walk()
                    made = {name for line in lines for name in made_variables(line)}
                if name not in made:
                    yield Unmade(directive, "variable", name)


def stray_dollars(context: Context) -> Iterator[Directive]:
    """Lines of http with a dollar sign that begins no variable's name."""
    if has_doubled_dollars(context):
        return
    for kind, directives in context.kinds.items():
        if kind.name in COMPILED and kind.context in HTTP_CONTEXTS and rows_of(kind.name):
            yield from filter(has_stray_dollar, directives)


def has_doubled_dollars(context: Context) -> bool:
    """True where every variable of nginx stands as ``$$name``.

    So a program writes it that fills ``$name`` in itself and leaves one dollar of two: Python's
    string.Template, Compose, make. One variable with a single dollar shows that it is no template.
    """
    texts = [context.tree.given, *(file.source.text for file in context.tree.parsed)]
    if not any("$$" in text for text in texts):
        return False
    doubled = 0
    for line in context.tree.main.walk():
        if line.block is not None and not line.args:
            continue
        text = " ".join(line.args)
        if any(is_listed_variable(name) for name in _SINGLE.findall(text)):
            return False
        doubled += any(is_known_variable(name) for name in _DOUBLED.findall(text))
    return doubled >= _NO_SLIP


_NO_SLIP = 3
"""Lines that show a habit."""
_SINGLE = re.compile(r"(?<!\$)\$\{?([a-z]\w*)", re.ASCII)
_DOUBLED = re.compile(r"(?<!\$)\$\$\{?([a-z]\w*)", re.ASCII)


def http_lines(context: Context, name: str) -> list[Directive]:
    """The directives of that name inside http, each once."""
    return [
        directive
        for kind, directives in context.kinds.items()
        if kind.name == name and kind.context in HTTP_CONTEXTS
        for directive in directives
    ]


def _uses(context: Context) -> Iterator[tuple[str, str, Directive, str]]:
    for line in http_lines(context, "limit_req"):
        yield "limit_req_zone", "zone of limit_req_zone", line, parameter(line.args, "zone") or ""
    for line in http_lines(context, "limit_conn"):
        yield "limit_conn_zone", "zone of limit_conn_zone", line, line.value
    for module in _CACHE_MODULES:
        for line in http_lines(context, f"{module}_cache"):
            if line.value != "off":
                path = f"{module}_cache_path"
                yield path, f"keys_zone of {path}", line, line.value
    for line in http_lines(context, "access_log"):
        if line.value != "off" and len(line.args) > 1:
            yield "log_format", "log_format", line, line.args[1]


def _zones(context: Context, directive: str, name: str) -> set[str]:
    return {
        (parameter(line.args, name) or "").partition(":")[0]
        for line in http_lines(context, directive)
    }
