"""Redaction of directives by place: which arguments of a directive may be shown.

nginx's own directives for sizes, times, names and paths show their arguments. Free text is shown
only if it is surely harmless (:mod:`nginx_tune.conf.secret_values`), and code never. All arguments
of an unknown directive count as free text, so a new directive is hidden until it is listed here.
"""

import re
from collections.abc import Callable, Collection
from functools import lru_cache

from nginx_tune.conf.known_directives import is_known, nearest, rows_of, slip_of
from nginx_tune.conf.secret_values import (
    REDACTED,
    SECRET_NAME,
    environment_value,
    free_value,
    is_harmless,
    key_value,
    named_value,
    plain_value,
    redact_text,
    stream_url,
    strict_value,
    url_value,
)

Names = Collection[str]
Arguments = tuple[str, ...]
PlaceTable = tuple[str, Arguments]
"""Name and arguments of a block whose name is in TABLES."""
_Show = Callable[[Arguments, Names], Arguments]

TABLES = frozenset({"map", "num_map", "geo", "split_clients", "types", "charset_map", "geoip2",
                    "match", "keyval"})  # fmt: skip
"""Blocks whose lines are not directives, since each line begins with a key."""

_CODE_NAMES = re.compile(
    r"_by_lua(?:_block)?$|^modsecurity_rules$|^exec(?!_kill_signal)"
    r"|^echo(?:_before_body|_after_body|_duplicate|_subrequest|_subrequest_async)?$"
)
_FILE_OF_CODE = re.compile(r"_by_lua_file$")
_NAMED = re.compile(
    r"_param$|_set_header$|^auth_http_header$|^add_(?:header|trailer)$|^js_var$|^header$"
    r"|^more_set_(?:input_)?headers$|^set(?:_if_empty)?$|^auth_request_set$"
    r"|^set_(?:hmac|sha1|md5|encode|decode|escape|quote|hashed)"
)
_URLS = re.compile(
    r"_(?:responder|redirect|loginurl|base_url|notify|request)$|^(?:hls_key_url|on_\w+"
    r"|mirror|auth_request|post_action|error_page|try_files|auth_http|add_before_body"
    r"|add_after_body|js_fetch_proxy|echo_location\w*|echo_exec|nchan_redis_url"
    r"|nchan_redis_server)$"
)
_OWN_HOST = re.compile(r"((?:[a-z]+://)?)([\w.-]{1,253})(?=[:/]|$)")
_ANY_HOST = "upstream"
_BODIES = re.compile(r"_body$|^sub_filter$|^subs_filter$|_template$|_text$|_string$|_p3p$")
_KEYS = re.compile(r"ssl_certificate(?:_key)?$|ssl_client_certificate(?:_key)?$")
_WHOLE = re.compile(
    r"(?<!cache)_password$|_passphrase$|^secure_link_(?:secret|md5|hmac|hmac_secret)$|^auth_jwt_key$"
    r"|_secret$|^encrypted_session_key$"
)
_OPENED = frozenset({
    "js_import", "js_path", "js_set", "js_content", "js_access", "js_filter", "js_preread",
    "js_header_filter", "js_body_filter", "js_periodic", "js_preload_object", "js_include",
    "lua_package_path", "lua_package_cpath", "lua_shared_dict", "fancyindex_header",
    "more_clear_headers", "more_clear_input_headers", "auth_pam_service_name", "brotli_types",
    "cache_purge_response_type", "application", "check", "session_sticky",
    "fancyindex_footer", "fancyindex_ignore", "dav_ext_methods", "dav_ext_lock_zone", "zstd_types",
    "track_uploads", "upload_progress", "geoip2", "health_check", "status_zone", "least_time",
})  # fmt: skip
"""Directives of third-party modules whose arguments are names, paths and sizes."""

