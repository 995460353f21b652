"""Servers that requests are passed on to, as a generated file has them beside the decisions.

Bounds of retries and waits, TLS with their certificate looked at, names that are looked up again,
and what they compress.
"""

from __future__ import annotations

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
"""Debian, Ubuntu, Alpine and Arch (package ca-certificates)."""


def line(
    context: DirectiveContext,
    directive: str,
    *args: str,
    why: str,
    block: str = "",
    lines: Sequence[list[str]] = (),
) -> Setting:
    """One directive with the reason that is printed beside it."""
    return Setting(
        context=context,
        directive=directive,
        args=[*args],
        reason=why,
        block=block,
        lines=[*lines],
    )


def bounds(site: Site, build: Build) -> Iterator[Setting]:
    """The wait for a connection and the retries of one request, for each proxy.

    Source: ngx_http_proxy_module (proxy_next_upstream_tries since 1.7.5); RFC 6298, section 2.1: a
    lost SYN is sent again after 1 s and after 3 s.
    """
    why = "the default is 60s; a lost first packet is sent again after 1 s and 3 s"
    yield line("http", "proxy_connect_timeout", "5s", why=why)
    if build.at_least(1, 7, 5) and any(addresses_of(one.servers) > 1 for one in site.upstreams):
        why = "a request that makes servers fail does not take out one after the other"
        yield line("http", "proxy_next_upstream_tries", "2", why=why)
        why = "no second try of what took so long already"
        yield line("http", "proxy_next_upstream_timeout", "10s", why=why)


def tls_origin(found: Mapping[str, list[str]], site: Site) -> Iterator[Setting]:
    """TLS to the servers, with their name and their certificate looked at.

    nginx sends no name and looks at no certificate by default, and would take the name of the
    upstream group for theirs. Source: ngx_http_proxy_module (proxy_ssl_server_name off,
    proxy_ssl_verify off, proxy_ssl_name $proxy_host).
    """
    name = found["tls-origin"][0] or _name_of_servers(site)
    if name is None:
        raise UsageError("features: tls-origin needs the name in the servers' certificate: "
                         "tls-origin=NAME")  # fmt: skip
    authority = found.get("origin-ca", [_CA_FILE])[0]
    for directive, value, why in (
        ("proxy_ssl_server_name", "on", "a server with several names needs to be told one (SNI)"),
        ("proxy_ssl_name", name, "the name in its certificate; the default is that of the group"),
        ("proxy_ssl_verify", "on", "whoever else answers at this address is refused"),
        ("proxy_ssl_verify_depth", "2", "chains with two intermediates, one by default"),
        ("proxy_ssl_trusted_certificate", authority, "who may have signed it (--with origin-ca)"),
    ):
        yield line("http", directive, value, why=why)


def _name_of_servers(site: Site) -> str | None:
    """The one name that all servers go by; null for addresses, or for several."""
    names = {one for group in site.upstreams for one in map(_host_of, group.servers) if one}
    servers = [one for group in site.upstreams for one in group.servers]
    has_all = all(map(_host_of, servers))
    return names.pop() if len(names) == 1 and has_all else None


def _host_of(server: str) -> str | None:
    """The name of a ``server`` line; null for an address or a socket."""
    address = server.split(maxsplit=1)[0]
    host = address.partition(":")[0]
    is_address = address.startswith(("[", "unix:")) or not host.strip("0123456789.")
    return None if is_address or host == "localhost" else host


_SERVICE: Final = re.compile(r"\.svc\.([a-z0-9.-]*[a-z0-9])$")


def resolver(
    found: Mapping[str, list[str]], site: Site, build: Build
) -> tuple[list[Setting], list[str]]:
    """The name server for names of servers, and what is left where they are looked up once.

    Of a service of Kubernetes it is known: ``kube-dns`` in ``kube-system``, whatever serves it
    (Kubernetes documentation, Debugging DNS Resolution). Source: nginx 1.27.3 (resolve).
    """
    names = [one for group in site.upstreams for one in map(_host_of, group.servers) if one]
    if not names:
        return [], []
    if build.version is None or not build.at_least(1, 27, 3):
        left = "looked up when nginx starts or reloads; nginx 1.27.3 or newer can do it by itself"
        return [], [f"resolve: {names[0]} is {left}"]
    service = _SERVICE.search(names[0])
    addresses = found.get("resolver") or (
        [f"kube-dns.kube-system.svc.{service[1]}"] if service else []
    )
    if not addresses:
        return [], [
            (
                f"resolve: {names[0]} is looked up when nginx starts or reloads; with "
                "--with resolver=ADDRESS (a nameserver of /etc/resolv.conf) it is looked up again"
            )
        ]
    why = "names of servers are looked up again when their answer has grown old"
    return [line("http", "resolver", *addresses, why=why)], []


def with_resolving(site: Site, settings: Sequence[Setting]) -> tuple[Site, list[Setting]]:
    """The site with ``resolve`` at each named server, and a zone for each of its groups."""
    groups, zones = [], []
    for group in site.upstreams:
        servers = [f"{one} resolve" if _host_of(one) else one for one in group.servers]
        groups.append(Upstream(name=group.name, servers=servers))
        has = any(
            one.directive == "zone" and one.context == "upstream" and one.block == group.name
            for one in settings
        )
        if servers != group.servers and not has:
            why = "what is looked up again lies in shared memory"
            size = zone_size(group.servers)
            zones.append(
                line("upstream", "zone", f"upstream_{group.name}", size, why=why, block=group.name)
            )
    return replace(site, upstreams=groups), zones


def with_tls_ports(site: Site) -> Site:
    """The site with port 443 at servers that name none: nginx takes 80, for TLS too."""
    groups = []
    for group in site.upstreams:
        servers = []
        for one in group.servers:
            address, *options = one.split()
            has = address.startswith("unix:") or re.search(r":\d+$", address) is not None
            servers.append(" ".join([address if has else f"{address}:443", *options]))
        groups.append(Upstream(name=group.name, servers=servers))
    return replace(site, upstreams=groups)


_KEY: Final = "|$http_accept_encoding"


def with_encodings(site: Site, settings: Sequence[Setting]) -> list[Setting]:
    """The settings with kinds of clients in a cache's key, not each spelling of a header.

    The server is asked for what all clients of a kind can read, and what it compresses comes
    through: gzip, which next to all clients read, so that a page has next to one entry; of a
    ``compressed-origin`` zstd and br too, with at most four entries of a page. A weight behind a
    word (``br;q=0``) counts as a no.
    """
    if not any(_KEY in word for one in settings for word in one.args):
        return [*settings]
    found = [
        replace(one, args=[word.replace(_KEY, "|$encoding") for word in one.args])
        if one.directive == "proxy_cache_key"
        else one
        for one in settings
    ]
    gzip, brotli, zstd = (rf"(?=.*\b{one}\b(?!\s*;))" for one in ("gzip", "br", "zstd"))
    why = "an entry for each kind of client, not for each spelling of the header"
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
    why = "the server compresses, for all clients of a kind alike"
    found.append(line("location", "proxy_set_header", "Accept-Encoding", "$encoding", why=why))
    return found
