"""A change to a configuration: files replaced, places dropped, and the clients that test it.

Requests for a dropped name or location are still answered, by the default server or another
location, so no load shows the loss. Source: ngx_http_find_virtual_server,
ngx_http_core_find_location.

``quic_bpf on`` is turned off, with a note, since the sandbox allows no bpf(2): nginx would not
start with it, and would log an emergency at a reload. Source: ngx_quic_bpf_module_init() in
ngx_event_quic_bpf.c.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.edits import apply_edits, set_arguments
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass, passes
from nginx_tune.conf.variables import Variables
from nginx_tune.conf.virtual_servers import names_of, sample_uris
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Target
from nginx_tune.documents.rehearsal import HeldKind
from nginx_tune.experiment.operations import HeldClient
from nginx_tune.experiment.validate.site_requests import SiteRequest
from nginx_tune.experiment.validate.successors import find_successors

_PLACE = re.compile(r" in (?P<file>/.*):[0-9]+$")
"""The end of an nginx message about a line of the configuration."""


def change_between(old: ConfTree, new: ConfTree) -> dict[str, bytes]:
    """The files to write, by path, so that nginx reads the new tree in place of the old tree.

    Files below the new tree's directory are moved to the directory of the old tree, under the same
    names. Files there that only the old tree reads become empty. Other files keep their paths.
    """
    before, after = _files(old), _files(new)
    home, there = posixpath.dirname(old.path), posixpath.dirname(new.path)
    moved = {_moved(path, there, home): data for path, data in after.items()}
    moved.pop(posixpath.join(home, posixpath.basename(new.path)), None)
    moved[old.path] = after[new.path]
    if home != there:
        moved |= {path: b"" for path in before if _is_below(path, home) and path not in moved}
    return {path: data for path, data in moved.items() if before.get(path) != data}


def as_read(message: str, *, laid: str, read: str) -> str:
    """A message of nginx on a moved file, with the file's original path.

    ``laid`` and ``read``: the main file's path in the sandbox, and its original path. Files below
    its directory moved with it.
    """
    ended = _PLACE.search(message)
    if ended is None:
        return message
    own = read_name(ended["file"], laid=laid, read=read)
    return f"{message[: ended.start('file')]}{own}{message[ended.end('file') :]}"


def read_name(file: str, *, laid: str, read: str) -> str:
    """The original path of a moved file."""
    if file == laid:
        return read
    return _moved(file, posixpath.dirname(laid), posixpath.dirname(read))


def _files(tree: ConfTree) -> dict[str, bytes]:
    return {parsed.source.file: parsed.source.data for parsed in tree.parsed}


def _moved(path: str, there: str, home: str) -> str:
    return posixpath.join(home, posixpath.relpath(path, there)) if _is_below(path, there) else path


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory.rstrip('/')}/")


_MODIFIERS = ("=", "^~", "~*", "~")


class _Name(NamedTuple):
    """The identity of a location, independent of spelling."""

    kind: str
    """``=``, ``~`` or ``~*``; empty for a prefix, with or without ``^~``."""
    text: str


_REST = _Name("", "/")
"""The location of all other requests, equivalent to the server itself."""
_ANSWERS = ("root", "return", "rewrite")


def dropped_places(old: ConfTree, new: ConfTree) -> list[str]:
    """Names and locations that the new tree drops, each with what answers its requests now."""
    if old is new:
        return []
    successors = find_successors(old, new)
    before, after = LocationMatcher(old), LocationMatcher(new)
    dropped = list(successors.lost)
    for scope in scopes(old):
        own, successor = scope.own, successors.servers.get(scope.server)
        if scope.kind != "location" or successor is None:
            continue
        if taken_over := _taken_over(scope, successor, (before, after)):
            name = names_of(scope.server)[0] or "the server"
            place = f"location {' '.join(own.args)} of {name} ({own.file}:{own.line})"
            dropped.append(f"{place}: {taken_over}")
    return dropped


def _taken_over(
    scope: Scope, server: Directive, matchers: tuple[LocationMatcher, LocationMatcher]
) -> str:
    """The place that now answers a dropped location's requests; empty if it is not dropped.

    A location that both trees have does not count as its replacement.
    """
    name = _name(scope.own)
    known = {_name(location) for location in _locations(scope.server)}
    for forms in _sample_uris(name, _around(scope)):
        own = [u for u in forms if matchers[0].location_of(scope.server, u) is scope.own]
        taken = [matchers[1].location_of(server, uri) for uri in own]
        if not own or any(_is_in_place(listener, server, name, known) for listener in taken):
            continue
        who = "the server itself" if taken[0] is None else f"location {' '.join(taken[0].args)}"
        return f"{who} answers{f' {own[0]}' if name.kind.startswith('~') else ''}"
    return ""


def _is_in_place(
    location: Directive | None, server: Directive, of: _Name, known: Collection[_Name]
) -> bool:
    """True if ``location`` of NEW replaces one of OLD; None stands for NEW's server itself."""
    if location is None:
        own = server.block or Block([])
        return of == _REST and any(own.first(line) for line in _ANSWERS)
    name = _name(location)
    return name == of or name not in known


