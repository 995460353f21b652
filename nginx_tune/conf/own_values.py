"""Values of directives that nginx parses with code of their own.

Each judge returns the accepted values, in words, if every nginx from 1.18 to 1.30 rejects the
arguments; otherwise an empty text. Bounds that depend on the page size or the version are the
loosest ones. The judges of requests, addresses and logs are in ``request_values``.

Source: ngx_event_connections, ngx_set_worker_processes, ngx_set_priority,
        ngx_http_core_keepalive, ngx_http_limit_req_zone, ngx_thread_pool,
        ngx_conf_set_path_slot, ngx_conf_set_access_slot, ngx_http_proxy_redirect,
        ngx_http_file_cache_valid_set_slot, ngx_set_worker_cpu_affinity,
        ngx_http_disable_symlinks, ngx_http_core_set_aio, ngx_ptocidr, ngx_http_ssl_session_cache,
        ngx_event_use, ngx_http_headers_expires, ngx_http_parse_expires,
        ngx_http_core_open_file_cache, ngx_http_log_open_file_cache, ngx_http_limit_conn_zone,
        ngx_http_limit_req, ngx_http_limit_conn,
        ngx_http_upstream_zone, ngx_http_file_cache_set_slot, ngx_http_upstream_server,
        ngx_http_rewrite_set, ngx_resolver_create, ngx_http_core_limit_except,
        ngx_http_core_directio, ngx_http_upstream_random, ngx_http_userid_mark,
        ngx_http_sub_filter, ngx_http_core_server_name.
"""

import ipaddress
import re
from collections.abc import Sequence

from nginx_tune.conf.request_values import HTTP_ONLY, REQUEST_FORMS, Judge, is_address, server_fault
from nginx_tune.conf.values import is_open, is_placeholder, is_time, parse_seconds

_NUMBER = re.compile(r"[0-9]{1,18}")
_MASK = re.compile(r"[01 ]+")
_ACCESS = re.compile(r"(?:user|group|all):(?:r|rw)")
_SIZE = re.compile(r"([0-9]{1,17})([kKmM]?)")
_OFFSET = re.compile(r"[0-9]+[kKmMgG]?")
_BYTES = frozenset({"max_size", "min_free"})
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
_LEAST_STATUS = 100
_LEAST_PAGE_BYTES = 4096
_OCTETS, _MOST_OCTET = 4, 255
_ZONE_PAGES = 8
_KEYS_PAGES = 2
_MOST_BITS = {"4": 32, "6": 128}
_EVENTS = frozenset(
    {"epoll", "poll", "select", "kqueue", "eventport", "/dev/poll", "rtsig", "iocp", "win32"}
)
_AIO = frozenset({"on", "off", "threads", "sendfile"})
_METHODS = (
    "GET", "HEAD", "POST", "PUT", "DELETE", "MKCOL", "COPY", "MOVE", "OPTIONS", "PROPFIND",
    "PROPPATCH", "LOCK", "UNLOCK", "PATCH",
)  # fmt: skip
_METHODS_OF_TWO = frozenset(
    {"least_conn", "least_time", "least_time=header", "least_time=last_byte"}
)
"""Methods of ``random two``, those of nginx Plus among them."""
_ONE_MARK = re.compile(r"[A-Za-z0-9=]")
_REDIRECTS = frozenset({"off", "default", "false"})
_LINKS = frozenset({"on", "off", "if_not_owner"})
_NUMBERS = frozenset({"max", "min_uses", "weight", "max_conns", "max_fails"})
_TIMES = frozenset({"inactive", "valid", "fail_timeout"})
_WAITS = frozenset(f"{process}_{wait}" for process in ("loader", "manager")
                   for wait in ("sleep", "threshold"))  # fmt: skip
_FROM_ONE = frozenset({"max", "weight"})
_MOST_CONNECTIONS = 65535
_DAY_SECONDS = 86_400
_NO_FILES = re.compile(r"max=0+")
_CACHE_LEVELS = re.compile(r"[12](?::[12]){0,2}")
_RATE = re.compile(r"rate=0*[1-9][0-9]{0,8}(?:r/[sm])?")


def own_fault_of(name: str, context: str) -> Judge | None:
    """The judge of a directive's arguments; None if there is none."""
    if name in HTTP_ONLY:  # return of stream, for example, accepts any text
        return HTTP_ONLY[name] if context.startswith(("http", "server", "location")) else None
    if name == "server" and context.endswith("upstream"):
        return SERVER_OF_UPSTREAM
    return _JUDGES.get(name) or REQUEST_FORMS.get(name) or FORMS.get(name)


