"""Server names and locations that a change takes away; pure.

Their requests are answered all the same, by the default server or by another location, so no load
shows it. Source: ngx_http_find_virtual_server, ngx_http_core_find_location.
"""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import scopes, servers
from nginx_tune.conf.sockets import SocketName, socket_name
from nginx_tune.conf.tree import ConfTree

_MODIFIERS = ("=", "^~")
_UNSAID = socket_name("80")


def dropped_places(old: ConfTree, new: ConfTree) -> list[str]:
    """Each with where its requests go now."""
    if old is new:
        return []
    before, after = LocationMatcher(old), LocationMatcher(new)
    gone: dict[Directive, list[str]] = {}
    heir: dict[Directive, Directive | None] = {}
    for _, server in servers(old):
        names = _names(server)
        lost = [one for one in names if _is_plain(one) and not after.names(one)]
        kept = [one for one in names if _is_plain(one) and one not in lost]
        answers = after.server_of(kept[0]) if kept else _default_instead(server, old, new)
        if lost and (kept or answers is None):
            gone[server] = lost
        heir[server] = answers
    found = [
        f"server_name {' '.join(lost)} ({server.file}:{server.line}): the default server answers"
        for server, lost in gone.items()
    ]
    for scope in scopes(old):
        own, now = scope.own, heir.get(scope.server)
        if scope.kind != "location" or now is None:
            continue
        uri = _uri(own)
        is_asked = uri is None or before.location_of(scope.server, uri) is own
        if is_asked and (said := _gone(own, now, after)):
            name = (_names(scope.server) or ["the server"])[0]
            text = f"location {' '.join(own.args)} of {name} ({own.file}:{own.line}): {said}"
            found.append(text)
    return found


def _names(server: Directive) -> list[str]:
    lines = (server.block or Block([])).all("server_name")
    return [name.lower() for line in lines for name in line.args if name]


def _is_plain(name: str) -> bool:
    """Whether it is a host's name: no pattern, and not the ``_`` that is none."""
    return name != "_" and not name.startswith("~") and "*" not in name and name[0] != "."


def _default_instead(server: Directive, old: ConfTree, new: ConfTree) -> Directive | None:
    """The server that takes the place of a default one, by another name; None for no such thing."""
    others = {name for _, one in servers(old) if one is not server for name in _names(one)}
    for address in _addresses(server):
        if _default_at(address, old) is server:
            now = _default_at(address, new)
            if now is not None and not others & set(_names(now)):
                return now
    return None


def _default_at(address: SocketName, tree: ConfTree) -> Directive | None:
    found = None
    for _, server in servers(tree):
        for line in (server.block or Block([])).all("listen"):
            if line.args and socket_name(line.value) == address:
                found = found or server
                if {"default_server", "default"} & set(line.args[1:]):
                    return server
        if address == _UNSAID and not (server.block or Block([])).all("listen"):
            found = found or server
    return found


def _addresses(server: Directive) -> Iterator[SocketName]:
    lines = [one for one in (server.block or Block([])).all("listen") if one.args]
    yield from (socket_name(one.value) for one in lines) if lines else (_UNSAID,)


def _uri(location: Directive) -> str | None:
    """What a location takes by its beginning or as a whole; None for a pattern."""
    args = location.args
    if len(args) == 2 and args[0] in _MODIFIERS:  # noqa: PLR2004  # a modifier and a URI
        return args[1]
    if len(args) == 1 and not args[0].startswith(("~", "@")):
        return args[0].removeprefix("^~").removeprefix("=")
    return None


def _gone(old: Directive, server: Directive, after: LocationMatcher) -> str:
    """Where its requests go, where no location of the new server is like it; empty for one."""
    uri = _uri(old)
    if uri is None:
        if old.args and old.args[0].startswith("@"):
            return ""
        same = any(one.args == old.args for one in (server.block or Block([])).walk())
        return "" if same else "no location has that pattern"
    now = after.location_of(server, uri)
    if now is not None and now.args[0].startswith("=") and not old.args[0].startswith("="):
        now = after.location_of(server, f"{uri}-")  # what begins so is another matter
    if now is None:
        return "the server itself answers"
    taken = _uri(now)
    if taken is None or taken == uri:
        return ""
    return f"location {' '.join(now.args)} answers"
