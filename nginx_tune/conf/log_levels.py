"""What error logs can tell: which lines a configuration lets through to a file, and where not.

Source: ngx_log.c (levels, ngx_log_set_log: ``error`` without a level), ngx_http_core_module.c
(ngx_http_core_merge_loc_conf: a context without a log of its own has that of the one around it);
the levels of the lines stand in ``documents/log_messages.py``, but those of limits are settings
(limit_req_log_level, limit_conn_log_level).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.log_messages import LOG_MESSAGES, Where

_LEVELS = ("emerg", "alert", "crit", "error", "warn", "notice", "info", "debug")
_NO_FILE = ("syslog:", "memory:")
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
    """Counts of log lines that some error log does not let through, each with the reason.

    Only where such lines could come: upstreams' in what passes requests on, refusals under a
    limit. Shape: {field of ``ServerMeasurement``: reason}.
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
    """By place and counter the level that all of its lines of error or worse come with.

    A warning counts where a counter has nothing else: no default log has one.
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
            f"without error_log the level is {_DEFAULT}, and such lines have the level {level}: "
            f"write error_log with {level} to have them counted"
        )
    if _shown(log) < 0:
        return f"error_log at {log.file}:{log.line} goes to no file, where lines are counted"
    said = _LEVELS[_shown(log)]
    return (
        f"error_log at {log.file}:{log.line} has the level {said}, and such lines the "
        f"level {level}: write {level} there to have them counted"
    )


def _shown(log: Directive) -> int:
    """The place of the last level that comes through; -1 where it goes to no file."""
    if log.value.startswith(_NO_FILE):
        return -1
    level = log.args[1] if len(log.args) > 1 else _DEFAULT
    # debug_http and the like show all that is above them.
    return _LEVELS.index(level) if level in _LEVELS else len(_LEVELS) - 1


def _nearest(chain: Chain, name: str) -> list[Directive]:
    """The lines of that name of the innermost block with any."""
    return next((lines for block in reversed(chain) if (lines := block.all(name))), [])


def _chains(around: Chain) -> Iterator[Chain]:
    """Every block where requests or sessions are handled, with those around it."""
    for line in around[-1]:
        if line.block is not None and line.name in _WHERE:
            chain = (*around, line.block)
            yield chain
            yield from _chains(chain)


def _is_answering(chain: Chain) -> bool:
    """Whether it is no mere frame: what holds servers alone answers nobody."""
    return not chain[-1].all("server")
