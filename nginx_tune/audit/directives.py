"""Names, contexts, values and references of a configuration, checked against nginx's tables.

The tables say nothing about a fork, whose directives may differ, or about an unknown module, which
may define any directives and variables. Each kind of directive (name, context and number of
arguments) is judged once: thousands of servers have only a few hundred kinds.

A value is a fault only if every possible version rejects it. For a version between two that the
tables were read from, a value that either accepts is accepted. A version after the newest one may
accept further words.
"""

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
from nginx_tune.conf.values import Grammar, grammars_of, is_cut, is_open, parameter, versions_read


def known_here(
    context: Context,
) -> Iterator[tuple[DirectiveKind, tuple[DirectiveRow, ...], list[Directive]]]:
    """Directives with a known name, each with the table rows that may apply to this nginx."""
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
    """Directives that this version does not have, or may not have if the version is unknown."""
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
    """Directives with an unknown name."""

    directives: list[Directive]
    meant: str | None
    """The known name that is probably meant."""
    doubt: str
    """A condition under which nginx accepts the name; empty if nginx never accepts the name."""


def unknown(context: Context) -> Iterator[UnknownNames]:
    """Directives with an unknown name, and how certain it is that nginx rejects them.

    If the loaded modules are not all known, as in a part of a configuration, only likely
    misspellings are reported. In a file without any known name, the first line is reported.
    """
    foreign = _foreign_module(context) or _module_built(context)
    if _is_fork(context):
        return
    yield from _outside_parts(context)
    for kind, directives in context.kinds.items():
        if is_known(kind.name):
            continue
        if not kind.name.isascii():  # no module has such a name
            yield UnknownNames(directives, None, "")
            continue
        slip = slip_of(kind.name)
        meant = slip or nearest(kind.name)
        if foreign is not None:
            if slip is not None:
                yield UnknownNames(directives, meant, f"{foreign}, an unknown module, defines it")
        elif slip is not None:
            yield UnknownNames(directives, meant, "")
        elif context.tree.is_part:
            if meant is not None:
                yield UnknownNames(
                    directives, meant, "a module that the main file loads defines it"
                )
        else:
            doubt = "" if context.tree.is_whole else "a file that was not read loads its module"
            yield UnknownNames(directives, meant, doubt)


def _outside_parts(context: Context) -> Iterator[UnknownNames]:
    """The first top-level line that shows that a file is not part of a configuration.

    Such lines are in no known context, so ``context.kinds`` does not have them.
    """
    tree = context.tree
    if not tree.is_part or context.kinds or tree.is_template:
        return
    lines = [line for line in tree.main.directives if not is_cut((line.name, *line.args))]
    if any(is_known(line.name) for line in lines):
        lines = [line for line in lines if not line.name.isascii()]
    if lines:
        yield UnknownNames(lines[:1], slip_of(lines[0].name), "")


def judges_names(context: Context) -> bool:
    """True if all names of this nginx are known, without a fork or an unknown module."""
    return not _is_fork(context) and _foreign_module(context) is None


def _is_fork(context: Context) -> bool:
    return context.facts.nginx.product not in {None, "nginx"}


def _foreign_module(context: Context) -> str | None:
    """An unknown module of this nginx, in words; None if there is none."""
    if context.flags is not None and "--add-module" in context.flags:
        return "a third-party module built into it"
    known = known_modules()
    for line in context.tree.main.all("load_module"):
        name = posixpath.basename(line.value)
        if name.removesuffix(".so") not in known:
            return name
    return None


def _module_built(context: Context) -> str | None:
    """The module, in words, of a directive that only the hand-kept list has; otherwise None."""
    names = (kind.name for kind in context.kinds)
    name = next((name for name in names if not rows_of(name) and is_listed(name)), None)
    return None if name is None else f'another module next to that of "{name}"'


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
"""Directives whose own parser rejects a second line with "is duplicate", tried on four versions.
``user`` is not among them, since nginx ignores it when an ordinary user starts nginx."""

_NAMING = frozenset({"thread_pool", "log_format"})
"""Directives whose first argument must be unique. Source: ngx_thread_pool_add,
ngx_http_log_set_format."""


class DirectiveFault(NamedTuple):
    """A directive with a value that nginx rejects."""

    place: Directive
    accepted: str
    """The values that the directive accepts, in words."""


def value_faults(context: Context) -> Iterator[DirectiveFault]:
    """Directives with a value that no possible version accepts."""
    for kind, rows, directives in known_here(context):
        here = [row for row in rows if row.may_stand(kind.context) and row.takes(kind.arguments)]
        is_own = bool(here) and all(row.is_own for row in here)
        judge = own_fault_of(kind.name, kind.context) if is_own else None
        if judge is None:
            grammars = _grammars(kind.name, here, context.version)
            judge = partial(_fault_of, grammars) if grammars else None
        if judge is not None:
            faults = {args: judge(args) for args in {directive.args for directive in directives}}
            yield from (
                DirectiveFault(directive, faults[directive.args])
                for directive in directives
                if faults[directive.args]
            )


def _fault_of(grammars: Sequence[Grammar], args: Sequence[str]) -> str:
    """The newest grammar in words; empty if any grammar accepts the arguments."""
    if any(grammar.takes(args) for grammar in grammars):
        return ""
    newest = grammars[-1]
    wrong = [f'"{arg}"' for arg in args if not newest.takes([arg])]
    is_list = newest.kind == "bits" and len(args) > 1
    return newest.accepted + (f"; not {', '.join(wrong)}" if is_list and wrong else "")


def repeated(context: Context) -> Iterator[tuple[Directive, Directive]]:
    """Directives that appear twice in a block where one is allowed: (the second, the first)."""
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


