"""What of a site is asked beside the files of its first root: other servers and locations; pure.

Each server and location that answers by itself is one ask, with a URL of its own. What it answers
is not read from the configuration: nginx is asked once, before anything is measured
(``experiment/survey.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.sample_uris import sample_uris
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.served import Served, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.loadplan import Target
from nginx_tune.experiment.entry import EntryPoint
from nginx_tune.experiment.target import (
    Spoken,
    can_load,
    spoken_at,
    target_of,
    uri_of,
    url_prefix,
    why_not_asked,
)
from nginx_tune.experiment.validate.successors import Successors
from nginx_tune.nginx.lab.check import is_below

_TRIED = ("/index.php", "/index.html", "/api", "/x.php", "/x.jpg", "/x.css", "/x.js", "/x")
"""URLs of which one may be what a pattern takes."""
_TAKEN = frozenset({"cold", "hot", "memory", "site", "total", "server", "generator"})
"""Names that mean something else in a metric."""
_STATUS_PAGES = ("stub_status", "status", "api")
_LONGEST_NAME = 40
_NO_ONES = "nginx-tune"
"""What stands for whatever a location has below its own URL."""


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
    block: Directive | None = None
    """Its server."""
    is_news: bool = False
    """Whether the candidate alone has such a place."""
    is_below: bool = False
    """Whether it stands for what lies below the URL of its location."""

    def of_host(self, host: str) -> Ask:
        """The same of a server by this name."""
        http2, http3 = (
            None if one is None else msgspec.structs.replace(one, host=host) for one in self.spoken
        )
        target = msgspec.structs.replace(self.target, host=host)
        return self._replace(target=target, spoken=Spoken(http2, http3))

    @property
    def label(self) -> str:
        """As people know it."""
        where = f"({self.url})" if self.is_below else ""
        return " ".join(filter(None, (self.server, self.location, where))) or "the server"


class Asks(NamedTuple):
    """The asks of a tree, and why others are none."""

    asks: list[Ask]
    left_out: dict[str, str]
    at_entry: set[tuple[Directive, str]]
    """Servers and locations that are asked with the files of the first root."""
    targets: dict[Directive, Target]
    """Where each server is asked."""
    matcher: LocationMatcher


class CommonAsks(NamedTuple):
    """What is asked of both arms, each by an ask of its own."""

    pairs: list[tuple[Ask, Ask]]
    alone: list[tuple[Ask, Ask]]
    """Of places that the candidate alone has, which another place of the baseline may answer, and
    of what lies below one of the baseline's and elsewhere with the candidate."""
    left_out: dict[str, str]


def plan_asks(tree: ConfTree, entry: EntryPoint) -> Asks:
    """Every server and location that answers by itself, but for what is asked at the entry."""
    roots = {served.scope.own: served for served in served_paths(tree) if can_load(served)}
    matcher = LocationMatcher(tree)
    asks: list[Ask] = []
    left_out: dict[str, str] = {}
    names = set(_TAKEN)
    at_entry: set[tuple[Directive, str]] = set()
    targets: dict[Directive, Target] = {}
    for scope in scopes(tree):
        if scope.kind == "server" and (where := target_of(tree, scope.own)) is not None:
            targets[scope.own] = where
        if not _answers(scope):
            continue
        location = location_text(scope.own)
        if _is_entry(scope, roots.get(scope.own), entry):
            at_entry.add((scope.server, location))
            continue
        spoken = spoken_at(tree, scope.server)
        ask = Ask(
            "", server_name(scope.server), location, Target(), "", spoken=spoken, block=scope.server
        )
        target, url = targets.get(scope.server), _url(scope, matcher)
        if target is None:
            left_out[ask.label] = why_not_asked(tree, scope.server)
        elif url is None:
            left_out[ask.label] = "no URL is known that its pattern takes"
        else:
            asks.append(_placed(ask, roots.get(scope.own), target, url, names))
    return Asks(asks, left_out, at_entry, targets, matcher)


def common_asks(baseline: Asks, candidate: Asks, successors: Successors) -> CommonAsks:
    """The asks of both arms, by the server that answers the same clients, and the location.

    Where the candidate has no such place, it is asked as the clients of the baseline ask. A server
    of which nothing is left is not asked: another would answer.
    """
    left_out = {**baseline.left_out, **candidate.left_out}
    pairs = []
    alone = []
    known = {(one.block, one.location): one for one in candidate.asks}
    for one in baseline.asks:
        block = one.block
        if block is None or block in successors.gone:
            continue
        host = successors.hosts.get(block, one.target.host)
        one = one.of_host(host)  # noqa: PLW2901
        there = successors.servers.get(block) or _of_name(candidate, one.server)
        other = known.pop((there, one.location), None)
        pair = (one, one if other is None else other.of_host(host)._replace(name=one.name))
        pairs.append(pair)
        if there is not None and _is_split(block, there, pair, baseline, candidate):
            below = [ask._replace(url=_below(ask), is_below=True) for ask in pair]
            alone.append((below[0], below[0] if other is None else below[1]))
    before = {after: block for block, after in successors.servers.items()}
    for other in known.values():
        own = None if other.block is None else before.get(other.block)
        is_at_entry = own is not None and (own, other.location) in baseline.at_entry
        left_out[other.label] = (
            "the baseline has its files among those of the first root"
            if is_at_entry
            else "the candidate alone has it"
        )
        target = None if own is None else baseline.targets.get(own)
        if own is not None and target is not None and _is_plain(other.location):
            host = successors.hosts.get(own, target.host)
            asked = other._replace(
                target=target, spoken=Spoken(), block=own, root=None, is_news=True
            )
            alone.append((asked.of_host(host), other.of_host(host)._replace(root=None)))
    return CommonAsks(pairs, alone, left_out)


def _is_split(
    block: Directive,
    there: Directive,
    pair: tuple[Ask, Ask],
    baseline: Asks,
    candidate: Asks,
) -> bool:
    """Whether what lies below a location falls to another one with the candidate alone.

    So it is where ``= /api`` stands in the place of ``/api``. Files are asked one by one.
    """
    one, other = pair
    if one.root is not None or not one.location.removeprefix("^~ ").startswith("/"):
        return False
    kept, falls = (
        asks.matcher.location_of(server, _below(ask)) is asks.matcher.location_of(server, ask.url)
        for asks, server, ask in ((baseline, block, one), (candidate, there, other))
    )
    return kept and not falls


def _below(ask: Ask) -> str:
    return f"{ask.url.rstrip('/')}/{_NO_ONES}"


def _of_name(asks: Asks, name: str) -> Directive | None:
    return next((one.block for one in asks.asks if one.server == name), None)


def _is_plain(location: str) -> bool:
    """Whether it is a URL that somebody names; whatever a pattern takes may exist nowhere."""
    return location.removeprefix("= ").removeprefix("^~ ").startswith("/")


def location_text(own: Directive) -> str:
    """A location as it stands in the configuration; empty for a server."""
    return " ".join(own.args) if own.name == "location" else ""


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
    kind, _, text = location_text(scope.own).partition(" ")
    made = sample_uris(text, ignores_case=kind == "~*") if kind in {"~", "~*"} else []
    for url in (*_TRIED, *(one for forms in made for one in forms)):
        if matcher.location_of(scope.server, url) is scope.own:
            yield url


def _slug(label: str, taken: Iterable[str]) -> str:
    """A name for a class: letters, digits and hyphens."""
    base = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:_LONGEST_NAME] or "other"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name
