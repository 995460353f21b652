"""Logs of a configuration: access log formats, error log files, and lines that levels hide.

The default level of an error log is ``error``. Without any line, nginx uses the compiled-in path. A
context without its own log inherits the outer one. ``documents/log_messages.py`` has the level of
each message, except messages about limits, whose levels are settings (limit_req_log_level,
limit_conn_log_level).

Source: ngx_http_log_set_format and ngx_http_log_set_log in ngx_http_log_module.c; ngx_error_log
and ngx_log_set_log in ngx_log.c; ngx_http_core_merge_loc_conf.
"""

import posixpath
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import http_lines
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.values import parse_bytes
from nginx_tune.documents.log_messages import LOG_MESSAGES, Where

_ESCAPE = "escape="
PIPE_BUFFER_BYTES = 4096
"""Bytes that write(2) writes to a pipe atomically (pipe(7), PIPE_BUF; <linux/limits.h>)."""
_GZIP_BYTES = 64 << 10
"""Default buffer of an ``access_log`` with ``gzip``."""


class LogFormat(NamedTuple):
    """One ``log_format``."""

    name: str
    escape: str
    """``default``, ``json`` or ``none``."""
    text: str


def log_formats(tree: ConfTree) -> dict[str, LogFormat]:
    """The formats that a configuration defines, by name; without the predefined ``combined``."""
    found = {}
    for directive in http_lines(tree, "log_format"):
        if not directive.args:
            continue
        name, *texts = directive.args
        escape = "default"
        if texts and texts[0].startswith(_ESCAPE):
            escape = texts.pop(0)[len(_ESCAPE) :]
        found[name] = LogFormat(name, escape, "".join(texts))
    return found


def format_of_log(tree: ConfTree, log: str) -> str | None:
    """The name of a log file's format; None if no line names the file.

    Rotated logs are recognised by name: ``access.log.1``, ``access.log-20261120.gz``.
    """
    written: dict[str, str] = {}
    for directive in http_lines(tree, "access_log"):
        if directive.value not in {"", "off"}:
            options = [arg for arg in directive.args[1:] if "=" not in arg and arg != "gzip"]
            written[directive.value] = options[0] if options else "combined"
    name = posixpath.basename(log)
    for path, form in written.items():
        if path == log or tree.full_path(path) == log:
            return form
    alike = [form for path, form in written.items() if name.startswith(posixpath.basename(path))]
    return alike[0] if len(set(alike)) == 1 else None


def buffer_bytes(line: Directive) -> int | None:
    """The buffer of an ``access_log`` in bytes; None if it has none."""
    words = dict(arg.partition("=")[::2] for arg in line.args[1:])
    if "buffer" in words:
        return parse_bytes(words["buffer"])
    return _GZIP_BYTES if "gzip" in words else None


def is_a_device(path: str) -> bool:
    """True if a log goes to a device, such as a pipe behind ``/dev/stdout``."""
    return path.startswith(("/dev/", "/proc/"))


def only_format(tree: ConfTree) -> str | None:
    """The name of the format that every ``access_log`` uses; None if there are several or none."""
    used = {
        next((arg for arg in directive.args[1:] if "=" not in arg), "combined")
        for directive in http_lines(tree, "access_log")
        if directive.value not in {"", "off"}
    }
    return used.pop() if len(used) == 1 else None


_NO_FILE = ("syslog:", "memory:")
_NO_PATHS = ("stderr", *_NO_FILE)


def main_error_logs(tree: ConfTree, compiled_in: str | None) -> list[str]:
    """The files for messages outside of any request."""
    names = [line.value for line in tree.main.all("error_log")] or [compiled_in or "stderr"]
    paths = [tree.full_path(name) for name in names if not name.startswith(_NO_PATHS)]
    return [path for path in paths if path is not None]


def error_logs(tree: ConfTree, compiled_in: str | None) -> list[str]:
    """Every error log file: of the main context, servers and locations.

    Pool overflows are logged only in the main context, slow operations in the request's. ``stderr``
    is ``/dev/stderr``: a file if nginx's standard error goes to one.
    """
    own = [] if tree.main.all("error_log") else [compiled_in or "stderr"]
    lines = (line for line in tree.main.within("error_log") if line.args)
    names = ["/dev/stderr" if name == "stderr" else name
             for name in (*own, *(line.value for line in lines))]  # fmt: skip
    paths = [tree.full_path(name) for name in names if not name.startswith(_NO_PATHS)]
    return list(dict.fromkeys(path for path in paths if path is not None))


