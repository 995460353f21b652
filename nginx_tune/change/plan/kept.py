"""Upstreams that may have keepalive, and locations that stay without it.

Any request may use an idle connection, so all requests to an upstream must have the same client
identity. If a server has a process for each connection (PHP-FPM), an idle connection also occupies
a process. Upstreams whose servers a third-party module selects stay unchanged.

Keepalive needs HTTP/1.1 and no ``Connection: close``. This has side effects: servers such as nginx
compress for HTTP/1.1 only (``gzip_http_version 1.1``, ngx_http_gzip_ok), and a server may close an
idle connection just as a request arrives. So some locations stay unchanged.
"""

import re
from collections.abc import Collection
from functools import cached_property

from msgspec.structs import replace

from nginx_tune.change.plan.naming import line_of
from nginx_tune.conf.answer_bodies import KEEPS, SCRIPTS, UNBUFFERED, stays_at_1_0, unrepeated
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.scopes import Scope, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import (
    Pass,
    UpstreamBlock,
    address_in,
    identity_lines,
    identity_that_differs,
    is_of_protocol,
    is_of_trust,
    passes,
    upstreams,
)
from nginx_tune.conf.values import parse_bytes
from nginx_tune.conf.variables import Variables
from nginx_tune.conf.workers import workers_in
from nginx_tune.decide.model.connections import PORTS_FACT
from nginx_tune.decide.upstreams import addresses_of
from nginx_tune.documents.decisions import Decision, Decisions, Evidence, Setting

_OWN_WAY = frozenset({"proxy_http_version", "proxy_set_header"})
_NO_SECOND_TRY = (
    "an unbuffered request cannot be sent again if the server has closed the idle connection"
)
_NOT_REPEATED = (
    "without retries on errors, a request on a connection that the server is closing gets 502, "
    "even a GET"
)
_COMPRESSED = "and over HTTP/1.1 a server may compress (nginx does)"
_KEPT_BY_DEFAULT = (1, 29, 7)


def own_connection(scope: Scope, *, closes_by_default: bool = True) -> Directive | None:
    """The line that keeps a location without keepalive; None if there is none.

    ``upgrade`` is for WebSockets; an origin may need ``close`` or HTTP/1.0; unbuffered bodies
    cannot be sent again. With ``closes_by_default``, nginx closes connections (before 1.29.7).
    Later versions already keep them, so a plan would change nothing.
    """
    version = scope.effective("proxy_http_version")
    if version is not None and version.value != "1.1":
        return version
    if closes_by_default and (line := stays_at_1_0(scope)):
        return line
    for line in scope.effective_all("proxy_set_header"):
        if line.value.lower() == "connection" and line.args[1:] != ("",):
            return line
    return unrepeated(scope, "proxy") if closes_by_default else None


def leaves(scope: Scope) -> bool:
    """True if requests from a location already leave the connection open."""
    lines = scope.effective_all("proxy_set_header")
    is_empty = any(line.value.lower() == "connection" and line.args[1:] == ("",) for line in lines)
    return is_empty and scope.value("proxy_http_version") == "1.1"


def is_inherited(line: Directive) -> bool:
    """True if a location with ``line`` (of ``own_connection``) inherits settings for keepalive."""
    return line.name not in _OWN_WAY


def how_it_stays(line: Directive) -> str:
    """A note on the location that ``line`` (of ``own_connection``) leaves without keepalive."""
    if line.name == UNBUFFERED:
        return (
            f"{line_of(line)} stays without proxy_http_version 1.1, because that would send bodies "
            f"chunked, and {_NO_SECOND_TRY}"
        )
    if line.name in _OWN_WAY:
        return f"{line_of(line)} stays, so that location has no keepalive"
    return f"{why_none_is_kept(line)}: that location has no keepalive"


