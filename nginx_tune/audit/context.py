"""The context of a check: a configuration, its host's facts, and what follows from both.

It includes the decisions for the same host, which weigh more facts than a rule: a fast disk, for
example, can serve data of several times the page cache without a thread pool. Advice that a
decision contradicts is not reported; advice that a decision leaves open says so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.storage import Cold, Total, cold_and_blocking, total_served
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import Version
from nginx_tune.conf.listeners import ListenAddress, TlsListener, listeners, tls_listeners
from nginx_tune.conf.locations import path_of
from nginx_tune.conf.scopes import Scope, http_blocks, placed, scopes
from nginx_tune.conf.served import Cache, Caching, Served, caches, caching, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import PASS_LINES, Pass, UpstreamBlock, passes, upstreams
from nginx_tune.conf.values import is_cut, is_template_line
from nginx_tune.conf.variables import Variables
from nginx_tune.conf.virtual_servers import default_servers
from nginx_tune.conf.workers import aio_lines
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions, DecisionVerdict
from nginx_tune.documents.facts import Facts

AuditProfile = Literal["default", "strict", "cis"]

OFF: frozenset[DecisionVerdict] = frozenset({"disable", "not_applicable", "keep"})
"""Verdicts that leave a feature off, or at nginx's default."""
ON: frozenset[DecisionVerdict] = frozenset({"enable", "set"})
REFUSED: dict[str, tuple[DecisionId, frozenset[DecisionVerdict]]] = {
    "io-no-pool-cold-dataset": ("thread-pools", OFF),
    "io-pool-cached-dataset": ("thread-pools", ON),
    "io-pool-single-many-disks": ("per-disk-pools", OFF),
    "io-open-blocking": ("open-file-cache", OFF),
    "io-aio-write-missing": ("aio-write", OFF),
    "io-tls-small-output-buffers": ("output-buffers", OFF),
    "io-read-ahead-random": ("read-ahead", OFF),
    "ls-reuseport-blocking": ("reuseport", ON),
    "io-sendfile-off-static": ("sendfile", frozenset({"disable"})),
    "ls-reuseport-candidate": ("reuseport", OFF),
    "up-keepalive-1297-change": ("upstream-keepalive", frozenset()),
}
"""The decision on the same question by rule id, and the verdicts that contradict the rule."""

DecisionsOnce = Callable[[], Decisions]
"""Computes the decisions on first use: most configurations have no finding that needs them."""

CONTEXT_NAMES = {
    "main": "the main context",
    "server-if": "an if in server",
    "location-if": "an if in location",
    "mail-server": "a server of mail",
    "stream-server": "a server of stream",
    "stream-upstream": "an upstream of stream",
}

_VERSION = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}")


class DirectiveKind(NamedTuple):
    """Name, context and number of arguments of a directive, as in the tables of directives."""

    name: str
    context: str
    arguments: int
    is_block: bool

    @property
    def where(self) -> str:
        """The context in words."""
        return CONTEXT_NAMES.get(self.context, self.context)