_LEVELS = ("emerg", "alert", "crit", "error", "warn", "notice", "info", "debug")
_DEFAULT = "error"
_WHERE = frozenset({"http", "stream", "mail", "server", "location", "if", "limit_except"})
_POOLS = frozenset({"aio", "thread_pool"})
_ZONES = frozenset(
    {"proxy_cache_path", "fastcgi_cache_path", "uwsgi_cache_path", "scgi_cache_path",
     "limit_req_zone", "limit_conn_zone", "ssl_session_cache", "ssl_ocsp_cache", "zone"}
)  # fmt: skip
_PASSES = frozenset(
    {"proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"}
)
_LIMITS = ("limit_req", "limit_conn")

Chain = tuple[Block, ...]


def hidden_counts(tree: ConfTree) -> dict[str, str]:
    """Counters of log lines that the level of an error log hides, each with the reason.

    Lines that cannot occur are left out: without a proxying directive there are no upstream errors,
    without a limit no rejections. Shape: {field of ``ServerMeasurement``: reason}.
    """
    found: dict[str, str] = {}
    chains = list(_chains((tree.main,)))
    answering = [chain for chain in chains if _is_answering(chain)]
    passing = [chain for chain in chains if any(chain[-1].all(name) for name in _PASSES)]
    places: dict[Where, list[Chain]] = {
        "main": [(tree.main,)],
        "pools": [(tree.main,)] if tree.names & _POOLS else [],
        "zones": [(tree.main,)] if tree.names & _ZONES else [],
        "requests": answering,
        "upstreams": passing,
    }
    for (where, name), level in _levels().items():
        _look(found, name, level, places[where])
    for limit in _LIMITS:
        for chain in answering:
            if _nearest(chain, limit):
                lines = _nearest(chain, f"{limit}_log_level")
                _look(found, "refused_by_limit", lines[-1].value if lines else _DEFAULT, [chain])
    return found


def _levels() -> dict[tuple[Where, str], str]:
    """The least severe level of the counted lines, by context and counter.

    Warnings are left out if the counter has other lines: no default log shows warnings.
    """
    levels: dict[tuple[Where, str], str] = {}
    for row in LOG_MESSAGES:
        for name in row.counts if row.where != "limits" else ():
            known = levels.get((row.where, name), row.level)
            both = sorted((known, row.level), key=_LEVELS.index)
            levels[row.where, name] = both[0] if both[1] == "warn" else both[1]
    return levels


def _look(found: dict[str, str], name: str, level: str, places: Sequence[Chain]) -> None:
    for chain in places:
        logs = _nearest(chain, "error_log")
        shown = max((_shown(log) for log in logs), default=_LEVELS.index(_DEFAULT))
        if level in _LEVELS and _LEVELS.index(level) > shown and name not in found:
            found[name] = _reason(logs, level)


def _reason(logs: Sequence[Directive], level: str) -> str:
    log = max(logs, key=_shown, default=None)
    if log is None:
        return (
            f"without error_log the level is {_DEFAULT}, which hides lines of level {level}: set "
            f"error_log to level {level} to count them"
        )
    if _shown(log) < 0:
        return f"error_log at {log.file}:{log.line} goes to no file, so its lines cannot be counted"
    shown = _LEVELS[_shown(log)]
    return (
        f"error_log at {log.file}:{log.line} has level {shown}, which hides lines of level "
        f"{level}: "
        f"set level {level} there to count them"
    )


def _shown(log: Directive) -> int:
    """The index of the least severe level that is logged; -1 if the log goes to no file."""
    if log.value.startswith(_NO_FILE):
        return -1
    level = log.args[1] if len(log.args) > 1 else _DEFAULT
    # debug_http and the like include all levels more severe.
    return _LEVELS.index(level) if level in _LEVELS else len(_LEVELS) - 1


def _nearest(chain: Chain, name: str) -> list[Directive]:
    """The lines of a name in the innermost block that has any."""
    return next((lines for block in reversed(chain) if (lines := block.all(name))), [])


def _chains(around: Chain) -> Iterator[Chain]:
    """Every block where requests or sessions are handled, with its enclosing blocks."""
    for line in around[-1]:
        if line.block is not None and line.name in _WHERE:
            chain = (*around, line.block)
            yield chain
            yield from _chains(chain)


def _is_answering(chain: Chain) -> bool:
    """True if the block contains no servers, so it handles requests itself."""
    return not chain[-1].all("server")
