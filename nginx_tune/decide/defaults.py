"""Preparation of input documents: impossible numbers removed, defaults of a site filled in.

Facts and workloads may come from other hosts, other tools or an editor. An impossible number counts
as unknown, so that the model never gets a negative size, a host without CPUs or an infinity.
"""

import math
import posixpath
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from nginx_tune.conf.answer_bodies import COMPRESSED, EVENT_STREAM
from nginx_tune.decide.answer import Build, build_of
from nginx_tune.decide.storage import independent_mounts
from nginx_tune.documents.base import MOST_BYTES, MOST_COUNT, STEEPEST
from nginx_tune.documents.facts import Dataset, Disk, Facts, Nginx
from nginx_tune.documents.facts_storage import Curve, Sweep
from nginx_tune.documents.site import COMPRESSED_ORIGIN, Site, Upstream
from nginx_tune.documents.workload import Kind, Workload

MOST_CPUS = 1 << 14

S = TypeVar("S", bound=msgspec.Struct)
SweepType = TypeVar("SweepType", bound=Sweep)


def plausible_facts(facts: Facts) -> Facts:
    """The facts with impossible sizes, counts and speeds set to null."""
    replace = msgspec.structs.replace
    storage = replace(
        facts.storage,
        paths=[_nulled(p, _within(1, MOST_BYTES), "read_ahead_bytes") for p in facts.storage.paths],
        disks=[_disk(d) for d in facts.storage.disks],
        shared_curves=[
            replace(shared, curve=curve)
            for shared in facts.storage.shared_curves
            if (curve := _curve(shared.curve)) is not None
        ],
    )
    links = [
        _nulled(link, _within(1, MOST_COUNT), "speed_bits_per_second")
        for link in facts.network.links
    ]
    return replace(
        facts,
        cpu=_nulled(
            facts.cpu, _within(1 / 100, MOST_CPUS), "online", "cpuset", "quota_cpus", "effective"
        ),
        memory=_nulled(
            facts.memory,
            _within(1, MOST_BYTES),
            "total_bytes",
            "available_bytes",
            "cgroup_limit_bytes",
            "page_cache_limit_bytes",
        ),
        storage=storage,
        network=replace(facts.network, links=links),
        limits=_nulled(
            facts.limits, _within(1, MOST_COUNT), "nofile_soft", "nofile_hard", "nr_open"
        ),
        datasets=[_dataset(d) for d in facts.datasets],
    )


def plausible_workload(workload: Workload) -> Workload:
    """The workload with impossible sizes, counts and rates set to null."""
    number = _within(1e-9, MOST_COUNT)
    popularity = _nulled(workload.popularity, _within(0, STEEPEST), "exponent")
    popularity = _nulled(popularity, _within(0, MOST_COUNT), "requests_seen")
    curve = [
        point
        for point in popularity.curve
        if 0 < point.requests_ratio <= 1 and 0 < point.bytes <= MOST_BYTES
    ]
    return msgspec.structs.replace(
        workload,
        dataset=msgspec.structs.replace(
            _nulled(workload.dataset, _within(1, MOST_BYTES), "files", "bytes"),
            requests_by_path={
                path: share
                for path, share in workload.dataset.requests_by_path.items()
                if number(share)
            },
        ),
        popularity=msgspec.structs.replace(popularity, curve=curve),
        sizes=_nulled(workload.sizes, _within(1, MOST_BYTES), "mean_bytes"),
        rate=_nulled(
            workload.rate, number, "mean_per_second", "peak_per_second", "without_file_per_second"
        ),
        concurrency=_nulled(
            workload.concurrency,
            number,
            "mean",
            "peak",
            "cold_peak",
            "client_bytes_per_second",
            "since_seconds",
        ),
        connection_reuse=_nulled(
            workload.connection_reuse, _within(1, MOST_COUNT), "requests_per_connection"
        ),
        round_trip=_nulled(
            workload.round_trip, _within(1e-6, 60), "p50_seconds", "p90_seconds", "p99_seconds"
        ),
        cpu_per_request=_nulled(
            workload.cpu_per_request, _within(1e-9, 3600), "mean_seconds", "stdev_seconds"
        ),
    )


def _dataset(dataset: Dataset) -> Dataset:
    return _nulled(dataset, _within(0, MOST_BYTES), "files", "bytes")


