"""Decisions in the names of an existing configuration.

A generated file names its own upstreams, zones, formats and directories. Held against a site,
a setting must name what is there: nothing that the site has not, no cache inside another (its
loader deletes every file that is none of its own: ngx_http_file_cache_manage_file()), and what a
setting cannot do without is said beside it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from itertools import count

from msgspec.structs import replace

from nginx_tune.change.plan.cache import file_bytes, with_own_words
from nginx_tune.change.plan.streams import streams_in
from nginx_tune.conf.cache_places import places_of, why_no_place
from nginx_tune.conf.caches import MODULES
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.kept_open import kept_open
from nginx_tune.conf.listeners import cleartext_http2_servers, listeners
from nginx_tune.conf.live_files import live_signs
from nginx_tune.conf.log_formats import log_formats
from nginx_tune.conf.quantities import parse_bytes
from nginx_tune.conf.scopes import http_blocks, http_directives, scopes
from nginx_tune.conf.shared_zones import zone_names
from nginx_tune.conf.thread_pools import declared_pools
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import upstreams
from nginx_tune.decide.cache_key import ID as CACHE_KEY
from nginx_tune.decide.cache_key import KEY_AMONG_OTHERS
from nginx_tune.decide.per_disk_pools import ALL_THREADS
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.documents.site import CacheBounds, Site, SiteTls, Upstream
from nginx_tune.errors import UsageError

_OWN_FORMATS = ("combined", "main")
_CHOICE = "$disk"
"""The variable of the tool's own split over caches."""
_CHOSEN = (
    "the site chooses among its caches itself: a pool for each disk goes with that choice, by hand"
)
_ONE_POOL = (
    "One pool for all disks, off the loop: the site chooses among its caches itself, and each disk "
    "can have its own only by that choice."
)


def site_in(tree: ConfTree, site: Site) -> Site:
    """The site with what the configuration has where the operator named nothing.

    Errors: UsageError for a new cache where nginx would delete what is served or kept.
    """
    _check_new_caches(site, tree)
    secure = [server for one in listeners(tree) if one.is_tls for server in one.servers]
    tls = site.tls
    if tls is None and secure:
        certificates = (_path(tree, one, "ssl_certificate") for one in secure)
        keys = (_path(tree, one, "ssl_certificate_key") for one in secure)
        tls = SiteTls(
            certificate=next(filter(None, certificates), "/"),
            certificate_key=next(filter(None, keys), "/"),
        )
    named = [
        Upstream(name=one.name, servers=[" ".join(line.args) for line in one.servers])
        for one in upstreams(tree)
        if one.servers
    ]
    held = kept_open(tree)
    return replace(
        site,
        tls=tls,
        cleartext_http2=site.cleartext_http2
        or bool(cleartext_http2_servers(scopes(tree), listeners(tree))),
        http3=site.http3 or any(one.is_quic for one in listeners(tree)),
        upstreams=site.upstreams or named,
        streams=site.streams or streams_in(tree),
        live_files=site.live_files or live_signs(tree),
        cache_dirs=site.cache_dirs or list(_caches(tree)),
        cache_bounds={path: _bounds(line) for path, line in _caches(tree).items()}
        | site.cache_bounds,
        access_log=site.access_log or _access_log(tree),
        other_access_logs=site.other_access_logs or list(_access_logs(tree)),
        log_files=max(site.log_files or 0, held.logs),
        listening_sockets=max(site.listening_sockets or 0, held.sockets),
    )


def _check_new_caches(site: Site, tree: ConfTree) -> None:
    served, kept = places_of(tree)
    for path in site.cache_dirs:
        if path in _caches(tree):
            continue
        if why := why_no_place(path, served=served, kept=kept, caches=site.cache_dirs):
            raise UsageError(
                f"{path or repr(path)}: no place for a cache: it {why}",
                hint="name a directory of the cache's own, which is not there yet",
            )


def adapted(decision: Decision, tree: ConfTree, *, caches: bool) -> Decision:
    """The decision with the site's own names; what names anything that is not there is left out.

    ``caches`` says that requests are cached already, by whatever module, or that no request is
    passed on that could be: then the site chooses its caches itself.
    """
    if caches and not _splits(tree):
        decision = _without_choice(decision, tree)
    settings, risks = list(decision.settings), list(decision.risks)
    if decision.id == CACHE_KEY:  # who compresses stays; the key tells clients apart by it
        settings = [one for one in settings if one.directive != "proxy_set_header"]
    settings = _with_free_zones([_keyed(s, tree) for s in settings], tree)
    left: list[Setting] = []
    small: list[str] = []
    mean = file_bytes(decision)
    is_chosen = any(s.directive == "proxy_cache" for s in settings)
    for one in settings:
        if why := _why_no_cache(one, tree, is_chosen=is_chosen):
            risks.append(f"no cache in {one.args[0]}: {why}")
        elif (own := _renamed(one, tree)) is not None:
            line = _caches(tree).get(one.args[0]) if one.directive == "proxy_cache_path" else None
            if line is not None:
                own, enlarged, beyond = with_own_words(own, line, mean)
                small += [enlarged] if enlarged else []
                risks += [beyond] if beyond else []
            left.append(own)
    if small:
        summary = f"{'; '.join(small)}. {decision.summary}"
        decision = replace(decision, verdict="raise", summary=summary)
    return replace(decision, settings=left, risks=risks)