class Context:
    """One configuration on one host."""

    def __init__(
        self,
        tree: ConfTree,
        facts: Facts | None,
        profile: AuditProfile = "default",
        decide: DecisionsOnce | None = None,
    ) -> None:
        self.tree = tree
        self.decided = Decided(decide)
        self.profile = profile
        self.has_facts = facts is not None
        self.facts = facts if facts is not None else Facts()
        self._client_lines: dict[str, list[Directive]] = {}
        self._scopes_by_names: dict[tuple[str, ...], list[Scope]] = {}

    @cached_property
    def version(self) -> Version | None:
        """The nginx version to judge features by; None if not known."""
        text = self.facts.nginx.nginx_version
        return None if text is None else parse_version(text)

    @cached_property
    def flags(self) -> frozenset[str] | None:
        """The build's configure arguments without values; None if not known."""
        nginx = self.facts.nginx
        if nginx.version is None and not nginx.flags:
            return None
        return frozenset(flag.partition("=")[0] for flag in nginx.flags)

    @cached_property
    def is_linux(self) -> bool | None:
        """True on Linux; None if the system is not known."""
        system = self.facts.kernel.system
        return None if system is None else system == "Linux"

    @property
    def names(self) -> frozenset[str]:
        """The names of all directives of the tree, for a cheap test of absence."""
        return self.tree.names

    @property
    def lines_by_name(self) -> Mapping[str, Sequence[Directive]]:
        """Every directive of the tree, in any context, by name."""
        return self.tree.main.by_name

    @cached_property
    def kinds(self) -> dict[DirectiveKind, list[Directive]]:
        """Every directive of a main configuration by name, context and number of arguments."""
        return kinds_of(self.tree)

    @cached_property
    def aio_lines(self) -> list[tuple[Directive, str]]:
        """Every line that selects a thread pool, with the pool's name as written."""
        return aio_lines(self.tree) if "aio" in self.names else []

    @cached_property
    def scopes(self) -> list[Scope]:
        """Every scope that handles requests."""
        return scopes(self.tree)

    @cached_property
    def listeners(self) -> list[ListenAddress]:
        """Every http address that nginx listens on."""
        return listeners(self.tree)

    @cached_property
    def _default_blocks(self) -> dict[int, str]:
        found = default_servers(self.tree)
        return {id(server.block): address for server, address in found.items()}

    def default_address(self, server: Directive) -> str | None:
        """An address that has this server as its default server; None if there is none."""
        return self._default_blocks.get(id(server.block))

    @cached_property
    def tls_listeners(self) -> list[TlsListener]:
        """Every http address with TLS."""
        return list(tls_listeners(self.listeners, self.scopes))

    @cached_property
    def is_until_certified(self) -> bool:
        """True for a temporary configuration that only obtains a certificate.

        It answers ACME challenges, nothing listens for TLS, and no include may add other servers.
        """
        if self.tree.is_part or any(address.is_tls for address in self.listeners):
            return False
        if not any(
            "acme-challenge" in arg
            for line in self.tree.main.within("location")
            for arg in line.args
        ):
            return False
        blocks = [http.block for http in self.tree.main.all("http") if http.block is not None]
        lines = [line for block in blocks for line in block.directives]
        may_include_servers = any(line.name == "include" and "*" in line.value for line in lines)
        has_challenge = any("acme-challenge" in path_of(scope) for scope in self.scopes)
        return has_challenge and not may_include_servers

    def client_lines(self, name: str) -> list[Directive]:
        """All lines of a directive in contexts that serve clients: http, server, location and if.

        Lines of an upstream are not included.
        """
        if name not in self.names:
            return []
        if name not in self._client_lines:
            blocks = [http.block for http in http_blocks(self.tree)]
            blocks += [scope.own.block for scope in self._setters.get(name, ())]
            lines = (line for block in blocks if block for line in block.all(name))
            self._client_lines[name] = list(dict.fromkeys(lines))
        return self._client_lines[name]

    @cached_property
    def access_logs(self) -> list[Directive]:
        """All access_log lines of http and stream."""
        of_stream = (
            line
            for kind, lines in self.kinds.items()
            if kind.name == "access_log" and kind.context.startswith("stream")
            for line in lines
        )
        return [*self.client_lines("access_log"), *of_stream]

    @cached_property
    def _setters(self) -> dict[str, list[Scope]]:
        """For each directive name, the scopes that have it in their own block."""
        scopes_by_name: dict[str, list[Scope]] = {}
        for scope in self.scopes:
            for name in scope.own.block.lines if scope.own.block is not None else ():
                if name in scopes_by_name:
                    scopes_by_name[name].append(scope)
                else:
                    scopes_by_name[name] = [scope]
        return scopes_by_name

    def scopes_that_set(self, *names: str) -> list[Scope]:
        """The scopes with a directive of one of the names in their own block, outer first."""
        if len(names) == 1:
            return self._setters.get(names[0], [])
        wanted = {scope for name in names for scope in self._setters.get(name, ())}
        return [scope for scope in self.scopes if scope in wanted] if wanted else []

    def blocks_that_set(self, name: str) -> list[dict[str, list[Directive]]]:
        """The lines by name of each block with a directive of the name, http included."""
        levels = [level for scope in self.scopes_with(name) for level in scope.levels]
        return list({id(level): level for level in levels if name in level}.values())

    def scopes_with(self, *names: str) -> list[Scope]:
        """The scopes where a directive of one of the names is in effect, outer first."""
        if self.names.isdisjoint(names):
            return []
        if names not in self._scopes_by_names:
            self._scopes_by_names[names] = self._scopes_with(frozenset(names))
        return self._scopes_by_names[names]

    def _scopes_with(self, names: frozenset[str]) -> list[Scope]:
        blocks = [http.block for http in http_blocks(self.tree)]
        if any(not names.isdisjoint(block.lines) for block in blocks if block is not None):
            return self.scopes
        wanted = {scope.own for name in names for scope in self._setters.get(name, ())}
        return [scope for scope in self.scopes if not wanted.isdisjoint(scope.chain)]

    @cached_property
    def upstreams(self) -> dict[str, UpstreamBlock]:
        """The upstreams by name, in order."""
        return {upstream.name: upstream for upstream in upstreams(self.tree)}

    @cached_property
    def passes(self) -> list[Pass]:
        """Every scope that gets requests and passes them to another server."""
        found = passes(self.scopes_that_set(*PASS_LINES), self.variables)
        return [one for one in found if not _is_answered_before(one.scope)]

    @cached_property
    def passes_by_upstream(self) -> dict[str, list[Pass]]:
        """The scopes that pass requests to each upstream, by name; an unused upstream has none."""
        found: dict[str, list[Pass]] = {name: [] for name in self.upstreams}
        for passed in self.passes:
            for address in passed.addresses:
                if address in found:
                    found[address].append(passed)
        return found

    @cached_property
    def caches(self) -> list[Cache]:
        """The caches of upstream responses."""
        return caches(self.tree)

    @cached_property
    def used_caches(self) -> list[Cache]:
        """The caches that some location uses; all of them if a variable may select any."""
        named = (self.variables.possible(one.place.value, one.passed.scope) for one in self.caching)
        if not self.tree.is_whole or not all(values.complete for values in named):
            return self.caches
        used = {cache for one in self.caching for cache in one.caches}
        return [cache for cache in self.caches if cache in used]

    @cached_property
    def caching(self) -> list[Caching]:
        """Every scope that stores upstream responses."""
        return caching(self.passes, self.caches, self.variables)

    @cached_property
    def served(self) -> list[Served]:
        """Every scope that serves files, with the directory."""
        return served_paths(self.tree, self.scopes, self.variables)

    @cached_property
    def total(self) -> Total:
        """The bytes of all files that nginx serves from disk."""
        return total_served(self.served, self.facts)

    @cached_property
    def cold(self) -> list[Cold | MissingFacts]:
        """Served directories whose reads certainly block workers, and facts missing for others."""
        found = cold_and_blocking(self.served, self.facts, self.total)
        pools = self.decided.on("thread-pools") if found else None
        # A decision against pools means that these reads cost less than a pool.
        return [] if pools is not None and pools.verdict == "disable" else found

    @cached_property
    def variables(self) -> Variables:
        """The variables that the configuration defines."""
        return Variables(self.tree)


