"""Features that a site of any kind may have: uploads, WebSockets, PHP, TLS to the origin.

The operator names them (``generate --with``, ``features`` of the site); some can be detected in a
workload. Each feature adds a few settings with their reasons. Every proxy gets limits on retries
and on connecting.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from nginx_tune.change.generate.origins import bounds, line, resolver, tls_origin
from nginx_tune.conf.answer_bodies import is_stream_path
from nginx_tune.decide.answer import Build, build_of
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.units import bytes_text, number_text, percent_text
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import UsageError

FEATURES: Final[Mapping[str, str]] = {
    "uploads": "SIZE[:DIR]",
    "websocket": "[PREFIX]",
    "php": "[SOCKET]",
    "tls-origin": "[NAME]",
    "origin-ca": "FILE",
    "resolver": "ADDRESS",
    "gzip-static": "",
    "compressed-origin": "",
}
"""The features, each with the form of its value after ``=``."""
_OF_PROXIES: Final = ("tls-origin", "origin-ca", "websocket", "compressed-origin")
_MANY: Final = ("websocket", "resolver")
_SIZE: Final = re.compile(r"([1-9]\d{0,8})([kKmMgG]?)", re.ASCII)
_PLACE: Final = re.compile(r"/[A-Za-z0-9._~/-]{1,200}", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?", re.ASCII)
_RESOLVER: Final = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)(?::\d{1,5})?", re.ASCII
)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
PHP_SOCKET: Final = "unix:/run/php/php-fpm.sock"
"""The link to the socket of the installed PHP-FPM on Debian (update-alternatives)."""


def feature_form(name: str) -> str:
    """The syntax of a feature: ``uploads=SIZE[:DIR]``, ``php[=SOCKET]``."""
    value = FEATURES[name]
    if not value:
        return name
    return f"{name}[={value[1:]}" if value.startswith("[") else f"{name}={value}"


class Beside(NamedTuple):
    """Additions of a site's features to the settings of its decisions."""

    settings: Sequence[Setting] = ()
    locations: Sequence[str] = ()
    """Prefixes of additional proxied locations."""
    left_alone: Sequence[str] = ()
    scheme: Literal["http", "https"] = "http"
    resolves: bool = False
    """True if server names are resolved again while nginx runs."""
    php: str = ""
    """The address of PHP-FPM, whose ``/index.php`` serves URLs without a file; empty if unused."""


NOTHING: Final = Beside()


def parse_features(site: Site) -> dict[str, list[str]]:
    """The features of a site with their checked values.

    Errors: UsageError that names the value.
    """
    found: dict[str, list[str]] = {}
    for feature in site.features:
        name, _, value = feature.partition("=")
        if name not in FEATURES:
            known = ", ".join(FEATURES)
            raise UsageError(f"features: {feature[:60]!a} is unknown", hint=f"use one of {known}")
        if name in found and name not in _MANY:
            raise UsageError(f"features: {name} is given twice")
        if (not value and FEATURES[name][:1].isalpha()) or (value and not FEATURES[name]):
            raise UsageError(f"features: write it as {feature_form(name)}")
        _check_value(name, value)
        found.setdefault(name, []).append(value)
    return found


def _check_value(name: str, value: str) -> None:
    if name == "uploads":
        size, _, folder = value.partition(":")
        if not _SIZE.fullmatch(size) or (folder and not _PLACE.fullmatch(folder)):
            raise UsageError(f"features: {value[:60]!a} is not a size, such as uploads=1G")
        return
    wanted = {
        "websocket": (_PLACE, "a prefix of a URL path, such as websocket=/ws/"),
        "php": (
            re.compile(rf"unix:{_PLACE.pattern}|{_HOST.pattern}:\d{{1,5}}", re.ASCII),
            "a socket or host and port, such as php=unix:/run/php/php-fpm.sock",
        ),
        "tls-origin": (_HOST, "a host name, such as tls-origin=app.example.com"),
        "origin-ca": (_PLACE, "an absolute path of a file"),
        "resolver": (_RESOLVER, "an address of a name server, such as resolver=10.96.0.10"),
    }.get(name)
    if value and wanted is not None and not wanted[0].fullmatch(value):
        raise UsageError(f"features: {value[:60]!a} is not {wanted[1]}")