def with_needs(decisions: Sequence[Decision], tree: ConfTree) -> list[Decision]:
    """The decisions, each setting with what it names: where it is, or the line to add."""
    every = [s for d in decisions for s in d.settings]
    return [
        replace(d, settings=[replace(s, needs=list(_needs(s, every, tree))) for s in d.settings])
        for d in decisions
    ]


def _without_choice(decision: Decision, tree: ConfTree) -> Decision:
    """The decision for a site that chooses among its caches itself: one pool is for all."""
    settings, risks = list(decision.settings), list(decision.risks)
    if any(s.directive == "thread_pool" for s in settings):
        risks += [_CHOSEN] if _caches(tree) else []
    if any(_CHOICE in "".join(s.args) for s in settings):
        settings = [_one_pool(s) for s in settings if not _is_choice(s)]
        if any(s.directive == "aio" for s in settings):
            decision = replace(decision, summary=_ONE_POOL, predicted=[])
            risks = [one for one in risks if not one.endswith(ALL_THREADS)]
    settings = [s for s in settings if s.directive != "proxy_cache"]
    return replace(decision, settings=settings, risks=risks)


def _is_choice(s: Setting) -> bool:
    return s.directive == "split_clients" or (
        s.directive == "thread_pool" and s.args[0].startswith("pool_")
    )


def _splits(tree: ConfTree) -> bool:
    """Whether the configuration spreads its caches as a generated one does."""
    return any(
        line.name == "split_clients" and line.args[1:2] == (_CHOICE,)
        for line in http_directives(tree)
    )


def _keyed(s: Setting, tree: ConfTree) -> Setting:
    """A key for a cache among other places; a split that stands keeps its own."""
    if s.directive == "proxy_cache_key":
        return replace(s, args=[KEY_AMONG_OTHERS])
    if s.directive == "split_clients":
        lines = (one for one in http_directives(tree) if one.name == "split_clients")
        own = next((one.args[0] for one in lines if one.args[1:2] == (_CHOICE,)), None)
        return replace(s, args=[own or KEY_AMONG_OTHERS, *s.args[1:]])
    return s


def _one_pool(s: Setting) -> Setting:
    if s.directive == "aio" and _CHOICE in "".join(s.args):
        return replace(s, args=["threads"], reason="cached files are read off the loop")
    return s


def _renamed(s: Setting, tree: ConfTree) -> Setting | None:
    """The setting in the site's names; None where what it is for is not there, or has its own."""
    if s.context == "upstream":
        return s if _has_use(s, tree) else None
    if s.directive == "access_log" and s.args[0] != "off":
        return replace(s, args=[s.args[0], _format(s, tree), *s.args[2:]])
    if s.directive == "proxy_cache_path" and (line := _caches(tree).get(s.args[0])) is not None:
        return replace(s, directive=line.name, args=[line.value, *s.args[1:]])
    return s


def _with_free_zones(settings: Sequence[Setting], tree: ConfTree) -> list[Setting]:
    """The settings; a zone whose name is taken by other shared memory gets another one."""
    names = {s.args[0] for s in settings if s.directive == "zone"}
    taken = zone_names(tree) if names else set()
    found: list[Setting] = []
    for one in settings:
        name = one.args[0] if one.directive == "zone" else ""
        if name in taken:
            free = (f"{name}_{number}" for number in count(2))
            name = next(each for each in free if each not in taken | names)
            taken.add(name)
        found.append(replace(one, args=[name, *one.args[1:]]) if name else one)
    return found


def _has_use(s: Setting, tree: ConfTree) -> bool:
    groups = [one for one in upstreams(tree) if not s.block or one.name == s.block.lower()]
    if s.directive == "zone":
        return any(one.block.first("zone") is None for one in groups)
    return bool(groups)


def _format(s: Setting, tree: ConfTree) -> str:
    """The format that the site writes this log in, else one that it has."""
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
    """Whether it is a cache in a directory in which the configuration has none."""
    return s.directive == "proxy_cache_path" and s.args[0] not in _caches(tree)