def _disk(disk: Disk) -> Disk:
    disk = _nulled(disk, _within(1, MOST_BYTES), "size_bytes", "read_ahead_bytes")
    return msgspec.structs.replace(disk, curve=None if disk.curve is None else _curve(disk.curve))


def _curve(curve: Curve) -> Curve | None:
    """The curve without impossible points; None when no point is left."""
    swept = _sweep(curve)
    if swept is None:
        return None
    fast = _nulled(swept, _within(1e3, MOST_BYTES), "sequential_bytes_per_second")
    small = None if fast.small_reads is None else _sweep(fast.small_reads)
    return msgspec.structs.replace(fast, small_reads=small)


def _sweep(sweep: SweepType) -> SweepType | None:
    rate, number = _within(1e-3, MOST_COUNT), _within(1, MOST_COUNT)
    points = [p for p in sweep.points if rate(p.reads_per_second) and number(p.depth)]
    if not points or not number(sweep.read_bytes):
        return None
    fit = _nulled(sweep, rate, "plateau_reads_per_second")
    return msgspec.structs.replace(fit, points=points)


def _within(low: float, high: float) -> Callable[[float], bool]:
    return lambda value: math.isfinite(value) and low <= value <= high


def _nulled(part: S, fits: Callable[[float], bool], *fields: str) -> S:
    changes: dict[str, Any] = {
        field: None
        for field in fields
        if getattr(part, field) is not None and not fits(getattr(part, field))
    }
    return msgspec.structs.replace(part, **changes) if changes else part


DEFAULT_CACHE_DIR = "/var/cache/nginx-proxy"
OWN_DIRECTORY = "nginx-cache"
"""Name of a new subdirectory for a cache in a data directory. nginx's cache loader deletes every
file in the cache's directory that is not a cache entry. Source:
ngx_http_file_cache_manage_file()."""

_OWN_LOG = "logs/access.log"
HTTP_PORT = "80"
HTTPS_PORT = "443"
GZIP = ("gzip on", "gzip_vary on")
"""Lines that compress only text/html, nginx's default type."""
GZIP_PASSED = (
    "gzip_proxied any",
    "gzip_min_length 1024",
    (
        "gzip_types text/css text/javascript text/plain text/xml application/javascript "
        "application/json application/xml image/svg+xml"
    ),
)
"""Lines that compress proxied text; images, fonts and archives are compressed already.

Two names for JavaScript and XML: text/javascript is registered (RFC 9239), and many frameworks send
application/xml.
"""
DEAR_LEVELS = ("7", "8", "9")
"""``gzip_comp_level`` values that take several times the CPU of lower ones to gain 1 or 2 %."""

DEFAULT_UPSTREAM = Upstream(name="origin", servers=["127.0.0.1:8080"])
"""A placeholder that the operator replaces by the site's upstream."""


GZIP_SHARE = 0.1
"""Share of the CPUs that compression may take at the peak."""
_GZIP_BYTES_PER_SECOND = {1: 60e6, 2: 55e6, 3: 52e6, 4: 43e6, 5: 38e6, 6: 35e6}
"""Bytes of text that one CPU compresses per second, by ``gzip_comp_level`` (1 by default). Source:
zlib 1.2.13 (Debian 12) on an EPYC, ``zlib.compressobj(LEVEL, DEFLATED, 31, 8)`` over 350 HTML pages
of 8 to 31 KB, CPU time, 2026-11-30: 44 to 98 MB/s at level 1 and 31 to 40 at level 6. The values
are from the middle, since building the code tables takes time for short responses. lzbench 1.8,
zlib 1.2.11 on a Core i7-8700K at up to 4.7 GHz: 119 and 35."""
_PAGES_SHARE = 0.05
"""Upper bound of the share of HTML in the bytes of a static site. Source: HTTP Archive, Web Almanac
2024, Page Weight: 18 of 2,652 KB of a median page."""


def gzip_cpus(
    facts: Facts, workload: Workload, kind: Kind, lines: Sequence[str] | None = None
) -> float | None:
    """CPUs that compression occupies at the peak; None where the rate is not known."""
    rate, size = workload.rate, workload.sizes
    per_second = rate.peak_per_second or rate.mean_per_second
    if not per_second or not size.mean_bytes or "assumed" in (rate.provenance, size.provenance):
        return None
    lines = _gzip_lines(facts, kind) if lines is None else lines
    words = dict(line.partition(" ")[::2] for line in lines)
    if words.get("gzip") != "on":
        return 0.0
    level = words.get("gzip_comp_level", "1")
    speed = _GZIP_BYTES_PER_SECOND.get(int(level) if level.isdecimal() else 1, 18e6)
    share = 1.0 if "gzip_types" in words else _PAGES_SHARE
    return per_second * size.mean_bytes * share / speed


