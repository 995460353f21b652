"""What a site may say: words that nginx would take for something else are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address

from nginx_tune.conf.cache_places import why_no_place
from nginx_tune.conf.sockets import SocketName, socket_name
from nginx_tune.documents.site import GZIP_LINE, Site, Upstream
from nginx_tune.errors import UsageError

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}(?: [A-Za-z_][A-Za-z0-9_.-]{0,63})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_LISTEN = re.compile(
    r"(?:(?:\d{1,3}(?:\.\d{1,3}){3}|\*|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):)?\d{1,5}"
    r"|unix:/.+",
    re.ASCII,
)
_LISTEN_OPTION = re.compile(
    r"default_server|ssl|http2|proxy_protocol|reuseport|deferred|"
    r"(?:backlog|fastopen)=\d{1,9}|(?:rcvbuf|sndbuf)=\d{1,9}[kKmM]?|ipv6only=(?:on|off)|"
    r"so_keepalive=(?:on|off|(?:\d{1,5}[smh]?)?:(?:\d{1,5}[smh]?)?:\d{0,3})",
    re.ASCII,
)
_PROTOCOL = re.compile(r"TLSv1(?:\.[123])?", re.ASCII)
_SERVER_NAME = re.compile(r"(?:\*\.|\.)?[^\s;{}\"'\\$/*.~][^\s;{}\"'\\$/]*", re.ASCII)
_SERVER = re.compile(
    r"unix:/\S+|(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*)(?::\d{1,5})?", re.ASCII
)
_PORT = re.compile(r"(?:\A|:)(\d{1,5})\Z", re.ASCII)
_MOST_PORT = 65535
_SERVER_OPTION = re.compile(
    r"backup|down|weight=[1-9]\d{0,8}|(?:max_fails|max_conns)=\d{1,9}|fail_timeout=\d{1,9}(?:ms|[smhd])?",
    re.ASCII,
)
MOST_CHAINED = 10
"""Source: ngx_http_named_location, NGX_HTTP_MAX_URI_CHANGES: ten changes of a request's URI."""
MOST = 256
"""Entries in one list of a site."""


def check_site(site: Site) -> None:
    """Nothing for a site that can be written.

    Errors: UsageError that names the value.
    """
    _check_listens(site.listen, has_tls=site.tls is not None)
    _check_count("server_names", site.server_names)
    for name in site.server_names:
        _check(name, _SERVER_NAME, "server_names", "a name")
    _check_directories("roots", site.roots)
    _check_root_prefixes(site)
    _check_directories("cache_dirs", site.cache_dirs)
    _check_caches(site)
    _check_locations("hot_locations", site.hot_locations)
    _check_locations("streams", site.streams)
    if set(site.streams) & {*site.hot_locations, *site.root_prefixes}:
        raise UsageError("streams: a location has files too")
    _check_upstreams(site.upstreams)
    if site.user is not None:
        _check(site.user, _USER, "user", "a user, and a group behind a space")
    if site.tls is not None:
        _check_absolute(site.tls.certificate, "tls.certificate")
        _check_absolute(site.tls.certificate_key, "tls.certificate_key")
        for protocol in site.tls.protocols:
            _check(protocol, _PROTOCOL, "tls.protocols", "TLSv1, TLSv1.1, TLSv1.2 or TLSv1.3")
    if site.mime_types is not None:
        _check_absolute(site.mime_types, "mime_types")
    _check_count("gzip", site.gzip or ())
    for line in site.gzip or ():
        _check(line, GZIP_LINE, "gzip", "a gzip line of nginx, such as gzip on")
    for log in (site.error_log, site.access_log, *site.other_access_logs):
        if log not in (None, "off", "stderr"):
            _check_absolute(str(log), "log")


def _check_listens(listens: Sequence[str], *, has_tls: bool) -> None:
    _check_count("listen", listens, least=1)
    taken: set[SocketName] = set()
    for listen in listens:
        address, *options = listen.split() or [""]
        _check(address, _LISTEN, "listen", "an address and port, such as 127.0.0.1:8080")
        for option in options:
            _check(option, _LISTEN_OPTION, "listen", "an option of nginx's listen")
            if option == "ssl" and not has_tls:
                raise UsageError("listen: ssl needs the site's tls: certificate and key")
        _check_host(address, "listen")
        _check_port(address, "listen")
        if (name := socket_name(address)) in taken:
            raise UsageError(f"listen: {address[:60]!a} is given twice")
        taken.add(name)


