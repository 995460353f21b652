"""Response bodies in filters, caches and scripts: plain, compressed, or as a stream.

An upstream may send a response compressed over HTTP/1.1 and plain over 1.0. An upstream nginx does,
by the default ``gzip_http_version 1.1`` (ngx_http_gzip_ok). Some locations need plain responses:
those with a body filter or a cache, and those whose responses a script reads by a subrequest. A
location gets plain responses only while its requests use HTTP/1.0 or ask for no compression.

All other changes of HTTP/1.1 are undone before a filter sees them: chunks and trailers by
ngx_http_proxy_chunked_filter, 1xx responses by ngx_http_proxy_process_header. ``Connection`` is
never passed on. So each row of ``ROWS`` has a directive's effect on a response with a
Content-Encoding. None of these directives decodes it first: ``gunzip`` runs after all of them, and
only for clients that do not accept gzip.

Compressed responses pass other modules unharmed: gzip, brotli, zstd and gunzip (they leave encoded
bodies alone), range, not_modified, headers, userid, chunked, slice (nginx never compresses a part,
206), headers_more, auth_request, mirror and post_action (they read no body), perl (which makes no
subrequests), mp4 and flv (handlers of files).
"""

import re
from typing import Final, Literal, NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.upstreams import Pass, sent_header

Effect = Literal["skipped", "spoilt"]
"""``skipped``: a compressed body passes unchanged; ``spoilt``: it is read as if it were plain, so
the client gets a broken response or an error."""


class BodyReader(NamedTuple):
    """A directive that turns on a filter that needs plain bodies."""

    directive: str
    module: str
    effect: Effect
    what: str


ROWS: Final = (
    BodyReader("ssi", "ngx_http_ssi_module", "skipped", "commands of the page"),
    BodyReader(
        "image_filter", "ngx_http_image_filter_module", "spoilt", "415: it is not a picture"
    ),
    BodyReader("xslt_stylesheet", "ngx_http_xslt_module", "spoilt", "500: it is not XML"),
    BodyReader("sub_filter", "ngx_http_sub_module", "skipped", "texts are not found"),
    BodyReader("subs_filter", "ngx_http_subs_filter_module", "skipped", "texts are not found"),
    BodyReader("add_before_body", "ngx_http_addition_module", "spoilt", "plain before gzip"),
    BodyReader("add_after_body", "ngx_http_addition_module", "spoilt", "plain behind gzip"),
    BodyReader("override_charset", "ngx_http_charset_module", "skipped", "the answer's charset"),
    BodyReader("replace_filter", "replace-filter-nginx-module", "skipped", "texts are not found"),
    BodyReader("body_filter_by_lua", "lua-nginx-module", "spoilt", "ngx.arg[1] is gzip"),
    BodyReader("body_filter_by_lua_block", "lua-nginx-module", "spoilt", "ngx.arg[1] is gzip"),
    BodyReader("body_filter_by_lua_file", "lua-nginx-module", "spoilt", "ngx.arg[1] is gzip"),
    BodyReader("js_body_filter", "ngx_http_js_module", "spoilt", "data is gzip"),
    BodyReader("footer", "nginx-http-footer-filter", "spoilt", "plain behind gzip"),
    BodyReader("trim", "ngx_http_trim_filter_module", "skipped", "nothing is trimmed"),
    BodyReader("strip", "nginx-strip-filter", "spoilt", "bytes are removed from the gzip data"),
    BodyReader("modsecurity", "ModSecurity-nginx", "skipped", "rules on the body match nothing"),
    BodyReader("pagespeed", "ngx_pagespeed", "skipped", "compressed bodies are not rewritten"),
    BodyReader("echo_before_body", "echo-nginx-module", "spoilt", "plain before gzip"),
    BodyReader("echo_after_body", "echo-nginx-module", "spoilt", "plain behind gzip"),
    BodyReader("srcache_store", "srcache-nginx-module", "skipped", "encoded answers are not kept"),
    BodyReader("xss_get", "xss-nginx-module", "spoilt", "a function call around gzip bytes"),
    BodyReader("iconv_filter", "iconv-nginx-module", "spoilt", "gzip bytes as if they were text"),
    BodyReader("length_hiding", "length-hiding-filter", "spoilt", "plain behind gzip"),
    BodyReader("small_light", "ngx_small_light", "spoilt", "it is not a picture"),
    BodyReader("mruby_output_body_filter", "ngx_mruby", "spoilt", "the body is gzip"),
    BodyReader("mruby_output_body_filter_code", "ngx_mruby", "spoilt", "the body is gzip"),
)
"""The body filters, except ``charset`` with ``source_charset``, a pair (see ``conversion``)."""

