"""Decisions adapted to the names and listen lines of an existing configuration.

Decisions name upstreams, zones, formats and directories of a generated file. For an existing
configuration they must use its names, and leave out settings for parts that it lacks. A cache
inside another is left out too, since the outer cache's loader would delete its files
(ngx_http_file_cache_manage_file()). Each setting lists the lines that it needs. Event streams that
already pass through get no settings.

An option of ``listen`` is written to one line per socket; a socket may have several spellings. Only
one line of a socket may have socket options ("duplicate listen options", ngx_http_add_addresses),
so further options are written to the same line.
"""

import posixpath
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.change.plan.caching import file_bytes, with_own_words
from nginx_tune.conf.answer_bodies import EVENT_STREAM, stream_sign
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import (
    ListenAddress,
    SocketName,
    is_socket_option,
    listeners,
    socket_name,
)
from nginx_tune.conf.logs import log_formats
from nginx_tune.conf.scopes import Scope, http_blocks, http_directives, scopes
from nginx_tune.conf.served import MODULES, zone_names
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import upstreams
from nginx_tune.conf.workers import declared_pools
from nginx_tune.decide.cache_layout import KEY_AMONG_OTHERS, NEW_CACHE_RISKS
from nginx_tune.decide.pool_sizes import ALL_THREADS
from nginx_tune.documents.decisions import Decision, Setting

_OWN_FORMATS = ("combined", "main")
_CHOICE = "$disk"
"""The variable with which a generated file spreads keys over caches."""
_CHOSEN = (
    "the configuration selects among its caches itself: pools per disk must follow that selection"
)
_ONE_POOL = (
    "One pool for all disks: the configuration selects among its caches itself, and pools per disk "
    "must follow that selection."
)


def adapted(decision: Decision, tree: ConfTree, *, caches: bool) -> Decision:
    """The decision with the site's own names, without settings for parts that the site lacks.

    ``caches``: any module of the site already caches, or the site proxies nothing that could be
    cached. Then the selection of caches stays as it is.
    """
    if caches and not _splits(tree):
        decision = _without_choice(decision, tree)
    settings, risks = list(decision.settings), list(decision.risks)
    if decision.id == "cache-key":  # compression stays; the key contains the client's encodings
        settings = [setting for setting in settings if setting.directive != "proxy_set_header"]
    settings = _with_free_zones([_keyed(s, tree) for s in settings], tree)
    left: list[Setting] = []
    small: list[str] = []
    mean, existing = file_bytes(decision), caches_in(tree)
    is_chosen = any(s.directive == "proxy_cache" for s in settings)
    for setting in settings:
        if why := _why_no_cache(setting, tree, is_chosen=is_chosen):
            risks.append(f"no cache in {setting.args[0]}: {why}")
        elif (own := _renamed(setting, tree)) is not None:
            line = (
                existing.get(setting.args[0]) if setting.directive == "proxy_cache_path" else None
            )
            if line is not None:
                own, enlarged, beyond = with_own_words(own, line, mean)
                small += [enlarged] if enlarged else []
                risks += [beyond] if beyond else []
            left.append(own)
    if all(
        setting.args[0] in existing for setting in left if setting.directive == "proxy_cache_path"
    ):
        risks = [risk for risk in risks if risk not in NEW_CACHE_RISKS]
    if small:
        summary = f"{'; '.join(small)}. {decision.summary}"
        decision = replace(decision, verdict="raise", summary=summary)
    return replace(decision, settings=left, risks=risks)


def with_needs(decisions: Sequence[Decision], tree: ConfTree) -> list[Decision]:
    """The decisions; each setting lists the lines that it needs, existing or to be added."""
    every = [s for d in decisions for s in d.settings]
    return [
        replace(d, settings=[replace(s, needs=list(_needs(s, every, tree))) for s in d.settings])
        for d in decisions
    ]


def _without_choice(decision: Decision, tree: ConfTree) -> Decision:
    """The decision with a single pool, for a site that selects among its caches itself."""
    settings, risks = list(decision.settings), list(decision.risks)
    if any(s.directive == "thread_pool" for s in settings):
        risks += [_CHOSEN] if caches_in(tree) else []
    if any(_CHOICE in "".join(s.args) for s in settings):
        settings = [_one_pool(s) for s in settings if not _is_choice(s)]
        if any(s.directive == "aio" for s in settings):
            decision = replace(decision, summary=_ONE_POOL, predicted=[])
            risks = [risk for risk in risks if not risk.endswith(ALL_THREADS)]
    settings = [s for s in settings if s.directive != "proxy_cache"]
    return replace(decision, settings=settings, risks=risks)


