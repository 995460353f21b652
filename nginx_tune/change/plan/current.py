"""Lines in effect and places for settings in the configuration that decisions change."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from nginx_tune.change.plan.caching import SharedAnswers
from nginx_tune.change.plan.kept import KeptConnections
from nginx_tune.change.plan.naming import listen_options
from nginx_tune.conf.answer_bodies import body_filter
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.http2 import FIELD_SIZE, HEADER_SIZE
from nginx_tune.conf.listeners import listeners, newly_multiplexed, tls_servers
from nginx_tune.conf.scopes import Scope, http_blocks, http_directives, scopes
from nginx_tune.conf.served import MODULES, sends_no_files, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import UpstreamBlock
from nginx_tune.conf.values import is_alike, parse_bytes
from nginx_tune.conf.workers import DEFAULT, aio_lines, asked_pool
from nginx_tune.decide.model.connections import DEFAULT_CONNECTIONS
from nginx_tune.decide.sendfile import SMALLEST_CHUNK_BYTES
from nginx_tune.documents.decisions import Decision, Place, Setting

AT_LEAST = frozenset({"worker_connections", "keepalive"})
"""Directives whose current values stay if larger, since the operator may know of a peak.

``descriptors_for`` says which ``worker_rlimit_nofile`` stays."""
PREDICATES = ("proxy_no_cache", "proxy_cache_bypass")
"""Directives with a list of conditions, any of which suffices."""
_UNSAID = {
    "worker_connections": str(DEFAULT_CONNECTIONS),
    "worker_processes": "1",
    "sendfile": "off",
}
"""Values of nginx's defaults, for comparison with a setting if there is no line."""
LITTLE_TO_CALL = 0.9
"""Minimum ratio of an existing chunk to the decided one for which the existing chunk stays. Beyond
it, a larger chunk would only save system calls."""
_AS_IT_STANDS = frozenset(
    {"proxy_cache_key", "proxy_cache_use_stale", "proxy_cache_revalidate", "proxy_cache_lock"}
)
"""Cache directives whose current values always stay, since a custom key may separate responses."""
KEPT = ("proxy_http_version", "proxy_set_header")
"""Directives that a location needs for upstream keepalive."""


_OF_FILES = frozenset(
    {"aio", "directio", "open_file_cache", "output_buffers", "sendfile", "sendfile_max_chunk"}
)
"""Directives that only have an effect where files are sent."""
_ONCE = frozenset({"aio", "aio_write"})
"""Directives that are written once, in an outer block, for many locations."""
_NAMED = frozenset({"split_clients", "access_log", *(f"{module}_cache_path" for module in MODULES)})

_BUFFERS = re.compile(r"buffer=|gzip(?:=|$)")
"""The parameters that give a log a buffer."""