def _check_host(address: str, field: str) -> None:
    host = address.rpartition(":")[0].strip("[]") if ":" in address else address
    is_address = address.startswith("[") or (host and not host.strip("0123456789.") and "." in host)
    try:
        if is_address:
            ip_address(host)
    except ValueError:
        raise UsageError(f"{field}: {address[:60]!a} is no address") from None


def _check_port(address: str, field: str) -> None:
    port = _PORT.search(address)
    if port is not None and not 1 <= int(port[1]) <= _MOST_PORT:
        raise UsageError(f"{field}: {address[:60]!a} has no port from 1 to {_MOST_PORT}")


def _check_directories(field: str, paths: Sequence[str]) -> None:
    _check_count(field, paths)
    for path in paths:
        _check_absolute(path, field)
    if len(set(paths)) < len(paths):
        raise UsageError(f"{field}: a directory is given twice")


def _check_caches(site: Site) -> None:
    tls = [] if site.tls is None else [site.tls.certificate, site.tls.certificate_key]
    logs = [site.error_log, site.access_log, *site.other_access_logs]
    kept = list(filter(None, [*tls, site.mime_types, *logs]))
    for path in site.cache_dirs:
        if why := why_no_place(path, kept=kept, caches=site.cache_dirs):
            raise UsageError(
                f"cache_dirs: {path[:60]!a} {why[:100]}",
                hint="name a directory of the cache's own, which is not there yet",
            )


def _check_root_prefixes(site: Site) -> None:
    prefixes = site.root_prefixes
    if not prefixes:
        if len(site.roots) > MOST_CHAINED:
            raise UsageError(
                f"roots: {len(site.roots)} cannot be looked through one after the other: nginx "
                f"follows at most {MOST_CHAINED} and then answers 500",
                hint="say which URLs are on which: [site] root_prefixes, one for each root",
            )
        return
    if len(prefixes) != len(site.roots):
        raise UsageError(
            f"root_prefixes: {len(prefixes)} for {len(site.roots)} roots; give one for each"
        )
    for prefix in prefixes:
        if not prefix.startswith("/") or prefix in ("/healthz", "/nginx_status"):
            raise UsageError(f"root_prefixes: {prefix[:60]!a} is no prefix of a URL path")
    if len(set(prefixes)) < len(prefixes):
        raise UsageError("root_prefixes: a prefix is given twice")
    if set(prefixes) & set(site.hot_locations):
        raise UsageError("root_prefixes: a prefix is a hot location too")


def _check_locations(name: str, prefixes: Sequence[str]) -> None:
    _check_count(name, prefixes)
    for prefix in prefixes:
        if not prefix.startswith("/") or prefix in ("/", "/healthz", "/nginx_status"):
            raise UsageError(f"{name}: {prefix[:60]!a} is no location below /")
    if len(set(prefixes)) < len(prefixes):
        raise UsageError(f"{name}: a location is given twice")


def _check_upstreams(upstreams: Sequence[Upstream]) -> None:
    _check_count("upstreams", upstreams)
    for upstream in upstreams:
        _check(upstream.name, _NAME, "upstreams", "a name of letters, digits, '_', '.' and '-'")
        _check_count(f"servers of upstream {upstream.name}", upstream.servers, least=1)
        for server in upstream.servers:
            address, *options = server.split() or [""]
            _check(address, _SERVER, "upstreams", "a host and port")
            _check_port(address, "upstreams")
            for option in options:
                _check(option, _SERVER_OPTION, "upstreams", "an option of nginx's server")
        if all("backup" in server.split() for server in upstream.servers):
            raise UsageError(f"upstreams: {upstream.name} has backup servers only")
    if len({u.name.lower() for u in upstreams}) < len(upstreams):
        raise UsageError("upstreams: a name is given twice")


def _check_count(field: str, values: Sequence[object], *, least: int = 0) -> None:
    if not least <= len(values) <= MOST:
        raise UsageError(f"{field}: {len(values)} entries; {least} to {MOST} can be written")


def _check(value: str, form: re.Pattern[str], field: str, wanted: str) -> None:
    if not form.fullmatch(value):
        raise UsageError(f"{field}: {value[:60]!a} is not {wanted}")


def _check_absolute(path: str, field: str) -> None:
    if not path.startswith("/"):
        raise UsageError(f"{field}: {path[:60]!a} is not an absolute path")
