"""Where nginx puts what does not fit in memory."""

from __future__ import annotations

import posixpath

from nginx_tune.audit.context import Context
from nginx_tune.conf.scopes import Scope

CLIENT_BODY = "client_body"
"""Bodies of requests; the others are named like the module that passes requests on."""


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