class CurrentTree:
    """The lines of a configuration that apply where files are sent or requests are proxied."""

    def __init__(
        self,
        tree: ConfTree,
        streams: frozenset[str] = frozenset(),
        *,
        closes_by_default: bool = True,
        lacks_ports: bool = False,
    ) -> None:
        """``streams`` are the locations of declared event streams.

        ``closes_by_default``: nginx closes connections to upstreams (before 1.29.7).
        ``lacks_ports``: there are too few local ports for a connection per request.
        """
        self.tree = tree
        self._closes_by_default, self._lacks_ports = closes_by_default, lacks_ports
        self._streams = streams
        self.http = [block.block or Block([]) for block in http_blocks(tree)]
        self._serving = {id(served.scope.own): served.scope for served in served_paths(tree)}
        passing = [s for s in scopes(tree) if _passes(s)]
        self.answering: list[Scope] = [*self._serving.values(), *passing] or scopes(tree)

    def lines(self, wanted: Setting, apart: Sequence[str] = ()) -> list[Directive | None]:
        """The line in effect in each place of the setting; None if nginx's default is in effect.

        ``apart`` are the locations that have a setting of their own.
        """
        if wanted.context in ("main", "events"):
            return [self._outside_http(wanted)]
        if wanted.context == "upstream":
            return [u.block.first(wanted.directive) for u in self._chosen(wanted)] or [None]
        if is_named(wanted):
            if wanted.directive == "access_log":
                return [*self._logs(wanted)] or [None]
            found = [line for block in self.http for line in block.all(wanted.directive)]
            return [next((line for line in found if _same_name(line, wanted)), None)]
        if self._is_for_later(wanted):
            return [block.first(wanted.directive) for block in self.http] or [None]
        lines = [effective(scope, wanted) for scope in self.concerned(wanted, apart)]
        return list({id(line): line for line in lines}.values()) or [None]

    def _is_for_later(self, wanted: Setting) -> bool:
        """True for an http setting if the configuration has no servers yet."""
        return wanted.context == "http" and not self.answering

    def _logs(self, wanted: Setting) -> Sequence[Directive]:
        """The lines, at all levels, that give a log a buffer; without any, all its lines in http.

        A file has one buffer, set by any of its lines; nginx refuses a different size ("already
        defined with conflicting parameters"). Lines in ``stream`` count if they set a buffer.
        Source: ngx_http_log_set_log() and ngx_stream_log_set_log(), which share
        ``ngx_open_file_t`` (ngx_conf_open_file).
        """
        own = self._of_log(wanted, http_directives(self.tree))
        streams = (line.block for line in self.tree.main.all("stream") if line.block is not None)
        others = self._of_log(wanted, (line for block in streams for line in block.walk()))
        return [line for line in own + others if any(map(_BUFFERS.match, line.args[1:]))] or own

    def _of_log(self, wanted: Setting, lines: Iterable[Directive]) -> list[Directive]:
        name = self.tree.opened_name(wanted.args[0])
        logs = (line for line in lines if line.name == "access_log" and line.args)
        return [log for log in logs if self.tree.opened_name(log.value) == name]

    def places(self, wanted: Setting, apart: Sequence[str] = ()) -> list[Place]:
        """The places of the setting: lines that differ, and blocks that need a new line."""
        outside = wanted.context in ("main", "events", "upstream") or self._is_for_later(wanted)
        if outside or is_named(wanted):
            blocks = self.blocks(wanted)
            current = [line for line in self.lines(wanted, apart) if line is not None]
            lines = [line for line in current if not holds(line, wanted)] or current
            if wanted.context == "main" and not lines:
                return [Place(file=self.tree.path, line=1, text="main", change=False)]
            return [_place(line, change=bool(lines)) for line in lines or blocks]
        if wanted.directive == "listen":
            lines = listen_options(wanted, self.tree).lines
            return [_place(line, change=True) for line in lines]
        found: dict[tuple[str, int], Place] = {}
        around = self.further_out(wanted, apart)
        for scope in self.concerned(wanted, apart):
            line = effective(scope, wanted)
            if not holds(line, wanted):
                own = next((a for a in reversed(scope.chain) if wanted.context == a.name), None)
                one = around.get(id(scope.own), own or scope.own) if line is None else line
                found[one.file, one.start] = _place(one, change=line is not None)
        return list(found.values())

    def further_out(self, wanted: Setting, apart: Sequence[str] = ()) -> dict[int, Directive]:
        """The outer block in which one line serves several scopes, by the id of each scope.

        The outer block is a server, or http for several servers. Every scope in it must want the
        line, except scopes that have or get a line of their own (``apart``), and a few locations
        with a body filter, which get ``aio off``.
        """
        if wanted.directive not in _ONCE or wanted.block or self.tree.is_part:
            return {}
        concerned = {id(scope.own) for scope in self.concerned(wanted, apart)}
        lacking = [scope for scope in self.answering if effective(scope, wanted) is None]
        found: dict[int, Directive] = {}
        for level in ("server", "http"):
            groups: dict[Directive, list[Scope]] = {}
            for scope in lacking:
                around = next(line for line in scope.chain if line.name == level)
                groups.setdefault(around, []).append(scope)
            for around, group in groups.items():
                others = [
                    scope
                    for scope in group
                    if id(scope.own) not in concerned and not set(apart) & set(scope.own.args)
                ]
                left_out = {id(other.own) for other in others}
                own = {
                    id(scope.own): around
                    for scope in group
                    if id(scope.own) in concerned and not left_out & set(map(id, scope.chain))
                }
                is_shared = level == "server" or len({id(scope.server) for scope in group}) > 1
                can_be_left_out = all(
                    other.kind == "location" and body_filter(other) is not None for other in others
                )
                is_shorter = id(around) in own or len(own) > 1 + len(others)
                if is_shared and can_be_left_out and is_shorter:
                    found |= own
        return found

    def blocks(self, wanted: Setting) -> list[Directive]:
        """The blocks for a setting of http, events or upstream; empty for main."""
        if wanted.context == "upstream":
            return [u.directive for u in self._chosen(wanted)]
        if wanted.context == "main":
            return []
        return self.tree.main.all("http" if wanted.context == "http" else "events")

    def _chosen(self, wanted: Setting) -> list[UpstreamBlock]:
        """The upstreams to which a setting applies."""
        chosen = [u for u in self.kept.groups if not wanted.block or u.name == wanted.block.lower()]
        if wanted.directive == "keepalive_timeout":
            # Only together with a new keepalive: an existing one keeps its own timeout.
            own = ("keepalive", wanted.directive)
            chosen = [u for u in chosen if not any(map(u.block.first, own))]
        elif wanted.directive != "keepalive":
            return chosen
        return [u for u in chosen if u.name in self.kept.allowed]

    def _outside_http(self, wanted: Setting) -> Directive | None:
        blocks = [self.tree.main]
        if wanted.context == "events":
            blocks = [line.block for line in self.tree.main.all("events") if line.block]
        found = [line for block in blocks for line in block.all(wanted.directive)]
        if wanted.directive == "thread_pool":
            found = [line for line in found if list(line.args[:1]) == wanted.args[:1]]
        return found[-1] if found else None

    def concerned(self, wanted: Setting, apart: Sequence[str]) -> list[Scope]:
        """The scopes to which a setting applies."""
        answering = [scope for scope in self.answering if self._concerns(scope, wanted)]
        if wanted.block:
            return [scope for scope in answering if wanted.block in scope.own.args]
        return [scope for scope in answering if not set(apart) & set(scope.own.args)]

    def _concerns(self, scope: Scope, wanted: Setting) -> bool:
        """True if a setting has an effect in a scope."""
        if wanted.directive == "sendfile" and not self._turns(scope, wanted):
            return False
        if wanted.directive in _OF_FILES and sends_no_files(scope):
            return False
        if wanted.directive in ("aio", "aio_write"):
            return self._reads_by(scope, wanted)
        if wanted.directive == "http2":
            return scope.server in self._secure
        if wanted.directive in (FIELD_SIZE, HEADER_SIZE):
            lacks_own = scope.effective(wanted.directive) is None
            return lacks_own and scope.server in self._to_speak_http2
        if not wanted.directive.startswith("proxy_"):
            module, is_cache, _ = wanted.directive.partition("_cache")
            is_other_cache = bool(is_cache) and module in MODULES
            return not is_other_cache or scope.value(f"{module}_cache", "off") != "off"
        if scope.own.block is None or scope.own.block.first("proxy_pass") is None:
            return False
        if wanted.directive in KEPT and (
            self.kept.line_of_its_own(scope) or not self.kept.is_asked_by(scope)
        ):
            return False
        is_of_cache = wanted.directive.startswith(("proxy_cache", "proxy_no_cache"))
        return not is_of_cache or self._is_cached(scope, wanted)

    def _turns(self, scope: Scope, wanted: Setting) -> bool:
        """True if ``sendfile`` has an effect in a scope: files are sent or cached there."""
        if id(scope.own) not in self._serving:
            return False
        is_idle = scope.server in self._encrypting and not scope.effective("ssl_conf_command")
        return wanted.args == ["off"] or not (is_idle or copies_by_choice(scope))

    def _reads_by(self, scope: Scope, wanted: Setting) -> bool:
        """True if ``aio`` or ``aio_write`` has an effect in a scope."""
        if body_filter(scope) is not None:
            if wanted.directive == "aio_write":
                return asked_pool(scope.effective("aio")) is not None
            if wanted.block and wanted.args == ["off"] and scope.sets("aio") is not None:
                return False  # another location of this name needs it
            return not asks_threads(wanted)
        if wanted.directive == "aio_write":
            return True
        if wanted.args == ["threads"] and self._pools_apart:
            return asked_pool(scope.effective("aio")) in (None, DEFAULT)
        # "off" for a block is meant for a location of the same name with a body filter.
        return not (wanted.block and wanted.args == ["off"])

    def _is_cached(self, scope: Scope, wanted: Setting) -> bool:
        """True if a location has a cache or gets one."""
        if self.caches:
            return _caches(scope, "proxy")
        if wanted.block:
            return True
        is_stream = bool(self._streams & {*scope.own.args})
        return not is_stream and self.shared.hindrance(scope) is None

    @cached_property
    def kept(self) -> KeptConnections:
        """The upstreams that may have keepalive."""
        return KeptConnections(
            self.tree, closes_by_default=self._closes_by_default, lacks_ports=self._lacks_ports
        )

    @cached_property
    def _pools_apart(self) -> bool:
        """True if several pools are in use, whose tasks do not wait for each other."""
        names = {name for _, name in aio_lines(self.tree)}
        return len(names) > 1 or any("$" in name for name in names)

    @cached_property
    def _secure(self) -> set[Directive]:
        """Servers that have only TLS listeners, unless all their ``listen`` lines have http2."""
        found = [listener for listener in listeners(self.tree) if not listener.is_quic]
        lacking = {
            server for listener in found if not listener.is_http2 for server in listener.servers
        }
        return tls_servers(found) & lacking

    @cached_property
    def _encrypting(self) -> set[Directive]:
        """The servers that have only TLS listeners."""
        return tls_servers(listeners(self.tree))

    @cached_property
    def _to_speak_http2(self) -> set[Directive]:
        return {found.server for found in newly_multiplexed(self.tree)}

    @cached_property
    def caches(self) -> bool:
        """True if anything is cached already, by any module."""
        return any(_caches(scope, module) for scope in self.answering for module in MODULES)

    @cached_property
    def shared(self) -> SharedAnswers:
        """The locations that give all clients the same response."""
        return SharedAnswers(self.tree)

    @cached_property
    def passing(self) -> list[Scope]:
        """The locations with ``proxy_pass``, whose responses can be cached."""
        return [
            scope
            for scope in self.answering
            if scope.own.block and scope.own.block.first("proxy_pass")
        ]

    @cached_property
    def may_cache(self) -> bool:
        """True if any location with ``proxy_pass`` gives all clients the same response."""
        return any(self.shared.hindrance(scope) is None for scope in self.passing)


