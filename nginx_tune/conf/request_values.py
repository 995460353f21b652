"""Values of directives that say where requests arrive, how they are answered and who logs them.

Judges as in ``own_values``: each returns the accepted values, in words, if every nginx from 1.18
to 1.30 rejects the arguments; otherwise an empty text.

Source: ngx_http_core_listen, ngx_parse_url, ngx_http_upstream_server, ngx_http_proxy_pass,
        ngx_http_grpc_pass, ngx_http_rewrite, ngx_http_rewrite_if_condition,
        ngx_http_rewrite_return, ngx_http_core_error_page, ngx_http_core_try_files,
        ngx_http_core_location, ngx_http_fastcgi_split_path_info, ngx_http_log_set_log,
        ngx_http_log_set_format, ngx_syslog_parse_args, ngx_log_set_levels, ngx_mail_auth_http.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence

from nginx_tune.conf.values import is_open, is_placeholder, is_time

Judge = Callable[[Sequence[str]], str]
"""A test of arguments. It returns the accepted values in words if it rejects them, else an empty
text."""

_NUMBER = re.compile(r"[0-9]{1,18}")
_MOST_CODE = 999
_MOST_PORT = 65535
_MOST_LEVEL = 9
_SPLIT_CAPTURES = 2
_ERROR_CODES = frozenset(range(300, 600)) - {499}
_REWRITE_FLAGS = frozenset({"last", "break", "redirect", "permanent"})
_MODIFIERS = frozenset({"=", "^~", "~*", "~"})
_LEVELS = frozenset(["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug"])
_ESCAPES = frozenset({"default", "json", "none"})
_FACILITIES = frozenset(
    [
        *("kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock"),
        *("authpriv", "ftp", "ntp", "audit", "alert", "cron"),
        *(f"local{number}" for number in range(8)),
    ]
)
_TAG = re.compile(r"[A-Za-z0-9_]{0,32}")
_SYSLOG_WORDS = frozenset({"server", "facility", "severity", "tag"})
_TESTED = re.compile(
    r"\$(?:[^{0-9=!~][^=]*|(?:http|sent_http|sent_trailer|upstream_http|upstream_trailer|"
    r"upstream_cookie|cookie|arg|proxy_protocol_tlv)_.*)",
    re.ASCII | re.IGNORECASE,
)
"""The variable of a condition, whose name is the whole word. Source: ngx_http_rewrite_variable."""
_COMPARISONS = frozenset({"=", "!=", "~", "~*", "!~", "!~*"})
_FILE_TESTS = frozenset(f"{sign}-{letter}" for sign in ("", "!") for letter in "fdex")
"""A variable as ``if`` takes it: no braces, no capture, and any text after a known prefix."""
_OTHER_SCHEME = re.compile(r"(?!http://)[A-Za-z][A-Za-z0-9+.-]*://")
_NO_NAME = re.compile(r"\$[{0-9]")
_CONDITION = "one condition, such as ($a), ($a = b), ($a ~* b) or (-f $a), with neither && nor ||"


def is_address(text: str) -> bool:
    """True if nginx may accept the text as an address of an upstream, without a path."""
    return not address_fault(text)


def address_fault(text: str) -> str:
    """The accepted form of an upstream's address; empty if nginx may accept the text.

    Source: ngx_parse_url, ngx_parse_inet_url.
    """
    if text.lower().startswith("unix:"):
        return "" if len(text) > len("unix:") else "a path after unix:"
    if "::" in text and not text.startswith("["):
        return "IPv6 in brackets: [::1]:80"
    host, found, port = text.partition("]") if text.startswith("[") else text.partition(":")
    if text.startswith("["):
        found, port = port[:1], port[1:]
    if not host or "/" in text or "?" in text:
        return "an address without a scheme or path, or unix:PATH"
    return "" if not found or _is_port(port) else "a port from 1 to 65535 after the address"


def _is_port(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and 1 <= int(text) <= _MOST_PORT


def is_ip(text: str) -> bool:
    """True for an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def server_fault(args: Sequence[str]) -> str:
    """A judge of the address of a server in an upstream."""
    return address_fault(args[0])


