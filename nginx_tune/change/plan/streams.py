"""Streams of events in a configuration that stands: where they are, and which need nothing."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.conf.directive import Block
from nginx_tune.conf.event_streams import stream_sign
from nginx_tune.conf.media_types import EVENT_STREAM
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Decision


def streams_in(tree: ConfTree) -> list[str]:
    """The locations that pass streams on, as far as they can be told, each once."""
    found = (scope.own.args[-1] for scope in _passing(tree) if stream_sign(scope) is not None)
    return list(dict.fromkeys(found))


def with_own_streams(decision: Decision, tree: ConfTree) -> Decision:
    """The decision without the locations whose events come through as they are.

    A server that is asked in HTTP/1.1 answers in chunks, which buffering does not hold back; gzip
    does.
    """
    fine = {
        location
        for location in {one.block for one in decision.settings}
        for through in [[_comes_through(scope) for scope in _at(tree, location)]]
        if through and all(through)
    }
    settings = [
        one
        for one in decision.settings
        if one.block not in fine or one.directive != "proxy_buffering"
    ]
    if decision.settings and not settings:
        said = f"Already so: in HTTP/1.1, and not compressed. {decision.summary}"
        return replace(decision, verdict="keep", summary=said, settings=[])
    return replace(decision, settings=settings)


def _comes_through(scope: Scope) -> bool:
    types = [word.lower() for word in _words(scope, "gzip_types")]
    is_packed = scope.value("gzip", "off") == "on" and bool({EVENT_STREAM, "*"} & {*types})
    return not is_packed and scope.value("proxy_http_version") in ("1.1", "2")


def _words(scope: Scope, name: str) -> tuple[str, ...]:
    line = scope.effective(name)
    return tuple(line.args) if line is not None else ()


def _at(tree: ConfTree, location: str) -> list[Scope]:
    return [scope for scope in _passing(tree) if location in scope.own.args]


def _passing(tree: ConfTree) -> Iterator[Scope]:
    for scope in scopes(tree):
        own = scope.own.block or Block([])
        if scope.kind == "location" and scope.own.args and own.first("proxy_pass") is not None:
            yield scope