def _of(rule: Judge) -> Judge:
    """A judge that also accepts every argument with a variable or placeholder."""

    def judged(args: Sequence[str]) -> str:
        return "" if any(map(is_open, args)) else rule(args)

    return judged


def _is_number(text: str, least: int = 0) -> bool:
    return len(text) > len("9" * 18) or (_NUMBER.fullmatch(text) is not None and int(text) >= least)


def _levels(args: Sequence[str]) -> str:
    right = all(_is_number(arg, 1) for arg in args[1:])
    return "" if right else "a path and up to three digit counts, such as 1 2"


def _redirect(args: Sequence[str]) -> str:
    wrong = len(args) == 1 and args[0] not in _REDIRECTS
    return "default, off, or what to replace and with what" if wrong else ""


def _cache_valid(args: Sequence[str]) -> str:
    right = is_time(args[-1], in_seconds=True) and all(
        code == "any" or _is_number(code, _LEAST_STATUS) for code in args[:-1]
    )
    return "" if right else "any, or codes from 100, and a time such as 10m"


def _affinity(args: Sequence[str]) -> str:
    masks = args[1:] if args[0] == "auto" else args
    right = all(not mask or _MASK.fullmatch(mask) for mask in masks)
    return "" if right else "auto, or masks of 0 and 1"


def _symlinks(args: Sequence[str]) -> str:
    right = all(arg in _LINKS or arg.startswith("from=") for arg in args)
    return "" if right else "off, on or if_not_owner, and from=PART"


def _access(args: Sequence[str]) -> str:
    return "" if all(map(_ACCESS.fullmatch, args)) else "user:, group: or all: with r or rw"


def _aio(args: Sequence[str]) -> str:
    right = args[0] in _AIO or args[0].startswith("threads=")
    return "" if right else "on, off, threads or threads=POOL"


def _cidr(args: Sequence[str]) -> str:
    right = args[0] in {"all", "unix:"} or is_network(args[0])
    return "" if right else "all, unix:, an address or a network such as 10.0.0.0/8, not a name"


def is_network(text: str) -> bool:
    """True if nginx may accept it as an address or a network. Source: ngx_ptocidr."""
    address, slash, bits = text.partition("/")
    kind = "6" if ":" in address else "4"
    if slash and not (_NUMBER.fullmatch(bits) and int(bits) <= _MOST_BITS[kind]):
        return False
    if kind == "6":
        return _is_ipv6(address)
    parts = address.split(".")  # nginx reads an empty one as 0
    return len(parts) == _OCTETS and all(not part or _is_octet(part) for part in parts)