def check_features(site: Site, kind: Kind) -> None:
    """Check that the site's features are possible for this kind of site.

    Errors: UsageError that names the feature.
    """
    found = parse_features(site)
    passes = kind in ("cache", "proxy")
    wrong = next((name for name in found if name in _OF_PROXIES and not passes), None)
    if wrong is not None:
        raise UsageError(f"features: {wrong} needs kind proxy or cache; this site is {kind}")
    if "php" in found and passes:
        raise UsageError(f"features: php needs kind static or media; this site is {kind}")
    if "php" in found and len(site.roots) > 1:
        raise UsageError("features: php needs a single root; this site has several")
    taken = {*site.streams, *site.hot_locations}
    if clash := next((prefix for prefix in found.get("websocket", ()) if prefix in taken), None):
        raise UsageError(f"features: {clash} already has a location")


def beside(site: Site, kind: Kind, facts: Facts, workload: Workload | None) -> Beside:
    """The settings for the features of a completed site.

    Errors: UsageError for features that are impossible with the kind.
    """
    check_features(site, kind)
    found, build = parse_features(site), build_of(facts.nginx)
    workload = workload or Workload()
    passes = kind in ("cache", "proxy")
    settings: list[Setting] = []
    left: list[str] = []
    places: list[str] = []
    if "uploads" in found:
        settings += _uploads(found["uploads"][0], site, facts, workload)
    if "gzip-static" in found and "gzip_static on" not in (site.gzip or ()):
        settings += _gzip_static(build)
    if not passes:
        settings += _shutdown(build, site.http3, "HTTP/3 clients")
        php = found["php"][0] or PHP_SOCKET if "php" in found else ""
        if php:
            settings.append(line("server", "index", "index.php", "index.html", why="PHP first"))
        return Beside(settings, left_alone=left, php=php)
    settings += bounds(site, build)
    streams = _streams(site, workload)
    prefixes, seen, is_most = _websockets(found, streams, workload)
    if prefixes:
        settings += _upgrading(prefixes, seen, build, is_most=is_most)
        places += [prefix for prefix in prefixes if prefix != "/"]
        left += _held_memory(facts, workload) if is_most else [_SHORT]
    settings += _shutdown(build, bool(prefixes or streams), "WebSockets and streams")
    settings += _prompts(streams, facts, workload, settings)
    if "uploads" not in found:
        left.append(
            "client_max_body_size: nginx's default of 1m; larger bodies get 413 "
            f"(--with uploads=SIZE){_upload_signs(workload)}"
        )
    if "tls-origin" in found:
        settings += tls_origin(found, site)
    resolved, why = resolver(found, site, build)
    settings += resolved
    left += why
    return Beside(
        settings,
        locations=places,
        left_alone=left,
        scheme="https" if "tls-origin" in found else "http",
        resolves=bool(resolved),
    )


def _peak(workload: Workload) -> float | None:
    c = workload.concurrency
    return None if c.provenance == "assumed" else c.peak or c.mean


def _shutdown(build: Build, holds: bool, what: str) -> Iterator[Setting]:
    """A time limit for old workers after a reload (since nginx 1.11.11)."""
    if holds and build.at_least(1, 11, 11):
        why = f"otherwise {what} keep old workers alive after a reload"
        yield line("main", "worker_shutdown_timeout", "10m", why=why)


_MEMORY_SHARE: Final = 16
_BODY_BUFFERS: Final = (1 << 20, 512 << 10, 256 << 10, 128 << 10, 64 << 10, 32 << 10)
"""Buffer sizes to choose from, above the default of 16k on 64-bit builds.

Source: ngx_http_core_merge_loc_conf()."""


def _body_buffer(facts: Facts, workload: Workload) -> int | None:
    """The largest body buffer with which all requests take at most a sixteenth of the memory.

    None if the memory or the peak is not known, or if only the default fits.
    """
    memory = facts.memory.cgroup_limit_bytes or facts.memory.total_bytes
    peak = _peak(workload)
    if memory is None or not peak:
        return None
    fitting = (size for size in _BODY_BUFFERS if size * peak * _MEMORY_SHARE <= memory)
    return next(fitting, None)


def _uploads(value: str, site: Site, facts: Facts, workload: Workload) -> Iterator[Setting]:
    """Limits of request bodies: their size, the memory buffer, and the directory on disk.

    Source: ngx_http_core_module (client_max_body_size 1m by default: 413), ngx_http_request_body.c.
    """
    size, _, folder = value.partition(":")
    number, unit = _SIZE.fullmatch(size).groups()  # type: ignore[union-attr]  # it was checked
    largest = int(number) * _FACTORS[unit.lower()]
    why = "larger bodies get 413; the default is 1m"
    yield line("server", "client_max_body_size", f"{number}{unit.lower()}", why=why)
    buffer = _body_buffer(facts, workload)
    peak = _peak(workload)
    if buffer is not None and peak:
        why = f"smaller bodies stay in memory; {number_text(peak)} concurrent ones take "
        why += bytes_text(buffer * peak)
        yield line("server", "client_body_buffer_size", f"{buffer >> 10}k", why=why)
    own = folder or _temp_path(site, facts)
    if own is None:
        return
    room = _room(own, facts)
    why = "holds bodies until they are complete and passed on"
    if peak:
        why += f"; {number_text(peak)} of the largest take {bytes_text(largest * peak)}"
        why += "" if room is None else f" of {bytes_text(room)} free"
    yield line("http", "client_body_temp_path", own, "1", "2", why=why)