def _caches(scope: Scope, module: str) -> bool:
    """True if a scope has a cache, itself or by ``proxy_cache`` in an outer block."""
    if scope.value(f"{module}_cache", "off") == "off":
        return False
    block = scope.own.block
    return module == "proxy" or (block is not None and block.first(f"{module}_pass") is not None)


def _place(line: Directive, *, change: bool) -> Place:
    return Place(file=line.file, line=line.line, text=str(line), change=change)


def _passes(scope: Scope) -> bool:
    return any(line.name.endswith("_pass") for line in scope.own.block or ())


def is_named(wanted: Setting) -> bool:
    """True for a directive that is written in http, once for each name."""
    return wanted.directive in _NAMED


def _same_name(line: Directive, wanted: Setting) -> bool:
    place = 1 if wanted.directive == "split_clients" else 0
    return list(line.args[place : place + 1]) == wanted.args[place : place + 1]


def copies_by_choice(scope: Scope) -> Directive | None:
    """A location's own ``sendfile off``, presumably set for a reason; None if there is none."""
    line = scope.effective("sendfile")
    if line is None or line.value.lower() != "off":
        return None
    inner = [level for level in scope.chain if level.name in ("location", "if") and level.block]
    return (
        line if any(line in scope.block.all("sendfile") for scope in inner if scope.block) else None
    )


