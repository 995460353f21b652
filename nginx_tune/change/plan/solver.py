"""Decisions for an existing configuration, repeated until they fit the values that stay.

A decision may be blocked or left out. Then the others are made again for the current value: for
example one worker, if Lua needs that, or reads in the event loop, if threads can read no location.
A decision that is left out once stays out, so the process ends.

Some decisions are useless or harmful without another. A cache without its key has one page for all
hosts. An unused pool wastes memory, and nginx does not start if the pool of a location is missing.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.current import CurrentTree
from nginx_tune.change.plan.naming import caches_in, streams_in
from nginx_tune.change.plan.process_needs import asked_pools, asks_pools, open_files_in
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import cleartext_http2_servers, listeners
from nginx_tune.conf.locations import live_signs
from nginx_tune.conf.scopes import Scope, http_blocks, http_directives, scopes
from nginx_tune.conf.served import places_of, searches_roots, served_paths, why_no_place
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import upstreams
from nginx_tune.conf.values import parameter, parse_bytes
from nginx_tune.conf.workers import connections_in, descriptors_in, kept_open, workers_in
from nginx_tune.decide.answer import ALL_AS_DECIDED, SENDFILE_OFF, Pinned, wanted_workers
from nginx_tune.decide.defaults import log_of_build, plausible_facts
from nginx_tune.decide.engine import Case, case_of
from nginx_tune.decide.model.connections import DEFAULT_CONNECTIONS
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.site import CacheBounds, Site, SiteTls, Upstream
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import UsageError


def configured_case(tree: ConfTree, facts: Facts, given: Workload | None = None) -> Case:
    """The case of a configuration on its host, with an optional workload."""
    is_known = given is not None and given.kind_provenance != "assumed"
    found = None if is_known else kind_in(tree)
    return case_of(facts, given, site_of(tree, Site(), facts.nginx), found and found.kind)


def site_of(tree: ConfTree, site: Site, nginx: Nginx) -> Site:
    """The site of ``site_in``, completed from the configuration's roots and the build's access log.

    The roots are added only if ``site`` names none.
    """
    site = site_in(tree, site)
    own = roots_in(tree) if site.roots == Site().roots else []
    log = site.access_log or log_of_build(nginx)
    apart = site.roots_apart or (bool(own) and not searches_roots(tree))
    return replace(site, roots=own or site.roots, roots_apart=apart, access_log=log)


def roots_in(tree: ConfTree) -> list[str]:
    """The distinct roots and aliases of served files, in file order."""
    return list(
        dict.fromkeys(served.root for served in served_paths(tree) if served.via != "cache")
    )


def site_in(tree: ConfTree, site: Site) -> Site:
    """The site, completed from its configuration.

    Errors: UsageError for a new cache in a place where nginx would delete served or kept files.
    """
    _check_new_caches(site, tree)
    secure = [
        server for listener in listeners(tree) if listener.is_tls for server in listener.servers
    ]
    tls = site.tls
    if tls is None and secure:
        certificates = (_path(tree, block, "ssl_certificate") for block in secure)
        keys = (_path(tree, block, "ssl_certificate_key") for block in secure)
        tls = SiteTls(
            certificate=next(filter(None, certificates), "/"),
            certificate_key=next(filter(None, keys), "/"),
        )
    named = [
        Upstream(name=upstream.name, servers=[" ".join(line.args) for line in upstream.servers])
        for upstream in upstreams(tree)
        if upstream.servers
    ]
    held = kept_open(tree)
    return replace(
        site,
        tls=tls,
        cleartext_http2=site.cleartext_http2
        or bool(cleartext_http2_servers(scopes(tree), listeners(tree))),
        http3=site.http3 or any(listener.is_quic for listener in listeners(tree)),
        upstreams=site.upstreams or named,
        streams=site.streams or streams_in(tree),
        live_files=site.live_files or live_signs(tree),
        serves_files=site.serves_files or bool(roots_in(tree)),
        cache_dirs=site.cache_dirs or list(caches_in(tree)),
        cache_bounds={path: _bounds(line) for path, line in caches_in(tree).items()}
        | site.cache_bounds,
        access_log=site.access_log or _access_log(tree),
        other_access_logs=site.other_access_logs or list(_access_logs(tree)),
        log_files=max(site.log_files or 0, held.logs),
        listening_sockets=max(site.listening_sockets or 0, held.sockets),
    )


def _check_new_caches(site: Site, tree: ConfTree) -> None:
    served, kept = places_of(tree)
    for path in site.cache_dirs:
        if path in caches_in(tree):
            continue
        if why := why_no_place(path, served=served, kept=kept, caches=site.cache_dirs):
            raise UsageError(
                f"{path or repr(path)}: not a place for a cache: it {why}",
                hint="name a new directory for the cache",
            )


def _bounds(line: Directive) -> CacheBounds:
    words = {arg.partition("=")[0]: arg.partition("=")[2] for arg in line.args[1:]}
    return CacheBounds(
        max_bytes=parse_bytes(words.get("max_size", "")) or None,
        min_free_bytes=parse_bytes(words.get("min_free", "")) or None,
    )


def _access_log(tree: ConfTree) -> str | None:
    """The first access log that is a file, of http or a server; otherwise another destination.

    Shape: ``off`` if nothing is logged; None if the build's default applies.
    """
    found = [line.value for line in _written_to(tree)]
    files = [path for path in found if path != "off" and "$" not in path and path[:7] != "syslog:"]
    own = [file for file in files if not file.startswith(("/dev/", "/proc/"))]
    known = {"off", *files}
    sinks = [path for path in found if path not in known]
    return next(iter([*own, *files, *sinks, *found]), None)


def _written_to(tree: ConfTree) -> list[Directive]:
    """The lines of the access logs in use, with those of http first."""
    every = scopes(tree)
    inherited = {line for scope in every for line in scope.effective_all("access_log")}
    of_http = [
        line for http in http_blocks(tree) if http.block for line in http.block.all("access_log")
    ]
    others = [
        line for line in http_directives(tree) if line.name == "access_log" and line not in of_http
    ]
    return [line for line in of_http if line in inherited or not every] + others


def _access_logs(tree: ConfTree) -> Iterator[str]:
    """The distinct access logs of all levels, each in the spelling of its first line."""
    seen: set[str] = set()
    for line in _written_to(tree):
        if line.value not in ("", "off"):
            name = tree.opened_name(line.value)
            if name not in seen:
                yield line.value
            seen.add(name)


def _path(tree: ConfTree, server: Directive, name: str) -> str | None:
    line = server.block.first(name) if server.block else None
    return None if line is None or "$" in line.value else tree.full_path(line.value)


_PASSES = frozenset(
    {"proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"}
)
_MEDIA = ("mp4", "flv", "hls")


class KindFound(NamedTuple):
    """The kind of a configuration, with the reason."""

    kind: Kind
    reason: str
    """A clause that names the line that shows the kind, and other kinds in the configuration."""


def kind_in(tree: ConfTree) -> KindFound | None:
    """The kind of site that a configuration serves; None if it serves and proxies nothing."""
    seen: dict[Kind, list[tuple[Scope, Directive]]] = {}
    for kind, scope, line in _answers(tree):
        seen.setdefault(kind, []).append((scope, line))
    if not seen:
        streams = [KindFound("proxy", f"from {_where(line)}") for line in _passed_streams(tree)]
        return streams[0] if streams else None

    def rank(kind: Kind) -> tuple[bool, int, int]:
        places = seen[kind]
        mains = sum(1 for scope, _ in places if scope.own.args == ("/",))
        return kind == "cache", mains, len(places)

    chosen = max(seen, key=rank)
    reason = f"from {_where(seen[chosen][0][1])}"
    others = [f"{kind} ({_where(seen[kind][0][1])})" for kind in seen if kind != chosen]
    if others:
        reason += f"; also {', '.join(others)}, which --kind can select"
    return KindFound(chosen, reason)


def _answers(tree: ConfTree) -> Iterator[tuple[Kind, Scope, Directive]]:
    cached = set()
    for served in served_paths(tree):
        if served.via == "cache":
            cached.add(id(served.scope.own))
            yield "cache", served.scope, served.place
        elif _passing(served.scope) is None:
            is_media = any(served.scope.own.block and served.scope.own.block.all(n) for n in _MEDIA)
            yield "media" if is_media else "static", served.scope, served.place
    for scope in scopes(tree):
        line = _passing(scope)
        if line is not None and id(scope.own) not in cached:
            yield "proxy", scope, line


def _passed_streams(tree: ConfTree) -> Iterator[Directive]:
    """The ``proxy_pass`` lines in stream, each of which also takes two connections per client.

    Source: ngx_stream_proxy_module.
    """
    for stream in tree.main.all("stream"):
        for server in stream.block.all("server") if stream.block else ():
            yield from server.block.all("proxy_pass") if server.block else ()


def _passing(scope: Scope) -> Directive | None:
    return next((line for line in scope.own.block or () if line.name in _PASSES), None)


def _where(line: Directive) -> str:
    return f"{line.file}:{line.line} {line.name}"


DecidePinned = Callable[[Pinned], Decisions]


class FittedDecisions(NamedTuple):
    """Decisions that fit the pinned values."""

    decided: Decisions
    """The decisions for the host and the site."""
    held: Decisions
    """The same decisions as changes to the configuration."""
    stays: Pinned


class Solver:
    """A solver for one configuration on one host: the pinned values change from step to step."""

    def __init__(self, decide: DecidePinned, tree: ConfTree, facts: Facts) -> None:
        self._decide, self._tree, self._facts = decide, tree, plausible_facts(facts)

    def begin(self, decided: Decisions) -> FittedDecisions:
        """The first decisions, as if every decision that has a place were applied."""
        settled = FittedDecisions(decided, as_changes(decided, self._tree), ALL_AS_DECIDED)
        every = {decision.id for decision in decided.decisions}
        while again := self.without(settled, _with_settings(settled.held.decisions), every):
            settled = again
        return settled

    def without(
        self, settled: FittedDecisions, written: Collection[str], chosen: Collection[str]
    ) -> FittedDecisions | None:
        """The decisions, made again as if only those in ``written`` were applied.

        None if the ``chosen`` decisions already fit that case.
        """
        stays = self._pinned(settled, written)
        others = [
            field.name for field in fields(stays) if _differ(field.name, stays, settled.stays)
        ]
        if not any(RESTS_ON[name] & {*chosen} for name in others):
            return None
        decided = self._decide(stays)
        again = as_changes(decided, self._tree).decisions
        before = {decision.id: decision for decision in settled.held.decisions}
        held = [_as_left(before[decision.id], decision, stays, written) for decision in again]
        return FittedDecisions(decided, replace(decided, decisions=held), stays)

    def _pinned(self, settled: FittedDecisions, written: Collection[str]) -> Pinned:
        """Current values that stay if only ``written`` is applied, and values pinned before."""
        known, tree = settled.stays, self._tree
        by_id = {decision.id: decision for decision in settled.decided.decisions}
        held = {decision.id: decision for decision in settled.held.decisions}
        left = [decision for name, decision in by_id.items() if name not in written]
        done = [decision for name, decision in held.items() if name in written]
        workers = known.workers
        if workers is None and "workers" not in written:
            workers = self._workers(left)
        no_pools = known.no_pools
        if not no_pools and any(map(asks_pools, by_id.values())):
            no_pools = self._why_no_pools(held, done)
        connections = known.connections
        if connections is None and "connections" not in written:
            own = connections_in(tree, DEFAULT_CONNECTIONS)
            wanted = _number(left, "worker_connections")
            connections = None if wanted in (None, own) else own
        descriptors = known.descriptors
        if descriptors is None and "file-limits" not in written:
            descriptors = _less(self._descriptors(), _number(left, "worker_rlimit_nofile"))
        return Pinned(
            workers=workers,
            no_pools=no_pools,
            connections=connections,
            descriptors=descriptors,
            open_files=self._open_files(left) if known.open_files is None else known.open_files,
            no_sendfile=known.no_sendfile or self._why_copied(left, held),
        )

    def _workers(self, left: Sequence[Decision]) -> int | None:
        """The current number of workers if it differs from the decided one, otherwise None."""
        cpu = self._facts.cpu
        automatic = cpu.auto_workers if cpu.auto_workers is not None else cpu.online
        by_default = automatic if self._facts.nginx.product == "tengine" else 1
        found = workers_in(self._tree, automatic, by_default=by_default)
        wanted = _number(left, "worker_processes") or wanted_workers(self._facts)
        return None if found == wanted else found

    def _descriptors(self) -> int | None:
        """The current descriptor limit of a worker; None if not known."""
        limits = self._facts.limits
        limit = descriptors_in(self._tree)
        bounds = (limits.nr_open, limits.nofile_hard if limits.is_hard_final else None)
        if limit is not None and not any(bound and limit > bound for bound in bounds):
            return limit
        return None if limits.nofile_of == "reader" else limits.nofile_soft

    def _why_no_pools(self, held: dict[DecisionId, Decision], done: Sequence[Decision]) -> str:
        """The reason why threads read no files; empty if they do or will."""
        if asked_pools(CurrentTree(self._tree), done):
            return ""
        asking = [held[name] for name in READ_BY_THREADS]
        one = next(
            (decision for decision in asking if decision.blocked_by or asks_pools(decision)),
            asking[0],
        )
        why = f" ({one.blocked_by})" if one.blocked_by else ""
        return f"{one.id}, which is left out{why}"

    def _open_files(self, left: Sequence[Decision]) -> int | None:
        """The current size of open file caches if it differs from the decided one, in entries."""
        wanted = next(
            (
                decision
                for decision in left
                if decision.id == "open-file-cache" and decision.settings
            ),
            None,
        )
        if wanted is None:
            return None
        entries = (parameter(setting.args, "max") for setting in wanted.settings)
        found = open_files_in(self._tree)
        return None if str(found) in entries else found

    def _why_copied(self, left: Sequence[Decision], held: dict[DecisionId, Decision]) -> str:
        """The reason why sendfile is off, or may be off, for all files; empty if there is none."""
        answering = CurrentTree(self._tree).answering
        is_on = any(scope.value("sendfile", "off").lower() == "on" for scope in answering)
        if is_on or not _turns_on_sendfile(left):
            return ""
        why = held["sendfile"].blocked_by if self._tree.lost or self._tree.is_part else ""
        return f"sendfile may be off ({why})" if why else SENDFILE_OFF


def _with_settings(decisions: Sequence[Decision]) -> set[str]:
    return {decision.id for decision in decisions if decision.settings}


def _as_left(
    before: Decision, again: Decision, stays: Pinned, written: Collection[str]
) -> Decision:
    """The decision ``again``; if it is left out, ``before`` without settings, to keep its text."""
    if before.id in left_by(stays) and before.id not in written:
        return replace(before, settings=[])
    is_bound = stays.descriptors is not None and before.id in ("connections", "open-file-cache")
    if is_bound and again.verdict == "disable" != before.verdict:  # because of the pinned limit
        again = replace(before, settings=[])
    if is_bound and before.settings and not again.settings:
        return replace(again, blocked_by=f"a worker has {stays.descriptors} descriptors")
    if not stays.no_pools or before.id not in BY_THREADS or again.settings or again.blocked_by:
        return again
    why = f"it depends on {stays.no_pools}"
    return replace(again, blocked_by=why if before.settings or before.blocked_by else "")


def _differ(name: str, *both: Pinned) -> bool:
    one, other = (getattr(each, name) for each in both)
    return bool(one != other)


def left_by(stays: Pinned) -> Iterator[DecisionId]:
    """The ids of decisions that are left out because their values are pinned."""
    if stays.workers is not None:
        yield "workers"
    if stays.connections is not None:
        yield "connections"
    if stays.descriptors is not None:
        yield "file-limits"
    if stays.no_pools:
        yield from READ_BY_THREADS
    if stays.open_files is not None:
        yield "open-file-cache"
    if stays.no_sendfile:
        yield "sendfile"


def _turns_on_sendfile(decisions: Sequence[Decision]) -> bool:
    return any(decision.id == "sendfile" and decision.verdict == "enable" for decision in decisions)


def _number(decisions: Sequence[Decision], directive: str) -> int | None:
    every = (setting for decision in decisions for setting in decision.settings)
    words = (setting.args[0] for setting in every if setting.directive == directive)
    return next((int(word) for word in words if word.isdigit()), None)


def _less(own: int | None, wanted: int | None) -> int | None:
    """The current number if it is smaller than the decided one, otherwise None."""
    return own if own is not None and wanted is not None and own < wanted else None


READ_BY_THREADS: tuple[DecisionId, ...] = ("thread-pools", "per-disk-pools")
"""Decisions that make threads read files."""


class _Bond(NamedTuple):
    needs: tuple[DecisionId, ...]
    """The decisions on which this decision depends, provided that they write anything."""
    directive: str = ""
    """The directive that the decision must write for the dependency to apply; empty: always."""


GOES_WITH: dict[DecisionId, tuple[_Bond, ...]] = {
    "cache-layout": (_Bond(("cache-key",), "proxy_cache"),),
    "cache-key": (_Bond(("cache-layout",)),),
    "cache-misses": (_Bond(("cache-layout",)),),
    "cache-updates": (_Bond(("cache-layout",)),),
    "thread-pools": (_Bond(("thread-pool-size", "ktls")),),
    "per-disk-pools": (_Bond(("ktls",)),),
    "thread-pool-size": (_Bond(READ_BY_THREADS),),
    "aio-write": (_Bond(READ_BY_THREADS),),
    "output-buffers": (_Bond(READ_BY_THREADS),),
    "ktls": (_Bond(READ_BY_THREADS),),
}
BRINGS: dict[DecisionId, tuple[DecisionId, ...]] = {"connections": ("file-limits",)}
"""The other decisions that ``--only`` applies along with a decision."""
BY_THREADS = frozenset(
    name for name, bonds in GOES_WITH.items() for bond in bonds if bond.needs == READ_BY_THREADS
)
"""Decisions that are useless unless threads read files."""
_READS: frozenset[DecisionId] = frozenset(
    {*READ_BY_THREADS, *BY_THREADS, "directio", "sendfile-max-chunk", "open-file-cache"}
)
_DESCRIPTORS: frozenset[DecisionId] = frozenset({"connections", "file-limits", "open-file-cache"})
RESTS_ON: dict[str, frozenset[DecisionId]] = {
    "workers": _READS
    | _DESCRIPTORS
    | {"accept", "backlog", "reuseport", "upstream-keepalive", "http3", "sendfile"},
    "no_pools": _READS | {"reuseport", "sendfile", "workers"},
    "connections": _DESCRIPTORS | {"upstream-keepalive"},
    "descriptors": _DESCRIPTORS | {"upstream-keepalive"},
    "open_files": frozenset({"file-limits"}),
    "no_sendfile": _READS | {"reuseport"},
}
"""The decisions that depend on a pinned value, by field of ``Pinned``."""


def needed_by(decision: Decision, others: Sequence[Decision]) -> Iterator[Decision]:
    """The decisions with settings that a decision depends on, if it has settings itself."""
    written = {setting.directive for setting in decision.settings}
    for bond in GOES_WITH.get(decision.id, ()):
        if written and (not bond.directive or bond.directive in written):
            yield from (
                decision for decision in others if decision.id in bond.needs and decision.settings
            )


def _brought(decision: Decision, others: Sequence[Decision]) -> Iterator[Decision]:
    names = BRINGS.get(decision.id, ()) if decision.settings else ()
    yield from (decision for decision in others if decision.id in names and decision.settings)


def with_companions(decisions: Sequence[Decision], wanted: Collection[str]) -> set[str]:
    """The selected ids and all that they depend on, directly or indirectly."""
    found = set(wanted)
    while more := {
        need.id
        for decision in decisions
        if decision.id in found
        for need in (*needed_by(decision, decisions), *_brought(decision, decisions))
        if need.id not in found
    }:
        found |= more
    return found


def left_alone(decisions: Sequence[Decision], kept: Collection[str]) -> dict[str, str]:
    """The ids in ``kept`` that depend on a decision not kept, each with the id of that decision."""
    left: dict[str, str] = {}
    while more := [
        (decision.id, need.id)
        for decision in decisions
        if decision.id in kept and decision.id not in left
        for need in needed_by(decision, decisions)
        if need.id not in kept or need.id in left
    ]:
        left.update(more)
    return left