def complete_site(site: Site, facts: Facts, kind: Kind, workload: Workload | None = None) -> Site:
    """The site with defaults filled in; a complete site stays as it is.

    With a workload, compression is left out if it would take more than a tenth of the CPUs.

    Shape: if no root was named and one tree was scanned, that tree is the root. For kind
           ``cache``, ``cache_dirs`` has at least one entry: a new directory on each
           independent data file system of the facts, else one directory. Kinds that proxy have an
           upstream.
    """
    cache_dirs = site.cache_dirs
    roots = site.roots
    if kind in ("static", "media") and roots == Site().roots and len(facts.datasets) == 1:
        roots = [facts.datasets[0].path]
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
        roots=roots,
        listen=_listens(site, facts, build),
        tls=tls,
        user=site.user or facts.nginx.user,
        mime_types=site.mime_types or facts.nginx.mime_types_path,
        gzip=_gzip(site, facts, kind, workload),
        tcp_nopush=facts.nginx.tcp_nopush if site.tcp_nopush is None else site.tcp_nopush,
        cache_dirs=cache_dirs,
        upstreams=upstreams,
        error_log=error_log,
        access_log=access_log,
    )


def log_of_build(nginx: Nginx) -> str | None:
    """The build's default access log; None where it is not known.

    Source: auto/options.
    """
    build = build_of(nginx)
    if build.flags is None:
        return None
    prefix = build.value_of("--prefix") or "/usr/local/nginx"
    return _absolute(posixpath.join(prefix, build.value_of("--http-log-path") or _OWN_LOG))


def _listens(site: Site, facts: Facts, build: Build) -> list[str]:
    """The site's ``listen`` arguments, or the port of HTTP or HTTPS, also for IPv6 if available.

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


def _gzip(site: Site, facts: Facts, kind: Kind, workload: Workload | None) -> list[str]:
    """The site's compression, else the installed configuration's, else the default of the kind.

    If the CPUs do not suffice, or the upstream compresses, only ``gzip_static`` remains.
    """
    if site.gzip is not None:
        return site.gzip
    lines = _gzip_lines(facts, kind)
    cpus = facts.cpu.effective or facts.cpu.online
    asked = None if workload is None else gzip_cpus(facts, workload, kind, lines)
    is_dear = asked is not None and cpus is not None and asked > GZIP_SHARE * cpus
    if is_dear or COMPRESSED_ORIGIN in site.features:
        return [line for line in lines if line.startswith("gzip_static ")]
    return lines


def _gzip_lines(facts: Facts, kind: Kind) -> list[str]:
    """The installed configuration's compression, else the default of the kind.

    The installed lines were written for another site, so only those that pay are taken. Among
    files, only HTML is compressed, since each request compresses it again; videos and archives
    gain nothing.
    """
    if facts.nginx.gzip is not None:
        return [line for line in facts.nginx.gzip if _pays(line)]
    if kind == "media" or "--without-http_gzip_module" in facts.nginx.flags:
        return []
    return [*GZIP, *(GZIP_PASSED if kind in ("cache", "proxy") else ())]


def _pays(line: str) -> bool:
    """True if a ``gzip`` line written for another site pays here."""
    name, *args = line.lower().split()
    if name == "gzip_types":
        return not {"*", EVENT_STREAM, *COMPRESSED} & set(args)
    return name != "gzip_comp_level" or args[0] not in DEAR_LEVELS


def _protocols(build: Build, library: str | None) -> list[str]:
    """TLS 1.2, and 1.3 if nginx accepts the word, which it ignores if the library lacks TLS 1.3.

    Source: nginx 1.13.0 (TLSv1.3); its default before 1.23.4 has TLS 1.0 and not 1.3. OpenSSL
            before 1.0.1 has no TLS 1.2.
    """
    if not build.at_least(1, 1, 13) or (library or "").startswith("OpenSSL 0."):
        return []
    return ["TLSv1.2", "TLSv1.3"] if build.at_least(1, 13, 0) else ["TLSv1.2"]


def _absolute(path: str | None) -> str | None:
    return path if path is not None and path.startswith("/") else None
