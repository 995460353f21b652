"""Filters that read bodies, so that a file does not go to the socket as it is."""

from __future__ import annotations

from nginx_tune.conf.body_readers import ROWS
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

SWITCHES = ("ssi", "image_filter", "xslt_stylesheet")
TEXTS = ("sub_filter", "subs_filter")
_APART = frozenset({*SWITCHES, *TEXTS})
_WORDS = tuple(row.directive for row in ROWS if row.directive not in _APART)
"""Others that read the text of a body, of nginx and of modules of others: what is compressed they
pass on unread, or spoil (see ``body_readers``)."""
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
    if line := body_filter(scope) or conversion(scope):
        return line
    lines = (scope.effective(name) for name in _WORDS)
    return next((line for line in lines if line is not None and is_on(line)), None)


def conversion(scope: Scope) -> Directive | None:
    """The ``source_charset`` from which text may be converted to another; null for none.

    What has a Content-Encoding goes on in the source's charset, and without a name of it. Without
    ``charset`` the server may ask for a conversion by ``X-Accel-Charset``.

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
    """Whether a filter's line turns it on: an empty argument, and ``off``, do not."""
    return line.block is not None or line.value.lower() not in _OFF
