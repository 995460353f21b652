"""Defaults of nginx that change with an upgrade, in configurations that do not set them.

``vr-default-changed`` runs only with ``--upgrade-to``. Lines that the newer version rejects or
warns about are findings of the other rules, which run for both versions.

The table has the defaults that changed between 1.4.0 and 1.31.4, read from the source of each
release (ngx_conf_merge_* and ngx_conf_init_* of every module) and its change log. In stream and
mail only the TLS protocols changed.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import main_place
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.known_directives import Version
from nginx_tune.conf.upstreams import host_of, is_resolved_once
from nginx_tune.documents.decisions import Evidence


def changes(context: Context, since: Version, until: Version) -> Iterator[Hit]:
    """The defaults that change for this configuration between two versions."""
    for change in CHANGES:
        if since < change.since <= until:
            for place in change.places(context):
                yield Hit(
                    place,
                    f"{change.directive} is not set, and its default changes from {change.before} "
                    f"to {change.after} in nginx {_dotted(change.since)}: {change.effect}",
                    [
                        Evidence(fact="nginx version", value=_dotted(since)),
                        Evidence(fact="upgrade to", value=_dotted(until), provenance="declared"),
                    ],
                )


def _check(_: object) -> Iterator[Hit | MissingFacts]:
    return iter(())


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


_CONF = "events {} http { %s server { listen 80; return 204; } }"

CHANGED = Rule(
    id="vr-default-changed",
    severity="info",
    title="a default that changes with an upgrade",
    why="The configuration relies on the default, and the newer version has another one. Nothing "
    "is wrong before the upgrade, and nginx -t reports nothing in either version.",
    fix="Set the value that you want, so that both versions behave the same.",
    sources=(
        "nginx change log of the reported version",
        "the defaults in the source of each nginx release from 1.4.0 to 1.31.4",
    ),
    proof="proven",
    proven_on=("1.22", "1.26", "1.30"),
    about="Runs only with --upgrade-to. Directives, parameters and values that the newer version "
    "rejects or warns about are findings of the other rules; findings that both versions have are "
    "left out. tests/audit/test_proofs_upgrade.py shows some of the defaults on both sides.",
    seen="Packages may have adopted a newer default: nginx 1.18.0 of Debian 11 closes a connection "
    "after 1000 requests, although keepalive_requests was 100 before 1.19.10.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "keepalive_requests 1000;"),
    check=_check,
)


class ChangedDefault(NamedTuple):
    """A default that changed."""

    since: Version
    directive: str
    before: str
    after: str
    effect: str
    places: Callable[[Context], list[Directive]]
    """A function that finds the lines that rely on the default, if the change matters there."""


def _unset(name: str, needs: str = "") -> Callable[[Context], list[Directive]]:
    """A finder of the http block, if no line in it sets ``name``.

    If ``needs`` is given, a line in the block must set that directive.
    """

    def places(context: Context) -> list[Directive]:
        if context.client_lines(name) or (needs and not context.client_lines(needs)):
            return []
        return context.tree.main.all("http")[:1]

    return places


def _unset_accept_mutex(context: Context) -> list[Directive]:
    place = main_place(context, "events")
    blocks = [directive.block or () for directive in context.tree.main.all("events")]
    is_set = any(line.name == "accept_mutex" for block in blocks for line in block)
    return [] if place is None or is_set else [place]


def _chunk(context: Context) -> list[Directive]:
    on = [line for line in context.client_lines("sendfile") if line.value.lower() == "on"]
    return on[:1] if not context.client_lines("sendfile_max_chunk") else []


def _tls(context: Context) -> list[Directive]:
    found = {
        listener.listener.lines[0]: None
        for listener in context.tls_listeners
        if listener.default.effective("ssl_protocols") is None
    }
    return list(found)[:1]


def _bare_upstreams(context: Context) -> list[Directive]:
    return [
        block.directive
        for name, block in context.upstreams.items()
        if block.keepalive is None and context.passes_by_upstream[name] and not block.is_scripted
    ]


def _bare_passes(context: Context) -> list[Directive]:
    found = [
        one.place
        for one in context.passes
        if one.module == "proxy" and one.effective("http_version") is None
    ]
    return list(dict.fromkeys(found))[:1]


def _tls_passes(context: Context) -> list[Directive]:
    found = [
        one.place
        for one in context.passes
        if one.is_tls
        and one.module in {"proxy", "grpc", "uwsgi"}
        and one.effective("ssl_protocols") is None
    ]
    return list(dict.fromkeys(found))[:1]


def _tls_unset(name: str) -> Callable[[Context], list[Directive]]:
    """A finder of the first TLS listen line whose default server does not set the directive."""

    def places(context: Context) -> list[Directive]:
        found = [
            listener.listener.lines[0]
            for listener in context.tls_listeners
            if listener.default.effective(name) is None
        ]
        return found[:1]

    return places


def _retried(context: Context) -> list[Directive]:
    """The first pass to an upstream with several servers, under the default retry conditions."""
    found = [
        one.place
        for name, upstream in context.upstreams.items()
        for one in context.passes_by_upstream[name]
        if len(upstream.peers) > 1 and one.effective("next_upstream") is None
    ]
    return list(dict.fromkeys(found))[:1]


def _kept_upstreams(context: Context) -> list[Directive]:
    return [
        block.keepalive
        for block in context.upstreams.values()
        if block.keepalive is not None
        and block.keepalive.value != "0"
        and block.block.first("keepalive_requests") is None
    ]


def _static(name: str) -> Callable[[Context], list[Directive]]:
    """A function that finds the first line that serves files, if no line sets the directive."""

    def places(context: Context) -> list[Directive]:
        if context.client_lines(name):
            return []
        return [served.place for served in context.served if served.via != "cache"][:1]

    return places


def _named_listen(context: Context) -> list[Directive]:
    return [
        address.lines[0]
        for address in context.listeners
        if address.socket.family == "name" and is_resolved_once(host_of(address.lines[0].value))
    ][:1]


def _cached_without_vary(context: Context) -> list[Directive]:
    found = []
    for caching in context.caching:
        ignored = caching.passed.effective("ignore_headers")
        if ignored is None or "vary" not in map(str.lower, ignored.args):
            found.append(caching.place)
    return list(dict.fromkeys(found))[:1]


def _tls_of(section: str) -> Callable[[Context], list[Directive]]:
    return lambda context: tls_listens(context, section)


def tls_listens(context: Context, section: str) -> list[Directive]:
    """The first listen line of a section with TLS and without ``ssl_protocols``.

    TLS is set on the listen line, by ``starttls`` in mail, or by ``ssl on`` for a whole server or
    section (until nginx 1.25.1).
    """
    for blocks in _servers(context, section):
        if _effective(blocks, "ssl_protocols") is not None:
            continue
        is_tls = any(
            (line := _effective(blocks, name)) is not None and line.value.lower() in {"on", "only"}
            for name in ("ssl", "starttls")
        )
        for line in blocks[0].all("listen"):
            if is_tls or "ssl" in line.args[1:]:
                return [line]
    return []


def tls_proxies(context: Context) -> list[Directive]:
    """The ``proxy_pass`` of the first stream server with TLS and no ``proxy_ssl_protocols``."""
    for blocks in _servers(context, "stream"):
        passed, switch = blocks[0].first("proxy_pass"), _effective(blocks, "proxy_ssl")
        if passed is None or switch is None or switch.value.lower() != "on":
            continue
        if _effective(blocks, "proxy_ssl_protocols") is None:
            return [passed]
    return []


def _servers(context: Context, section: str) -> Iterator[tuple[Block, Block]]:
    """The block of each server and its outer block."""
    for outer in context.tree.main.all(section):
        if outer.block is not None:
            for server in outer.block.all("server"):
                if server.block is not None:
                    yield server.block, outer.block


def _effective(blocks: tuple[Block, Block], name: str) -> Directive | None:
    return blocks[0].first(name) or blocks[1].first(name)


CHANGES: tuple[ChangedDefault, ...] = (
    ChangedDefault(
        (1, 5, 4), "charset_types", "application/x-javascript", "application/javascript",
        "scripts of the new type get a charset, those of the old type do not",
        _unset("charset_types", "charset"),
    ),
    ChangedDefault(
        (1, 5, 13), "variables_hash_max_size", "512", "1024",
        "nginx may use a little more memory, and warns less", _unset("variables_hash_max_size"),
    ),
    ChangedDefault(
        (1, 5, 13), "types_hash_bucket_size", "the size of a cache line", "64",
        "it no longer depends on the CPU", _unset("types_hash_bucket_size", "types"),
    ),
    ChangedDefault(
        (1, 7, 7), "caching of responses with Vary", "one entry", "one entry per value",
        "a varying response is cached once per value, and one with Vary: * not at all",
        _cached_without_vary,
    ),
    ChangedDefault(
        (1, 9, 1), "ssl_protocols", "SSLv3 to TLSv1.2", "TLSv1 to TLSv1.2",
        "clients with only SSLv3 are rejected", _tls,
    ),
    ChangedDefault(
        (1, 9, 1), "proxy_ssl_protocols", "SSLv3 to TLSv1.2", "TLSv1 to TLSv1.2",
        "upstreams with only SSLv3 are unreachable", _tls_passes,
    ),
    ChangedDefault(
        (1, 9, 5), "output_buffers", "1 32k", "2 32k",
        "a file sent without sendfile uses up to twice the memory",
        _static("output_buffers"),
    ),
    ChangedDefault(
        (1, 9, 8), "connection_pool_size", "256", "512 (256 on 32 bits)",
        "an idle connection uses 256 bytes more", _unset("connection_pool_size"),
    ),
    ChangedDefault(
        (1, 9, 13), "proxy_next_upstream", "every request", "idempotent requests",
        "a POST, LOCK or PATCH that was sent is no longer retried on another server", _retried,
    ),
    ChangedDefault(
        (1, 11, 0), "ssl_dhparam", "parameters of 1024 bits", "none",
        "DHE ciphers are no longer offered", _tls_unset("ssl_dhparam"),
    ),
    ChangedDefault(
        (1, 11, 0), "ssl_ecdh_curve", "prime256v1", "auto",
        "handshakes may use another curve (X25519)", _tls_unset("ssl_ecdh_curve"),
    ),
    ChangedDefault(
        (1, 15, 10), "listen with a host name", "its first address", "each of its addresses",
        "nginx listens on more addresses", _named_listen,
    ),
    ChangedDefault(
        (1, 19, 10), "keepalive_requests of an upstream", "100", "1000",
        "upstream connections are kept longer", _kept_upstreams,
    ),
    ChangedDefault(
        (1, 19, 10), "keepalive_time", "no limit", "1h",
        "a client connection older than an hour is closed after its current request",
        _unset("keepalive_time"),
    ),
    ChangedDefault(
        (1, 23, 4), "proxy_ssl_protocols", "TLSv1 to TLSv1.2", "TLSv1 to TLSv1.3",
        "upstreams may negotiate TLSv1.3", _tls_passes,
    ),
    ChangedDefault(
        (1, 27, 3), "proxy_ssl_protocols", "TLSv1 to TLSv1.3", "TLSv1.2 TLSv1.3",
        "upstreams with only TLS 1.0 or 1.1 are unreachable", _tls_passes,
    ),
    ChangedDefault(
        (1, 29, 1), "ssl_certificate_compression", "OpenSSL's default", "off",
        "TLSv1.3 certificates are sent uncompressed, a few hundred bytes more per handshake",
        _tls_unset("ssl_certificate_compression"),
    ),
    ChangedDefault(
        (1, 29, 8), "max_headers", "no limit", "1000",
        "a request with more header lines is rejected", _unset("max_headers"),
    ),
    ChangedDefault(
        (1, 19, 10), "keepalive_requests", "100", "1000",
        "clients keep their connections longer, with their memory",
        _unset("keepalive_requests"),
    ),
    ChangedDefault(
        (1, 21, 4), "sendfile_max_chunk", "0", "2m",
        "one fast client no longer occupies a worker for a whole file", _chunk,
    ),
    ChangedDefault(
        (1, 23, 4), "ssl_protocols", "TLSv1 TLSv1.1 TLSv1.2", "the same with TLSv1.3",
        "handshakes of newer clients save a round trip and use other ciphers", _tls,
    ),
    ChangedDefault(
        (1, 27, 3), "ssl_protocols", "TLSv1 to TLSv1.3", "TLSv1.2 TLSv1.3",
        "clients with only TLS 1.0 or 1.1 are rejected", _tls,
    ),
    ChangedDefault(
        (1, 29, 7), "proxy_http_version", "1.0", "1.1",
        "the upstream gets HTTP/1.1 without Connection: close and may send chunked responses",
        _bare_passes,
    ),
    ChangedDefault(
        (1, 29, 7), "keepalive of an upstream", "none", "32 local",
        "each worker keeps idle connections per location; keepalive 0 restores the old behaviour",
        _bare_upstreams,
    ),
    *(
        ChangedDefault(
            since, f"{name} of {section}", before, after, effect.format(whom, done), places
        )
        for since, before, after, effect in (
            ((1, 9, 1), "SSLv3 to TLSv1.2", "TLSv1 to TLSv1.2",
             "{0} with only SSLv3 are {1}"),
            ((1, 23, 4), "TLSv1 to TLSv1.2", "TLSv1 to TLSv1.3",
             "{0} may negotiate TLSv1.3"),
            ((1, 27, 3), "TLSv1 to TLSv1.3", "TLSv1.2 TLSv1.3",
             "{0} with only TLS 1.0 or 1.1 are {1}"),
        )
        for section, name, whom, done, places in (
            ("stream", "ssl_protocols", "clients", "rejected", _tls_of("stream")),
            ("mail", "ssl_protocols", "clients", "rejected", _tls_of("mail")),
            ("stream", "proxy_ssl_protocols", "upstreams", "unreachable", tls_proxies),
        )
    ),
    ChangedDefault(
        (1, 11, 3), "accept_mutex", "on", "off",
        "every worker waits on the listening sockets (with EPOLLEXCLUSIVE)",
        _unset_accept_mutex,
    ),
)  # fmt: skip