def _is_choice(s: Setting) -> bool:
    return s.directive == "split_clients" or (
        s.directive == "thread_pool" and s.args[0].startswith("pool_")
    )


def _splits(tree: ConfTree) -> bool:
    """True if the configuration spreads keys over caches as a generated file does."""
    return any(
        line.name == "split_clients" and line.args[1:2] == (_CHOICE,)
        for line in http_directives(tree)
    )


def _keyed(s: Setting, tree: ConfTree) -> Setting:
    """The setting with a key that also distinguishes servers; an existing split keeps its key."""
    if s.directive == "proxy_cache_key":
        return replace(s, args=[KEY_AMONG_OTHERS])
    if s.directive == "split_clients":
        lines = (line for line in http_directives(tree) if line.name == "split_clients")
        own = next((line.args[0] for line in lines if line.args[1:2] == (_CHOICE,)), None)
        return replace(s, args=[own or KEY_AMONG_OTHERS, *s.args[1:]])
    return s


def _one_pool(s: Setting) -> Setting:
    if s.directive == "aio" and _CHOICE in "".join(s.args):
        return replace(s, args=["threads"], reason="threads read cached files")
    return s


def _renamed(s: Setting, tree: ConfTree) -> Setting | None:
    """The setting with the site's names; None if its upstream is missing or already has a zone."""
    if s.context == "upstream":
        return s if _has_use(s, tree) else None
    if s.directive == "access_log" and s.args[0] != "off":
        return replace(s, args=[s.args[0], _format(s, tree), *s.args[2:]])
    if s.directive == "proxy_cache_path" and (line := caches_in(tree).get(s.args[0])) is not None:
        return replace(s, directive=line.name, args=[line.value, *s.args[1:]])
    return s


def _with_free_zones(settings: Sequence[Setting], tree: ConfTree) -> list[Setting]:
    """The settings, with another name for each zone whose name is already in use."""
    names = {s.args[0] for s in settings if s.directive == "zone"}
    taken = zone_names(tree) if names else set()
    found: list[Setting] = []
    for setting in settings:
        name = setting.args[0] if setting.directive == "zone" else ""
        if name in taken:
            free = (f"{name}_{number}" for number in count(2))
            name = next(each for each in free if each not in taken | names)
            taken.add(name)
        found.append(replace(setting, args=[name, *setting.args[1:]]) if name else setting)
    return found


def _has_use(s: Setting, tree: ConfTree) -> bool:
    groups = [
        upstream for upstream in upstreams(tree) if not s.block or upstream.name == s.block.lower()
    ]
    if s.directive == "zone":
        return any(group.block.first("zone") is None for group in groups)
    return bool(groups)


def _format(s: Setting, tree: ConfTree) -> str:
    """The format that the site uses for this log, otherwise another format of the site."""
    formats = log_formats(tree)
    used = [
        arg
        for line in http_directives(tree)
        if line.name == "access_log" and line.value == s.args[0]
        for arg in line.args[1:2]
        if "=" not in arg and (arg in formats or arg in _OWN_FORMATS)
    ]
    wanted = s.args[1] if len(s.args) > 1 else _OWN_FORMATS[0]
    return used[0] if used else wanted if wanted in formats else _OWN_FORMATS[0]


def _is_new(s: Setting, tree: ConfTree) -> bool:
    """True for a cache in a directory that has no cache yet."""
    return s.directive == "proxy_cache_path" and s.args[0] not in caches_in(tree)


def _why_no_cache(s: Setting, tree: ConfTree, *, is_chosen: bool) -> str:
    """The reason why a new cache is left out; empty for existing caches and other settings.

    No cache is added that nothing uses: its loader deletes other files in the directory.
    """
    if not _is_new(s, tree):
        return ""
    if is_chosen:
        inside = _around(s, tree)
        return f"it would share files with the cache in {inside}" if inside else ""
    lines = [f"{line.file}:{line.line} {line.name}" for line in caches_in(tree).values()]
    if lines:
        return f"the configuration has its own caches ({lines[0]}), and no location would use it"
    return "no location would use it"