_HEADERS_LIST = """
cache-control expires pragma vary x-frame-options x-content-type-options x-xss-protection
strict-transport-security content-security-policy content-security-policy-report-only
referrer-policy permissions-policy feature-policy access-control-allow-origin
access-control-allow-methods access-control-allow-headers access-control-max-age
access-control-allow-credentials access-control-expose-headers alt-svc content-type
content-language content-disposition accept-ranges last-modified etag server-timing
timing-allow-origin x-robots-tag x-ua-compatible x-cache x-cache-status x-proxy-cache
x-download-options x-permitted-cross-domain-policies cross-origin-opener-policy
cross-origin-embedder-policy cross-origin-resource-policy link host connection upgrade
x-real-ip x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port
x-forwarded-server x-forwarded-ssl x-scheme x-request-id x-original-uri x-original-url
forwarded via accept accept-encoding accept-language range if-range if-modified-since
if-none-match te early-data user-agent referer content-length transfer-encoding
x-accel-buffering x-accel-expires x-accel-redirect x-sendfile x-sendfile-type x-accel-mapping
front-end-https x-client-ip surrogate-control age allow nel report-to expect-ct
sec-websocket-version sec-websocket-extensions keep-alive x-powered-by server origin
"""
_HEADERS = frozenset(_HEADERS_LIST.split())
"""HTTP headers whose values are public, or about the transfer of a message."""
_CGI_LIST = """
query_string request_method content_type content_length script_filename script_name
request_uri document_uri document_root server_protocol request_scheme https gateway_interface
server_software remote_addr remote_port remote_user server_addr server_port server_name
redirect_status path_info path_translated http_host http_proxy uwsgi_scheme scgi host
fcgi_role geoip_country_code geoip_city modifier1
"""
_CGI = frozenset(_CGI_LIST.split())
"""Parameters of RFC 3875 and of the parameter files in nginx's packages."""
_HARMLESS_SOURCES_LIST = """
uri document_uri request_uri request_method host http_host server_name server_port scheme
status upstream_status upstream_cache_status request_filename document_root is_args https
ssl_protocol ssl_server_name ssl_preread_server_name ssl_preread_protocol
ssl_preread_alpn_protocols ssl_alpn_protocol server_protocol server_addr remote_addr
realip_remote_addr binary_remote_addr proxy_protocol_addr http_upgrade http_connection
http_accept http_accept_encoding http_accept_language http_range http_if_range content_type
http_content_type sent_http_content_type upstream_http_content_type sent_http_cache_control
upstream_http_cache_control upstream_http_set_cookie_name http_x_forwarded_proto
http_x_forwarded_for http_x_forwarded_host content_length request_length body_bytes_sent
bytes_sent request_time upstream_response_time msec geoip_country_code
geoip2_data_country_code protocol proxy_host proxy_port slice_range connection_requests
request_completion http_save_data
"""
_HARMLESS_SOURCES = frozenset(_HARMLESS_SOURCES_LIST.split())
"""Variables that are never secret, so that values compared with them are not secret either."""
_SERVER_OPTIONS = re.compile(
    r"(?:weight|max_fails|max_conns|fail_timeout|slow_start|route|service|id|sid)=[\w.:$-]*|backup"
    r"|down|drain|resolve"
)


def shown_arguments(
    name: str, args: Arguments, *, table: PlaceTable | None = None, names: Names = ()
) -> Arguments:
    """A directive's arguments as they may be shown: possible secrets are redacted.

    ``table``: the enclosing block if it is one of TABLES.
    """
    if not args:
        return args
    if table is not None:
        return _table_values(table, name, args, names)
    return (_strict if directive_name(name) == REDACTED else _shower(name))(args, names)


def shown_name(name: str, *, table: PlaceTable | None = None, is_placed: bool = False) -> str:
    """A directive's name, or a table's key, redacted if it may be a secret.

    ``is_placed``: the name is known to belong to a directive. At the top level of a file it may be
    a key, if a table in another file includes the file.
    """
    if table is not None:
        return _table_key(table, name)
    if is_placed and re.fullmatch(r"[a-z][a-z_]*", name) and len(name) <= _LONGEST_NAME:
        return name
    return directive_name(name)


@lru_cache(maxsize=4096)
def directive_name(name: str) -> str:
    """The name if it is known, close to a known name or formed like one; else redacted."""
    if is_known(name) or name in _INNER_NAMES or is_harmless(name):
        return name
    if re.fullmatch(r"[a-z]+(?:_[a-z0-9]+)+", name) and len(name) <= _LONGEST_NAME:
        return name
    return name if name.isidentifier() and nearest(name) else REDACTED


