"""Decisions held against a configuration: what stands already, what changes, what is to go.

Settings say what should hold. Here those that a configuration has already fall away, and what
stands in it against a decision (``multi_accept on``, threads where all data fits in memory) gets
the line that undoes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec.structs import replace

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import listeners, tls_servers
from nginx_tune.conf.quantities import parse_bytes
from nginx_tune.conf.scopes import Scope, http_blocks, http_directives, scopes
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.thread_pools import asked_pool
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import upstreams
from nginx_tune.decide.adopting import adapted, with_needs
from nginx_tune.decide.adopting_limits import descriptors_for
from nginx_tune.decide.answer import setting
from nginx_tune.documents.decisions import Decision, Decisions, Evidence, Place, Setting, Verdict

_AT_LEAST = frozenset({"worker_rlimit_nofile", "worker_connections", "keepalive"})
"""Directives of which more than was decided does no harm: who wrote it may know of a peak."""
_KEPT = ("proxy_http_version", "proxy_set_header")
"""What kept connections need in a location; nothing may undo what stands there for a reason."""
_DEFAULT_CHUNK = "2m"


def hold_against(decisions: Decisions, tree: ConfTree) -> Decisions:
    """The decisions as changes of the configuration ``tree``.

    Shape: what stands already is ``keep`` without settings; the other settings are those that
           are missing or differ.
    """
    standing = Standing(tree)
    limits = descriptors_for(decisions, tree)
    held = [_held(_as_chosen(limits(one)), standing) for one in decisions.decisions]
    return replace(decisions, decisions=with_needs(held, tree))


class Standing:
    """What a configuration says where files are sent or requests passed on."""

    def __init__(self, tree: ConfTree) -> None:
        self.tree = tree
        self.http = [block.block or Block([]) for block in http_blocks(tree)]
        serving = {id(one.scope.own): one.scope for one in served_paths(tree)}
        passing = [s for s in scopes(tree) if _passes(s)]
        self.answering: list[Scope] = [*serving.values(), *passing] or scopes(tree)

    def lines(self, wanted: Setting, apart: Sequence[str] = ()) -> list[Directive | None]:
        """The line that holds in each place the setting is for; null for nginx's default.

        ``apart`` are locations that have a setting of their own.
        """
        if wanted.context in ("main", "events"):
            return [self._outside_http(wanted)]
        if wanted.context == "upstream":
            groups = upstreams(self.tree)
            chosen = [u for u in groups if not wanted.block or u.name == wanted.block]
            return [u.block.first(wanted.directive) for u in chosen] or [None]
        if is_named(wanted):
            found = [line for block in self.http for line in block.all(wanted.directive)]
            if wanted.directive == "access_log":  # servers and locations have logs of their own
                found = [one for one in http_directives(self.tree) if one.name == "access_log"]
                return [one for one in found if _same_name(one, wanted)] or [None]
            return [next((line for line in found if _same_name(line, wanted)), None)]
        lines = [effective(scope, wanted) for scope in self.concerned(wanted, apart)]
        return list({id(line): line for line in lines}.values()) or [None]

    def places(self, wanted: Setting, apart: Sequence[str] = ()) -> list[Place]:
        """Where the setting is to go: the lines that differ, else the blocks that lack one."""
        if wanted.context in ("main", "events", "upstream") or is_named(wanted):
            blocks = self.blocks(wanted)
            standing = [one for one in self.lines(wanted, apart) if one is not None]
            lines = [one for one in standing if not holds(one, wanted)] or standing
            if wanted.context == "main" and not lines:
                return [Place(file=self.tree.path, line=1, text="main", change=False)]
            return [_place(one, change=bool(lines)) for one in lines or blocks]
        if wanted.directive == "listen":
            return [_place(one, change=True) for each in _listeners(wanted, self) for one in each]
        found: dict[tuple[str, int], Place] = {}
        for scope in self.concerned(wanted, apart):
            line = effective(scope, wanted)
            if not holds(line, wanted):
                own = next((a for a in reversed(scope.chain) if wanted.context == a.name), None)
                one = own or scope.own if line is None else line
                found[one.file, one.start] = _place(one, change=line is not None)
        return list(found.values())

    def blocks(self, wanted: Setting) -> list[Directive]:
        """The blocks that a setting outside of servers goes into."""
        if wanted.context == "upstream":
            groups = upstreams(self.tree)
            return [u.directive for u in groups if not wanted.block or u.name == wanted.block]
        if wanted.context == "main":
            return []
        return self.tree.main.all("http" if wanted.context == "http" else "events")

    def _outside_http(self, wanted: Setting) -> Directive | None:
        blocks = [self.tree.main]
        if wanted.context == "events":
            blocks = [line.block for line in self.tree.main.all("events") if line.block]
        found = [line for block in blocks for line in block.all(wanted.directive)]
        if wanted.directive == "thread_pool":
            found = [line for line in found if list(line.args[:1]) == wanted.args[:1]]
        return found[-1] if found else None

    def concerned(self, wanted: Setting, apart: Sequence[str]) -> list[Scope]:
        """The scopes that a setting is for."""
        answering = [scope for scope in self.answering if self._concerns(scope, wanted)]
        if wanted.block:
            return [scope for scope in answering if wanted.block in scope.own.args]
        return [scope for scope in answering if not set(apart) & set(scope.own.args)]

    def _concerns(self, scope: Scope, wanted: Setting) -> bool:
        """Whether a setting does anything in a scope: what passes requests on, caches, has TLS."""
        if wanted.directive == "http2":
            return scope.server in self._secure
        if not wanted.directive.startswith("proxy_"):
            return True
        if scope.own.block is None or scope.own.block.first("proxy_pass") is None:
            return False
        if wanted.directive in _KEPT and own_connection(scope):
            return False
        return not wanted.directive.startswith("proxy_cache") or not self.caches or _caches(scope)

    @cached_property
    def _secure(self) -> set[Directive]:
        return tls_servers(listeners(self.tree))

    @cached_property
    def caches(self) -> bool:
        """Whether anything is cached already."""
        return any(_caches(scope) for scope in self.answering)


def _caches(scope: Scope) -> bool:
    return scope.value("proxy_cache", "off") != "off"


def _place(line: Directive, *, change: bool) -> Place:
    return Place(file=line.file, line=line.line, text=str(line), change=change)


def _passes(scope: Scope) -> bool:
    return any(line.name.endswith("_pass") for line in scope.own.block or ())


def is_named(wanted: Setting) -> bool:
    """Whether it stands in http, once for each name."""
    return wanted.directive in ("proxy_cache_path", "split_clients", "access_log")


def _same_name(line: Directive, wanted: Setting) -> bool:
    place = 1 if wanted.directive == "split_clients" else 0
    return list(line.args[place : place + 1]) == wanted.args[place : place + 1]


def own_connection(scope: Scope) -> Directive | None:
    """The line by which a location sends upstreams a ``Connection`` or a version of its own.

    ``upgrade`` carries WebSockets, ``close`` and 1.0 may be for an origin that needs them.
    """
    version = scope.effective("proxy_http_version")
    if version is not None and version.value != "1.1":
        return version
    for line in scope.effective_all("proxy_set_header"):
        if line.value.lower() == "connection" and line.args[1:] != ("",):
            return line
    return None


def effective(scope: Scope, wanted: Setting) -> Directive | None:
    """The line of a scope that a setting would replace."""
    if wanted.directive in ("proxy_set_header", "ssl_conf_command"):
        lines = scope.effective_all(wanted.directive)
        return next((line for line in lines if list(line.args[:1]) == wanted.args[:1]), None)
    return scope.effective(wanted.directive)


def _as_chosen(decision: Decision) -> Decision:
    """The decision; a log that needs no buffer stays as its operator has it."""
    if decision.id == "access-log" and decision.verdict in ("keep", "not_applicable"):
        return replace(decision, settings=[])
    return decision


def _held(decision: Decision, standing: Standing) -> Decision:
    undo = _UNDO.get(decision.id)
    undone = undo(decision, standing) if undo else []
    if undone:
        return _undone(decision, undone)
    if decision.verdict in ("not_applicable", "not_enough_evidence") or not decision.settings:
        return decision
    decision = adapted(decision, standing.tree, caches=standing.caches)
    left: list[Setting] = []
    evidence: list[Evidence] = []
    verdict: Verdict = decision.verdict
    for wanted in decision.settings:
        if wanted.directive == "listen":
            stands, line = _listen_holds(wanted, standing), None
        else:
            apart = own_blocks(decision, wanted.directive)
            found = standing.lines(wanted, apart)
            differing = [line for line in found if not holds(line, wanted)]
            stands, line = not differing, differing[0] if differing else None
        if not stands:
            apart = own_blocks(decision, wanted.directive)
            places = standing.places(wanted, apart)
            if not places and wanted.context in ("server", "location", "upstream"):
                continue  # nothing in the configuration that it is for
            left.append(replace(wanted, places=places))
            if line is not None:
                evidence.append(_as_evidence(line))
                verdict = _direction(line, wanted) or verdict
    if not left:
        said = f"Already so{_more(decision, standing)}. {decision.summary}"
        return replace(decision, verdict="keep", settings=[], summary=said)
    if verdict == "keep":
        verdict = "set"
    return replace(
        decision,
        verdict=verdict,
        settings=left,
        evidence=[*decision.evidence, *evidence],
        risks=[*decision.risks, *_filtered(decision, standing), *_left_alone(decision, standing)],
    )


def _left_alone(decision: Decision, standing: Standing) -> list[str]:
    """The locations whose connections to upstreams are as somebody wanted them."""
    if not any(s.directive in _KEPT for s in decision.settings):
        return []
    lines = (own_connection(scope) for scope in standing.answering)
    return [
        f"{place} stays, so connections from there are not kept"
        for place in dict.fromkeys(f"{one.file}:{one.line} {one}" for one in lines if one)
    ]


def _more(decision: Decision, standing: Standing) -> str:
    """The larger numbers that stand, where less was decided."""
    found = {
        str(line): None
        for wanted in decision.settings
        if wanted.directive in _AT_LEAST
        for line in standing.lines(wanted)
        if line is not None and line.args != tuple(wanted.args)
    }
    return f", with more: {', '.join(found)} stays" if found else ""


_FILTERS = ("sub_filter", "subs_filter", "ssi", "image_filter", "xslt_stylesheet")


def _filtered(decision: Decision, standing: Standing) -> list[str]:
    """Where a filter cuts bodies into pieces, each of which would be a task for a thread.

    Traced with sub_filter (docs/behaviour.md): each piece of text between two replacements is a
    ``sendfile()`` of its own.
    """
    if decision.id != "thread-pools":
        return []
    lines = {
        f"{line.file}:{line.line} {line}": None
        for scope in standing.answering
        for name in _FILTERS
        if (line := scope.effective(name)) and line.value.lower() != "off"
    }
    return [
        f"{place} cuts bodies into pieces, and each would be sent by a thread's task: aio off "
        "where it holds"
        for place in lines
    ]


def own_blocks(decision: Decision, directive: str) -> list[str]:
    """The blocks for which a decision has a setting of their own."""
    return [s.block for s in decision.settings if s.block and s.directive == directive]


def _listeners(wanted: Setting, standing: Standing) -> list[list[Directive]]:
    """The lines of each address that an option of ``listen`` is for; HTTP/2 is for TLS alone."""
    return [
        one.lines
        for one in listeners(standing.tree)
        if not one.is_quic and not one.is_unix and (one.is_tls or wanted.args != ["http2"])
    ]


def _listen_holds(wanted: Setting, standing: Standing) -> bool:
    lines = _listeners(wanted, standing)
    if wanted.args == ["http2"] and not lines:
        return True
    return bool(lines) and all(
        any(has_option(line, wanted.args[0]) for line in each) for each in lines
    )


def has_option(listen: Directive, option: str) -> bool:
    """Whether a ``listen`` has an option; of a number more does as well."""
    name, _, value = option.partition("=")
    for arg in listen.args[1:]:
        own_name, _, own = arg.partition("=")
        if arg == option:
            return True
        if own_name == name and value.isdigit() and own.isdigit():
            return int(own) >= int(value)
    return False


def holds(line: Directive | None, wanted: Setting) -> bool:
    """Whether a line says what a setting asks for."""
    if line is None:
        return False
    if line.value in wanted.same:
        return True
    if wanted.directive in _AT_LEAST:
        have, want = parse_bytes(line.value), parse_bytes(wanted.args[0])
        return have is not None and want is not None and have >= want
    if wanted.directive == "access_log" and line.args[:1] == tuple(wanted.args[:1]):
        names = {arg.partition("=")[0] for arg in line.args[1:]}
        return all(arg.partition("=")[0] in names for arg in wanted.args[2:])
    if wanted.directive == "proxy_cache_key":  # the operator's own, where it has the host
        return any(name in " ".join(line.args) for name in ("$host", "$http_host"))
    if wanted.lines and line.block is not None:
        inner = [[one.name, *one.args] for one in line.block]
        return list(line.args) == wanted.args and inner == wanted.lines
    return line.args[:1] == tuple(wanted.args[:1]) and sorted(line.args) == sorted(wanted.args)


def _direction(line: Directive, wanted: Setting) -> Verdict | None:
    """Whether a number is to be raised or lowered; null for what is no number."""
    have = parse_bytes(line.value) if len(line.args) == 1 else None
    want = parse_bytes(wanted.args[0]) if len(wanted.args) == 1 else None
    if have is None or want is None or have == want:
        return None
    return "raise" if have < want else "lower"


def _undone(decision: Decision, undone: Sequence[tuple[Directive, list[Setting]]]) -> Decision:
    lines = [line for line, _ in undone]
    settings = {(s.directive, s.block, *s.args): s for _, made in undone for s in made}
    found = "; ".join(dict.fromkeys(map(str, lines)))
    return replace(
        decision,
        verdict="disable",
        summary=f"Take out {found}. {decision.summary}",
        settings=list(settings.values()),
        evidence=[*decision.evidence, *map(_as_evidence, lines)],
    )


def _as_evidence(line: Directive) -> Evidence:
    fact = f"{line.file}:{line.line}"
    return Evidence(fact=fact, value=str(line), provenance="declared")


Undo = Callable[[Decision, Standing], list[tuple[Directive, list[Setting]]]]


def _threads(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    lines = {id(a): a for scope in standing.answering if (a := scope.effective("aio"))}
    why = "all data fits in memory, or waiting costs less than offloading"
    return [
        (line, [setting("thread-pools", "location", "aio", "off", reason=why)])
        for line in lines.values()
        if asked_pool(line) is not None
    ]


def _accepting(_decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    why = "one worker would take most connections"
    found = []
    for name in ("multi_accept", "accept_mutex"):
        wanted = setting("accept", "events", name, "off", reason=why)
        line = standing.lines(wanted)[0]
        if line is not None and line.value.lower() == "on":
            found.append((line, [wanted]))
    return found


def _own_queues(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    """An option of ``listen`` has no line that undoes it: it is named, and goes by hand."""
    if decision.verdict != "disable":
        return []
    lines = [one.reuseport for one in listeners(standing.tree) if not one.is_quic]
    return [(line, []) for line in lines if line is not None]


def _open_files(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    wanted = setting(
        "open-file-cache", "http", "open_file_cache", "off", reason="it would mostly churn"
    )
    return [
        (line, [wanted]) for line in standing.lines(wanted) if line and line.value.lower() != "off"
    ]


def _direct(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    why = "the disk would work more, for what the page cache could answer"
    wanted = setting("directio", "http", "directio", "off", reason=why)
    return [
        (line, [wanted]) for line in standing.lines(wanted) if line and line.value.lower() != "off"
    ]


def _kernel_tls(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    why = "SSL_sendfile() runs on the loop and would go round the pool"
    wanted = setting("ktls", "http", "ssl_conf_command", "Options", "-KTLS", reason=why)
    found = []
    for line in standing.lines(wanted):
        options = "" if line is None else " ".join(line.args[1:]).lower()
        if line is not None and "ktls" in options and "-ktls" not in options:
            found.append((line, [wanted]))
    return found


def _unbounded(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "keep" or decision.settings:
        return []
    why = "without a bound one cold read can hold the loop for a whole file"
    wanted = setting("sendfile-max-chunk", "http", "sendfile_max_chunk", _DEFAULT_CHUNK, reason=why)
    return [(line, [wanted]) for line in standing.lines(wanted) if line and line.value == "0"]


_UNDO: dict[str, Undo] = {
    "thread-pools": _threads,
    "accept": _accepting,
    "reuseport": _own_queues,
    "open-file-cache": _open_files,
    "directio": _direct,
    "ktls": _kernel_tls,
    "sendfile-max-chunk": _unbounded,
}