def _passed_to(*schemes: str) -> Judge:
    """A judge of addresses without a scheme or with one of ``schemes``."""

    def judged(args: Sequence[str]) -> str:
        scheme, sign, rest = args[0].partition("://")
        is_one = bool(sign) and scheme.lower() in schemes
        fault = address_fault(rest if is_one else args[0])
        if is_open(args[0]) or not fault:
            return ""
        if is_one or not sign:
            return fault
        beside = "".join(f", {scheme}://ADDRESS" for scheme in schemes)
        return f"an address without a path{beside} or unix:PATH"

    return judged


def _web_address(args: Sequence[str]) -> str:
    if is_open(args[0]):
        return ""
    scheme, sign, rest = args[0].partition("://")
    address = rest if rest.lower().startswith("unix:") else re.split(r"[/?]", rest)[0]
    right = bool(sign) and scheme.lower() in {"http", "https"} and bool(address)
    return address_fault(address) if right else "http://ADDRESS or https://ADDRESS"


def _listen(args: Sequence[str]) -> str:
    if is_open(args[0]):
        return ""
    words, flags = _parameters(args[1:]), set(args[1:])
    if "quic" in flags and (other := flags & {"ssl", "http2", "proxy_protocol"}):
        return f"quic without {min(other)}"
    if not args[0].lower().startswith("unix:") and (fault := _listen_address(args[0])):
        return fault
    if any(is_open(value) for value in words.values()):
        return ""
    if words.get("ipv6only", "on") not in {"on", "off"}:
        return "ipv6only=on or ipv6only=off"
    waiting = words.get("backlog", "1")
    if not (_NUMBER.fullmatch(waiting) and int(waiting)):
        return "backlog=NUMBER, from 1"
    if not _NUMBER.fullmatch(words.get("fastopen", "1")):
        return "fastopen=NUMBER"
    keepalive = words.get("so_keepalive", "on")
    right = keepalive in {"on", "off"} or _is_keepalive(keepalive)
    return "" if right else "so_keepalive=on, off or [IDLE]:[INTERVAL]:[COUNT]"


def _parameters(args: Sequence[str]) -> dict[str, str]:
    """The values of ``NAME=VALUE`` by name."""
    return {name: value for name, sign, value in (arg.partition("=") for arg in args) if sign}


def _listen_address(text: str) -> str:
    if "/" in text or "?" in text:
        return "an address or a port, without a scheme or path"
    if text.startswith("["):
        port = text.partition("]")[2].removeprefix(":")
    elif text.isascii() and re.fullmatch(r"[0-9]+(?:-[0-9]+)?", text):
        port = text
    else:
        port = text.partition(":")[2] if ":" in text else ""
        if ":" in text and not port:
            return "a port from 1 to 65535"
    first, sign, last = port.partition("-")
    if port and not (_is_port(first) and (not sign or _is_port(last))):
        return "IPv6 in brackets: [::1]:80" if "::" in text else "a port from 1 to 65535"
    return "ports from the lower to the higher" if sign and int(first) > int(last) else ""


def _is_keepalive(text: str) -> bool:
    parts = [*text.split(":", 2), "", ""][:3]
    times = [part for part in parts[:2] if part]
    if not all(is_time(part, in_seconds=True) for part in times):
        return False
    if parts[2] and not _NUMBER.fullmatch(parts[2]):
        return False
    return any(part.strip("0") for part in parts)


def _if(args: Sequence[str]) -> str:
    if any(map(is_placeholder, args)):
        return ""
    words = list(args)
    if not words[0].startswith("(") or not words[-1].endswith(")") or words == ["("]:
        return "a condition in parentheses"
    words[0] = words[0][1:]
    words[-1] = words[-1][:-1]
    words = words[not words[0] :] if len(words) > 1 else words
    if len(words) > 1 and args[-1] == ")":
        words.pop()
    match words:
        case [variable]:
            right = _TESTED.fullmatch(variable) is not None
        case [test, _] if test in _FILE_TESTS:
            right = True
        case [variable, comparison, _]:
            right = comparison in _COMPARISONS and _TESTED.fullmatch(variable) is not None
        case _:
            right = False
    if not right and _NO_NAME.match(words[0]):
        return "a variable by its name, without braces and no capture such as $1"
    return "" if right else _CONDITION