def why_none_is_kept(line: Directive) -> str:
    """The reason why ``line`` (of ``own_connection``) rules out keepalive, as a clause."""
    if line.name == UNBUFFERED:
        return f"{line_of(line)}: {_NO_SECOND_TRY}"
    if line.name in _OWN_WAY:
        return f"{line_of(line)} stays, so that no request leaves an idle connection"
    if line.name.endswith("_next_upstream"):
        return f"{line_of(line)}: {_NOT_REPEATED}"
    wrong = "the filter cannot read gzip"
    if line.name in KEEPS:
        wrong = "clients without gzip would get gzip from it"
    if line.name in SCRIPTS:
        wrong = "a script with a subrequest to this location would get gzip"
    return (
        f"{line_of(line)} stays without proxy_http_version 1.1, {_COMPRESSED}: {wrong} "
        '(proxy_set_header Accept-Encoding "" prevents that)'
    )


def closes_by_default(decisions: Decisions) -> bool:
    """True if this version of nginx closes connections to upstreams by default."""
    found = [decision for decision in decisions.decisions if decision.id == "upstream-keepalive"]
    version = version_in(found[0].evidence) if found else None
    return version is None or version < _KEPT_BY_DEFAULT


def lacks_ports(decisions: Decisions) -> bool:
    """True if a new connection for each request would use up this host's local ports."""
    found = (decision for decision in decisions.decisions if decision.id == "upstream-keepalive")
    return any(evidence.fact == PORTS_FACT for decision in found for evidence in decision.evidence)


def version_in(evidence: list[Evidence]) -> tuple[int, ...] | None:
    """The version of nginx in the evidence; None if not known."""
    value = next((str(item.value) for item in evidence if item.fact == "nginx.version"), "")
    numbers = value.split(".")
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else None


_REUSING = frozenset({"proxy", "grpc"})
_MOST_NAMED = 3
_NOTHING = "nothing to share"
_CONCURRENCY = "workload.concurrency"
_ANY_SCHEME = re.compile(r"\$(?:scheme|\{scheme\})://")
_SCHEME = re.compile(r"[a-z]+://", re.IGNORECASE)
_PATH = re.compile(r"\{?(?:request_uri|(?:document_)?uri)\b")
"""Variables whose values begin with a slash."""


