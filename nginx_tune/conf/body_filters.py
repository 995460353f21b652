"""Filters that read bodies, so that a file does not go to the socket as it is."""

from __future__ import annotations

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

SWITCHES = ("ssi", "image_filter", "xslt_stylesheet")
TEXTS = ("sub_filter", "subs_filter")


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
