"""The predefined variables, and the directives that evaluate variables.

``variables.txt`` is read from the tables of nginx executables (``tools/read-directives
--variables``). The names below are added by modules in code, or belong to modules that those
executables lack.

Source: ngx_http_script_compile: ``$name``, ``${name}``; a digit is a capture. Names ignore case.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import read_table

_BY_CODE = frozenset(
    [
        "gzip_ratio",
        "slice_range",
        "uid_got",
        "uid_set",
        "uid_reset",
        "secure_link",
        "secure_link_expires",
        "invalid_referer",
        "memcached_key",
        "request_port",
        "spdy",
        "spdy_request_priority",
        "upstream_last_addr",
        "upstream_queue_time",
        "proxy_protocol_port",
        "limit_rate_after",
    ]
)
_PREFIXES = (
    "arg_", "http_", "cookie_", "sent_http_", "sent_trailer_", "upstream_http_",
    "upstream_trailer_", "upstream_cookie_", "proxy_protocol_tlv_", "geoip_", "geoip2_", "ssl_",
    "jwt_", "otel_", "opentracing_", "brotli_", "zstd_", "vts_", "upload_", "nchan_", "echo_",
    "lua_", "njs_", "js_", "quic_", "mqtt_", "rtmp_", "passenger_", "waf_", "modsecurity_",
    "acme_", "oidc_", "sticky_", "session_log_", "dav_", "fancyindex_", "pagespeed_", "mirror_",
    "msec", "connections_", "upstream_", "realip_", "tcpinfo_", "fastcgi_", "proxy_", "memc_",
    "redis_", "drizzle_", "postgres_", "encrypted_", "push_stream_", "nginx_", "openssl_", "ja3",
    "ja4", "http2_", "http3_",
)  # fmt: skip
"""Prefixes of variables that modules define at run time; names with them are never reported."""

_CHANGEABLE = frozenset(
    [
        *("args", "limit_rate", "ancient_browser", "modern_browser", "msie", "jpg", "regex"),
        *("proxy_host", "proxy_port", "proxy_internal_host"),
        *("connection_time", "http3", "is_request_port", "request_port"),
    ]
)
"""Variables that lines may set, or that a version from 1.18 on does not have; tried with ``set``
on four versions. Those of TLS may all be set."""

EVALUATED = frozenset(
    [
        "return",
        "rewrite",
        "set",
        "if",
        "proxy_pass",
        "fastcgi_pass",
        "uwsgi_pass",
        "scgi_pass",
        "grpc_pass",
        "fastcgi_param",
        "uwsgi_param",
        "scgi_param",
        "proxy_set_header",
        "grpc_set_header",
        "add_header",
        "add_trailer",
        "root",
        "alias",
        "try_files",
        "log_format",
        "map",
        "split_clients",
        "limit_req_zone",
        "limit_conn_zone",
        "proxy_cache_key",
        "fastcgi_cache_key",
        "proxy_cache_bypass",
        "proxy_no_cache",
        "fastcgi_cache_bypass",
        "fastcgi_no_cache",
        "error_page",
        "index",
        "expires",
        "hash",
        "geo",
        "sub_filter",
        "access_log",
        "auth_basic",
    ]
)
"""Directives whose variables must exist when nginx starts."""

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_STRAY = re.compile(r"\$(?![A-Za-z0-9_{])|\$\{(?![A-Za-z0-9_]+\})", re.ASCII)
COMPILED = frozenset({"return", "set", "add_header", "proxy_set_header", "proxy_pass", "root"})
"""Directives that compile every argument for variables."""
_CAPTURE = re.compile(r"\(\?(?:P?<|')([A-Za-z_]\w*)[>']", re.ASCII)
_LAST_IS_MADE = frozenset({"map", "geo", "split_clients", "keyval", "num_map"})
_FIRST_IS_MADE = frozenset({"set", "perl_set", "js_set", "js_var", "js_fetch", "auth_request_set"})


_OF_HTTP_ALONE = re.compile(
    r"(?:sent_)?http_\w+|cookie_\w+|arg_\w+|request\w*|body_bytes_sent|content_(?:length|type)|uri"
    r"|args|is_args|query_string|document_(?:root|uri)|host|https|scheme|remote_user"
    r"|upstream_(?:cache_status|response_time|response_length|status|header_time)"
)


_FIXED_IN_STREAM = frozenset(
    [
        *("binary_remote_addr", "remote_addr", "remote_port", "server_addr", "server_port"),
        *("proxy_protocol_addr", "proxy_protocol_port", "bytes_sent", "bytes_received"),
        *("session_time", "status", "connection", "nginx_version", "hostname", "pid", "msec"),
        *("time_iso8601", "time_local", "protocol", "upstream_addr", "upstream_bytes_sent"),
        *("upstream_bytes_received", "upstream_connect_time", "upstream_first_byte_time"),
        "upstream_session_time",
    ]
)


def is_fixed_in_stream(name: str) -> bool:
    """True if stream has the variable and refuses a line that sets it; tried on nginx 1.22."""
    return name in _FIXED_IN_STREAM


def is_of_http_alone(name: str) -> bool:
    """True for a variable of http that stream does not have; tried on nginx 1.22."""
    return _OF_HTTP_ALONE.fullmatch(name) is not None


def is_fixed_variable(name: str) -> bool:
    """True if every nginx has the variable and refuses a line that sets it."""
    return is_listed_variable(name) and name not in _CHANGEABLE and not name.startswith("ssl_")


def makes_variable(directive: Directive) -> bool:
    """True if an argument of the directive is the variable that it defines."""
    return directive.name in _LAST_IS_MADE | _FIRST_IS_MADE


@lru_cache(maxsize=4096)
def is_known_variable(name: str) -> bool:
    """True if nginx or a known module has a variable of that name."""
    return name in _names() or name in _BY_CODE or name.startswith(_PREFIXES)


def is_listed_variable(name: str) -> bool:
    """True if nginx has a variable of exactly that name."""
    return name in _names()


def used_variables(directive: Directive) -> tuple[str, ...]:
    """The names of the variables in a directive's arguments, lowercase.

    Names in capitals are assumed to be template placeholders, and left out.
    """
    if "$" not in "".join(directive.args):
        return ()
    return _used(directive.name, directive.args)


_TESTED = re.compile(r"\( ?\$([A-Za-z_][^ ={]*?)\)?(?: |$)")
"""The variable of a condition, whose name is the whole word. Source: ngx_http_rewrite_variable."""


@lru_cache(maxsize=4096)
def _used(name: str, args: tuple[str, ...]) -> tuple[str, ...]:
    found = [
        match[1] or match[2]
        for index, text in enumerate(args)
        if "$" in text and not _is_pattern(name, args, index)
        for match in _VARIABLE.finditer(text)
    ]
    if name == "if" and (tested := _TESTED.match(" ".join(args))):
        found[0] = tested[1]
    return tuple(one.lower() for one in found if not one.isupper())


def made_variables(directive: Directive) -> Iterator[str]:
    """The names of the variables that a directive defines, as an argument or in a pattern."""
    if directive.name in _LAST_IS_MADE:
        made = directive.args[-1:]
    elif directive.name in _FIRST_IS_MADE:
        made = directive.args[:1]
    elif directive.name.startswith(("set_", "geoip2", "auth_jwt")):
        made = directive.args
    else:
        made = (directive.name,) if directive.name.startswith("$") else ()
    yield from (name[1:].lower() for name in made if name.startswith("$"))
    for text in (directive.name, *directive.args):
        if "(?" in text:
            yield from (name.lower() for name in _CAPTURE.findall(text))


def has_stray_dollar(directive: Directive) -> bool:
    """True if a dollar sign is not followed by a variable name."""
    if directive.name not in COMPILED or "$" not in "".join(directive.args):
        return False
    return any(
        _STRAY.search(text) and not _is_pattern(directive.name, directive.args, at)
        for at, text in enumerate(directive.args)
    )


def _is_pattern(name: str, args: tuple[str, ...], index: int) -> bool:
    """True if an argument is a regular expression or the name of the defined variable."""
    match name:
        case (
            "rewrite" | "set" | "add_header" | "add_trailer" | "proxy_set_header"
            | "grpc_set_header" | "fastcgi_param" | "uwsgi_param" | "scgi_param" | "sub_filter"
            | "log_format"
        ):  # fmt: skip
            return index == 0
        case "map" | "split_clients" | "geo":
            return index == len(args) - 1
        case "if":
            return index > 0 and args[index - 1].lstrip("!").startswith("~")
    return False


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    text = read_table("variables.txt")
    return frozenset(line for line in text.splitlines() if line and line[0] not in "#*")
