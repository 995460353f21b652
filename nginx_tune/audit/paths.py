"""Directories that a configuration reads and writes: by pool, by split_clients table, by module.

Source of the tables: ngx_http_split_clients_module.c; parts are percentages with two decimals.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope, http_directives
from nginx_tune.conf.served import MODULES, Served
from nginx_tune.conf.variables import variables_of
from nginx_tune.conf.workers import asked_pool


def paths_by_pool(context: Context) -> dict[str, tuple[Directive, set[str]]]:
    """Directories by the thread pool that reads them, if the pool has only one possible name."""
    found: dict[str, tuple[Directive, set[str]]] = {}
    for served in context.served:
        aio = served.scope.effective("aio")
        name = asked_pool(aio)
        if aio is None or name is None:
            continue
        values = context.variables.possible(name, served.scope)
        if values.complete and len(values.known) == 1:
            for value in values.known:
                found.setdefault(value, (aio, set()))[1].add(served.path)
    return found


_PART = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?%")
_ALL = 10_000

CACHE_DIRECTIVES = ("proxy_cache", "fastcgi_cache", "uwsgi_cache", "scgi_cache")


class Split(NamedTuple):
    """A ``split_clients`` table."""

    place: Directive
    key: str
    variable: str


class SplitTarget(NamedTuple):
    """A directory that a part of a table selects."""

    split: Split
    entry: Directive
    served: Served


def splits(context: Context) -> list[Split]:
    """Every ``split_clients`` table of http."""
    if "split_clients" not in context.names:
        return []
    return [
        Split(directive, directive.args[0], directive.args[1].lstrip("$").lower())
        for directive in http_directives(context.tree)
        if directive.name == "split_clients"
        and len(directive.args) > 1
        and directive.block is not None
    ]


def uncovered_percent(split: Split) -> float:
    """The percentage of keys that no part covers; the variable is empty for them."""
    covered = 0
    for part in split.place.block or ():
        if part.name == "*":
            return 0.0
        match = _PART.fullmatch(part.name)
        if match is None:
            return 0.0  # nginx rejects it
        covered += int(match[1]) * 100 + int((match[2] or "0").ljust(2, "0"))
    return max(0, _ALL - covered) / 100


def chosen_by(served: Served) -> Directive:
    """The line that selects the directory of a scope: a root, an alias or a cache."""
    if served.via == "cache":
        return cache_line(served.scope) or served.place
    return served.place


def cache_line(scope: Scope) -> Directive | None:
    """The line that names the cache of a scope."""
    lines = (scope.effective(name) for name in CACHE_DIRECTIVES)
    return next((line for line in lines if line is not None), None)


def targets(context: Context, split: Split) -> Iterator[SplitTarget]:
    """The known directories that a table selects from, each with its part of the table."""
    entries = set(split.place.block or ())
    for served in context.served:
        line = chosen_by(served)
        if split.variable not in variables_of(line.value):
            continue
        for value, entry in context.variables.possible(line.value, served.scope).known.items():
            if entry in entries and _leads_to(served, value):
                yield SplitTarget(split, entry, served)


def _leads_to(served: Served, value: str) -> bool:
    if served.via != "cache":
        return served.scope.tree.full_path(value) == served.root
    zones = (arg[10:].partition(":")[0] for arg in served.place.args if arg.startswith("keys_zone"))
    return value in zones


CLIENT_BODY = "client_body"
"""The prefix of ``client_body_temp_path``; other prefixes are names of proxy modules."""


def written_paths(context: Context) -> list[str]:
    """Every directory that logs, caches or temporary files are written to, in order."""
    paths = [log_directory(context, line) for line in context.client_lines("access_log")]
    paths += [context.tree.full_path(cache.directory) for cache in context.caches]
    for passed in context.passes:
        if passed.module in MODULES:
            paths.append(temp_path(context, passed.scope, passed.module))
        paths.append(temp_path(context, passed.scope, CLIENT_BODY))
    return [path for path in dict.fromkeys(paths) if path is not None]


def log_directory(context: Context, line: Directive) -> str | None:
    """The directory of an access log with a constant name; None for any other target."""
    if line.value == "off" or "$" in line.value or line.value.startswith("syslog:"):
        return None
    path = context.tree.full_path(line.value)
    return None if path is None else posixpath.dirname(path)


def temp_path(context: Context, scope: Scope, name: str) -> str | None:
    """The directory that ``NAME_temp_path`` sets or defaults to; None if the build is not known.

    Source: ngx_conf_merge_path_value; auto/options, ``--http-NAME-temp-path``.
    """
    line = scope.effective(f"{name}_temp_path")
    if line is not None and line.args:
        return scope.tree.full_path(line.value)
    nginx = context.facts.nginx
    option = f"--http-{name.replace('_', '-')}-temp-path="
    for flag in nginx.flags:
        if flag.startswith(option):
            return posixpath.join(nginx.prefix or "/", flag.removeprefix(option))
    if context.flags is None or nginx.prefix is None:
        return None
    return posixpath.join(nginx.prefix, f"{name}_temp")