def named_twice(context: Context) -> Iterator[tuple[Directive, str, Directive]]:
    """Lines that define one name twice: (the second, what it defines, the first)."""
    first_lines: dict[tuple[str, str, str], Directive] = {}
    for kind, _, directives in known_here(context):
        if kind.name not in _NAMING or kind.context not in {"main", "http", "stream"}:
            continue
        for directive in directives:
            if not is_open(directive.value):
                earlier = first_lines.setdefault(
                    (kind.context, kind.name, directive.value), directive
                )
                if earlier is not directive:
                    yield directive, f'{directive.name} "{directive.value}"', earlier


def _several(block: Block) -> Iterator[list[Directive]]:
    """Groups of two or more lines with the same name in the same block."""
    blocks = [block]
    for one in blocks:
        for lines in one.lines.values():
            if len(lines) > 1:
                yield lines
            blocks += [line.block for line in lines if line.block is not None]


def _grammars(name: str, rows: list[DirectiveRow], version: Version | None) -> list[Grammar]:
    """The grammars that may apply; empty if the tables have none for some possible version."""
    grammars = [
        grammar
        for grammar in grammars_of(name)
        if any(row.module == grammar.module for row in rows)
    ]
    if not grammars or {row.module for row in rows} != {grammar.module for grammar in grammars}:
        return []
    versions = _table_versions(version)
    possible = [grammar for grammar in grammars if grammar.versions & versions]
    for candidate in versions:
        rows_then = [row for row in rows if row.first <= candidate <= row.last]
        if rows_then and not any(candidate in grammar.versions for grammar in possible):
            return []
    if version is not None and version > max(versions_read()):
        possible = [grammar for grammar in possible if not grammar.words] if possible else []
    return possible


def _table_versions(version: Version | None) -> frozenset[Version]:
    """The table versions to judge by: the version itself, or its neighbours; all if unknown."""
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


class Undefined(NamedTuple):
    """A name that is used and not defined."""

    place: Directive
    name: str
    definer: str
    """The directive that would define the name."""


def unknown_zones(context: Context) -> Iterator[Undefined]:
    """Zones and log formats of http that no line defines."""
    defined = {
        "limit_req_zone": _zones(context, "limit_req_zone", "zone"),
        "limit_conn_zone": _zones(context, "limit_conn_zone", "zone"),
        **{
            f"{one}_cache_path": _zones(context, f"{one}_cache_path", "keys_zone")
            for one in _CACHE_MODULES
        },
        "log_format": {"combined", *(line.value for line in http_lines(context, "log_format"))},
    }
    for use in _uses(context):
        if use.name and use.name not in defined[use.definer] and not is_open(use.name):
            yield use


def unknown_variables(context: Context) -> Iterator[Undefined]:
    """Variables of http that neither nginx nor the configuration defines."""
    if any(not any(row.is_own for row in rows_of(kind.name)) for kind in context.kinds):
        return  # a third-party module may define it
    if has_doubled_dollars(context):
        return
    defined: set[str] | None = None
    for kind, directives in context.kinds.items():
        if kind.name not in EVALUATED or kind.context not in HTTP_CONTEXTS:
            continue
        for directive in directives:
            for name in used_variables(directive):
                if is_known_variable(name):
                    continue
                if defined is None:
                    lines = context.tree.main.walk()
                    defined = {name for line in lines for name in made_variables(line)}
                if name not in defined:
                    yield Undefined(directive, name, "set")


def stray_dollars(context: Context) -> Iterator[Directive]:
    """Lines of http with a dollar sign that begins no variable name."""
    if has_doubled_dollars(context):
        return
    for kind, directives in context.kinds.items():
        if kind.name in COMPILED and kind.context in HTTP_CONTEXTS and rows_of(kind.name):
            yield from filter(has_stray_dollar, directives)


def has_doubled_dollars(context: Context) -> bool:
    """True if every variable of nginx is written as ``$$name``.

    Such a file is a template for a program that replaces ``$name`` and turns ``$$`` into ``$``:
    Python's string.Template, Compose, make. If any nginx variable has a single dollar, the file is
    not such a template.
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
    return doubled >= _HABIT_LINES


_HABIT_LINES = 3
"""Number of lines from which doubled dollars are not a typing mistake."""
_SINGLE = re.compile(r"(?<!\$)\$\{?([a-z]\w*)", re.ASCII)
_DOUBLED = re.compile(r"(?<!\$)\$\$\{?([a-z]\w*)", re.ASCII)


def http_lines(context: Context, name: str) -> list[Directive]:
    """The directives of a name inside http, each once."""
    return [
        directive
        for kind, directives in context.kinds.items()
        if kind.name == name and kind.context in HTTP_CONTEXTS
        for directive in directives
    ]


def _uses(context: Context) -> Iterator[Undefined]:
    """Every use of a zone or log format, defined or not."""
    for line in http_lines(context, "limit_req"):
        yield Undefined(line, parameter(line.args, "zone") or "", "limit_req_zone")
    for line in http_lines(context, "limit_conn"):
        yield Undefined(line, line.value, "limit_conn_zone")
    for module in _CACHE_MODULES:
        for line in http_lines(context, f"{module}_cache"):
            if line.value != "off":
                yield Undefined(line, line.value, f"{module}_cache_path")
    for line in http_lines(context, "access_log"):
        if line.value != "off" and len(line.args) > 1:
            yield Undefined(line, line.args[1], "log_format")


def _zones(context: Context, directive: str, name: str) -> set[str]:
    return {
        (parameter(line.args, name) or "").partition(":")[0]
        for line in http_lines(context, directive)
    }