_BODIES: Final = ("POST", "PUT", "PATCH")
_BODY_SHARE: Final = 0.2


def _upload_signs(workload: Workload) -> str:
    """Signs of uploads: methods with bodies, or long requests for small responses; or empty."""
    methods = workload.traffic.methods if workload.traffic else {}
    share = sum(methods.get(method, 0.0) for method in _BODIES)
    if share >= _BODY_SHARE:
        return f": {percent_text(share, 2)} of the requests have a body ({', '.join(_BODIES)})"
    c, size = workload.concurrency, workload.sizes
    per_second = workload.rate.peak_per_second or workload.rate.mean_per_second
    peak, takes = _peak(workload), c.client_bytes_per_second
    if not peak or not per_second or not takes or "assumed" in (
        workload.rate.provenance, size.provenance
    ) or not size.mean_bytes:  # fmt: skip
        return ""
    lasts, sending = peak / per_second, size.mean_bytes / takes
    if lasts < 1.0 or lasts < 100 * sending:
        return ""
    return (
        f": requests last {number_text(round(lasts, 1))} s for responses of "
        f"{bytes_text(size.mean_bytes)}, as with uploads"
    )


def _temp_path(site: Site, facts: Facts) -> str | None:
    """The build's directory for bodies, otherwise a directory on the disk with most free space.

    It is never among served files or in a cache. Source: auto/options
    (``--http-client-body-temp-path``).
    """
    own = build_of(facts.nginx).value_of("--http-client-body-temp-path")
    if own is not None and _PLACE.fullmatch(own):
        return own
    taken = (*site.roots, *site.cache_dirs)
    free = [
        place
        for place in facts.storage.paths
        if place.available_bytes
        and place.leaf_disks
        and not any(_is_below(path, place.path) for path in taken)
    ]
    roomiest = max(free, key=lambda storage: storage.available_bytes or 0, default=None)
    return None if roomiest is None else f"{roomiest.path.rstrip('/')}/client_body_temp"