def parse_version(text: str) -> Version | None:
    """``1.22.1`` as numbers; None if the text is not a version."""
    match = _VERSION.match(text)
    return None if match is None else tuple(map(int, match[0].split(".")))


def kinds_of(tree: ConfTree) -> dict[DirectiveKind, list[Directive]]:
    """The directives of a tree by kind, in order, without fragments of template syntax."""
    by_kind: dict[tuple[str, str, int, bool], list[Directive]] = {}
    may_be_cut = is_cut((tree.given, *(file.source.text for file in tree.parsed)))
    marks = frozenset(filter(is_template_line, tree.names))
    for directive, where in placed(tree):
        if directive.name in marks or (may_be_cut and is_cut((directive.name, *directive.args))):
            continue
        key = (directive.name, where, len(directive.args), directive.block is not None)
        if key in by_kind:
            by_kind[key].append(directive)
        else:
            by_kind[key] = [directive]
    return {DirectiveKind(*key): directives for key, directives in by_kind.items()}


class Decided:
    """The decisions, computed on first use."""

    def __init__(self, decide: DecisionsOnce | None) -> None:
        self._decide = decide
        self._found: dict[DecisionId, Decision] | None = None

    def on(self, name: DecisionId) -> Decision | None:
        """The decision with the id; None if nothing was decided."""
        if self._decide is None:
            return None
        if self._found is None:
            self._found = {decision.id: decision for decision in self._decide().decisions}
        return self._found.get(name)

    def judged(self, rule: str, hit: Hit) -> Hit | None:
        """The hit adjusted by the decisions; None if they contradict its advice."""
        if rule not in REFUSED:
            return hit
        name, against = REFUSED[rule]
        decision = self.on(name)
        if decision is None:
            return hit
        if decision.verdict in against:
            return None
        if decision.verdict == "not_enough_evidence":
            command = decision.next_command or "nginx-tune recommend"
            return hit._replace(
                severity="info", fix=f"{decision.summary} To decide, run: {command}"
            )
        return hit


def _is_answered_before(scope: Scope) -> bool:
    """True if a ``return`` of the server answers every request before a location is chosen.

    A named location is still reached, by error_page. Source: ngx_http_rewrite_handler,
    ngx_http_named_location.
    """
    block = scope.server.block
    if block is None or any(one.value.startswith("@") for one in scope.chain if one.args):
        return False
    for line in block.directives:
        if line.name == "return":
            return True
        inner = [line] if line.block is None else line.block.directives
        if line.name in {"if", "rewrite", "break"} and any(map(_ends_rewriting, inner)):
            return False
    return False


def _ends_rewriting(line: Directive) -> bool:
    return line.name == "break" or (
        line.name == "rewrite" and not {"break", "last"}.isdisjoint(line.args[2:])
    )
