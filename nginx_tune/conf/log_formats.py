"""The log formats of a configuration, and which of them a log is written in.

Source: ngx_http_log_set_format and ngx_http_log_set_log in ngx_http_log_module.c.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.quantities import parse_bytes
from nginx_tune.conf.scopes import http_directives
from nginx_tune.conf.tree import ConfTree

_ESCAPE = "escape="
_GZIP_BYTES = 64 << 10
"""What ``gzip`` buffers where no size is given."""


class LogFormat(NamedTuple):
    """One ``log_format``."""

    name: str
    escape: str
    """``default``, ``json`` or ``none``."""
    text: str


def log_formats(tree: ConfTree) -> dict[str, LogFormat]:
    """The formats that a configuration defines, by name; ``combined`` is nginx's own."""
    found = {}
    for directive in http_directives(tree):
        if directive.name != "log_format" or not directive.args:
            continue
        name, *texts = directive.args
        escape = "default"
        if texts and texts[0].startswith(_ESCAPE):
            escape = texts.pop(0)[len(_ESCAPE) :]
        found[name] = LogFormat(name, escape, "".join(texts))
    return found


def format_of_log(tree: ConfTree, log: str) -> str | None:
    """The name of the format that a log file is written in; null when no line names the file.

    A rotated log is told by its name: ``access.log.1``, ``access.log-20261120.gz``.
    """
    written: dict[str, str] = {}
    for directive in http_directives(tree):
        if directive.name == "access_log" and directive.value not in {"", "off"}:
            options = [arg for arg in directive.args[1:] if "=" not in arg and arg != "gzip"]
            written[directive.value] = options[0] if options else "combined"
    name = posixpath.basename(log)
    for path, form in written.items():
        if path == log or tree.full_path(path) == log:
            return form
    alike = [form for path, form in written.items() if name.startswith(posixpath.basename(path))]
    return alike[0] if len(set(alike)) == 1 else None


def buffer_bytes(line: Directive) -> int | None:
    """The buffer of an ``access_log``; null for none, or one of no size."""
    words = dict(arg.partition("=")[::2] for arg in line.args[1:])
    if "buffer" in words:
        return parse_bytes(words["buffer"])
    return _GZIP_BYTES if "gzip" in words else None


def only_format(tree: ConfTree) -> str | None:
    """The format of every ``access_log``, where they agree."""
    used = {
        next((arg for arg in directive.args[1:] if "=" not in arg), "combined")
        for directive in http_directives(tree)
        if directive.name == "access_log" and directive.value not in {"", "off"}
    }
    return used.pop() if len(used) == 1 else None
