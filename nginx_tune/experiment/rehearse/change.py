"""A change of a configuration, and the clients that it is tried with; pure.

It replaces files, and may take places away.

Requests for a name or location that is gone are answered all the same, by the default server or by
another location, so no load shows it. Source: ngx_http_find_virtual_server,
ngx_http_core_find_location.

``quic_bpf on`` is taken for off, and said, where the sandbox allows no bpf(2). Else nginx does not
start with it, and logs an emergency at a reload that takes all the rest, both of them the sandbox's
doing. Source: ngx_quic_bpf_module_init() in ngx_event_quic_bpf.c.
"""

from __future__ import annotations

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
"""The end of a message of nginx that is about a line."""


def change_between(old: ConfTree, new: ConfTree) -> dict[str, bytes]:
    """From one tree to another: the bytes that change, in the places of the old one's files.

    What the new one reads below its own directory is laid over the same names below the old one's;
    what the old one alone reads there is emptied, which nginx reads as nothing. Elsewhere files
    keep their names.
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
    """A message of nginx on a file that was laid in another's place, with the name it was read by.

    ``laid`` and ``read`` are the main file's: in a directory of its own all below it moved along.
    """
    ended = _PLACE.search(message)
    if ended is None:
        return message
    own = read_name(ended["file"], laid=laid, read=read)
    return f"{message[: ended.start('file')]}{own}{message[ended.end('file') :]}"


def read_name(file: str, *, laid: str, read: str) -> str:
    """The name by which a file was read that was laid in another's place."""
    if file == laid:
        return read
    return _moved(file, posixpath.dirname(laid), posixpath.dirname(read))


def _files(tree: ConfTree) -> dict[str, bytes]:
    return {one.source.file: one.source.data for one in tree.parsed}


def _moved(path: str, there: str, home: str) -> str:
    return posixpath.join(home, posixpath.relpath(path, there)) if _is_below(path, there) else path


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory.rstrip('/')}/")


_MODIFIERS = ("=", "^~", "~*", "~")


class _Name(NamedTuple):
    """The identity of a location, however it is written."""

    kind: str
    """``=``, ``~`` or ``~*``; empty for a beginning, with ``^~`` or without."""
    text: str


_REST = _Name("", "/")
"""The location that answers all that no other does, as a server does without it."""
_ANSWERS = ("root", "return", "rewrite")


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
        if said := _gone(scope, now, (before, after)):
            name = names_of(scope.server)[0] or "the server"
            text = f"location {' '.join(own.args)} of {name} ({own.file}:{own.line}): {said}"
            found.append(text)
    return found


def _gone(
    scope: Scope, server: Directive, matchers: tuple[LocationMatcher, LocationMatcher]
) -> str:
    """The place that now answers a location's requests; empty where it, or a new one, answers them.

    A location that is new is in the place of what it takes. One that was there before stood for
    something else.
    """
    name = _name(scope.own)
    known = {_name(one) for one in _locations(scope.server)}
    for forms in _asked(name, _around(scope)):
        own = [u for u in forms if matchers[0].location_of(scope.server, u) is scope.own]
        taken = [matchers[1].location_of(server, uri) for uri in own]
        if not own or any(_is_in_place(one, server, name, known) for one in taken):
            continue
        who = "the server itself" if taken[0] is None else f"location {' '.join(taken[0].args)}"
        return f"{who} answers{f' {own[0]}' if name.kind.startswith('~') else ''}"
    return ""


def _is_in_place(
    location: Directive | None, server: Directive, of: _Name, known: Collection[_Name]
) -> bool:
    """True if a location of NEW, or the server itself by its own lines, stands for one of OLD's."""
    if location is None:
        own = server.block or Block([])
        return of == _REST and any(own.first(line) for line in _ANSWERS)
    name = _name(location)
    return name == of or name not in known


def _locations(server: Directive) -> Iterator[Directive]:
    return (one for one in (server.block or Block([])).walk() if one.name == "location")


def _name(location: Directive) -> _Name:
    words = " ".join(location.args)
    kind = next((one for one in _MODIFIERS if words.startswith(one)), "")
    return _Name(kind if kind != "^~" else "", words.removeprefix(kind).lstrip(" "))


def _around(scope: Scope) -> str:
    """The text that the URIs of a location inside another begin with."""
    outer = [_name(one) for one in scope.chain if one.name == "location" and one is not scope.own]
    return next((one.text for one in reversed(outer) if one.text.startswith("/")), "/")


def _asked(name: _Name, around: str) -> list[list[str]]:
    """The URIs that clients of a location may ask, each in all its forms; none where not known."""
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
    "quic_bpf on is off here, in both configurations: the sandbox allows no bpf; what a reload "
    "does to it is among the predictions"
)


def wants_bpf(tree: ConfTree) -> list[Directive]:
    """The lines that ask for it."""
    return [line for line in tree.main.all("quic_bpf") if line.value == "on"]


