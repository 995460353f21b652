"""What of a site is asked beside the files of its first root: other servers and locations; pure.

Each server and location that answers by itself is one ask, with a URL of its own. What it answers
is not read from the configuration: nginx is asked once, before anything is measured
(``experiment/survey.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.served import Served, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.loadplan import Target
from nginx_tune.experiment.target import (
    EntryPoint,
    Spoken,
    can_load,
    spoken_at,
    target_of,
    uri_of,
    url_prefix,
)
from nginx_tune.lab.check import is_below

_TRIED = ("/index.php", "/index.html", "/api", "/x.php", "/x.jpg", "/x.css", "/x.js", "/x")
"""URLs of which one may be what a pattern takes."""
_TAKEN = frozenset({"cold", "hot", "memory", "site", "total", "server", "generator"})
"""Names that mean something else in a metric."""
_STATUS_PAGES = ("stub_status", "status", "api")
_LONGEST_NAME = 40


class Ask(NamedTuple):
    """A server or location with the URL it is asked by."""

    name: str
    """Of its class."""
    server: str
    """The first name of its server; empty for none."""
    location: str
    """As it stands in the configuration; empty for the server itself."""
    target: Target
    url: str
    root: str | None = None
    """Directory of the files that it serves; none where it serves none, or one alone."""
    url_prefix: str = ""
    spoken: Spoken = Spoken()
    """Where its server speaks more than HTTP/1.1."""

    @property
    def label(self) -> str:
        """As people know it."""
        return " ".join(word for word in (self.server, self.location) if word) or "the server"


class Asks(NamedTuple):
    """The asks of a tree, and why others are none."""

    asks: list[Ask]
    left_out: dict[str, str]


def plan_asks(tree: ConfTree, entry: EntryPoint) -> Asks:
    """Every server and location that answers by itself, but for what is asked at the entry."""
    roots = {served.scope.own: served for served in served_paths(tree) if can_load(served)}
    matcher = LocationMatcher(tree)
    asks: list[Ask] = []
    left_out: dict[str, str] = {}
    names = set(_TAKEN)
    for scope in scopes(tree):
        if not _answers(scope) or _is_entry(scope, roots.get(scope.own), entry):
            continue
        server = server_name(scope.server)
        location = " ".join(scope.own.args) if scope.kind == "location" else ""
        ask = Ask("", server, location, Target(), "", spoken=spoken_at(tree, scope.server))
        target, url = target_of(tree, scope.server), _url(scope, matcher)
        if target is None:
            left_out[ask.label] = "its server listens for no HTTP/1.1 on an address or a socket"
        elif url is None:
            left_out[ask.label] = "no URL is known that its pattern takes"
        else:
            asks.append(_placed(ask, roots.get(scope.own), target, url, names))
    return Asks(asks, left_out)


def common_asks(baseline: Asks, candidate: Asks) -> tuple[list[tuple[Ask, Ask]], dict[str, str]]:
    """The asks of both arms, by server and location; why others are left out.

    Where the candidate has no such place, it is asked as the clients of the baseline ask.
    """
    left_out = {**baseline.left_out, **candidate.left_out}
    pairs = []
    known = {(one.server, one.location): one for one in candidate.asks}
    for one in baseline.asks:
        other = known.pop((one.server, one.location), None)
        pairs.append((one, one if other is None else other._replace(name=one.name)))
    return pairs, left_out | {one.label: "the candidate alone has it" for one in known.values()}


def server_name(server: Directive) -> str:
    """The first name of a server; empty for none."""
    names = (server.block or Block([])).first("server_name")
    return names.value if names is not None else ""


def _placed(ask: Ask, served: Served | None, target: Target, url: str, names: set[str]) -> Ask:
    name = _slug(ask.label, names)
    names.add(name)
    if served is None:
        return ask._replace(name=name, target=target, url=url)
    return ask._replace(
        name=name, target=target, url=url, root=served.path, url_prefix=url_prefix(served)
    )


def _answers(scope: Scope) -> bool:
    """Whether requests of clients end in this scope."""
    own = scope.own.block or Block([])
    around = scope.server.block or Block([])
    if scope.kind == "server":
        locations = own.all("location")
        if any(location.args[-1:] == ("/",) for location in locations):
            return bool(own.first("return"))
        return not locations or bool(own.first("return") or scope.effective("root"))
    if scope.kind == "if" or around.first("return") is not None:
        return False
    if any(own.first(name) for name in ("internal", *_STATUS_PAGES)):
        return False
    return not scope.own.value.startswith("@")


def _is_entry(scope: Scope, served: Served | None, entry: EntryPoint) -> bool:
    """Whether it is asked at the entry anyway."""
    if scope.server is not entry.server:
        return False
    if uri_of(scope) is not None and uri_of(scope) == entry.memory_url:
        return True
    return (
        served is not None
        and entry.root is not None
        and is_below(served.path, entry.root)
        and url_prefix(served).startswith(entry.url_prefix)
        and (served.via == "root" or served.path == entry.root)
    )


def _url(scope: Scope, matcher: LocationMatcher) -> str | None:
    if scope.kind == "server":
        return "/"
    uri = uri_of(scope)
    if uri is not None:
        return uri
    return next(_taken_by(scope, matcher), None)


def _taken_by(scope: Scope, matcher: LocationMatcher) -> Iterator[str]:
    for url in _TRIED:
        if matcher.location_of(scope.server, url) is scope.own:
            yield url


def _slug(label: str, taken: Iterable[str]) -> str:
    """A name for a class: letters, digits and hyphens."""
    base = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:_LONGEST_NAME] or "other"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name
