"""Requests for the servers and locations of a site beside the files of its first root.

Each server and location that answers by itself gets one request. The answer is not derived from the
configuration: the request is made once before anything is measured (``experiment/survey.py``).

Locations may share a root, and roots may be nested. So one file of each pair of locations that the
baseline's files fall into is requested from both variants.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import LocationMatcher, normalised
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.served import Served, has_handler, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.virtual_servers import sample_uris
from nginx_tune.documents.loadplan import Target
from nginx_tune.experiment.session import as_url
from nginx_tune.experiment.target import (
    EntryPoint,
    Spoken,
    can_load,
    spoken_at,
    target_of,
    uri_of,
    url_prefix,
    why_unreachable,
)
from nginx_tune.experiment.validate.successors import SuccessorKind, Successors
from nginx_tune.measure.load.classes import ServedFile
from nginx_tune.nginx.lab.check import is_below

_USUAL_URLS = ("/index.php", "/index.html", "/api", "/x.php", "/x.jpg", "/x.css", "/x.js", "/x")
"""URLs to try on the pattern of a location."""
_RESERVED_NAMES = frozenset({"cold", "hot", "memory", "site", "total", "server", "generator"})
"""Names with another meaning in a metric."""
_STATUS_PAGES = ("stub_status", "status", "api")
_LONGEST_NAME = 40
MADE_UP = "nginx-tune"
"""A made-up file name for URLs below a location."""


class SiteRequest(NamedTuple):
    """The request that represents a server or location."""

    name: str
    """The name of its class."""
    server: str
    """The first name of its server; empty if it has no name."""
    location: str
    """The location as written; empty for the server itself."""
    target: Target
    url: str
    root: str | None = None
    """The directory that the place serves; None if it serves no directory, or a single file."""
    url_prefix: str = ""
    spoken: Spoken = Spoken()
    """The targets of its server for HTTP/2 and HTTP/3."""
    block: Directive | None = None
    """The block of its server."""
    is_new: bool = False
    """True if only the candidate has this place."""
    is_below: bool = False
    """True if it represents the URLs below its location."""
    is_made_up: bool = False
    """True if its URL was made up for the pattern of its location."""
    picks: bool = False
    """True if its location takes only some files of the root."""

    def of_host(self, host: str) -> SiteRequest:
        """The same request with another host name."""
        http2, http3 = (
            None if form is None else msgspec.structs.replace(form, host=host)
            for form in self.spoken
        )
        target = msgspec.structs.replace(self.target, host=host)
        return self._replace(target=target, spoken=Spoken(http2, http3))

    @property
    def label(self) -> str:
        """The place, by server name and location."""
        where = f"({self.url})" if self.is_below else ""
        return " ".join(filter(None, (self.server, self.location, where))) or "the server"


class SiteRequests(NamedTuple):
    """The requests for a tree, and the places left out, with the reasons."""

    requests: list[SiteRequest]
    left_out: dict[str, str]
    at_entry: set[tuple[Directive, str]]
    """Servers and locations that the files of the entry point cover."""
    targets: dict[Directive, Target]
    """The targets, by server."""
    matcher: LocationMatcher


class CommonRequests(NamedTuple):
    """The requests for the places of both variants, as pairs of baseline and candidate."""

    pairs: list[tuple[SiteRequest, SiteRequest]]
    alone: list[tuple[SiteRequest, SiteRequest]]
    """Requests for places that only the candidate has, and for URLs below a place of the
    baseline but elsewhere in the candidate."""
    left_out: dict[str, str]


def plan_requests(tree: ConfTree, entry: EntryPoint) -> SiteRequests:
    """One request for each server and location that answers by itself, except the entry point."""
    every = served_paths(tree)
    roots = {served.scope.own: served for served in every if can_load(served)}
    picked = {served.scope.own: served for served in every if _has_picked_files(served, entry)}
    matcher = LocationMatcher(tree)
    requests: list[SiteRequest] = []
    left_out: dict[str, str] = {}
    names = set(_RESERVED_NAMES)
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
        request = SiteRequest(
            "", server_name(scope.server), location, Target(), "", spoken=spoken, block=scope.server
        )
        target, url = targets.get(scope.server), _url(scope, matcher)
        if target is None:
            left_out[request.label] = why_unreachable(tree, scope.server)
        elif url is None:
            left_out[request.label] = "no URL is known that its pattern matches"
        else:
            served = roots.get(scope.own) or picked.get(scope.own)
            request = request._replace(is_made_up=uri_of(scope) is None and location != "")
            requests.append(_placed(request, served, target, url, names))
    return SiteRequests(requests, left_out, at_entry, targets, matcher)


def common_requests(
    baseline: SiteRequests, candidate: SiteRequests, successors: Successors
) -> CommonRequests:
    """Pairs of requests, matched by the server that answers the same clients, and by location.

    If the candidate has no such place, it gets the baseline's request. Servers that the candidate
    no longer has are left out, since another server would answer.
    """
    left_out = {**baseline.left_out, **candidate.left_out}
    pairs = []
    alone = []
    unmatched = {(request.block, request.location): request for request in candidate.requests}
    for request in baseline.requests:
        block = request.block
        if block is None or block in successors.gone:
            continue
        host = successors.hosts.get(block, request.target.host)
        own = request.of_host(host)
        successor = successors.servers.get(block) or _server_named(candidate, own.server)
        other = unmatched.pop((successor, own.location), None)
        pair = (own, own if other is None else other.of_host(host)._replace(name=own.name))
        pairs.append(pair)
        if successor is not None and _is_split(block, successor, pair, baseline, candidate):
            below = [half._replace(url=_below(half), is_below=True) for half in pair]
            alone.append((below[0], below[0] if other is None else below[1]))
    before = {after: block for block, after in successors.servers.items()}
    for other in unmatched.values():
        server = None if other.block is None else before.get(other.block)
        is_at_entry = server is not None and (server, other.location) in baseline.at_entry
        left_out[other.label] = (
            "in the baseline, its files belong to the first root"
            if is_at_entry
            else "only the candidate has it"
        )
        target = None if server is None else baseline.targets.get(server)
        if server is not None and target is not None and _is_plain(other.location):
            host = successors.hosts.get(server, target.host)
            own = other._replace(
                target=target, spoken=Spoken(), block=server, root=None, is_new=True
            )
            alone.append((own.of_host(host), other.of_host(host)._replace(root=None)))
    return CommonRequests(pairs, alone, left_out)


def _is_split(
    block: Directive,
    successor: Directive,
    pair: tuple[SiteRequest, SiteRequest],
    baseline: SiteRequests,
    candidate: SiteRequests,
) -> bool:
    """True if URLs below a location go to another location in the candidate only.

    An example is ``= /api`` in place of ``/api``. Locations with files are compared by their files.
    """
    one, other = pair
    if one.root is not None or not one.location.removeprefix("^~ ").startswith("/"):
        return False
    kept, falls = (
        requests.matcher.location_of(server, _below(request))
        is requests.matcher.location_of(server, request.url)
        for requests, server, request in ((baseline, block, one), (candidate, successor, other))
    )
    return kept and not falls


def _below(request: SiteRequest) -> str:
    return f"{request.url.rstrip('/')}/{MADE_UP}"


def _server_named(requests: SiteRequests, name: str) -> Directive | None:
    return next((request.block for request in requests.requests if request.server == name), None)


def _is_plain(location: str) -> bool:
    """True if the location names a URL; what a pattern matches may not exist."""
    return location.removeprefix("= ").removeprefix("^~ ").startswith("/")


def location_text(own: Directive) -> str:
    """A location as written; empty for a server."""
    return " ".join(own.args) if own.name == "location" else ""


def server_name(server: Directive) -> str:
    """The first name of a server; empty if it has no name."""
    names = (server.block or Block([])).first("server_name")
    return names.value if names is not None else ""


def _placed(
    request: SiteRequest, served: Served | None, target: Target, url: str, names: set[str]
) -> SiteRequest:
    name = _slug(request.label, names)
    names.add(name)
    if served is None:
        return request._replace(name=name, target=target, url=url)
    if not can_load(served):
        return request._replace(name=name, target=target, url=url, root=served.root, picks=True)
    return request._replace(
        name=name, target=target, url=url, root=served.path, url_prefix=url_prefix(served)
    )


def _has_picked_files(served: Served, entry: EntryPoint) -> bool:
    """True for a location that takes some files of a root other than the first root."""
    return (
        served.via == "root"
        and served.is_whole
        and served.scope.own.name == "location"
        and served.scope.own.args[0] in {"~", "~*", "^~"}
        and not (entry.root is not None and is_below(served.root, entry.root))
    )


def _answers(scope: Scope) -> bool:
    """True if requests of clients are answered in this scope."""
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
    """True if the load at the entry point covers the scope."""
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
    for url in (*_USUAL_URLS, *(url_form for forms in made for url_form in forms)):
        if matcher.location_of(scope.server, url) is scope.own:
            yield url


def _slug(label: str, taken: Iterable[str]) -> str:
    """A name for a class: letters, digits and hyphens; a long name loses words in its middle.

    The locations of a server differ at the end.
    """
    base = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "other"
    if len(base) > _LONGEST_NAME:
        half = (_LONGEST_NAME - 2) // 2
        first, last = base[: half + 1].rpartition("-")[0], base[-half - 1 :].partition("-")[2]
        base = f"{first or base[:half]}--{last or base[-half:]}"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name


_HIDDEN = re.compile(r"/\.(?!well-known/)")


class ComparedFile(NamedTuple):
    """A file of the baseline that is requested from both variants."""

    request: SiteRequest
    file: ServedFile
    """The file behind the URL of the request."""


class Kinds:
    """The sources of a tree's answers: files, another server, or the configuration itself."""

    def __init__(self, tree: ConfTree) -> None:
        self._matcher = LocationMatcher(tree)
        self._scopes = {scope.own: scope for scope in scopes(tree)}
        self._served = {
            served.scope.own: served for served in served_paths(tree) if served.via != "cache"
        }

    def of(self, server: Directive, url: str) -> SuccessorKind:
        """The source of a server's answer for a URL, ignoring rewrites."""
        own = self._matcher.location_of(server, url) or server
        scope = self._scopes.get(own)
        if (server.block or Block([])).first("return") is not None:
            return "own"
        if scope is None or not has_handler(scope):
            return "files"
        return "passed" if _passes(scope) else "own"

    def file_at(self, server: Directive, url: str) -> str | None:
        """The file behind a URL of a server; None if unknown."""
        served = self._served.get(self._matcher.location_of(server, url) or server)
        path = normalised(url)
        if served is None or "\ufffd" in path:
            return None
        if served.via == "root":
            return posixpath.join(served.root, path.lstrip("/"))
        if not can_load(served):
            return None
        return posixpath.join(served.path, path.removeprefix(url_prefix(served)).lstrip("/"))