def asks_threads(wanted: Setting) -> bool:
    """True if a setting makes thread pools read files."""
    return wanted.directive == "aio" and wanted.args[:1] != [] and wanted.args[0][:7] == "threads"


def effective(scope: Scope, wanted: Setting) -> Directive | None:
    """The line in a scope that a setting would replace."""
    if wanted.directive in ("proxy_set_header", "ssl_conf_command"):
        lines = scope.effective_all(wanted.directive)
        return next((line for line in lines if list(line.args[:1]) == wanted.args[:1]), None)
    if wanted.directive in PREDICATES:
        lines = scope.effective_all(wanted.directive)
        return next((line for line in lines if set(wanted.args) <= set(line.args)), None)
    return scope.effective(wanted.directive)


def own_blocks(decision: Decision, directive: str) -> list[str]:
    """The blocks for which a decision has a separate setting.

    Settings ``off`` do not count: they are for locations with a body filter, and another server may
    have a location of the same name without a filter.
    """
    own = [s for s in decision.settings if s.block and s.directive == directive]
    return [s.block for s in own if s.args != ["off"]]


def holds(line: Directive | None, wanted: Setting) -> bool:
    """True if a line satisfies a setting."""
    if line is None:
        unsaid = _UNSAID.get(wanted.directive)
        return unsaid in wanted.args or (wanted.args == ["auto"] and unsaid in wanted.same)
    if line.value in wanted.same:
        return True
    if wanted.directive in (*AT_LEAST, "output_buffers") and len(line.args) == len(wanted.args):
        have, want = parse_bytes(line.args[-1]), parse_bytes(wanted.args[-1])
        is_more = have is not None and want is not None and have >= want
        return is_more or is_alike(line.args[-1], wanted.args[-1])
    if wanted.directive == "sendfile_max_chunk" and not is_alike(line.value, wanted.args[0]):
        have, want = (parse_bytes(word) or 0 for word in (line.value, wanted.args[0]))
        return LITTLE_TO_CALL * SMALLEST_CHUNK_BYTES <= have <= want
    if wanted.directive == "access_log" and wanted.args[0] != "off" and line.value != "off":
        names = {arg.partition("=")[0] for arg in line.args[1:]}
        return "gzip" in names or all(arg.partition("=")[0] in names for arg in wanted.args[2:])
    if wanted.directive in _AS_IT_STANDS:
        return True
    if wanted.directive in PREDICATES:
        return set(wanted.args) <= set(line.args)
    if wanted.lines and line.block is not None:
        inner = [[inner_line.name, *inner_line.args] for inner_line in line.block]
        return list(line.args) == wanted.args and inner == wanted.lines
    if len(line.args) != len(wanted.args) or not all(map(is_alike, line.args[:1], wanted.args)):
        return False
    return all(map(is_alike, sorted(line.args), sorted(wanted.args)))