def _is_octet(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and int(text) <= _MOST_OCTET


def _is_ipv6(text: str) -> bool:
    """True if nginx may accept the text as an IPv6 address."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return re.fullmatch(r"[0-9a-fA-F:.]+", text) is not None
    return "%" not in text


def _session_cache(args: Sequence[str]) -> str:
    return "" if all(map(_is_session_cache, args)) else "off, none, builtin or shared:NAME:SIZE"


def _is_session_cache(text: str) -> bool:
    if text in {"off", "none", "builtin"}:
        return True
    kind, _, rest = text.partition(":")
    if kind == "builtin":
        return _is_number(rest)
    name, _, size = rest.partition(":")
    return kind == "shared" and bool(name) and _is_size(size, _ZONE_PAGES)


def _is_size(text: str, pages: int) -> bool:
    match = _SIZE.fullmatch(text)
    least = pages * _LEAST_PAGE_BYTES
    return match is not None and int(match[1]) * _UNITS[match[2].lower()] >= least


def _use(args: Sequence[str]) -> str:
    return "" if args[0] in _EVENTS else "epoll, poll or select"


def _expires(args: Sequence[str]) -> str:
    text = args[-1]
    if len(args) == 1 and text in {"epoch", "max", "off"}:
        return ""
    if len(args) == 1 and text.startswith("@"):
        text = text[1:]
        if is_time(text, in_seconds=True) and (parse_seconds(text) or 0) > _DAY_SECONDS:
            return "a time of the day, up to @24h"
    else:
        text = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    right = is_time(text, in_seconds=True) and (len(args) == 1 or args[0] == "modified")
    return "" if right else "a time such as 30d or -1, @15h, epoch, max or off"


def _upstream_keepalive(args: Sequence[str]) -> str:
    return "" if _is_number(args[0]) else "a number of connections"


def _pairs(args: Sequence[str]) -> str:
    """The accepted form of the first rejected ``NAME=VALUE``; other words are ignored."""
    for arg in args:
        name, sign, value = arg.partition("=")
        if sign and name in _NUMBERS and not _is_number(value, int(name in _FROM_ONE)):
            return f"{name}=NUMBER"
        if sign and name in _TIMES and not is_time(value, in_seconds=True):
            return f"{name}=TIME, such as 30s or 5m"
    return ""


def _file_cache(args: Sequence[str]) -> str:
    if "off" not in args and not any(arg.startswith("max=") for arg in args):
        return "max=NUMBER with the other parameters, or off"
    return _pairs(args)


def _log_file_cache(args: Sequence[str]) -> str:
    """The judge of ``open_log_file_cache``, where ``off`` makes ``max=0`` right."""
    is_off = "off" in args
    return _file_cache([arg for arg in args if not (is_off and _NO_FILES.fullmatch(arg))])


def _methods(args: Sequence[str]) -> str:
    return "" if all(arg.upper() in _METHODS for arg in args) else f"of {', '.join(_METHODS)}"


def _offset(args: Sequence[str]) -> str:
    right = args[0] == "off" or _OFFSET.fullmatch(args[0]) is not None
    return "" if right else "off, or a size such as 4m"


def _server(args: Sequence[str]) -> str:
    return server_fault(args) or _pairs(args[1:])


def _zone_size(prefix: str, pages: int) -> Judge:
    def judged(args: Sequence[str]) -> str:
        zones = [arg.removeprefix(prefix) for arg in args if arg.startswith(prefix)]
        wrong = [zone for zone in zones if not _is_size(zone.partition(":")[2], pages)]
        return f"{prefix}NAME:SIZE, such as 10m, from {pages * 4}k" if wrong else ""

    return judged


def _cache_path(args: Sequence[str]) -> str:
    for arg in args[1:]:
        name, sign, value = arg.partition("=")
        if sign and name in _BYTES and _OFFSET.fullmatch(value) is None:
            return f"{name}=SIZE, such as 500m or 10g"
        if sign and name == "use_temp_path" and value not in {"on", "off"}:
            return "use_temp_path=on or use_temp_path=off"
        if sign and name in _WAITS and not is_time(value, in_seconds=False):
            return f"{name}=TIME, such as 50ms"
        if sign and name == "levels" and _CACHE_LEVELS.fullmatch(value) is None:
            return "levels= with up to three levels of 1 or 2, such as 1:2"
    if not any(arg.startswith("keys_zone=") for arg in args[1:]):
        return "a path with keys_zone=NAME:SIZE"
    return _pairs(args[1:]) or _zone_size("keys_zone=", _KEYS_PAGES)(args)


def _limit_req(args: Sequence[str]) -> str:
    given = [arg.partition("=") for arg in args]
    wrong = [name for name, _, value in given
             if name in {"burst", "delay"} and not _is_number(value, 1)]  # fmt: skip
    return f"{wrong[0]}=NUMBER, from 1" if wrong else ""


def _limit_conn(args: Sequence[str]) -> str:
    right = _NUMBER.fullmatch(args[1]) and 1 <= int(args[1]) <= _MOST_CONNECTIONS
    return "" if right else "a zone and a number from 1 to 65535"


def _shared_zone(args: Sequence[str]) -> str:
    right = len(args) == 1 or _is_size(args[1], _ZONE_PAGES)
    return "" if right else "a name and a size, such as 64k, from 32k"


def _resolver(args: Sequence[str]) -> str:
    for arg in args:
        name, sign, value = arg.partition("=")
        if sign and name == "valid" and not is_time(value, in_seconds=True):
            return "valid=TIME, such as 30s or 5m"
        if sign and name == "ipv6" and value not in {"on", "off"}:
            return "ipv6=on or ipv6=off"
        if not sign and not is_address(arg):
            return "ADDRESS or ADDRESS:PORT of name servers"
    named = any("=" not in arg for arg in args)
    return "" if named else "ADDRESS or ADDRESS:PORT of name servers"


def _real_ip(args: Sequence[str]) -> str:
    wrong = "/" in args[0] and not args[0].startswith("unix:") and not is_network(args[0])
    return "unix:, an address, a name or a network such as 10.0.0.0/8" if wrong else ""


def _random(args: Sequence[str]) -> str:
    wrong = bool(args) and (args[0] != "two" or not _METHODS_OF_TWO.issuperset(args[1:]))
    return "no argument, or two and perhaps least_conn" if wrong else ""


def _mark(args: Sequence[str]) -> str:
    right = args[0] == "off" or _ONE_MARK.fullmatch(args[0])
    return "" if right else "off, a letter, a digit or ="


def _not_empty(args: Sequence[str]) -> str:
    return "" if args[0] else "a text that is not empty, and what replaces it"


def _no_empty_pattern(args: Sequence[str]) -> str:
    return "a regular expression after ~" if "~" in args else ""


def _flag(args: Sequence[str]) -> str:
    return "" if args[0].lower() in {"on", "off"} else "on or off"


def _variable(at: int) -> Judge:
    def judged(args: Sequence[str]) -> str:
        name = args[at]
        right = (name.startswith("$") and len(name) > 1) or is_placeholder(name)
        return "" if right else "a variable: a name with a dollar sign before it"

    return judged


FORMS: dict[str, Judge] = {
    **{
        f"{name}_temp_path": _of(_levels)
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    },
    **{f"{name}_cache_valid": _of(_cache_valid) for name in ("proxy", "fastcgi", "uwsgi", "scgi")},
    **{f"{name}_cache_path": _of(_cache_path) for name in ("proxy", "fastcgi", "uwsgi", "scgi")},
    **{
        name: _of(_access)
        for name in (
            "dav_access",
            "proxy_store_access",
            "fastcgi_store_access",
            "uwsgi_store_access",
            "scgi_store_access",
        )
    },
    "proxy_redirect": _of(_redirect),
    "worker_cpu_affinity": _of(_affinity),
    "disable_symlinks": _of(_symlinks),
    "aio": _of(_aio),
    "allow": _of(_cidr),
    "deny": _of(_cidr),
    "ssl_session_cache": _of(_session_cache),
    "use": _of(_use),
    "expires": _of(_expires),
    "resolver": _of(_resolver),
    "random": _of(_random),
    "userid_mark": _of(_mark),
    "sub_filter": _not_empty,
    "server_name": _no_empty_pattern,
    "valid_referers": _no_empty_pattern,
    "set_real_ip_from": _of(_real_ip),
    "keepalive": _of(_upstream_keepalive),
    "open_file_cache": _of(_file_cache),
    "open_log_file_cache": _of(_log_file_cache),
    "limit_except": _of(_methods),
    "limit_req": _of(_limit_req),
    "limit_conn": _of(_limit_conn),
    "directio": _of(_offset),
    "limit_conn_zone": lambda args: _of(_zone_size("zone=", _ZONE_PAGES))(args[1:]),
    "zone": _of(_shared_zone),
    "ssl": _of(_flag),
    "set": _variable(0),
    "auth_request_set": _variable(0),
    "map": _variable(1),
    "split_clients": _variable(1),
    "geo": _variable(-1),
}
"""Judges by directive name."""

SERVER_OF_UPSTREAM: Judge = _of(_server)


def _is_open(args: Sequence[str]) -> bool:
    """True if an argument has a variable or placeholder."""
    return any(map(is_open, args))


def _connections(args: Sequence[str]) -> str:
    return "" if _is_open(args) or _NUMBER.fullmatch(args[0]) else "a number"


def _processes(args: Sequence[str]) -> str:
    if _is_open(args) or args[0] == "auto" or _NUMBER.fullmatch(args[0]):
        return ""
    return "auto or a number"


def _priority(args: Sequence[str]) -> str:
    right = _is_open(args) or _NUMBER.fullmatch(args[0].removeprefix("-"))
    return "" if right else "a number, such as -5"


def _keepalive(args: Sequence[str]) -> str:
    if _is_open(args):
        return ""
    is_right = is_time(args[0], in_seconds=False)
    is_right = is_right and all(is_time(arg, in_seconds=True) for arg in args[1:])
    return "" if is_right else "a time such as 500ms, 30s or 5m"


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


_JUDGES: dict[str, Judge] = {
    "worker_connections": _connections,
    "worker_processes": _processes,
    "worker_priority": _priority,
    "keepalive_timeout": _keepalive,
    "limit_req_zone": _limit_req_zone,
    "thread_pool": _thread_pool,
}