def without_bpf(
    old: ConfTree, new: ConfTree, change: Mapping[str, bytes]
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files laid over the old ones before the change, and those laid by it.

    ``change``: the files in which the new configuration differs, at the places of the old one's.
    """
    laid = _off(old)
    own = {one.source.file: one.source.data for one in new.parsed}
    instead = {own[path]: data for path, data in _off(new).items()}
    changed = {path: instead.get(data, data) for path, data in change.items()}
    return laid, {**laid, **changed}


def _off(tree: ConfTree) -> dict[str, bytes]:
    """The bytes of the files that ask for it, with ``off``."""
    found: dict[str, bytes] = {}
    for one in tree.parsed:
        edits = [
            set_arguments(line, "off") for line in wants_bpf(tree) if line.file == one.source.file
        ]
        if edits:
            found[one.source.file] = apply_edits(one.source, edits)
    return found


_CONNECTIONS = 256
"""Connections of a class: arrivals are not to wait for the probe."""
_HELD = 8
_TIMEOUT_SECONDS = 10.0
FRESH = "fresh"
"""The class whose requests come on new connections."""
_LEAST_DOWNLOAD_BYTES = 1 << 20
"""A smaller one may fit into the buffers of the kernel: nginx is done with it at once."""
_UPLOAD_BYTES = 512 << 10
_ANSWERED = list(range(200, 400))
"""Statuses of what is served, or sent elsewhere."""


class ClientsToHold(NamedTuple):
    """The clients to hold, and the reasons to hold no other kinds."""

    clients: list[HeldClient]
    left_out: dict[HeldKind, str]


def at_rate(plan: LoadPlan, rate_per_second: float) -> LoadPlan:
    """The plan's classes at a fixed rate all together, and one that opens connections.

    A class that has a rate of its own keeps it.
    """
    first = plan.classes[0]
    paced = [one for one in plan.classes if one.arrivals.kind in {"replay", "steps"}]
    rest = [one for one in plan.classes if one not in paced]
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
    """The plan with each class content with what either configuration may answer.

    ``limited`` are by class the statuses of limits for each client: the load is no crowd.

    Served otherwise, by another redirect or with another file, is no failure of the change: what
    NEW answers is compared by itself. A body that breaks off still fails.
    """
    return msgspec.structs.replace(
        plan,
        classes=[
            msgspec.structs.replace(
                one,
                status=[*_ANSWERED, *limited.get(one.name, ())],
                paths=msgspec.structs.replace(one.paths, bytes=None, files=None),
            )
            for one in plan.classes
        ],
    )


def held_clients(
    tree: ConfTree, plan: LoadPlan, requests: Sequence[SiteRequest], *, idle: int, active: int
) -> ClientsToHold:
    """``idle`` connections over all servers that are asked, ``active`` of each other kind."""
    found: list[HeldClient] = []
    left_out: dict[HeldKind, str] = {}
    entries = _entries(plan)
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
        left_out["download"] = "no file of a MiB or more is served"
    else:
        one = HeldClient(kind="download", target=largest[1], url=largest[2], bytes=largest[0])
        found += [one] * active
    classes = {one.name for one in plan.classes}
    own = [one for one in requests if one.name in classes]
    passed = passes(scopes(tree), Variables(tree))
    upgraded = _passed_on(own, [one for one in passed if _is_upgraded(one)])
    if not upgraded:
        left_out["websocket"] = "no location that is asked passes the header Upgrade on"
    found += _spread("websocket", upgraded, active)
    taking = _passed_on(own, [one for one in passed if one.module != "memcached"])
    if not taking:
        left_out["upload"] = "no location that is asked passes requests on"
    found += _spread("upload", taking, active, _UPLOAD_BYTES)
    return ClientsToHold(found, left_out if active else {})


def _entries(plan: LoadPlan) -> list[tuple[Target, str]]:
    """One small request for each server."""
    found: dict[tuple[str, int, str | None, str], tuple[int, Target, str]] = {}
    for one in plan.classes:
        target = one.target or plan.target
        place = (target.address, target.port, target.unix, target.host)
        sizes = one.paths.bytes or [0] * len(one.paths.paths)
        for size, url in zip(sizes, one.paths.paths, strict=False):
            if place not in found or size < found[place][0]:
                found[place] = (size, target, url)
    return [(target, url) for _, target, url in found.values()]


def _largest(plan: LoadPlan) -> tuple[int, Target, str] | None:
    files = [
        (size, one.target or plan.target, url)
        for one in plan.classes
        for size, url in zip(one.paths.bytes or [], one.paths.paths, strict=False)
        if size >= _LEAST_DOWNLOAD_BYTES
    ]
    return max(files, key=lambda file: file[0], default=None)


def _is_upgraded(one: Pass) -> bool:
    lines = one.scope.effective_all("proxy_set_header")
    return one.module == "proxy" and any(line.value.lower() == "upgrade" for line in lines)


def _passed_on(requests: Sequence[SiteRequest], found: Sequence[Pass]) -> list[SiteRequest]:
    # By the server and not by its name: that on port 80 has it too, and sends all away.
    places = {
        (one.scope.server, " ".join(one.scope.own.args))
        for one in found
        if one.scope.kind == "location"
    }
    return [request for request in requests if (request.block, request.location) in places]


def _spread(
    kind: HeldKind, requests: Sequence[SiteRequest], count: int, size: int = 0
) -> list[HeldClient]:
    if not requests:
        return []
    chosen = [requests[number % len(requests)] for number in range(count)]
    return [HeldClient(kind=kind, target=one.target, url=one.url, bytes=size) for one in chosen]
