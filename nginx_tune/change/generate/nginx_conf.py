"""The text of an nginx.conf from settings, a site and a kind.

A template per kind (``templates/``) has the blocks that every such site needs. Every number comes
from a Setting, with its reason. Experiments run exactly this text in the sandbox.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from nginx_tune.change.generate.features import NOTHING, Beside
from nginx_tune.change.generate.origins import with_encodings, with_resolving, with_tls_ports
from nginx_tune.change.generate.plan_files import host_lines, host_parts
from nginx_tune.change.generate.templates import environment
from nginx_tune.change.generate.writing import (
    FileProvenance,
    Written,
    check_site,
    comment,
    header,
    merge,
    quote,
    within,
    written,
)
from nginx_tune.conf.directive import Directive, Source
from nginx_tune.conf.listeners import ListenAddress, is_socket_option, listeners_of, socket_name
from nginx_tune.decide.access_log import FORMAT
from nginx_tune.decide.cache_layout import names_a_port
from nginx_tune.documents.decisions import Decision, Decisions, Setting
from nginx_tune.documents.scenario import VariantSpec
from nginx_tune.documents.site import Site, root_locations, tls_listens
from nginx_tune.documents.workload import Kind

PLAIN_SETTINGS = (
    Setting(context="events", directive="accept_mutex", args=["off"]),
    Setting(context="http", directive="access_log", args=["off"]),
    Setting(context="http", directive="sendfile", args=["on"]),
    Setting(context="http", directive="sendfile_max_chunk", args=["512k"]),
)
"""Settings of a plain configuration, without thread pools, as in source row A3."""
DEFAULT_TLS_LISTEN = "443"


@dataclass(frozen=True)
class Location:
    """A location that serves files of the site, or passes requests to its upstream."""

    name: Written
    root: str | None
    next_place: Written | None
    """The location to try next if the file is not in ``root``."""
    tuned: Written
    answer: str = "404"
    """The arguments of ``return`` in a location without files."""


def emit_nginx_conf(
    settings: Sequence[Setting],
    site: Site,
    kind: Kind,
    *,
    forced: Sequence[Setting] = (),
    headline: str = "",
    left_alone: Sequence[str] = (),
    of_host: Sequence[str] = (),
    provenance: FileProvenance | None = None,
    status_page: bool = False,
    memory_page: bool = False,
    beside: Beside = NOTHING,
) -> str:
    """The text of an nginx.conf.

    A ``forced`` setting replaces the same directive in the same context. ``headline``,
    ``left_alone`` (settings that need evidence first) and ``of_host`` (settings of the host) become
    comments at the top. ``status_page`` adds a local stub_status. ``memory_page`` adds a page
    without file or upstream: experiments request it to see blocked event loops.

    Errors: UsageError for a value that cannot be written.
    """
    check_site(site)
    if beside.scheme == "https":
        site = with_tls_ports(site)
    zones: list[Setting] = []
    if beside.resolves:
        site, zones = with_resolving(site, settings)
    own = [*_site_settings(site), *settings, *_with_sendfile(site, settings), *zones]
    merged = merge(with_encodings(site, [*own, *beside.settings]), forced)
    text: str = (
        environment()
        .get_template(f"{kind}.conf.j2")
        .render(
            header=header(provenance),
            headline=comment(headline),
            left_alone=[comment(line) for line in (*left_alone, *beside.left_alone)],
            of_host=[comment(line) for line in of_host],
            site=site,
            listens=[
                *(_listen(item, site, merged) for item in _listens(site)),
                *_quic_listens(site, merged),
            ],
            logs_format=any(
                setting.directive == "access_log" and FORMAT in setting.args for setting in merged
            ),
            places=_places(site, kind, merged, beside.locations),
            scheme=beside.scheme,
            php=beside.php,
            upstreams=[
                {
                    "name": upstream.name,
                    "servers": [server.split() for server in upstream.servers],
                    "tuned": written(within(merged, "upstream", upstream.name), 8),
                }
                for upstream in site.upstreams
            ],
            origin=site.upstreams[0].name if site.upstreams else None,
            names_a_port=names_a_port(site),
            status_page=status_page,
            memory_page=memory_page,
            main=written(within(merged, "main"), 0),
            events=written(within(merged, "events"), 4),
            http=written(within(merged, "http"), 4),
            server=written([s for s in within(merged, "server") if s.directive != "listen"], 8),
        )
    )
    return text


def emit_decided(
    decisions: Decisions,
    site: Site,
    *,
    forced: Sequence[Setting] = (),
    provenance: FileProvenance | None = None,
    status_page: bool = False,
    memory_page: bool = False,
    beside: Beside = NOTHING,
) -> str:
    """The nginx.conf for decisions, with a comment for each decision that lacks evidence."""
    unwritten = _not_of(decisions.kind)
    check_site(site)
    compressing = next((d.settings for d in decisions.decisions if d.id == "gzip"), [])
    if site.gzip and compressing:  # the decision sets the same lines, with reasons
        site = msgspec.structs.replace(site, gzip=[])
    else:  # a variant in an experiment compresses nothing
        compressing = []
    return emit_nginx_conf(
        [
            *compressing,
            *(
                setting
                for decision in decisions.decisions
                if decision.id not in unwritten and decision.id != "gzip"
                for setting in decision.settings
            ),
        ],
        site,
        decisions.kind,
        forced=forced,
        headline=" ".join(
            filter(None, (decisions.headline, decisions.binding if provenance else ""))
        ),
        left_alone=_open_questions([d for d in decisions.decisions if d.id not in unwritten]),
        of_host=[
            line
            for part in (host_parts(decisions.decisions, provenance.facts) if provenance else ())
            for line in host_lines(part)
        ],
        provenance=provenance,
        status_page=status_page,
        memory_page=memory_page,
        beside=beside,
    )


def kept_defaults(decisions: Decisions) -> list[str]:
    """A line for each decision that keeps nginx's default for a known reason."""
    unwritten = _not_of(decisions.kind)
    return [
        line
        for d in decisions.decisions
        if d.id not in unwritten and _changes_nothing(d) and not _needs_evidence(d)
        for line in _left_alone(d)
    ]


