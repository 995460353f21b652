"""What a site leaves open, filled in: cache directories, log paths, an upstream."""

from __future__ import annotations

import posixpath

import msgspec

from nginx_tune.conf.media_types import COMPRESSED, EVENT_STREAM
from nginx_tune.decide.build import Build, build_of
from nginx_tune.decide.storage import independent_mounts
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.site import Site, Upstream
from nginx_tune.documents.workload import Kind

DEFAULT_CACHE_DIR = "/var/cache/nginx-proxy"
OWN_DIRECTORY = "nginx-cache"
"""Below a directory that nobody named as a cache: nginx's cache loader deletes every file in its
directory that is no cache entry. Source: ngx_http_file_cache_manage_file()."""

_OWN_LOG = "logs/access.log"
HTTP_PORT = "80"
HTTPS_PORT = "443"
GZIP = ("gzip on", "gzip_vary on")
"""Of pages alone (text/html), which nginx compresses without being told."""
GZIP_PASSED = (
    "gzip_proxied any",
    "gzip_min_length 1024",
    (
        "gzip_types text/css text/javascript text/plain text/xml application/javascript "
        "application/json application/xml image/svg+xml"
    ),
)
"""Of what an upstream gives: text, not what is compressed already (images, fonts, archives).

JavaScript and XML under both names: text/javascript is the registered one (RFC 9239), and
application/xml what many frameworks answer.
"""
DEAR_LEVELS = ("7", "8", "9")
"""Of ``gzip_comp_level``: several times the CPU of the lower ones for one or two percent."""

DEFAULT_UPSTREAM = Upstream(name="origin", servers=["127.0.0.1:8080"])
"""Something for a first run to fetch from; the operator names the real one."""


def complete_site(site: Site, facts: Facts, kind: Kind) -> Site:
    """The site with its gaps filled; the same again for a site that is complete.

    Shape: for the kind cache ``cache_dirs`` has at least one entry: a fresh directory on each of
           the facts' data directories with disks of their own, else one directory. Kinds that
           fetch have an upstream.
    """
    cache_dirs = site.cache_dirs
    if kind == "cache" and not cache_dirs:
        mounts = independent_mounts(facts.storage)
        cache_dirs = [f"{path.rstrip('/')}/{OWN_DIRECTORY}" for path in mounts]
        cache_dirs = cache_dirs or [DEFAULT_CACHE_DIR]
    build = build_of(facts.nginx)
    error_log = site.error_log or _absolute(facts.nginx.error_log_path)
    access_log = site.access_log or _absolute(build.value_of("--http-log-path"))
    if error_log is None and access_log is not None and access_log.endswith("/access.log"):
        error_log = access_log.removesuffix("access.log") + "error.log"
    if access_log is None and error_log is not None and error_log.endswith("/error.log"):
        access_log = error_log.removesuffix("error.log") + "access.log"
    upstreams = site.upstreams
    if kind in ("cache", "proxy") and not upstreams:
        upstreams = [DEFAULT_UPSTREAM]
    tls = site.tls
    if tls is not None and not tls.protocols:
        tls = msgspec.structs.replace(tls, protocols=_protocols(build, facts.nginx.openssl))
    return msgspec.structs.replace(
        site,
        listen=_listens(site, facts, build),
        tls=tls,
        user=site.user or facts.nginx.user,
        mime_types=site.mime_types or facts.nginx.mime_types_path,
        gzip=_gzip(site, facts, kind),
        tcp_nopush=facts.nginx.tcp_nopush if site.tcp_nopush is None else site.tcp_nopush,
        cache_dirs=cache_dirs,
        upstreams=upstreams,
        error_log=error_log,
        access_log=access_log,
    )


def log_of_build(nginx: Nginx) -> str | None:
    """The file that nginx logs to where a configuration names none; null where it is not known.

    Not a file beside the error log, which a build may have elsewhere. Source: auto/options.
    """
    build = build_of(nginx)
    if build.flags is None:
        return None
    prefix = build.value_of("--prefix") or "/usr/local/nginx"
    return _absolute(posixpath.join(prefix, build.value_of("--http-log-path") or _OWN_LOG))


def _listens(site: Site, facts: Facts, build: Build) -> list[str]:
    """The port of HTTP or HTTPS where the site names none, for IPv6 too where the host has it.

    Source: nginx 1.3.4 (``ipv6only`` is on, so that both can be bound), 1.11.5 (always built).
    """
    if site.listen != Site().listen:
        return site.listen
    port = HTTPS_PORT if site.tls is not None else HTTP_PORT
    is_built = build.at_least(1, 11, 5) or (
        build.at_least(1, 3, 4) and "--with-ipv6" in (build.flags or ())
    )
    has_ipv6 = facts.kernel.sysctls.get("net.ipv6.conf.all.disable_ipv6") == "0"
    return [port, f"[::]:{port}"] if is_built and has_ipv6 else [port]


def _gzip(site: Site, facts: Facts, kind: Kind) -> list[str]:
    """The compression of the site, else of the installed configuration, else what is usual.

    Of the installed one's only what pays: it was written for another site. Files are compressed
    anew for each request, so of those only pages are; videos and archives never gain.
    """
    if site.gzip is not None:
        return site.gzip
    if facts.nginx.gzip is not None:
        return [line for line in facts.nginx.gzip if _pays(line)]
    if kind == "media" or "--without-http_gzip_module" in facts.nginx.flags:
        return []
    return [*GZIP, *(GZIP_PASSED if kind in ("cache", "proxy") else ())]


def _pays(line: str) -> bool:
    """Whether a ``gzip`` line may be taken over: what was written for another site is no order."""
    name, *args = line.lower().split()
    if name == "gzip_types":
        return not {"*", EVENT_STREAM, *COMPRESSED} & set(args)
    return name != "gzip_comp_level" or args[0] not in DEAR_LEVELS


def _protocols(build: Build, library: str | None) -> list[str]:
    """TLS 1.2, and 1.3 where nginx knows the word; one whose library lacks it ignores it.

    Source: nginx 1.13.0 (TLSv1.3), and its default until 1.23.4, which has no TLS 1.3 but TLS 1.0;
    OpenSSL before 1.0.1 has no TLS 1.2.
    """
    if not build.at_least(1, 1, 13) or (library or "").startswith("OpenSSL 0."):
        return []
    return ["TLSv1.2", "TLSv1.3"] if build.at_least(1, 13, 0) else ["TLSv1.2"]


def _absolute(path: str | None) -> str | None:
    return path if path is not None and path.startswith("/") else None
