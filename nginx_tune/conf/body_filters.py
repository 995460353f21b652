"""Filters that read bodies, so that a file does not go to the socket as it is."""

from __future__ import annotations

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

SWITCHES = ("ssi", "image_filter", "xslt_stylesheet")
TEXTS = ("sub_filter", "subs_filter")
PAGES_OF_PARTS = ("ssi", "add_before_body", "add_after_body")
"""What puts answers of other places of a server into a page, as they come (subrequests)."""
_WORDS = (
    "add_before_body", "add_after_body", "replace_filter", "body_filter_by_lua",
    "body_filter_by_lua_block", "body_filter_by_lua_file", "js_body_filter", "footer", "trim",
    "strip", "override_charset", "modsecurity",
)  # fmt: skip
"""Others that read the text of a body, of nginx and of modules of others: what is compressed they
pass on unread, or spoil. Source: ngx_http_addition_header_filter, ngx_http_charset_header_filter;
none of them looks at, or decodes, a Content-Encoding."""
_OFF = frozenset({"", "off"})


def body_filter(scope: Scope) -> Directive | None:
    """The line of such a filter that holds in a scope; null for none."""
    for name in TEXTS:
        if line := scope.effective(name):
            return line
    for name in SWITCHES:
        line = scope.effective(name)
        if line is not None and line.value.lower() != "off":
            return line
    return None


def text_filter(scope: Scope) -> Directive | None:
    """The line of a filter that a compressed body would be wrong for; null for none."""
    if line := body_filter(scope):
        return line
    lines = (scope.effective(name) for name in _WORDS)
    return next((line for line in lines if line is not None and is_on(line)), None)


def is_on(line: Directive) -> bool:
    """Whether a filter's line turns it on: an empty argument, and ``off``, do not."""
    return line.block is not None or line.value.lower() not in _OFF