class KeptConnections:
    """The upstreams of a configuration that may have keepalive."""

    def __init__(
        self, tree: ConfTree, *, closes_by_default: bool = True, lacks_ports: bool = False
    ) -> None:
        """``closes_by_default``: nginx closes connections to upstreams (before 1.29.7).

        ``lacks_ports``: there are too few local ports for a connection per request.
        """
        self._lacks_ports = lacks_ports
        self._variables = Variables(tree)
        self._closes_by_default = closes_by_default
        self._pinned: dict[int, Directive] = {}
        """The line that keeps a location unchanged, by the id of the location's directive."""
        self.groups = upstreams(tree)
        self.is_one_worker = tree.is_whole and workers_in(tree, None) == 1
        names = {group.name for group in self.groups}
        self._users: dict[str, list[Pass]] = {name: [] for name in names}
        """The locations known to use an upstream, by the upstream's name."""
        self._open: dict[tuple[object, ...], Pass] = {}
        """For each kind of request, one location where a variable may select any upstream."""
        self._known: dict[Directive, frozenset[str]] = {}
        """The upstreams that a line certainly uses."""
        self._perhaps: dict[Directive, set[str]] = {}
        """The upstreams that a line may use through a variable."""
        asked: set[str] = set()
        for passing in map(_perhaps_tls, passes(_scopes(tree), self._variables)):
            if passing.module == "proxy":
                self._note_what_stays(passing.scope)
            literal = address_in(_server_part(passing).partition("$")[0])
            known = names & {*passing.addresses, literal}
            self._known[passing.place] = self._known.get(passing.place, frozenset()) | known
            for name in known:
                self._users[name].append(passing)
            asked |= known or {
                *passing.addresses,
                *([passing.place.value] if passing.has_variables else []),
            }
            values = self._variables.possible(passing.place.value, passing.scope)
            if not values.complete and _host_is_open(passing):
                self._open.setdefault((literal, *_kind(passing)), passing)
                led = {name for name in names if name.startswith(literal)}
                self._perhaps.setdefault(passing.place, set()).update(led)
        self.shares_the_load = len(asked) > 1
        """True if requests go to several upstreams or servers, in unknown shares."""

    @cached_property
    def refused(self) -> dict[str, str]:
        """The upstreams that get no keepalive, each with the reason."""
        found = {group.name: why for group in self.groups if (why := self._refusal(group))}
        astray = {group.name: self._all_led_astray(group, found) for group in self.groups}
        # One pass is enough: a line that may use an upstream added here may also use one in found.
        return found | {name: why for name, why in astray.items() if why and name not in found}

    @cached_property
    def allowed(self) -> frozenset[str]:
        """The names of upstreams that may have keepalive."""
        return frozenset(
            name for name, users in self._users.items() if users and name not in self.refused
        )

    def is_asked_by(self, scope: Scope) -> bool:
        """True if a location uses known upstreams, and all of them may have keepalive.

        Otherwise the change of the location could activate an unused ``keepalive`` elsewhere.
        """
        line = scope.own.block.first("proxy_pass") if scope.own.block else None
        if line is None or not self._known.get(line):
            return False
        return self._led_to(line) <= self.allowed

    def partial_use(self) -> list[str]:
        """Notes on upstreams whose keepalive only some locations can use."""
        found = []
        for name in sorted(self.allowed):
            users = [user for user in self._users[name] if not self._never_leaves(user)]
            if 0 < len(users) < len(self._users[name]):
                named = ", ".join(line_of(user.place) for user in users[:_MOST_NAMED])
                more = f" and {len(users) - _MOST_NAMED} more" * (len(users) > _MOST_NAMED)
                every = len(self._users[name])
                found.append(
                    f'keepalive in upstream "{name}" is used by {len(users)} of {every} locations: '
                    f"{named}{more}"
                )
        return found

    def _note_what_stays(self, scope: Scope) -> None:
        line = own_connection(scope, closes_by_default=self._closes_by_default)
        if line is None:
            return
        self._pinned[id(scope.own)] = line
        if is_inherited(line):
            for around in scope.chain[:-1]:
                self._pinned.setdefault(id(around), line)

    def line_of_its_own(self, scope: Scope) -> Directive | None:
        """The line that keeps a location unchanged: in the location or in a block inside it."""
        return self._pinned.get(id(scope.own))

    def _refusal(self, group: UpstreamBlock) -> str:
        users = self._users[group.name] + [
            passing
            for (literal, *_), passing in self._open.items()
            if group.name.startswith(str(literal))
        ]
        own = group.keepalive
        if own is not None and own.value == "0":
            return f"{line_of(own)} turns it off"
        if (foreign := _foreign(group)) is not None:
            return f"{line_of(foreign)} is from a third-party module that may not support it"
        line = identity_that_differs(users, self._variables, group.name)
        if line is not None:
            return f"{_how_it_differs(line)}, and all requests share idle connections"
        other = next((user.place for user in users if user.module not in _REUSING), None)
        if other is not None:
            stays = f"; {line_of(own)} stays" if own is not None else ""
            return (
                f"{line_of(other)}: an idle connection may occupy one of the server's processes, "
                f"whose number is not known{stays}"
            )
        if own is None and (group.is_unix or (group.is_loopback and not self._lacks_ports)):
            return "a connection within this host costs little"
        if own is None and (bound := max_conns(group)) is not None:
            return f"{line_of(bound)} limits connections, and idle ones count"
        if own is None and (line := self._is_not_repeated(users)) is not None:
            return why_none_is_kept(line)
        closing = [self._never_leaves(user) for user in users]
        if own is None and closing and all(closing):
            return closing[0]
        return ""

    def _all_led_astray(self, group: UpstreamBlock, refused: Collection[str]) -> str:
        """The reason why no location of an upstream can be changed; empty if one can be.

        A location cannot be changed if it may also use an upstream in ``refused``.
        """
        users = self._users[group.name]
        if group.keepalive is not None or not users:
            return ""
        found = ""
        for user in users:
            astray = sorted(self._led_to(user.place) & set(refused))
            if not astray or user.module != "proxy" or leaves(user.scope):
                return ""
            found = found or f"{line_of(user.place)} may also use upstream {astray[0]}"
        return found

    def _led_to(self, line: Directive) -> frozenset[str]:
        """The upstreams that a line may use."""
        return self._known.get(line, frozenset()) | self._perhaps.get(line, set())

    def _never_leaves(self, one: Pass) -> str:
        """The reason why requests from a location close their connection; empty if they do not."""
        line = self.line_of_its_own(one.scope) if one.module == "proxy" else None
        if line is None:
            return ""
        if line.name == "proxy_set_header" and len(line.args) > 1:
            sent = self._variables.possible(line.args[1], one.scope)
            if not sent.complete or "" in sent.known:
                return ""
        return why_none_is_kept(line)

    def _is_not_repeated(self, users: list[Pass]) -> Directive | None:
        """A line that forbids retries in a location where only ``keepalive`` is missing.

        Its requests already leave connections open, as those of gRPC always do
        (ngx_http_grpc_create_request). None if there is no such line.
        """
        if not self._closes_by_default:
            return None
        open_ = (user for user in users if user.module == "grpc" or leaves(user.scope))
        lines = (unrepeated(passing.scope, passing.module) for passing in open_)
        return next((line for line in lines if line is not None), None)