def _not_of(kind: Kind) -> frozenset[str]:
    """The ids of decisions that do not apply to a kind: those about upstreams if it has none."""
    return _OF_UPSTREAMS if kind in ("static", "media") else frozenset()


def emit_plain(site: Site, kind: Kind = "static", *, forced: Sequence[Setting] = ()) -> str:
    """The plain nginx.conf for a site, as the baseline of an experiment.

    A site with an upstream is proxied. With kind ``cache``, one cache in the site's first cache
    directory is used, as in nginx's documentation.
    """
    if kind not in ("proxy", "cache") or not site.upstreams:
        return emit_nginx_conf(PLAIN_SETTINGS, site, "static", forced=forced, memory_page=True)
    cache = _plain_cache(site.cache_dirs[0]) if kind == "cache" and site.cache_dirs else ()
    return emit_nginx_conf((*PLAIN_SETTINGS, *cache), site, kind, forced=forced, memory_page=True)


def write_variant(
    spec: VariantSpec, decisions: Decisions, *, site: Site, kind: Kind, error_log: str
) -> str:
    """The nginx.conf of one variant.

    Both variants have the decided number of workers and no access log, so that they differ only in
    the settings under comparison.
    """
    placed = msgspec.structs.replace(
        site, error_log=error_log, access_log="off", gzip=[], tcp_nopush=False
    )
    quiet = Setting(context="http", directive="access_log", args=["off"])
    if spec.decisions == "none":
        workers = [s for d in decisions.decisions if d.id == "workers" for s in d.settings]
        return emit_plain(placed, kind, forced=[*workers, *spec.settings])
    decided = msgspec.structs.replace(decisions, kind=kind)
    return emit_decided(decided, placed, forced=[quiet, *spec.settings], memory_page=True)


