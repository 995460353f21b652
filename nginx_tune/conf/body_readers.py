"""What reads, changes or keeps the body of an answer that comes from an upstream, as data.

Over HTTP/1.1 a server may compress where it does not for 1.0: nginx compresses from
``gzip_http_version 1.1`` on (ngx_http_gzip_ok). All else that HTTP/1.1 changes is undone before a
filter sees it: chunks and trailers by ngx_http_proxy_chunked_filter, 1xx answers by
ngx_http_proxy_process_header, ``Connection`` is never passed on. So a row says what a directive
does with an answer that has a Content-Encoding. None of the rows decodes it first: ``gunzip`` does
so for clients only that take no gzip, behind all of these.

Not in the table, since compressed answers pass them unharmed: gzip, brotli, zstd, gunzip (they
leave what is encoded alone), range, not_modified, headers, userid, chunked, slice (a part, 206, is
never compressed by nginx), headers_more, auth_request, mirror and post_action (they read no body),
perl (which makes no subrequests), mp4 and flv (handlers of files).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Effect = Literal["skipped", "spoilt"]
"""``skipped``: what is compressed goes on without the change; ``spoilt``: it is read as if it were
plain, so that the client gets something broken or an error."""


class BodyReader(NamedTuple):
    """A directive that turns on what needs plain bodies."""

    directive: str
    module: str
    effect: Effect
    what: str


ROWS: Final = (
    BodyReader("ssi", "ngx_http_ssi_module", "skipped", "commands of the page"),
    BodyReader("image_filter", "ngx_http_image_filter_module", "spoilt", "415: it is no picture"),
    BodyReader("xslt_stylesheet", "ngx_http_xslt_module", "spoilt", "500: it is no XML"),
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
    BodyReader("strip", "nginx-strip-filter", "spoilt", "bytes are taken out of gzip"),
    BodyReader("modsecurity", "ModSecurity-nginx", "skipped", "rules of the body find nothing"),
    BodyReader("pagespeed", "ngx_pagespeed", "skipped", "what is compressed it may not rewrite"),
    BodyReader("echo_before_body", "echo-nginx-module", "spoilt", "plain before gzip"),
    BodyReader("echo_after_body", "echo-nginx-module", "spoilt", "plain behind gzip"),
    BodyReader("srcache_store", "srcache-nginx-module", "skipped", "encoded answers are not kept"),
    BodyReader("xss_get", "xss-nginx-module", "spoilt", "a call around gzip"),
    BodyReader("iconv_filter", "iconv-nginx-module", "spoilt", "gzip as if it were text"),
    BodyReader("length_hiding", "length-hiding-filter", "spoilt", "plain behind gzip"),
    BodyReader("small_light", "ngx_small_light", "spoilt", "it is no picture"),
    BodyReader("mruby_output_body_filter", "ngx_mruby", "spoilt", "the body is gzip"),
    BodyReader("mruby_output_body_filter_code", "ngx_mruby", "spoilt", "the body is gzip"),
)
"""Conversions by ``charset`` and ``source_charset`` are apart: they need both (body_filters)."""

PARTS: Final = (
    "ssi", "add_before_body", "add_after_body",
    "echo_location", "echo_location_async", "echo_subrequest", "echo_subrequest_async",
    "eval", "nchan_publisher_upstream_request", "srcache_fetch",
)  # fmt: skip
"""What takes answers of other places of a server by subrequests, which carry the Accept-Encoding
of the client's request: into a page, as they come, or into a variable."""

_PHASES: Final = ("server_rewrite", "rewrite", "access", "content")
SCRIPTS: Final = (
    *(f"{phase}_by_lua{form}" for phase in _PHASES for form in ("", "_block", "_file")),
    "js_content",
    "js_access",
)
"""Phases in which a script can ask other places and read what they answer.

Source: lua-nginx-module, ngx.location.capture ("subrequests by default inherit all the request
headers of the current request", so that ``proxy_set_header Accept-Encoding ""`` is asked for);
njs, r.subrequest()."""