def _location(args: Sequence[str]) -> str:
    wrong = len(args) > 1 and args[0] not in _MODIFIERS and not any(map(is_placeholder, args))
    return "a URI, after =, ^~, ~, ~* or no modifier" if wrong else ""


def _return(args: Sequence[str]) -> str:
    first = args[0]
    if is_open(first) or (len(args) == 1 and first.startswith(("http://", "https://"))):
        return ""
    if _NUMBER.fullmatch(first) and int(first) <= _MOST_CODE:
        return ""
    return "a code up to 999, or a URL"


def _rewrite(args: Sequence[str]) -> str:
    if len(args) < len(("pattern", "replacement", "flag")) or any(map(is_open, args[2:])):
        return ""
    return "" if args[2] in _REWRITE_FLAGS else "last, break, redirect or permanent"


def _error_page(args: Sequence[str]) -> str:
    codes = list(args[:-1])
    if any(map(is_open, codes)):
        return ""
    if codes and codes[-1].startswith("="):
        answer = codes.pop()[1:]
        if not codes or (answer and not _NUMBER.fullmatch(answer)):
            return "codes, =CODE or =, and a URI"
    wrong = [code for code in codes if not (_NUMBER.fullmatch(code) and int(code) in _ERROR_CODES)]
    return "codes from 300 to 599 except 499" if wrong else ""


def _try_files(args: Sequence[str]) -> str:
    last = args[-1]
    if not last.startswith("=") or is_open(last):
        return ""
    right = _NUMBER.fullmatch(last[1:]) and int(last[1:]) <= _MOST_CODE
    return "" if right else "=CODE up to 999 in the last place"


def _split_path(args: Sequence[str]) -> str:
    try:
        groups = re.compile(args[0]).groups
    except re.error:
        return ""
    right = groups == _SPLIT_CAPTURES or is_placeholder(args[0])
    return "" if right else "a pattern with two captures"


def _parameter_line(args: Sequence[str]) -> str:
    wrong = [arg for arg in args[2:] if arg != "if_not_empty" and not is_open(arg)]
    return "a name, a value and perhaps if_not_empty" if wrong else ""


def _access_log(args: Sequence[str]) -> str:
    """The form that nginx accepts, if it rejects these arguments; empty if it accepts them.

    It rejects a buffer for a path with variables, and ``flush`` without a buffer.
    """
    path, words = args[0], [arg.partition("=")[0] for arg in args[2:]]  # after the format
    if path == "off":
        return "off alone" if len(args) > 1 else ""
    if len(args) > 1 and args[1].startswith("if="):
        return "a format before if="
    is_buffered = "buffer" in words or "gzip" in words
    if "flush" in words and not is_buffered:
        return "flush=TIME with buffer=SIZE or gzip"
    if path.startswith("syslog:"):
        return "syslog: without buffer= or gzip" if is_buffered else _syslog(path)
    if is_buffered and "$" in path and not is_placeholder(path):
        return "a path without variables, or no buffer="
    level = _parameters(args[2:]).get("gzip", "1")
    right = is_open(level) or (_NUMBER.fullmatch(level) and 1 <= int(level) <= _MOST_LEVEL)
    return "" if right else "gzip=LEVEL from 1 to 9"


_LOOSE_IPV4 = re.compile(r"\d{0,3}(?:\.\d{0,3}){3}", re.ASCII)
"""An address as ngx_inet_addr reads it: zeros in front and empty parts count as 0."""
_MOST_OCTET = 255


def _octets(text: str) -> list[int]:
    return [int(part or "0") for part in text.split(".")]


def _own_address(args: Sequence[str]) -> str:
    """A judge of the local address of a connection. Source: ngx_http_upstream_bind_set_slot."""
    text = args[0]
    bracketed = re.fullmatch(r"\[(.*)\](?::(.*))?", text)
    host, port = bracketed.groups() if bracketed else (text, None)
    if host.count(":") == 1:
        host, port = host.split(":")
    is_address = is_ip(host) or (_LOOSE_IPV4.fullmatch(host) and max(_octets(host)) <= _MOST_OCTET)
    right = text == "off" or (is_address and (port is None or _is_port(port)))
    return "" if right or is_open(text) else "off or an IP address of this host, and no name"