def _plain_cache(directory: str) -> tuple[Setting, ...]:
    zone = [directory, "levels=1:2", "keys_zone=plain:10m"]
    return (
        Setting(context="http", directive="proxy_cache_path", args=zone),
        Setting(context="location", directive="proxy_cache", args=["plain"]),
    )


_OF_CACHES = frozenset({"cache-layout", "cache-key", "cache-misses", "cache-updates", "slice"})
_OF_UPSTREAMS = frozenset({"upstream-keepalive", "streaming"})
_DIRECTIVES = {
    "thread-pools": "aio threads",
    "thread-pool-size": "thread_pool",
    "per-disk-pools": "pool per disk",
    "cache-layout": "proxy_cache_path",
    "cache-key": "proxy_cache_key",
    "cache-misses": "proxy_cache_lock",
    "workers": "worker_processes",
    "connections": "worker_connections",
    "file-limits": "worker_rlimit_nofile",
    "upstream-keepalive": "keepalive",
    "accept": "accept_mutex, multi_accept",
    "read-ahead": "read-ahead",
}


def _changes_nothing(decision: Decision) -> bool:
    if decision.id in _OF_CACHES and decision.verdict == "not_applicable":
        return False  # without a cache, the four decisions about caches need no line each
    return not decision.settings and decision.verdict not in ("enable", "set", "raise", "lower")


def _needs_evidence(decision: Decision) -> bool:
    """True for a decision that lacks evidence or only proposes settings."""
    return bool(decision.proposed) or decision.verdict == "not_enough_evidence"


def _open_questions(decisions: Sequence[Decision]) -> list[str]:
    """Comments on the decisions that lack evidence.

    If the same command measures two decisions in a row, it is named once. The size of a pool is not
    mentioned while the pool itself is undecided.
    """
    lines: list[str] = []
    has_no_pool = any(
        decision.id == "thread-pools" and _needs_evidence(decision) for decision in decisions
    )
    for decision in decisions:
        if decision.id == "thread-pool-size" and has_no_pool and not decision.proposed:
            continue
        found = _left_alone(decision) if _needs_evidence(decision) else _unmeasured(decision)
        if lines and found and found[-1] == lines[-1]:
            lines.pop()  # one command measures both
        lines += found
    return lines


def _left_alone(decision: Decision) -> list[str]:
    """Comments on a decision that sets nothing: reason, proposals, command that measures them."""
    name = _DIRECTIVES.get(decision.id, decision.id.replace("-", "_"))
    lines = [f"{name}: {decision.summary}"]
    for setting in decision.proposed:
        words = " ".join([setting.directive, *(word or '""' for word in setting.args)])
        lines.append(
            f"  proposed: {words}{' { ... }' if setting.lines else ';'} ({setting.context})"
        )
    if decision.next_command and (_needs_evidence(decision) or _rests_on_disks(decision)):
        lines.append(f"  measure it: {decision.next_command}")
    return lines


def _unmeasured(decision: Decision) -> list[str]:
    """A comment on a decision that depends on unmeasured disks; empty for other decisions."""
    if not _rests_on_disks(decision):
        return []
    name = _DIRECTIVES.get(decision.id, decision.id)
    written = "written below, though " if decision.verdict == "enable" else ""
    return [
        f"{name}: {written}the disks were not measured, which takes ten seconds",
        f"  measure it: {decision.next_command}",
    ]


def _rests_on_disks(decision: Decision) -> bool:
    return decision.id == "thread-pools" and " --disks " in decision.next_command


