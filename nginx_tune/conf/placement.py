"""Where each directive of a tree stands, in the words of nginx's command tables.

A file included from two contexts is met in each, from one context once. Blocks whose lines are
no directives (``map``, ``types``), and blocks that nobody here knows, are not looked into.
"""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.tree import ConfTree

_INSIDE = {
    ("main", "events"): "events",
    ("main", "http"): "http",
    ("main", "mail"): "mail",
    ("main", "stream"): "stream",
    ("main", "rtmp"): "rtmp",
    ("http", "server"): "server",
    ("http", "upstream"): "upstream",
    ("server", "location"): "location",
    ("server", "if"): "server-if",
    ("location", "location"): "location",
    ("location", "if"): "location-if",
    ("location", "limit_except"): "limit_except",
    ("mail", "server"): "mail-server",
    ("stream", "server"): "stream-server",
    ("stream", "upstream"): "stream-upstream",
    ("rtmp", "server"): "rtmp-server",
    ("rtmp-server", "application"): "rtmp-application",
    ("rtmp-application", "recorder"): "rtmp-recorder",
}

_HTTP_ALONE = ("location", "root", "index", "try_files", "rewrite", "error_page")
"""What servers of http alone hold."""


def placed(tree: ConfTree) -> Iterator[tuple[Directive, str]]:
    """Every directive with its context.

    A part of a configuration (a site, a snippet) tells its context by what it holds, or gives
    nothing: sites stand in ``http``; of a snippet only the inside of its locations is certain.
    """
    if not tree.is_part:
        yield from _placed(tree.main, "main", set())
    elif any(map(_is_of_http, tree.main.all("server"))):
        yield from _placed(tree.main, "http", set())
    else:
        for location in tree.main.all("location"):
            if location.block is not None:
                yield from _placed(location.block, "location", set())


def _is_of_http(server: Directive) -> bool:
    """Whether a server is none of mail or stream, which have blocks of that name too."""
    return server.block is not None and any(map(server.block.all, _HTTP_ALONE))


def _placed(
    block: Block, context: str, seen: set[tuple[int, str]]
) -> Iterator[tuple[Directive, str]]:
    for directive in block.directives:
        if directive.included is not None:
            for file in directive.included:
                if (id(file), context) not in seen:
                    seen.add((id(file), context))
                    yield from _placed(file, context, seen)
            continue
        yield directive, context
        inside = _INSIDE.get((context, directive.name))
        if inside is not None and directive.block is not None:
            yield from _placed(directive.block, inside, seen)