PARTS: Final = (
    "ssi", "add_before_body", "add_after_body",
    "echo_location", "echo_location_async", "echo_subrequest", "echo_subrequest_async",
    "eval", "nchan_publisher_upstream_request", "srcache_fetch",
)  # fmt: skip
"""Directives that fetch responses of other locations by subrequests, which carry the client's
Accept-Encoding. The response goes into a page, to the client as it is, or into a variable."""

_PHASES: Final = ("server_rewrite", "rewrite", "access", "content")
SCRIPTS: Final = (
    *(f"{phase}_by_lua{form}" for phase in _PHASES for form in ("", "_block", "_file")),
    "js_content",
    "js_access",
)
"""Phases in which a script can make requests to other locations and read the responses.
Source: lua-nginx-module, ngx.location.capture ("subrequests by default inherit all the request
headers of the current request", hence its advice ``proxy_set_header Accept-Encoding ""``);
njs, r.subrequest()."""


SWITCHES = ("ssi", "image_filter", "xslt_stylesheet")
TEXTS = ("sub_filter", "subs_filter")
_APART = frozenset({*SWITCHES, *TEXTS})
_WORDS = tuple(row.directive for row in ROWS if row.directive not in _APART)
"""Directives of nginx and third-party modules that read the text of a body and that ``body_filter``
does not cover. They skip or spoil a compressed body (see ``ROWS``)."""
_OFF = frozenset({"", "off"})


def body_filter(scope: Scope) -> Directive | None:
    """The line of a body filter in effect in a scope; None if there is none."""
    for name in TEXTS:
        if line := scope.effective(name):
            return line
    for name in SWITCHES:
        line = scope.effective(name)
        if line is not None and line.value.lower() != "off":
            return line
    return None


def text_filter(scope: Scope) -> Directive | None:
    """The line of a filter that cannot handle compressed bodies; None if there is none."""
    if line := body_filter(scope) or conversion(scope):
        return line
    lines = (scope.effective(name) for name in _WORDS)
    return next((line for line in lines if line is not None and is_on(line)), None)


def conversion(scope: Scope) -> Directive | None:
    """The ``source_charset`` line if text may be converted to another charset; otherwise None.

    A response with a Content-Encoding is not converted, and its charset is not named. Without
    ``charset``, the upstream may request a conversion by ``X-Accel-Charset``.

    Source: ngx_http_charset_header_filter(), ngx_http_destination_charset().
    """
    source, wanted = scope.effective("source_charset"), scope.effective("charset")
    if source is None or not is_on(source):
        return None
    if wanted is None:
        return source
    if not is_on(wanted):
        return None
    is_same = wanted.value.lower() == source.value.lower() and "$" not in wanted.value
    return None if is_same else source


def is_on(line: Directive) -> bool:
    """True if a line turns its filter on: by a block, or an argument other than ``off``."""
    return line.block is not None or line.value.lower() not in _OFF


UNBUFFERED = "proxy_request_buffering"
KEEPS = ("proxy_cache", "proxy_store")
_ASKING = frozenset({*PARTS, *SCRIPTS})
_ASKS_OR_LOADS = re.compile(r"capture|\brequire\b|\bdofile\b|\bload\w*")
"""Words in a script that make requests to other locations, or run code from elsewhere."""


def spoilt_by_gzip(scope: Scope) -> Directive | None:
    """The line that requires plain responses from the upstream; None if there is none.

    It turns on a body filter, a page that includes the response, a script that may request it, or
    a cache or store: nginx keeps one response for clients with and without gzip, unless the
    upstream sends ``Vary``.
    """
    if _asks_for_none(scope):
        return None
    if line := text_filter(scope) or _asked_by(scope):
        return line
    for name in KEEPS:
        line = scope.effective(name)
        if line is not None and is_on(line) and not (name == "proxy_cache" and _is_apart(scope)):
            return line
    return None