def _is_below(path: str, folder: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _room(path: str, facts: Facts) -> int | None:
    """Free bytes of the file system that holds a path; None if not known."""
    on = [p for p in facts.storage.paths if p.mount_point and _is_below(path, p.mount_point)]
    nearest = max(on, key=lambda place: len(place.mount_point or ""), default=None)
    return nearest.available_bytes if nearest else None


_MODEL_PATH: Final = re.compile(
    r"/(?:chat/completions|completions|messages|responses|embeddings)/?$|^/api/(?:chat|generate)/?$"
)
"""Paths of language-model APIs. Source: public API references of OpenAI (``/v1/responses``,
``/v1/chat/completions``), Anthropic (``/v1/messages``) and Ollama (``/api/chat``)."""
_PROMPT: Final = "32m"
"""Largest request to Anthropic's Messages API (documentation of its errors: 32 MB)."""


def _streams(site: Site, workload: Workload) -> list[str]:
    """The locations of event streams, from the site and a log, as in the decision ``streaming``."""
    learnt = workload.traffic.locations if workload.traffic else []
    seen = [stream.location for stream in learnt if stream.location.startswith("/")]
    return list(dict.fromkeys([*site.streams, *filter(is_stream_path, seen)]))


def _prompts(
    streams: Sequence[str], facts: Facts, workload: Workload, settings: Sequence[Setting]
) -> Iterator[Setting]:
    """Body limits for language-model locations, since prompts with images are larger than 1m."""
    if any(setting.directive == "client_max_body_size" for setting in settings):
        return
    buffer = _body_buffer(facts, workload)
    for place in filter(_MODEL_PATH.search, streams):
        why = "room for prompts with images; above the default of 1m they get 413"
        yield line("location", "client_max_body_size", _PROMPT, why=why, block=place)
        if buffer is not None:
            why = "most prompts stay in memory"
            yield line(
                "location", "client_body_buffer_size", f"{buffer >> 10}k", why=why, block=place
            )


_LONG_SECONDS: Final = 60.0
"""The default of ``proxy_read_timeout``."""
_SMALL_BYTES: Final = 64 << 10
_MOST: Final = 0.5
_SHORT: Final = (
    "proxy_read_timeout: 60s for WebSockets too, since the same location serves pages; "
    "--with websocket=PREFIX gives WebSockets below PREFIX an hour"
)
_ONE: Final = 2.0
"""Mean number of requests per connection up to which most connections carry a single request."""


def _websockets(
    found: Mapping[str, list[str]], streams: Sequence[str], workload: Workload
) -> tuple[list[str], str, bool]:
    """Locations of WebSockets, the evidence, and True if most requests are WebSockets.

    The evidence is empty if the operator names the locations. In a log, WebSockets have status 101.
    A workload without statuses shows them as requests over HTTP/1.1 that last for minutes (Little's
    law), one per connection, with small responses. Long polls look the same, but the settings do
    not affect them.
    """
    if "websocket" in found:
        return list(dict.fromkeys(prefix or "/" for prefix in found["websocket"])), "", True
    traffic, rate = workload.traffic, workload.rate
    share = traffic.statuses.get("101", 0.0) if traffic is not None else 0.0
    if share:
        return ["/"], f"{percent_text(share, 2)} of the responses have status 101", share >= _MOST
    per_second = rate.peak_per_second or rate.mean_per_second
    peak, size = _peak(workload), workload.sizes.mean_bytes
    if not peak or not per_second or rate.provenance == "assumed" or streams:
        return [], "", False
    lasts = peak / per_second
    reuse = workload.connection_reuse.requests_per_connection or math.inf
    is_one = reuse <= _ONE and workload.http_version.value == "1.1"
    if lasts < _LONG_SECONDS or not is_one or (size or 0.0) > _SMALL_BYTES:
        return [], "", False
    return ["/"], f"requests last {number_text(round(lasts))} s, one per connection", True


def _upgrading(
    prefixes: Sequence[str], seen: str, build: Build, *, is_most: bool
) -> Iterator[Setting]:
    """Settings that proxy WebSockets, as in nginx's documentation.

    Requests without ``Upgrade`` keep the upstream connection alive, as ``upstream-keepalive``
    requires. The timeout of an hour is from the documentation of ingress-nginx (WebSockets).
    """
    why = f"upgrades WebSockets; other requests keep the connection{seen and f' ({seen})'}"
    yield line(
        "http",
        "map",
        "$http_upgrade",
        "$connection_upgrade",
        why=why,
        lines=[["default", "upgrade"], ["", ""]],
    )
    for place in prefixes:
        if not build.at_least(1, 29, 7):
            why = "an upgrade needs HTTP/1.1"
            yield line("location", "proxy_http_version", "1.1", why=why, block=place)
        for name, value, why in (
            ("Upgrade", "$http_upgrade", "nginx drops hop-by-hop headers by default"),
            ("Connection", "$connection_upgrade", "upgrade, or empty"),
        ):
            yield line("location", "proxy_set_header", name, value, why=why, block=place)
        if not is_most:
            continue  # pages in the same location keep their timeout
        why = "by default a silent WebSocket is closed after 60 s"
        yield line("location", "proxy_read_timeout", "3600s", why=why, block=place)
        yield line("location", "proxy_send_timeout", "3600s", why="likewise", block=place)


_HELD_BYTES: Final = (4 << 10) + (1 << 10) + (4 << 10) + 512
"""The sum of ``request_pool_size``, ``client_header_buffer_size``, ``proxy_buffer_size`` and
``connection_pool_size`` by default (ngx_http_core_module, ngx_http_proxy_module)."""


def _held_memory(facts: Facts, workload: Workload) -> Iterator[str]:
    """A note on the memory of long-lived connections."""
    peak = _peak(workload)
    memory = facts.memory.cgroup_limit_bytes or facts.memory.total_bytes
    if peak and memory:
        yield (
            f"memory: {number_text(peak)} long-lived connections take "
            f"{bytes_text(peak * _HELD_BYTES)} of {bytes_text(memory)} for nginx's buffers, plus "
            "TLS and sockets"
        )


def _gzip_static(build: Build) -> Iterator[Setting]:
    if build.lacks("--with-http_gzip_static_module"):
        raise UsageError("features: this nginx is built without gzip_static")
    why = "serves FILE.gz in place of FILE, without CPU for compression"
    yield line("http", "gzip_static", "on", why=why)