def is_closed(name: str) -> bool:
    """True for a directive whose arguments are all shown, except what looks like a secret."""
    return _shower(name) is _plain


_LONGEST_NAME = 64


_INNER_NAMES = frozenset({
    "endpoint", "header", "uri", "contact", "issuer", "cookie", "route", "learn", "send", "expect",
    "status", "body", "require", "ssl", "interval", "username", "password", "key",
})  # fmt: skip
"""Lines inside blocks of modules that are not in the table of directives."""


@lru_cache(maxsize=4096)
def _shower(name: str) -> _Show:
    """The function that shows the arguments of a directive."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    for pattern, show in _BY_FORM:
        if pattern.search(name):
            return show
    rows = rows_of(name)
    if any(row.is_own or "geoip2" in row.module for row in rows):
        return _plain
    if name in _OPENED:
        return _plain
    meant = None if rows else slip_of(name)
    return _misspelt if meant is not None and _shower(meant) is _plain else _strict


def _misspelt(args: Arguments, names: Names) -> Arguments:
    """Arguments of a misspelt directive that would show all of them: numbers are shown."""
    return tuple(arg if arg.isdecimal() else strict_value(arg, names) for arg in args)


def _plain(args: Arguments, _names: Names) -> Arguments:
    return tuple(map(plain_value, args))


def _strict(args: Arguments, names: Names) -> Arguments:
    return tuple(strict_value(arg, names) for arg in args)


def _all(args: Arguments, _names: Names) -> Arguments:
    return tuple(REDACTED if arg else arg for arg in args)


def _code(args: Arguments, _names: Names) -> Arguments:
    """Arguments that are code: a function name is shown, program text is hidden."""
    return tuple(
        arg if re.fullmatch(r"\$\w+|[A-Za-z_][\w.:]{0,60}::\w+|\d{1,3}", arg) else REDACTED
        for arg in args
    )


def _file_of_code(args: Arguments, names: Names) -> Arguments:
    return tuple(
        plain_value(arg) if arg.endswith(".lua") or is_harmless(arg, names) else REDACTED
        for arg in args
    )


def _named(args: Arguments, names: Names) -> Arguments:
    """A name, its value and a flag: ``add_header NAME VALUE always``."""
    first, *rest = args
    if ":" in first and not first.startswith("$"):  # more_set_headers "NAME: VALUE"
        name, _, value = first.partition(":")
        lead = value[: len(value) - len(value.lstrip())]
        first = f"{name}:{lead}{_header_value(name, value.lstrip(), names)}" if value else first
        return (first, *(_strict(tuple(rest), names)))
    return (first, *(_header_value(first, value, names) for value in rest))


def _header_value(name: str, value: str, names: Names) -> str:
    if name.lower() in _HEADERS or name.lower() in _CGI:
        return url_value(value) if "?" in value or "://" in value else redact_text(value)
    if SECRET_NAME.search(name):
        return named_value(name, value, names)
    if value in {"always", "if_not_empty"} or is_harmless(value, names):
        return value
    return free_value(value, names)


def _urls(args: Arguments, names: Names) -> Arguments:
    return tuple(_url(arg, names) for arg in args)


def _url(value: str, names: Names) -> str:
    own = None if "@" in value else _OWN_HOST.match(value)
    if own is not None and own[2] in names:
        # The name of an upstream of this configuration is shown even if it looks like a secret.
        rest = f"{own[1]}{_ANY_HOST}{value[own.end() :]}"
        return url_value(rest).replace(_ANY_HOST, own[2], 1)
    if "?" not in value and "@" not in value and not value.startswith(("/", "$", "~", "^", "=")):
        pair = re.fullmatch(r"([a-z_]+)=(.+)", value)
        if pair and SECRET_NAME.search(pair[1]):
            return f"{pair[1]}={REDACTED}"
    return url_value(value)


def _streams(args: Arguments, _names: Names) -> Arguments:
    return tuple(map(stream_url, args))


def _keys(args: Arguments, _names: Names) -> Arguments:
    return tuple(map(key_value, args))


def _environment(args: Arguments, _names: Names) -> Arguments:
    return tuple(map(environment_value, args))


def _server(args: Arguments, names: Names) -> Arguments:
    """A server of an upstream: an address, then options."""
    return (
        url_value(args[0]),
        *(arg if _SERVER_OPTIONS.fullmatch(arg) else strict_value(arg, names) for arg in args[1:]),
    )


def _returned(args: Arguments, names: Names) -> Arguments:
    """The arguments of ``return``: ``CODE``, ``CODE TEXT``, ``CODE URL`` or ``URL``."""
    code, text = (args[:1], args[1:]) if re.fullmatch(r"\d{1,3}", args[0]) else ((), args)
    return (*code, *(_url_or_text(one, names) for one in text))


def _url_or_text(value: str, names: Names) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|/[^/\s]|\$", value) and not re.search(r"\s", value):
        return url_value(value)
    return free_value(value, names)


def _rewritten(args: Arguments, _names: Names) -> Arguments:
    return (redact_text(args[0]), *map(url_value, args[1:]))


def _condition(args: Arguments, names: Names) -> Arguments:
    """The condition of an ``if``: ``($variable``, an operator, ``value)``.

    Source: ngx_http_rewrite_if_condition.
    """
    variable = args[0].lstrip("(").lstrip("$").rstrip(")").lower()
    if variable in _HARMLESS_SOURCES or args[0].lstrip("(!").startswith("-"):
        return tuple(map(redact_text, args))
    *between, last = args[1:] or ("",)
    value = last.removesuffix(")")
    ending = last[len(value) :]
    shown = (_compared(arg, variable, names) for arg in between)
    return (args[0], *shown, _compared(value, variable, names) + ending)[: len(args)]


def _compared(arg: str, variable: str, names: Names) -> str:
    return arg if re.fullmatch(r"!?(?:=|~\*?)", arg) else named_value(variable, arg, names)


def _table_values(table: PlaceTable, key: str, args: Arguments, names: Names) -> Arguments:
    kind, head = table
    if kind in {"types", "charset_map"} or key == "include":
        return _plain(args, names)
    if kind == "match":
        return _strict(args, names)
    target = head[-1] if head else ""
    return tuple(named_value(target.lstrip("$"), arg, names) for arg in args)


def _table_key(table: PlaceTable, key: str) -> str:
    kind, head = table
    if kind in {"types", "charset_map", "geoip2", "match"}:
        return key if re.fullmatch(r"[\w/.+$-]{1,80}", key) else REDACTED
    if kind == "split_clients" or key in {"default", "include", "hostnames", "volatile"}:
        return key
    if kind == "geo":
        return key if is_harmless(key) else REDACTED
    source = head[0] if head else ""
    variables = re.findall(r"\$\{?(\w+)", source.lower())
    if variables and all(_is_harmless_source(variable) for variable in variables):
        return redact_text(key)
    bare = key.lstrip("~*^").rstrip("$")
    return key if is_harmless(key) or is_harmless(bare) else REDACTED


def _is_harmless_source(variable: str) -> bool:
    return variable in _HARMLESS_SOURCES


_BY_NAME: dict[str, _Show] = {
    "env": _environment,
    "server": _server,
    "return": _returned,
    "rewrite": _rewritten,
    "if": _condition,
    "perl": _code,
    "perl_set": _code,
    "modsecurity_rules_remote": lambda args, _names: (REDACTED, *map(url_value, args[1:])),
    "push": _streams,
    "pull": _streams,
    "postgres_server": _strict,
    "proxy_cookie_path": _strict,
    "proxy_cookie_domain": _strict,
}
_BY_FORM: tuple[tuple[re.Pattern[str], _Show], ...] = (
    (_WHOLE, _all),
    (_CODE_NAMES, _code),
    (_FILE_OF_CODE, _file_of_code),
    (_KEYS, _keys),
    (_NAMED, _named),
    (_BODIES, _strict),
    (re.compile(r"^(?:proxy|fastcgi|uwsgi|scgi|grpc|memcached|http2|http3)_pass$|^pass$"), _urls),
    (re.compile(r"_pass$"), lambda args, names: tuple(_foreign_pass(arg, names) for arg in args)),
    (_URLS, _urls),
)


def _foreign_pass(arg: str, names: Names) -> str:
    """A target of a third-party module: an address is shown, a single word may be a password."""
    shown = url_value(arg)
    return shown if "://" in arg or ":" in arg else strict_value(arg, names)