def stays_at_1_0(scope: Scope) -> Directive | None:
    """The line that is the reason to leave requests at HTTP/1.0; None if there is none.

    An unbuffered request body is sent with its length over 1.0, and in chunks over 1.1. Source:
    ngx_http_proxy_create_request().
    """
    if scope.effective("proxy_http_version") is not None:
        return None
    if scope.value(UNBUFFERED) == "off":
        return scope.effective(UNBUFFERED)
    return spoilt_by_gzip(scope)


def unrepeated(scope: Scope, module: str) -> Directive | None:
    """The line that prevents a retry after a connection error; None if there is a retry.

    Source: ngx_http_upstream_next(): a request on a kept connection gets another try
    (``peer.cached``), unless ``proxy_next_upstream`` lacks ``error``.
    """
    line = scope.effective(f"{module}_next_upstream")
    return line if line is not None and "error" not in line.args else None


def is_better_left(one: Pass) -> bool:
    """True if kept connections would change the responses of a location."""
    is_plain = one.module == "proxy" and stays_at_1_0(one.scope) is not None
    return is_plain or unrepeated(one.scope, one.module) is not None


def _asks_for_none(scope: Scope) -> bool:
    """True if requests never ask the upstream for compression.

    False if the header is set to a coding: an upstream nginx ignores it over HTTP/1.0 only.
    """
    own = sent_header(scope, "proxy", "accept-encoding")
    if own is not None:
        return own.args[1].strip().lower() in ("", "identity")
    return scope.value("proxy_pass_request_headers") == "off"


def _is_apart(scope: Scope) -> bool:
    """True if a cache gives compressed responses only to clients that requested them."""
    key = scope.effective("proxy_cache_key")
    is_of_key = key is not None and "accept_encoding" in str(key).lower()
    return is_of_key or scope.value("gunzip") == "on"


def _asked_by(scope: Scope) -> Directive | None:
    """A line that may make a response of this location part of another response."""
    if scope.tree.names.isdisjoint(_ASKING):
        return None
    own = (scope.server.block or Block([])).walk()
    around = (line for line in scope.chain[0].block or Block([]) if line.name in _ASKING)
    return next((line for line in (*own, *around) if line.name in _ASKING and _asks(line)), None)


def _asks(line: Directive) -> bool:
    """True if a line uses the responses of other locations, or is a script that may use them."""
    if line.name not in SCRIPTS:
        return is_on(line)
    if line.name.endswith("_file") or line.name.startswith("js_"):
        return True
    text = line.source.text[line.end : line.close] if line.block is not None else line.words
    return _ASKS_OR_LOADS.search(text) is not None


COMPRESSED = frozenset(
    {
        "image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp", "image/avif",
        "application/zip", "application/gzip", "application/x-gzip", "application/x-rar-compressed",
        "application/x-7z-compressed", "font/woff", "font/woff2", "application/font-woff",
        "application/font-woff2", "application/x-font-woff", "video/mp4", "video/webm",
        "audio/mpeg", "audio/ogg", "audio/mp4",
    }
)  # fmt: skip
"""Types that gzip cannot make smaller."""
OLDER_FONTS = frozenset(
    {"application/font-woff", "application/font-woff2", "application/x-font-woff"}
)
"""Types of WOFF files before nginx 1.15.1, whose ``conf/mime.types`` has font/woff."""
FONTS_RENAMED = (1, 15, 1)
EVENT_STREAM = "text/event-stream"
"""The type of event streams, which gzip delays because buffered responses are not flushed."""


ASKED_OFF = "x-accel-buffering"
_STREAM_PATH = re.compile(
    r"(^|/)(sse|event[-_]?stream|eventsource)(/|$)|(^|/)chat/completions(/|$)", re.IGNORECASE
)
"""Paths used only for event streams."""


def is_stream_path(path: str) -> bool:
    """True if a location's path suggests an event stream."""
    return _STREAM_PATH.search(path) is not None


def stream_sign(scope: Scope) -> Directive | None:
    """The line that shows that ``proxy_pass`` carries an event stream here; None if none does."""
    accept = sent_header(scope, "proxy", "accept")
    if accept is not None and accept.args[1].lower() == EVENT_STREAM:
        return accept
    sent = sent_header(scope, "proxy", ASKED_OFF)
    for line in [*([sent] if sent else []), *scope.effective_all("add_header")]:
        if [word.lower() for word in line.args[:2]] == [ASKED_OFF, "no"]:
            return line
    places = [level for level in scope.chain if level.name == "location" and level.args]
    return next((place for place in places if is_stream_path(place.args[-1])), None)