def _why_no_cache(s: Setting, tree: ConfTree, *, is_chosen: bool) -> str:
    """Why a new cache is left out; empty for one that is not, and for other settings.

    Its loader would delete what lies there: not for a cache that nothing is kept in.
    """
    if not _is_new(s, tree):
        return ""
    if is_chosen:
        inside = _around(s, tree)
        return f"it shares files with that of {inside}" if inside else ""
    lines = [f"{line.file}:{line.line} {line.name}" for line in _caches(tree).values()]
    if lines:
        return f"the site names its caches itself ({lines[0]}), and no location would use this one"
    return "no location would use it"


def _around(s: Setting, tree: ConfTree) -> str:
    """The cache of the site that a new directory lies in, or around; empty for none."""
    wanted = posixpath.normpath(s.args[0])
    return next(
        (path for path in _caches(tree) if posixpath.commonpath([path, wanted]) in (path, wanted)),
        "",
    )


def _needs(s: Setting, every: Sequence[Setting], tree: ConfTree) -> Iterator[str]:
    if s.directive == "aio" and s.args[:1] and s.args[0].startswith("threads"):
        name = s.args[0].partition("=")[2] or "default"
        yield from _pools(name, every, tree)
    words = " ".join(s.args)
    if _CHOICE in words and s.directive != "split_clients":
        yield from (needed_line(one) for one in every if one.directive == "split_clients")
    if s.directive == "proxy_cache":
        zones = [one for one in every if one.directive == "proxy_cache_path"]
        yield from (
            needed_line(one) for one in zones if _CHOICE in words or _names_zone(one, words)
        )
    if s.directive == "access_log" and len(s.args) > 1:
        yield from (
            f"log_format {s.args[1]} ({line.file}:{line.line})"
            for line in http_directives(tree)
            if line.name == "log_format" and line.value == s.args[1]
        )
    if s.directive == "keepalive":
        beside = ("proxy_http_version", "proxy_set_header")
        yield from (needed_line(one) for one in every if one.directive in beside)


def _names_zone(s: Setting, name: str) -> bool:
    return any(arg.startswith(f"keys_zone={name}:") for arg in s.args)


def _pools(name: str, every: Sequence[Setting], tree: ConfTree) -> Iterator[str]:
    declared = declared_pools(tree)
    wanted = [
        one
        for one in every
        if one.directive == "thread_pool"
        and (one.args[0] == name or (_CHOICE in name and one.args[0].startswith("pool_")))
    ]
    if wanted:
        yield from map(needed_line, wanted)
    elif name in declared:
        line = declared[name].directive
        yield f"thread_pool {name} ({line.file}:{line.line})"
    elif name == "default":
        yield "thread_pool default (nginx's own, 32 threads)"


def needed_line(s: Setting) -> str:
    """A setting as others name it that cannot do without it."""
    words = " ".join([s.directive, *(arg or '""' for arg in s.args)])
    return f"{words} ({f'{s.context} {s.block}'.strip()})"


def _caches(tree: ConfTree) -> dict[str, Directive]:
    """The caches' directories, whole, with their lines."""
    return {
        path: line
        for http in http_blocks(tree)
        for module in MODULES
        for line in (http.block.all(f"{module}_cache_path") if http.block else ())
        if line.args and (path := tree.full_path(line.value)) is not None
    }


def _bounds(line: Directive) -> CacheBounds:
    words = {arg.partition("=")[0]: arg.partition("=")[2] for arg in line.args[1:]}
    return CacheBounds(
        max_bytes=parse_bytes(words.get("max_size", "")) or None,
        min_free_bytes=parse_bytes(words.get("min_free", "")) or None,
    )


def _access_log(tree: ConfTree) -> str | None:
    """Where lines go: to the first file that http or a server names, else wherever they go.

    Shape: ``off`` where nothing is logged; null where the build's default holds.
    """
    found = [line.value for line in _written_to(tree)]
    files = [one for one in found if one != "off" and "$" not in one and one[:7] != "syslog:"]
    own = [one for one in files if not one.startswith(("/dev/", "/proc/"))]
    known = {"off", *files}
    sinks = [one for one in found if one not in known]
    return next(iter([*own, *files, *sinks, *found]), None)


def _written_to(tree: ConfTree) -> list[Directive]:
    """The lines of access logs, those of http first; not one that every server has another for."""
    every = scopes(tree)
    inherited = {line for scope in every for line in scope.effective_all("access_log")}
    of_http = [
        line for one in http_blocks(tree) if one.block for line in one.block.all("access_log")
    ]
    others = [
        line for line in http_directives(tree) if line.name == "access_log" and line not in of_http
    ]
    return [line for line in of_http if line in inherited or not every] + others


def _access_logs(tree: ConfTree) -> Iterator[str]:
    """The access logs at all levels, each that nginx opens by the first of its spellings."""
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