def max_conns(group: UpstreamBlock) -> Directive | None:
    """The first server of an upstream that has ``max_conns``; None if there is none."""
    bounds = ((server, arg) for server in group.servers for arg in server.args[1:])
    return next(
        (line for line, arg in bounds if re.fullmatch("max_conns=0*[1-9][0-9]*", arg)), None
    )


def _how_it_differs(line: Directive) -> str:
    """A clause with the difference that a line makes between requests to the upstream."""
    if is_of_protocol(line):
        return f"{line_of(line)} uses another protocol than other requests"
    if is_of_trust(line):
        return f"with {line_of(line)} requests verify the server's TLS differently"
    return f"with {line_of(line)} requests are made as different clients"


def _foreign(group: UpstreamBlock) -> Directive | None:
    """A line of an upstream from a third-party module, which may select the servers.

    Such modules (check, sticky) know the servers from the configuration, not from a zone.
    """
    return next((line for line in group.block if not _is_own(line.name)), None)


def _is_own(name: str) -> bool:
    return name != "sticky" and any(row.is_own for row in rows_of(name))


def _unshared(group: UpstreamBlock, *, is_one_worker: bool) -> str:
    """The reason why an upstream needs or gets no zone; empty if it may have a zone.

    A single server never counts as failed (ngx_http_upstream_get_round_robin_peer).
    """
    if _foreign(group) is not None:
        return _NOTHING
    bound = max_conns(group)
    if bound is None:
        return (
            _NOTHING if addresses_of([str(server.value) for server in group.servers]) == 1 else ""
        )
    if group.block.first("zone") is not None or is_one_worker:
        return ""
    return f"no zone: {line_of(bound)} counts per worker, but with a zone for all workers together"


