"""What a configuration shows that nginx serves: files, a cache, or what upstreams answer.

Every place that answers says one kind. Where they differ a cache comes first, since its disk is
what can hold up everything else; then the kind that answers ``location /`` of most servers, then
the one with most places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.workload import Kind

_PASSES = frozenset(
    {"proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"}
)
_MEDIA = ("mp4", "flv", "hls")


class KindFound(NamedTuple):
    """A kind and what shows it."""

    kind: Kind
    reason: str
    """Where it was seen, and what other kinds the configuration has, in a clause."""


def kind_in(tree: ConfTree) -> KindFound | None:
    """The kind that a configuration serves; null where nothing in it answers from files or passes.

    Source: the lines that hold where requests are answered.
    """
    seen: dict[Kind, list[tuple[Scope, Directive]]] = {}
    for kind, scope, line in _answers(tree):
        seen.setdefault(kind, []).append((scope, line))
    if not seen:
        streams = [KindFound("proxy", f"from {_where(one)}") for one in _passed_streams(tree)]
        return streams[0] if streams else None

    def rank(kind: Kind) -> tuple[bool, int, int]:
        places = seen[kind]
        mains = sum(1 for scope, _ in places if scope.own.args == ("/",))
        return kind == "cache", mains, len(places)

    chosen = max(seen, key=rank)
    reason = f"from {_where(seen[chosen][0][1])}"
    others = [f"{kind} ({_where(seen[kind][0][1])})" for kind in seen if kind != chosen]
    if others:
        reason += f"; in it too: {', '.join(others)}, which --kind would take instead"
    return KindFound(chosen, reason)


def _answers(tree: ConfTree) -> Iterator[tuple[Kind, Scope, Directive]]:
    cached = set()
    for one in served_paths(tree):
        if one.via == "cache":
            cached.add(id(one.scope.own))
            yield "cache", one.scope, one.place
        elif _passing(one.scope) is None:
            is_media = any(one.scope.own.block and one.scope.own.block.all(n) for n in _MEDIA)
            yield "media" if is_media else "static", one.scope, one.place
    for scope in scopes(tree):
        line = _passing(scope)
        if line is not None and id(scope.own) not in cached:
            yield "proxy", scope, line


def _passed_streams(tree: ConfTree) -> Iterator[Directive]:
    """A stream takes a connection of a client and one of the upstream, as a proxied request does.

    Source: ngx_stream_proxy_module.
    """
    for stream in tree.main.all("stream"):
        for server in stream.block.all("server") if stream.block else ():
            yield from server.block.all("proxy_pass") if server.block else ()


def _passing(scope: Scope) -> Directive | None:
    return next((line for line in scope.own.block or () if line.name in _PASSES), None)


def _where(line: Directive) -> str:
    return f"{line.file}:{line.line} {line.name}"