def _one_of(*words: str) -> Judge:
    """A judge of arguments of which each is one of ``words``."""

    def judged(args: Sequence[str]) -> str:
        right = all(arg.lower() in words or is_open(arg) for arg in args)
        return "" if right else f"of {', '.join(words)}"

    return judged


def _replaced(args: Sequence[str]) -> str:
    wrong = len(args) == 1 and args[0] != "off" and not is_open(args[0])
    return "off, or what to replace and with what" if wrong else ""


def _error_log(args: Sequence[str]) -> str:
    if any(map(is_open, args)):
        return ""
    if any(arg not in _LEVELS and not arg.startswith("debug_") for arg in args[1:]):
        return "a level from debug to emerg"
    return _syslog(args[0]) if args[0].startswith("syslog:") else ""


def _syslog(text: str) -> str:
    """The accepted form of the first rejected parameter of ``syslog:``."""
    if is_open(text):
        return ""
    given = [part for part in text.removeprefix("syslog:").split(",") if part]
    words = _parameters(given)
    if any(part != "nohostname" and part.partition("=")[0] not in _SYSLOG_WORDS for part in given):
        return "of syslog: server, facility, severity, tag or nohostname"
    if not words.get("server"):
        return "syslog: with server=ADDRESS"
    if words.get("facility", "user") not in _FACILITIES:
        return "a facility of syslog(3), such as local7"
    if words.get("severity", "info") not in _LEVELS:
        return "a severity from debug to emerg"
    return "" if _TAG.fullmatch(words.get("tag", "")) else "tag= of up to 32 letters, digits and _"


def _auth_address(args: Sequence[str]) -> str:
    wrong = _OTHER_SCHEME.match(args[0]) and not is_open(args[0])
    return (
        "ADDRESS:PORT/PATH, perhaps after http:// in lowercase, and no other scheme"
        if wrong
        else ""
    )


def _log_format(args: Sequence[str]) -> str:
    if args[0] == "combined":
        return "a name other than combined, which nginx defines"
    sign, _, name = args[1].partition("=") if len(args) > 1 else ("", "", "")
    wrong = sign == "escape" and name not in _ESCAPES and not is_open(name)
    return "escape=default, escape=json or escape=none" if wrong else ""


HTTP_ONLY: dict[str, Judge] = {
    "listen": _listen,
    "return": _return,
    "rewrite": _rewrite,
    "proxy_pass": _web_address,
    "if": _if,
    "location": _location,
    "log_format": _log_format,
}
"""Judges of directives that have another meaning outside of http."""

REQUEST_FORMS: dict[str, Judge] = {
    "error_page": _error_page,
    "try_files": _try_files,
    "access_log": _access_log,
    "error_log": _error_log,
    "grpc_pass": _passed_to("grpc", "grpcs"),
    "fastcgi_pass": _passed_to(),
    "scgi_pass": _passed_to(),
    "uwsgi_pass": _passed_to("uwsgi", "suwsgi"),
    "memcached_pass": _passed_to(),
    "fastcgi_split_path_info": _split_path,
    "protocol": _one_of("imap", "pop3", "smtp"),
    "auth_http": _auth_address,
    "smtp_auth": _one_of("plain", "login", "cram-md5", "external", "none"),
    "imap_auth": _one_of("plain", "login", "cram-md5", "external"),
    "pop3_auth": _one_of("plain", "apop", "cram-md5", "external"),
    "proxy_cookie_path": _replaced,
    "proxy_cookie_domain": _replaced,
    **{
        f"{name}_bind": _own_address
        for name in ("proxy", "fastcgi", "uwsgi", "scgi", "grpc", "memcached")
    },
    **{f"{name}_param": _parameter_line for name in ("fastcgi", "uwsgi", "scgi")},
}
"""Judges by directive name."""