def _locations(server: Directive) -> Iterator[Directive]:
    return (line for line in (server.block or Block([])).walk() if line.name == "location")


def _name(location: Directive) -> _Name:
    words = " ".join(location.args)
    kind = next((modifier for modifier in _MODIFIERS if words.startswith(modifier)), "")
    return _Name(kind if kind != "^~" else "", words.removeprefix(kind).lstrip(" "))


def _around(scope: Scope) -> str:
    """The URI prefix of the innermost enclosing location that has one, else ``/``."""
    outer = [
        _name(level) for level in scope.chain if level.name == "location" and level is not scope.own
    ]
    return next(
        (location.text for location in reversed(outer) if location.text.startswith("/")), "/"
    )


def _sample_uris(name: _Name, around: str) -> list[list[str]]:
    """Sample URIs that a location matches, each in all its forms; empty if unknown."""
    if name.kind.startswith("~"):
        return sample_uris(name.text, ignores_case=name.kind == "~*", beneath=around)
    if name.kind == "=":
        return [[name.text]]
    if name.text.startswith("@"):
        return []
    if name.text.endswith("/"):
        return [[f"{name.text}any"]]
    return [[name.text, f"{name.text}/any"]]


BPF_NOTE = (
    "quic_bpf is off in both configurations here, because the sandbox allows no bpf; the "
    "predictions cover what a reload does to it"
)


def wants_bpf(tree: ConfTree) -> list[Directive]:
    """The lines with ``quic_bpf on``."""
    return [line for line in tree.main.all("quic_bpf") if line.value == "on"]


