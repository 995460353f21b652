"""What some directives take that read their arguments by code of their own.

Source: ngx_event_connections, ngx_set_worker_processes, ngx_log_set_levels,
        ngx_http_core_keepalive, ngx_http_rewrite, ngx_http_rewrite_return, ngx_parse_url,
        ngx_http_core_error_page, ngx_http_limit_req_zone, ngx_thread_pool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from nginx_tune.conf.directive_values import is_time
from nginx_tune.conf.own_forms import FORMS, SERVER_OF_UPSTREAM
from nginx_tune.conf.templates import is_open

_LEVELS = frozenset(["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug"])
_MOST_CODE = 999
_MOST_PORT = 65535
_NUMBER = re.compile(r"[0-9]{1,18}")
_PORT = re.compile(r"(?:(?:\*|[0-9.]+|\[[0-9a-fA-F:.]+\]):)?([0-9]+)")
_REWRITE_FLAGS = frozenset({"last", "break", "redirect", "permanent"})
_RATE = re.compile(r"rate=0*[1-9][0-9]{0,8}(?:r/[sm])?")
_ERROR_CODES = range(300, 600)
_OF_HTTP = frozenset({"listen", "return", "rewrite", "proxy_pass"})

OwnFault = Callable[[Sequence[str]], str]
"""What is taken, where the arguments are refused; else nothing."""


def own_fault_of(name: str, context: str) -> OwnFault | None:
    """The judge of a directive's arguments; null where there is none."""
    if name in _OF_HTTP and not context.startswith(("server", "location")):
        return None  # return of stream, for one, takes any text
    if name == "server" and context.endswith("upstream"):
        return SERVER_OF_UPSTREAM
    return _JUDGES.get(name) or FORMS.get(name)


def _is_open(args: Sequence[str]) -> bool:
    """Whether a template has still to fill something in."""
    return any(map(is_open, args))


def _connections(args: Sequence[str]) -> str:
    return "" if _is_open(args) or _NUMBER.fullmatch(args[0]) else "a number"


def _processes(args: Sequence[str]) -> str:
    if _is_open(args) or args[0] == "auto" or _NUMBER.fullmatch(args[0]):
        return ""
    return "auto or a number"


def _log_level(args: Sequence[str]) -> str:
    wrong = [arg for arg in args[1:] if arg not in _LEVELS and not arg.startswith("debug_")]
    return "a level from debug to emerg" if wrong and not _is_open(args) else ""


def _return(args: Sequence[str]) -> str:
    first = args[0]
    if _is_open([first]) or (len(args) == 1 and first.startswith(("http://", "https://"))):
        return ""
    if _NUMBER.fullmatch(first) and int(first) <= _MOST_CODE:
        return ""
    return "a code up to 999, or a URL"


def _rewrite(args: Sequence[str]) -> str:
    if len(args) < len(("pattern", "replacement", "flag")) or _is_open(args[2:]):
        return ""
    return "" if args[2] in _REWRITE_FLAGS else "last, break, redirect or permanent"


def _keepalive(args: Sequence[str]) -> str:
    if _is_open(args):
        return ""
    is_right = is_time(args[0], in_seconds=False)
    is_right = is_right and all(is_time(arg, in_seconds=True) for arg in args[1:])
    return "" if is_right else "a time such as 500ms, 30s or 5m"


def _listen(args: Sequence[str]) -> str:
    match = _PORT.fullmatch(args[0])
    if match is not None and not 1 <= int(match[1]) <= _MOST_PORT:
        return "a port from 1 to 65535"
    waiting = [arg.removeprefix("backlog=") for arg in args[1:] if arg.startswith("backlog=")]
    wrong = [one for one in waiting if not (_NUMBER.fullmatch(one) and int(one))]
    return "backlog=NUMBER, from 1" if wrong and not _is_open(waiting) else ""


def _error_page(args: Sequence[str]) -> str:
    codes = list(args[:-1])
    if codes and codes[-1].startswith("="):
        codes.pop()
    wrong = [one for one in codes if not (_NUMBER.fullmatch(one) and int(one) in _ERROR_CODES)]
    return "codes from 300 to 599" if wrong and not _is_open(codes) else ""


def _limit_req_zone(args: Sequence[str]) -> str:
    rates = [arg for arg in args if arg.startswith("rate=")]
    wrong = [rate for rate in rates if not _RATE.fullmatch(rate)]
    if wrong and not _is_open(rates):
        return "a rate such as 10r/s or 30r/m"
    return FORMS["limit_conn_zone"](args)


def _thread_pool(args: Sequence[str]) -> str:
    threads = [arg.removeprefix("threads=") for arg in args[1:] if arg.startswith("threads=")]
    if _is_open(args) or (threads and all(_NUMBER.fullmatch(n) and int(n) for n in threads)):
        return ""
    return "threads=NUMBER, from 1"


_JUDGES: dict[str, OwnFault] = {
    "worker_connections": _connections,
    "worker_processes": _processes,
    "error_log": _log_level,
    "return": _return,
    "rewrite": _rewrite,
    "keepalive_timeout": _keepalive,
    "listen": _listen,
    "error_page": _error_page,
    "limit_req_zone": _limit_req_zone,
    "thread_pool": _thread_pool,
}