def with_own_groups(decision: Decision, kept: KeptConnections) -> Decision:
    """The decision for the upstreams that may have keepalive; the others are named with reasons.

    An existing number changes only if the peak is known and all requests go to one upstream: idle
    connections live for 60 s by default, and each may occupy a thread of the server.
    """
    if not kept.groups:
        return decision
    unshared = {
        group.name: why
        for group in kept.groups
        if (why := _unshared(group, is_one_worker=kept.is_one_worker))
    }
    decision = replace(
        decision,
        settings=[
            setting
            for setting in decision.settings
            if setting.directive != "zone" or setting.block.lower() not in unshared
        ],
    )
    reasons = [f'no keepalive in upstream "{name}": {why}' for name, why in kept.refused.items()]
    reasons += [why for why in unshared.values() if why != _NOTHING]
    settings = [_unless_own(setting, decision, kept) for setting in decision.settings]
    if kept.allowed:
        reasons += [*kept.partial_use(), *_stay_for_a_share(decision, kept)]
        return replace(decision, settings=settings, risks=[*decision.risks, *reasons])
    settings = [setting for setting in settings if setting.directive == "zone"]
    summary = "; ".join(reasons) or "no location is known to use an upstream"
    return replace(
        decision,
        verdict="set" if settings else "keep",
        settings=settings,
        summary=f"{summary[0].upper()}{summary[1:]}.",
        flips_when=[],
        risks=[],
    )


def _unless_own(wanted: Setting, decision: Decision, kept: KeptConnections) -> Setting:
    """The setting, which an existing ``keepalive`` line also satisfies.

    The reason of a ``zone`` also says why its upstream gets no keepalive.
    """
    why = kept.refused.get(wanted.block.lower()) if wanted.directive == "zone" else None
    if why is not None:
        return replace(wanted, reason=f"{wanted.reason}; no keepalive: {why}")
    if wanted.directive != "keepalive" or (_is_known(decision) and not kept.shares_the_load):
        return wanted
    return replace(wanted, same=[*wanted.same, *dict.fromkeys(line.value for line in _own(kept))])


def _own(kept: KeptConnections) -> list[Directive]:
    """The existing ``keepalive`` lines of upstreams that may have keepalive."""
    return [
        group.keepalive for group in kept.groups if group.keepalive and group.name in kept.allowed
    ]


def _stay_for_a_share(decision: Decision, kept: KeptConnections) -> list[str]:
    """Notes on existing numbers that stay although the peak of all upstreams together is higher."""
    wanted = [setting.args[0] for setting in decision.settings if setting.directive == "keepalive"]
    if not (wanted and kept.shares_the_load and _is_known(decision)):
        return []
    return [
        f"{line_of(line)} stays: the peak of that upstream alone is not known"
        for line in _own(kept)
        if (have := parse_bytes(line.value)) is not None and have < int(wanted[0])
    ]


def _is_known(decision: Decision) -> bool:
    """True if the peak of concurrent requests is known, not assumed."""
    return any(
        item.fact == _CONCURRENCY and item.provenance != "assumed" for item in decision.evidence
    )


def _scopes(tree: ConfTree) -> list[Scope]:
    """All scopes of a tree, including ``limit_except`` blocks, which may proxy too."""
    found = scopes(tree)
    limited = [
        Scope(tree, "location", (*scope.chain, line))
        for scope in found
        for line in (scope.own.block or Block([])).all("limit_except")
    ]
    return [*found, *limited]


def _kind(one: Pass) -> tuple[object, ...]:
    """A key for the kind of a location's requests: protocol and client identity."""
    lines = [(name, line.args if line else None) for name, line in identity_lines(one)]
    is_variable = any("$" in arg for _, args in lines for arg in args or ())
    version = one.effective("http_version")
    speaks = (one.module, one.is_tls, version.value if version else None)
    return *speaks, *lines, one.scope.own if is_variable else None


def _host_is_open(one: Pass) -> bool:
    """True if a variable may change the server's name, not only the path after it."""
    before, _, after = _server_part(one).partition("$")
    before = _SCHEME.sub("", before, count=1)
    is_path = before != "" and _PATH.match(after) is not None
    return "/" not in before and ":" not in before and not is_path


def _server_part(one: Pass) -> str:
    return _ANY_SCHEME.sub("http://", one.place.value, count=1)


def _perhaps_tls(one: Pass) -> Pass:
    """The location, counted as TLS if its scheme may come from a variable."""
    return one._replace(is_tls=True) if one.place.value.startswith("$") else one