def _with_sendfile(site: Site, settings: Sequence[Setting]) -> list[Setting]:
    """``tcp_nopush``, which has an effect only with ``sendfile``."""
    on = any((setting.directive, setting.args) == ("sendfile", ["on"]) for setting in settings)
    if not site.tcp_nopush or not on:
        return []
    reason = "sends header and file start in one packet; the gain depends on the network"
    return [Setting(context="http", directive="tcp_nopush", args=["on"], reason=reason)]


def _site_settings(site: Site) -> list[Setting]:
    settings = []
    if site.user is not None:
        words = site.user.split()
        reason = (
            "workers run as root: a compromised worker is root" if words[:1] == ["root"] else ""
        )
        settings.append(Setting(context="main", directive="user", args=words, reason=reason))
    if site.error_log is not None:
        reason = "warn also logs reused connections and buffered bodies, which the default hides"
        args = [site.error_log, "warn"]
        settings.append(Setting(context="main", directive="error_log", args=args, reason=reason))
    if site.tls is not None:
        if site.tls.protocols:
            settings.append(
                Setting(
                    context="http",
                    directive="ssl_protocols",
                    args=site.tls.protocols,
                    reason="older ones are deprecated (RFC 8996)",
                )
            )
        settings.append(
            Setting(
                context="http",
                directive="ssl_session_cache",
                args=["shared:SSL:10m"],
                reason="about 40000 sessions for all workers; resuming needs no key exchange",
            )
        )
    for line in site.gzip or ():
        name, *args = line.split()
        reason = "text responses get smaller" if line == "gzip on" else ""
        settings.append(Setting(context="http", directive=name, args=args, reason=reason))
    return settings


def _listens(site: Site) -> list[str]:
    if site.tls is not None and site.listen == Site().listen:
        return [DEFAULT_TLS_LISTEN]
    return site.listen


def _listen(item: str, site: Site, settings: Sequence[Setting]) -> Written:
    """One ``listen``: the words of the site, ``ssl``, and the options from decisions.

    A site with TLS has HTTP/2 on TLS listeners only. Before 1.25.1, ``listen … http2`` without
    ``ssl`` does not accept HTTP/1.1 (ngx_http_v2_init), and browsers speak only HTTP/1.1 there.
    """
    words = item.split()
    is_plain = site.tls is not None and item not in tls_listens(_listens(site))
    if site.tls is not None and not is_plain and "ssl" not in words:
        words.append("ssl")
    if any(s.directive == "http2" for s in within(settings, "server")):
        words = [word for word in words if word != "http2"]
    added = [setting for setting in _of_listen(settings) if not _is_quic(setting)]
    given = {word.partition("=")[0] for word in words}
    added = [s for s in added if s.args[0].partition("=")[0] not in given]
    if is_plain:
        added = [s for s in added if s.args != ["http2"]]
    address = _address(words, _listens(site))
    reasons = []
    if address.maybe is not None and any(is_socket_option(s.args[0]) for s in added):
        reasons = [f"{address.maybe.value} may be the same socket, whose options are set only once"]
    if not _takes_options(address):
        added = [s for s in added if not is_socket_option(s.args[0])]
    words += [word for setting in added for word in setting.args]
    reason = "; ".join([*reasons, *(s.reason for s in added if s.reason)])
    line = Setting(context="server", directive="listen", args=words, reason=reason)
    return written([line], 8)


def _address(words: Sequence[str], listens: Sequence[str]) -> ListenAddress:
    """The address of a ``listen`` line, compared with the other addresses of the site."""
    lines = [_as_line(words), *map(_as_line, map(str.split, listens))]
    name = socket_name(words[0])
    others = [line for line in lines[1:] if socket_name(line.value) != name]
    return listeners_of([(line, line) for line in (lines[0], *others)])[0]


def _takes_options(address: ListenAddress) -> bool:
    """True if an address has its own socket that no other address of the site may share."""
    return address.has_socket and address.maybe is None


def _as_line(words: Sequence[str]) -> Directive:
    return Directive("listen", tuple(words), ("",) * len(words), _OF_A_SITE, (0, 0))