def _passes(scope: Scope) -> bool:
    return any(line.name.endswith("_pass") for line in scope.own.block or Block([]))


def compared_files(
    trees: Sequence[ConfTree],
    successors: Successors,
    files_of: Callable[[str], Sequence[ServedFile]],
) -> list[ComparedFile]:
    """One file of each pair of locations; ``files_of`` lists the files below a directory."""
    matchers = [LocationMatcher(tree) for tree in trees]
    served = [served for served in served_paths(trees[0]) if served.via != "cache"]
    by_scope = {place.scope.own: place for place in served}
    found: dict[tuple[Directive, Directive | None, Directive | None], ComparedFile] = {}
    for place in filter(can_load, served):
        server = place.scope.server
        other = successors.servers.get(server)
        target = target_of(trees[0], server)
        if other is None or target is None or server in successors.gone:
            continue
        host = successors.hosts.get(server, target.host)
        for path, url in _urls(place, files_of):
            own = matchers[0].location_of(server, url.url)
            if not _is_served(path, url.url, own or server, place, by_scope):
                continue
            there = matchers[1].location_of(other, url.url)
            if (server, own, there) not in found:
                location = _called(own, there)
                request = SiteRequest(
                    "", server_name(server), location, target, url.url, block=server
                )
                found[server, own, there] = ComparedFile(request.of_host(host), url)
    return list(found.values())


def _urls(
    served: Served, files_of: Callable[[str], Sequence[ServedFile]]
) -> Iterator[tuple[str, ServedFile]]:
    prefix = url_prefix(served)
    for file in files_of(served.path):
        if _HIDDEN.search(file.url, len(served.path)):
            continue  # closing access to .git and the like is no loss
        yield file.url, as_url(file, root=served.path, url_prefix=prefix)


def _is_served(
    path: str, url: str, own: Directive, one: Served, by_scope: dict[Directive, Served]
) -> bool:
    """True if the location that takes the URL serves this very file."""
    if own is one.scope.own:
        return True
    theirs = by_scope.get(own)
    if theirs is None or theirs.via != "root":
        return False
    return posixpath.join(theirs.root, normalised(url).lstrip("/")) == path


def _called(own: Directive | None, there: Directive | None) -> str:
    """The location by which the variants may differ: the candidate's, else the baseline's."""
    location = there or own
    return "" if location is None else location_text(location)