def without_bpf(
    old: ConfTree, new: ConfTree, change: Mapping[str, bytes]
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files with ``quic_bpf off``: those to replace before the change, and those of the change.

    ``change``: the files that differ in the new configuration, by their paths in the old one.
    """
    laid = _off(old)
    own = {parsed.source.file: parsed.source.data for parsed in new.parsed}
    instead = {own[path]: data for path, data in _off(new).items()}
    changed = {path: instead.get(data, data) for path, data in change.items()}
    return laid, {**laid, **changed}


def _off(tree: ConfTree) -> dict[str, bytes]:
    """The files that have ``quic_bpf on``, by path, as bytes with ``off`` instead."""
    found: dict[str, bytes] = {}
    for parsed in tree.parsed:
        edits = [
            set_arguments(line, "off")
            for line in wants_bpf(tree)
            if line.file == parsed.source.file
        ]
        if edits:
            found[parsed.source.file] = apply_edits(parsed.source, edits)
    return found


_CONNECTIONS = 256
"""Connections of a class, so many that arrivals never wait for a free one."""
_HELD = 8
_TIMEOUT_SECONDS = 10.0
FRESH = "fresh"
"""The class that opens a connection for each request."""
_LEAST_DOWNLOAD_BYTES = 1 << 20
"""Minimum size of a download. A smaller download may fit into kernel buffers, so that nginx would
be done at once."""
_UPLOAD_BYTES = 512 << 10
_ANSWERED = list(range(200, 400))
"""Statuses of served and redirected requests."""


class ClientsToHold(NamedTuple):
    """The long connections to open, and the kinds left out, with the reasons."""

    clients: list[HeldClient]
    left_out: dict[HeldKind, str]


def at_rate(plan: LoadPlan, rate_per_second: float) -> LoadPlan:
    """The plan at a fixed total rate, with a further class that opens connections.

    Replays and steps keep their own rates.
    """
    first = plan.classes[0]
    paced = [class_ for class_ in plan.classes if class_.arrivals.kind in {"replay", "steps"}]
    rest = [class_ for class_ in plan.classes if class_ not in paced]
    share = rate_per_second / (len(rest) + 1)
    fresh = msgspec.structs.replace(
        _paced(first, share),
        name=FRESH,
        keepalive=False,
        connection_use="latest",
        held_connections=None,
    )
    return msgspec.structs.replace(plan, classes=[*paced, *(_paced(o, share) for o in rest), fresh])


def _paced(one: LoadClass, rate_per_second: float) -> LoadClass:
    return msgspec.structs.replace(
        one,
        arrivals=Arrivals(kind="poisson", rate_per_second=rate_per_second),
        connections=_CONNECTIONS,
        connection_use="turns",
        held_connections=_HELD,
        timeout_seconds=_TIMEOUT_SECONDS,
    )


def answered_by_either(plan: LoadPlan, limited: Mapping[str, Sequence[int]]) -> LoadPlan:
    """The plan, with every class accepting what either configuration may answer.

    ``limited``: by class, the statuses with which limits on each client refuse; the load counts as
    one client.

    A different redirect or file does not count as a failure here; NEW's answers are compared
    separately. A truncated body still fails.
    """
    return msgspec.structs.replace(
        plan,
        classes=[
            msgspec.structs.replace(
                class_,
                status=[*_ANSWERED, *limited.get(class_.name, ())],
                paths=msgspec.structs.replace(class_.paths, bytes=None, files=None),
            )
            for class_ in plan.classes
        ],
    )


def held_clients(
    tree: ConfTree,
    plan: LoadPlan,
    requests: Sequence[SiteRequest],
    *,
    idle: int,
    active: int,
    paced: Collection[str] = (),
) -> ClientsToHold:
    """``idle`` idle connections over all loaded servers, and ``active`` of each other kind.

    Classes below a limit (``paced``) lend their URLs only where a server has no others.
    """
    found: list[HeldClient] = []
    left_out: dict[HeldKind, str] = {}
    entries = _entries(plan, paced)
    for number in range(idle):
        target, url = entries[number % len(entries)]
        found.append(HeldClient(kind="idle", target=target, url=url))
    kinds: tuple[HeldKind, ...] = ("silent", "keepalive")
    for kind in kinds:
        for number in range(active):
            target, url = entries[number % len(entries)]
            found.append(HeldClient(kind=kind, target=target, url=url))
    largest = _largest(plan)
    if largest is None:
        left_out["download"] = "no file of 1 MiB or more is served"
    else:
        one = HeldClient(kind="download", target=largest[1], url=largest[2], bytes=largest[0])
        found += [one] * active
    classes = {class_.name for class_ in plan.classes}
    own = [request for request in requests if request.name in classes]
    passed = passes(scopes(tree), Variables(tree))
    upgraded = _passed_on(own, [passing for passing in passed if _is_upgraded(passing)])
    if not upgraded:
        left_out["websocket"] = "no loaded location passes on the Upgrade header"
    found += _spread("websocket", upgraded, active)
    taking = _passed_on(own, [passing for passing in passed if passing.module != "memcached"])
    if not taking:
        left_out["upload"] = "no loaded location passes requests on"
    found += _spread("upload", taking, active, _UPLOAD_BYTES)
    return ClientsToHold(found, left_out if active else {})


def _entries(plan: LoadPlan, paced: Collection[str]) -> list[tuple[Target, str]]:
    """One small request for each server."""
    found: dict[tuple[str, int, str | None, str], tuple[tuple[bool, int], Target, str]] = {}
    for class_ in plan.classes:
        target = class_.target or plan.target
        place = (target.address, target.port, target.unix, target.host)
        sizes = class_.paths.bytes or [0] * len(class_.paths.paths)
        for size, url in zip(sizes, class_.paths.paths, strict=False):
            cost = (class_.name in paced, size)
            if place not in found or cost < found[place][0]:
                found[place] = (cost, target, url)
    return [(target, url) for _, target, url in found.values()]


def _largest(plan: LoadPlan) -> tuple[int, Target, str] | None:
    files = [
        (size, class_.target or plan.target, url)
        for class_ in plan.classes
        for size, url in zip(class_.paths.bytes or [], class_.paths.paths, strict=False)
        if size >= _LEAST_DOWNLOAD_BYTES
    ]
    return max(files, key=lambda file: file[0], default=None)


def _is_upgraded(one: Pass) -> bool:
    lines = one.scope.effective_all("proxy_set_header")
    return one.module == "proxy" and any(line.value.lower() == "upgrade" for line in lines)


def _passed_on(requests: Sequence[SiteRequest], found: Sequence[Pass]) -> list[SiteRequest]:
    # By server, not by name: a server on port 80 may have the same name and only redirect.
    places = {
        (client.scope.server, " ".join(client.scope.own.args))
        for client in found
        if client.scope.kind == "location"
    }
    return [request for request in requests if (request.block, request.location) in places]


def _spread(
    kind: HeldKind, requests: Sequence[SiteRequest], count: int, size: int = 0
) -> list[HeldClient]:
    if not requests:
        return []
    chosen = [requests[number % len(requests)] for number in range(count)]
    return [
        HeldClient(kind=kind, target=place.target, url=place.url, bytes=size) for place in chosen
    ]