def _around(s: Setting, tree: ConfTree) -> str:
    """The site's cache that is inside or around a new directory; empty if there is none."""
    wanted = posixpath.normpath(s.args[0])
    return next(
        (
            path
            for path in caches_in(tree)
            if posixpath.commonpath([path, wanted]) in (path, wanted)
        ),
        "",
    )


def _needs(s: Setting, every: Sequence[Setting], tree: ConfTree) -> Iterator[str]:
    if s.directive == "aio" and s.args[:1] and s.args[0].startswith("threads"):
        name = s.args[0].partition("=")[2] or "default"
        yield from _pools(name, every, tree)
    words = " ".join(s.args)
    if _CHOICE in words and s.directive != "split_clients":
        yield from (
            needed_line(setting) for setting in every if setting.directive == "split_clients"
        )
    if s.directive == "proxy_cache":
        zones = [setting for setting in every if setting.directive == "proxy_cache_path"]
        yield from (
            needed_line(zone) for zone in zones if _CHOICE in words or _names_zone(zone, words)
        )
    if s.directive == "access_log" and len(s.args) > 1:
        yield from (
            f"log_format {s.args[1]} ({line.file}:{line.line})"
            for line in http_directives(tree)
            if line.name == "log_format" and line.value == s.args[1]
        )
    if s.directive == "keepalive":
        beside = ("proxy_http_version", "proxy_set_header")
        yield from (needed_line(setting) for setting in every if setting.directive in beside)


def _names_zone(s: Setting, name: str) -> bool:
    return any(arg.startswith(f"keys_zone={name}:") for arg in s.args)


def _pools(name: str, every: Sequence[Setting], tree: ConfTree) -> Iterator[str]:
    declared = declared_pools(tree)
    wanted = [
        setting
        for setting in every
        if setting.directive == "thread_pool"
        and (setting.args[0] == name or (_CHOICE in name and setting.args[0].startswith("pool_")))
    ]
    if wanted:
        yield from map(needed_line, wanted)
    elif name in declared:
        line = declared[name].directive
        yield f"thread_pool {name} ({line.file}:{line.line})"
    elif name == "default":
        yield "thread_pool default (nginx's own, 32 threads)"


def needed_line(s: Setting) -> str:
    """A setting as text for the ``needs`` of another setting."""
    words = " ".join([s.directive, *(arg or '""' for arg in s.args)])
    return f"{words} ({f'{s.context} {s.block}'.strip()})"


def caches_in(tree: ConfTree) -> dict[str, Directive]:
    """The full path of each cache directory, with the line that sets it."""
    return {
        path: line
        for http in http_blocks(tree)
        for module in MODULES
        for line in (http.block.all(f"{module}_cache_path") if http.block else ())
        if line.args and (path := tree.full_path(line.value)) is not None
    }


def streams_in(tree: ConfTree) -> list[str]:
    """The distinct locations that show signs of event streams."""
    found = (scope.own.args[-1] for scope in _passing(tree) if stream_sign(scope) is not None)
    return list(dict.fromkeys(found))


def with_own_streams(decision: Decision, tree: ConfTree) -> Decision:
    """The decision without locations whose events already reach clients at once.

    Upstreams send chunked responses over HTTP/1.1. Buffering does not delay these, but gzip does.
    """
    fine = {
        location
        for location in {setting.block for setting in decision.settings}
        for through in [[_comes_through(scope) for scope in _at(tree, location)]]
        if through and all(through)
    }
    settings = [
        setting
        for setting in decision.settings
        if setting.block not in fine or setting.directive != "proxy_buffering"
    ]
    if decision.settings and not settings:
        summary = f"Already so: HTTP/1.1 without compression. {decision.summary}"
        return replace(decision, verdict="keep", summary=summary, settings=[])
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


class ListenOptions(NamedTuple):
    """The ``listen`` lines that get an option, and the addresses that do not."""

    lines: list[Directive]
    """Lines that get the option or a new value; no line for an address that already has it."""
    left: list[str]
    """Addresses that stay unchanged, each with the reason."""