_OF_A_SITE = Source("site", "")


def _of_listen(settings: Sequence[Setting]) -> list[Setting]:
    return [s for s in within(settings, "server") if s.directive == "listen"]


def _is_quic(setting: Setting) -> bool:
    """True for a separate UDP listener on the same port as TCP."""
    return setting.args[:1] == ["quic"]


def _quic_listens(site: Site, settings: Sequence[Setting]) -> list[Written]:
    """A ``listen … quic`` for each TLS address, with the options that QUIC permits.

    Source: ngx_http_core_listen, which rejects ssl, http2 and TCP options with quic.
    """
    lines = []
    for wanted in filter(_is_quic, _of_listen(settings)):
        listens = tls_listens(_listens(site))
        for address, *words in map(str.split, listens):
            if socket_name(address).family == "unix":
                continue
            kept = [address, *(word for word in words if word in _OF_ANY_LISTEN)]
            args = wanted.args if _takes_options(_address(kept, listens)) else wanted.args[:1]
            line = Setting(
                context="server", directive="listen", args=[*kept, *args], reason=wanted.reason
            )
            lines.append(written([line], 8))
    return lines


_OF_ANY_LISTEN = frozenset({"default_server", "ipv6only=on", "ipv6only=off"})


def _places(
    site: Site, kind: Kind, settings: Sequence[Setting], others: Sequence[str]
) -> list[Location]:
    blocks = {s.block for s in settings if s.context == "location" and s.block}
    hot = [prefix for prefix in site.hot_locations if prefix in blocks]
    roots: list[str | None] = list(site.roots) if kind in ("static", "media") else [None]
    if not roots:
        roots = list(Site().roots)
    names = root_locations(site) if len(roots) == len(site.roots) else ["/"]
    following: list[str | None] = [*names[1:], None]
    apart = bool(site.root_prefixes) and len(roots) > 1
    if apart:
        following = [None] * len(roots)
    places = [
        _place(name, root, nxt, settings)
        for name, root, nxt in zip(names, roots, following, strict=True)
    ]
    if apart:
        places += _without_files(names, hot)
    streams = [] if kind in ("static", "media") else _streams(settings, [*names, *hot])
    streams += [prefix for prefix in others if prefix not in streams]
    return places + [
        _place(prefix, roots[0], following[0], settings) for prefix in [*hot, *streams]
    ]


def _without_files(prefixes: Sequence[str], hot: Sequence[str]) -> Iterator[Location]:
    """Locations without a root: "/", and redirects from each prefix that lacks its final slash."""
    if "/" not in prefixes:
        yield Location(name=quote("/"), root=None, next_place=None, tuned=Written(""))
    for prefix in prefixes:
        name = prefix.removesuffix("/")
        if name and name not in (prefix, *prefixes, *hot):
            yield Location(
                name=Written(f"= {quote(name)}"),
                root=None,
                next_place=None,
                tuned=Written(""),
                answer=Written(f"301 {_in_url(prefix)}$is_args$args"),
            )


def _in_url(path: str) -> str:
    """The path, encoded for a URL."""
    return _ODD_IN_URL.sub(lambda odd: b"%%%02X" % odd[0][0], path.encode()).decode()


_ODD_IN_URL = re.compile(rb"[^\w/.~!'()*+,:@-]", re.ASCII)


def _streams(settings: Sequence[Setting], taken: Sequence[str]) -> list[str]:
    """The locations that decisions leave unbuffered, except those already taken."""
    found = dict.fromkeys(s.block for s in settings if s.directive == "proxy_buffering" and s.block)
    return [prefix for prefix in found if prefix not in taken]


def _place(
    name: str, root: str | None, following: str | None, settings: Sequence[Setting]
) -> Location:
    return Location(
        name=quote(name),
        root=root,
        next_place=None if following is None else quote(following),
        tuned=written(within(settings, "location", name), 12),
    )
