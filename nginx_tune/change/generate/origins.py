"""Proxying to origins in a generated file: retry limits, TLS, name resolution, compression."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from nginx_tune.decide.answer import Build
from nginx_tune.decide.upstreams import addresses_of, zone_size
from nginx_tune.documents.decisions import DirectiveContext, Setting
from nginx_tune.documents.site import COMPRESSED_ORIGIN, Site, Upstream
from nginx_tune.errors import UsageError

_CA_FILE: Final = "/etc/ssl/certs/ca-certificates.crt"
"""CA bundle of Debian, Ubuntu, Alpine and Arch (package ca-certificates)."""


def line(
    context: DirectiveContext,
    directive: str,
    *args: str,
    why: str,
    block: str = "",
    lines: Sequence[list[str]] = (),
) -> Setting:
    """A directive as a setting; ``why`` becomes its comment."""
    return Setting(
        context=context, directive=directive, args=[*args], reason=why, block=block, lines=[*lines]
    )


def bounds(site: Site, build: Build) -> Iterator[Setting]:
    """Limits on connecting and on retries, for every proxy.

    Source: ngx_http_proxy_module (proxy_next_upstream_tries since 1.7.5); RFC 6298, section 2.1: a
            lost SYN is sent again after 1 s and after 3 s.
    """
    why = "the default is 60s; a lost SYN is sent again after 1 s and 3 s"
    yield line("http", "proxy_connect_timeout", "5s", why=why)
    if build.at_least(1, 7, 5) and any(
        addresses_of(upstream.servers) > 1 for upstream in site.upstreams
    ):
        why = "a request that crashes servers must not take out all of them"
        yield line("http", "proxy_next_upstream_tries", "2", why=why)
        why = "no retry of a request that has already taken this long"
        yield line("http", "proxy_next_upstream_timeout", "10s", why=why)


def tls_origin(found: Mapping[str, list[str]], site: Site) -> Iterator[Setting]:
    """TLS to the servers of an upstream, with SNI and certificate verification.

    By default nginx sends no SNI, verifies nothing, and uses the upstream's name as server name.
    Source: ngx_http_proxy_module (proxy_ssl_server_name off, proxy_ssl_verify off, proxy_ssl_name
            $proxy_host).
    """
    name = found["tls-origin"][0] or _name_of_servers(site)
    if name is None:
        raise UsageError("features: tls-origin needs the name in the servers' certificate: "
                         "tls-origin=NAME")  # fmt: skip
    authority = found.get("origin-ca", [_CA_FILE])[0]
    for directive, value, why in (
        ("proxy_ssl_server_name", "on", "sends SNI, which a server with several names needs"),
        ("proxy_ssl_name", name, "the name in its certificate; the default is the upstream's name"),
        ("proxy_ssl_verify", "on", "rejects any other server at this address"),
        ("proxy_ssl_verify_depth", "2", "allows two intermediate certificates; the default is one"),
        ("proxy_ssl_trusted_certificate", authority, "trusted CAs (--with origin-ca)"),
    ):
        yield line("http", directive, value, why=why)


def _name_of_servers(site: Site) -> str | None:
    """The host name if all servers have the same; None for addresses or several names."""
    names = {host for group in site.upstreams for host in map(_host_of, group.servers) if host}
    servers = [server for group in site.upstreams for server in group.servers]
    has_all = all(map(_host_of, servers))
    return names.pop() if len(names) == 1 and has_all else None


def _host_of(server: str) -> str | None:
    """The host name of a ``server`` directive; None for an address or a socket."""
    address = server.split(maxsplit=1)[0]
    host = address.partition(":")[0]
    is_address = address.startswith(("[", "unix:")) or not host.strip("0123456789.")
    return None if is_address or host == "localhost" else host


_SERVICE: Final = re.compile(r"\.svc\.([a-z0-9.-]*[a-z0-9])$")


def resolver(
    found: Mapping[str, list[str]], site: Site, build: Build
) -> tuple[list[Setting], list[str]]:
    """The ``resolver`` for server names, or a note if names are resolved only once.

    If no resolver is given, names of Kubernetes services are resolved by the service ``kube-dns``
    in ``kube-system``. This service has the same name whichever DNS server the cluster runs
    (Kubernetes documentation, Debugging DNS Resolution). Source: nginx 1.27.3 (resolve).
    """
    names = [host for group in site.upstreams for host in map(_host_of, group.servers) if host]
    if not names:
        return [], []
    if build.version is None or not build.at_least(1, 27, 3):
        left = "resolved only when nginx starts or reloads; nginx 1.27.3 can resolve it again"
        return [], [f"resolve: {names[0]} is {left}"]
    service = _SERVICE.search(names[0])
    addresses = found.get("resolver") or (
        [f"kube-dns.kube-system.svc.{service[1]}"] if service else []
    )
    if not addresses:
        return [], [
            (
                f"resolve: {names[0]} is resolved only when nginx starts or reloads; --with "
                "resolver=ADDRESS (a nameserver of /etc/resolv.conf) makes nginx resolve it again"
            )
        ]
    why = "server names are resolved again when their TTL expires"
    return [line("http", "resolver", *addresses, why=why)], []


def with_resolving(site: Site, settings: Sequence[Setting]) -> tuple[Site, list[Setting]]:
    """The site with ``resolve`` on each named server, and zones for the upstreams concerned."""
    groups, zones = [], []
    for group in site.upstreams:
        servers = [f"{server} resolve" if _host_of(server) else server for server in group.servers]
        groups.append(Upstream(name=group.name, servers=servers))
        has = any(
            setting.directive == "zone"
            and setting.context == "upstream"
            and setting.block == group.name
            for setting in settings
        )
        if servers != group.servers and not has:
            why = "resolve needs shared memory"
            size = zone_size(group.servers)
            zones.append(
                line("upstream", "zone", f"upstream_{group.name}", size, why=why, block=group.name)
            )
    return replace(site, upstreams=groups), zones


def with_tls_ports(site: Site) -> Site:
    """The site with port 443 for servers without a port, since nginx uses 80 even for TLS."""
    groups = []
    for group in site.upstreams:
        servers = []
        for server in group.servers:
            address, *options = server.split()
            has = address.startswith("unix:") or re.search(r":\d+$", address) is not None
            servers.append(" ".join([address if has else f"{address}:443", *options]))
        groups.append(Upstream(name=group.name, servers=servers))
    return replace(site, upstreams=groups)


_KEY: Final = "|$http_accept_encoding"


def with_encodings(site: Site, settings: Sequence[Setting]) -> list[Setting]:
    """The settings with a normalized ``Accept-Encoding`` in the cache key.

    nginx requests from the upstream an encoding that all clients of a cache entry can read. That is
    gzip, which nearly all clients read, so most pages have one entry. For ``compressed-origin`` it
    may also be zstd or br, with at most four entries per page. An encoding with a weight
    (``br;q=0``) counts as unsupported.
    """
    if not any(_KEY in word for setting in settings for word in setting.args):
        return [*settings]
    found = [
        replace(setting, args=[word.replace(_KEY, "|$encoding") for word in setting.args])
        if setting.directive == "proxy_cache_key"
        else setting
        for setting in settings
    ]
    gzip, brotli, zstd = (rf"(?=.*\b{coding}\b(?!\s*;))" for coding in ("gzip", "br", "zstd"))
    why = "one cache entry per set of encodings, not per spelling of the header"
    found.append(
        line(
            "http",
            "map",
            "$http_accept_encoding",
            "$encoding",
            why=why,
            lines=[
                *(
                    [
                        [f"~*^{gzip}{brotli}{zstd}", "zstd, br, gzip"],
                        [f"~*^{gzip}{brotli}", "br, gzip"],
                    ]
                    if COMPRESSED_ORIGIN in site.features
                    else []
                ),
                [f"~*^{gzip}", "gzip"],
                ["default", ""],
            ],
        )
    )
    why = "requests the same encoding for all clients with one cache entry"
    found.append(line("location", "proxy_set_header", "Accept-Encoding", "$encoding", why=why))
    return found
