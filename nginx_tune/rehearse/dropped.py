"""Names and locations that a change takes away; pure.

Their requests are answered all the same, by the default server or by another location, so no load
shows it. Source: ngx_http_find_virtual_server, ngx_http_core_find_location.
"""

from __future__ import annotations

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.virtual_servers import names_of
from nginx_tune.validate.successors import find_successors

_MODIFIERS = ("=", "^~")


def dropped_places(old: ConfTree, new: ConfTree) -> list[str]:
    """Each with where its requests go now."""
    if old is new:
        return []
    successors = find_successors(old, new)
    before, after = LocationMatcher(old), LocationMatcher(new)
    found = list(successors.lost)
    for scope in scopes(old):
        own, now = scope.own, successors.servers.get(scope.server)
        if scope.kind != "location" or now is None:
            continue
        uri = _uri(own)
        is_asked = uri is None or before.location_of(scope.server, uri) is own
        if is_asked and (said := _gone(own, now, after)):
            name = names_of(scope.server)[0] or "the server"
            text = f"location {' '.join(own.args)} of {name} ({own.file}:{own.line}): {said}"
            found.append(text)
    return found


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
