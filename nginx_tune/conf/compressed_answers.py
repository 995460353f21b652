"""The places whose answers must not come compressed, so that they are asked over HTTP/1.0.

nginx as a server, and others, compress for HTTP/1.1 alone (``gzip_http_version 1.1``,
ngx_http_gzip_ok): a place with a filter that reads bodies, with a cache, or that a script asks by
a subrequest gets plain answers only as long as it asks by HTTP/1.0, or for none compressed.
"""

from __future__ import annotations

import re

from nginx_tune.conf.body_filters import is_on, text_filter
from nginx_tune.conf.body_readers import PARTS, SCRIPTS
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.upstreams import Pass, sent_header

UNBUFFERED = "proxy_request_buffering"
KEEPS = ("proxy_cache", "proxy_store")
_ASKING = frozenset({*PARTS, *SCRIPTS})
_ASKS_OR_LOADS = re.compile(r"capture|\brequire\b|\bdofile\b|\bload\w*")
"""In the text of a script: that it asks other places, or runs code that is not in sight."""


def spoilt_by_gzip(scope: Scope) -> Directive | None:
    """The line that holds in a place for which an answer must not come compressed; null for none.

    A filter of bodies, a page that the answer becomes a part of, a script that may ask for it, and
    what is kept for all: nginx keeps one answer for who takes gzip and who does not, unless the
    server sends ``Vary``.
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
    """The line for which requests of a place are not made HTTP/1.1; null for none.

    A body that is passed on as it comes has its length before 1.1, and is chunked with it. Source:
    ngx_http_proxy_create_request().
    """
    if scope.effective("proxy_http_version") is not None:
        return None
    if scope.value(UNBUFFERED) == "off":
        return scope.effective(UNBUFFERED)
    return spoilt_by_gzip(scope)


def unrepeated(scope: Scope, module: str) -> Directive | None:
    """The line by which an error of a connection is not tried again; null where it is.

    Source: ngx_http_upstream_next(): a connection that was kept has a try more (``peer.cached``),
    unless ``proxy_next_upstream`` lacks ``error``.
    """
    line = scope.effective(f"{module}_next_upstream")
    return line if line is not None and "error" not in line.args else None


def is_better_left(one: Pass) -> bool:
    """Whether kept connections would change what clients of a place are answered."""
    is_plain = one.module == "proxy" and stays_at_1_0(one.scope) is not None
    return is_plain or unrepeated(one.scope, one.module) is not None


def _asks_for_none(scope: Scope) -> bool:
    """Whether a server is never told that a client takes compressed answers.

    A constant that names a coding is no help: before 1.1 nginx does not answer to it either.
    """
    own = sent_header(scope, "proxy", "accept-encoding")
    if own is not None:
        return own.args[1].strip().lower() in ("", "identity")
    return scope.value("proxy_pass_request_headers") == "off"


def _is_apart(scope: Scope) -> bool:
    """Whether a cache gives nobody what is compressed who did not ask for it."""
    key = scope.effective("proxy_cache_key")
    is_of_key = key is not None and "accept_encoding" in str(key).lower()
    return is_of_key or scope.value("gunzip") == "on"


def _asked_by(scope: Scope) -> Directive | None:
    """The line of a server by which an answer of this place may become a part of another one."""
    if scope.tree.names.isdisjoint(_ASKING):
        return None
    own = (scope.server.block or Block([])).walk()
    around = (line for line in scope.chain[0].block or Block([]) if line.name in _ASKING)
    return next((line for line in (*own, *around) if line.name in _ASKING and _asks(line)), None)


def _asks(line: Directive) -> bool:
    """Whether a line takes answers of other places: a script unless its whole text shows none."""
    if line.name not in SCRIPTS:
        return is_on(line)
    if line.name.endswith("_file") or line.name.startswith("js_"):
        return True
    text = line.source.text[line.end : line.close] if line.block is not None else line.words
    return _ASKS_OR_LOADS.search(text) is not None
