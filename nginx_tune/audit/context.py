"""What a check is given: the configuration, the facts, and what both say together."""

from __future__ import annotations

import re
from functools import cached_property

from nginx_tune.audit.coldness import Cold, Total, cold_and_blocking, total_served
from nginx_tune.audit.decided import Decide, Decided
from nginx_tune.audit.directives import Kind, kinds_of
from nginx_tune.audit.rule import MissingFacts, Profile
from nginx_tune.conf.caches import Cache, Caching, caches, caching
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import ListenAddress, listeners
from nginx_tune.conf.location_words import path_of
from nginx_tune.conf.scopes import Scope, http_blocks, scopes
from nginx_tune.conf.served import Served, served_paths
from nginx_tune.conf.thread_pools import aio_lines
from nginx_tune.conf.tls import TlsListener, tls_listeners
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass, UpstreamBlock, passes, upstreams
from nginx_tune.conf.variables import Variables
from nginx_tune.conf.virtual_servers import default_servers
from nginx_tune.documents.facts import Facts

Version = tuple[int, ...]

_VERSION = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}")


class Context:
    """One configuration on one host."""

    def __init__(
        self,
        tree: ConfTree,
        facts: Facts | None,
        profile: Profile = "default",
        decide: Decide | None = None,
    ) -> None:
        self.tree = tree
        self.decided = Decided(decide)
        self.profile = profile
        self.has_facts = facts is not None
        self.facts = facts if facts is not None else Facts()

    @cached_property
    def version(self) -> Version | None:
        """The nginx version that features are judged by."""
        text = self.facts.nginx.nginx_version
        return None if text is None else parse_version(text)

    @cached_property
    def flags(self) -> frozenset[str] | None:
        """The build's configure arguments without values; null when not known."""
        nginx = self.facts.nginx
        if nginx.version is None and not nginx.flags:
            return None
        return frozenset(flag.partition("=")[0] for flag in nginx.flags)

    @cached_property
    def is_linux(self) -> bool | None:
        """Whether the host is Linux; null when not known."""
        system = self.facts.kernel.system
        return None if system is None else system == "Linux"

    @property
    def names(self) -> frozenset[str]:
        """The names of all directives: what a rule looks for is mostly not there."""
        return self.tree.names

    @cached_property
    def lines_by_name(self) -> dict[str, list[Directive]]:
        """Every directive of the tree, wherever it stands, under its name."""
        found: dict[str, list[Directive]] = {}
        for directive in self.tree.main.walk():
            found.setdefault(directive.name, []).append(directive)
        return found

    @cached_property
    def kinds(self) -> dict[Kind, list[Directive]]:
        """Every directive of a main configuration by name, context and number of arguments."""
        return kinds_of(self.tree)

    @cached_property
    def aio_lines(self) -> list[tuple[Directive, str]]:
        """Every line that asks for a thread pool, with the pool's name as written."""
        return aio_lines(self.tree) if "aio" in self.names else []

    @cached_property
    def scopes(self) -> list[Scope]:
        """Every place where requests are answered."""
        return scopes(self.tree)

    @cached_property
    def listeners(self) -> list[ListenAddress]:
        """Every http address that is listened on."""
        return listeners(self.tree)

    @cached_property
    def _default_blocks(self) -> dict[int, str]:
        found = default_servers(self.tree)
        return {id(server.block): address for server, address in found.items()}

    def default_address(self, server: Directive) -> str | None:
        """An address on which this server answers for hosts that no server names, if it does."""
        return self._default_blocks.get(id(server.block))

    @cached_property
    def tls_listeners(self) -> list[TlsListener]:
        """Every http address that speaks TLS."""
        return list(tls_listeners(self.listeners, self.scopes))

    @cached_property
    def is_until_certified(self) -> bool:
        """Whether this stands only until there is a certificate.

        Challenges are answered and nothing listens for TLS, in no server that another file brings.
        """
        if self.tree.is_part or any(one.is_tls for one in self.listeners):
            return False
        blocks = [http.block for http in self.tree.main.all("http") if http.block is not None]
        lines = [line for block in blocks for line in block.directives]
        brings_more = any(line.name == "include" and "*" in line.value for line in lines)
        is_asked = any("acme-challenge" in path_of(scope) for scope in self.scopes)
        return is_asked and not brings_more

    def client_lines(self, name: str) -> list[Directive]:
        """Every line of that name that is about clients: in http, a server, a location or an if.

        A line of an upstream is about something else.
        """
        blocks = [http.block for http in http_blocks(self.tree)]
        blocks += [scope.own.block for scope in self.scopes]
        return list(dict.fromkeys(line for block in blocks if block for line in block.all(name)))

    @cached_property
    def upstreams(self) -> dict[str, UpstreamBlock]:
        """The groups of servers by name, in order."""
        return {upstream.name: upstream for upstream in upstreams(self.tree)}

    @cached_property
    def passes(self) -> list[Pass]:
        """Every scope that passes requests on."""
        return passes(self.scopes, self.variables)

    @cached_property
    def passes_by_upstream(self) -> dict[str, list[Pass]]:
        """The scopes that pass requests to each upstream; none for one that nobody names."""
        found: dict[str, list[Pass]] = {name: [] for name in self.upstreams}
        for one in self.passes:
            for address in one.addresses:
                if address in found:
                    found[address].append(one)
        return found

    @cached_property
    def caches(self) -> list[Cache]:
        """The caches of upstream responses."""
        return caches(self.tree)

    @cached_property
    def used_caches(self) -> list[Cache]:
        """The caches that some location uses; all of them where a variable may name any."""
        named = (self.variables.possible(one.place.value, one.passed.scope) for one in self.caching)
        if not self.tree.is_whole or not all(values.complete for values in named):
            return self.caches
        used = {cache for one in self.caching for cache in one.caches}
        return [cache for cache in self.caches if cache in used]

    @cached_property
    def caching(self) -> list[Caching]:
        """Every scope that keeps upstream responses."""
        return caching(self.passes, self.caches, self.variables)

    @cached_property
    def served(self) -> list[Served]:
        """Every scope that serves files, with the directory."""
        return served_paths(self.tree)

    @cached_property
    def total(self) -> Total:
        """How much nginx serves from disk."""
        return total_served(self.served, self.facts)

    @cached_property
    def cold(self) -> list[Cold | MissingFacts]:
        """Served directories whose reads are sure to block workers, and what is missing."""
        found = cold_and_blocking(self.served, self.facts, self.total)
        pools = self.decided.on("thread-pools") if found else None
        # Reads that cost less than a pool block nobody that would notice.
        return [] if pools is not None and pools.verdict == "disable" else found

    @cached_property
    def variables(self) -> Variables:
        """The variables the configuration defines."""
        return Variables(self.tree)


def parse_version(text: str) -> Version | None:
    """``1.22.1`` as numbers; null for what is no version."""
    match = _VERSION.match(text)
    return None if match is None else tuple(map(int, match[0].split(".")))