def listen_options(wanted: Setting, tree: ConfTree) -> ListenOptions:
    """The lines that a setting of ``listen`` changes; HTTP/2 goes on TLS listeners only.

    An address gets no socket option if it shares the socket of a wildcard, or if a host name may
    be the same socket.
    """
    is_quic = is_of_quic(wanted)
    every = [listener for listener in listeners(tree) if listener.is_quic == is_quic]
    option = wanted.args[-1]
    is_of_socket = is_socket_option(option)
    elsewhere = _of_stream_and_mail(tree, is_quic=is_quic) if is_of_socket else []
    left: list[str] = []
    found = _Lines(every, is_of_socket=is_of_socket)
    for setting in every:
        if setting.is_unix or not (is_quic or setting.is_tls or wanted.args != ["http2"]):
            continue
        if is_of_socket and not setting.has_socket:
            continue
        has_it = any(has_option(line, option) for line in setting.lines)
        why = _why_left(setting, elsewhere) if is_of_socket and not has_it else ""
        if why:
            left.append(f"{setting.address} stays unchanged: {why}")
        else:
            (found.having if has_it else found.lacking).append(setting)
    return ListenOptions(*found.chosen(left))


def _why_left(one: ListenAddress, elsewhere: Sequence[tuple[SocketName, Directive]]) -> str:
    """The reason why an address gets no option; empty if it may get the option."""
    if one.maybe is not None:
        return (
            f"{line_of(one.maybe)} may be the same socket, whose options nginx accepts once; host "
            "names are not resolved here"
        )
    same = (line for name, line in elsewhere if name.host == one.socket.host)
    same = (line for line in same if socket_name(line.value).meets(one.socket))
    line = next(same, None)
    return "" if line is None else f"{line_of(line)} of another module is the same socket"


def _of_stream_and_mail(tree: ConfTree, *, is_quic: bool) -> list[tuple[SocketName, Directive]]:
    """The ``listen`` lines of stream and mail for TCP, or for UDP with ``is_quic``."""
    return [
        (socket_name(line.value), line)
        for module in ("stream", "mail")
        for part in tree.main.all(module)
        for line in (part.block or Block([])).walk()
        if line.name == "listen" and line.args and ("udp" in line.args[1:]) == is_quic
    ]


class _Lines:
    """The choice of lines that give an option to the addresses that lack it, and to no others."""

    def __init__(self, every: Sequence[ListenAddress], *, is_of_socket: bool) -> None:
        self._is_of_socket = is_of_socket
        self._of: dict[Directive, list[ListenAddress]] = {}
        for setting in every:
            for line in setting.lines:
                self._of.setdefault(line, []).append(setting)
        self.lacking: list[ListenAddress] = []
        self.having: list[ListenAddress] = []

    def chosen(self, left: list[str]) -> tuple[list[Directive], list[str]]:
        """The chosen lines, and ``left`` plus the addresses for which no line is possible."""
        may = {id(listener) for listener in (*self.lacking, *self.having)}
        found: dict[Directive, None] = {}
        for listener in self.lacking:
            if any(line in found for line in listener.lines):
                continue
            own = listener.with_options if self._is_of_socket else []
            lines = own or sorted(listener.lines, key=lambda line: -len(self._of[line]))
            line = next((line for line in lines if self._is_free(line, may, found)), None)
            if line is not None:
                found[line] = None
        left += [
            f"{listener.address} stays unchanged: {line_of(listener.lines[0])} also applies to "
            "other sockets, which must not get the option or have it from another line"
            for listener in self.lacking
            if not any(line in found for line in listener.lines)
        ]
        return list(found), left

    def _is_free(self, line: Directive, may: set[int], found: dict[Directive, None]) -> bool:
        """True if every socket of a line may get the option and has options on no other line."""
        sockets = self._of[line]
        if not all(id(socket) in may for socket in sockets):
            return False
        return not self._is_of_socket or not any(
            other is not line and (other in found or other in socket.with_options)
            for socket in sockets
            for other in socket.lines
        )


def is_of_quic(wanted: Setting) -> bool:
    """True for an option of a QUIC listener, false for an option of a TCP listener."""
    return wanted.directive == "listen" and wanted.args[:1] == ["quic"]


def has_option(listen: Directive, option: str) -> bool:
    """True if a ``listen`` has an option, with the same or a larger number."""
    name, _, value = option.partition("=")
    for arg in listen.args[1:]:
        own_name, _, own = arg.partition("=")
        if arg == option:
            return True
        if own_name == name and value.isdigit() and own.isdigit():
            return int(own) >= int(value)
    return False


def line_of(line: Directive) -> str:
    """A line as text, with its file and line number."""
    return f"{line.file}:{line.line} {line}"
