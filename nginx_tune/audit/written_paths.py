"""The directories that nginx writes to while it answers: logs, caches and temporary files."""

from __future__ import annotations

import posixpath

from nginx_tune.audit.context import Context
from nginx_tune.conf.caches import MODULES
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

CLIENT_BODY = "client_body"
"""Bodies of requests; the others are named like the module that passes requests on."""


def written_paths(context: Context) -> list[str]:
    """Every directory whose storage some rule asks for, in order."""
    paths = [log_directory(context, line) for line in context.client_lines("access_log")]
    paths += [context.tree.full_path(cache.directory) for cache in context.caches]
    for one in context.passes:
        if one.module in MODULES:
            paths.append(temp_path(context, one.scope, one.module))
        paths.append(temp_path(context, one.scope, CLIENT_BODY))
    return [path for path in dict.fromkeys(paths) if path is not None]


def log_directory(context: Context, line: Directive) -> str | None:
    """Where an access log of a constant name lies; null for what is no such file."""
    if line.value == "off" or "$" in line.value or line.value.startswith("syslog:"):
        return None
    path = context.tree.full_path(line.value)
    return None if path is None else posixpath.dirname(path)


def temp_path(context: Context, scope: Scope, name: str) -> str | None:
    """The directory of ``NAME_temp_path`` that holds here; null when the build is not known.

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
