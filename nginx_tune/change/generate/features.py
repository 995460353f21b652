"""What a site does beside its kind: uploads, WebSockets, PHP, an origin that speaks TLS.

The operator names them (``generate --with``, ``features`` of the site); some a workload shows. Each
is some lines, every one with its reason. Bounds of retries and of the wait for a connection are
written for each proxy. Lines are for what was asked or seen, and for no other site.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from nginx_tune.decide.answer import Build, build_of
from nginx_tune.decide.defaults import GZIP_SHARE, gzip_cpus
from nginx_tune.decide.situation import effective_cpus
from nginx_tune.decide.upstreams import addresses_of, zone_size
from nginx_tune.documents.decisions import DirectiveContext, Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site, Upstream
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
"""The features, with what each may say behind ``=``."""
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
"""Debian's link to the socket of the PHP-FPM that is installed (update-alternatives)."""
_CA_FILE: Final = "/etc/ssl/certs/ca-certificates.crt"
"""Debian, Ubuntu, Alpine and Arch (package ca-certificates)."""


class Pass(NamedTuple):
    """The way to PHP-FPM."""

    address: str
    front: bool
    """Whether ``/index.php`` answers for what is no file, as WordPress and its like want it."""


class Beside(NamedTuple):
    """The lines of a site beside those of its decisions."""

    settings: Sequence[Setting] = ()
    locations: Sequence[str] = ()
    """Prefixes with locations of their own, which pass requests on."""
    left_alone: Sequence[str] = ()
    scheme: Literal["http", "https"] = "http"
    resolves: bool = False
    """Whether names of servers are looked up again while nginx runs."""
    php: Pass | None = None
    gzip_reason: str = "text goes out smaller"


NOTHING: Final = Beside()


def parse_features(site: Site) -> dict[str, list[str]]:
    """The features of a site with their values, each checked.

    Errors: UsageError that names the value.
    """
    found: dict[str, list[str]] = {}
    for one in site.features:
        name, _, value = one.partition("=")
        if name not in FEATURES:
            known = ", ".join(FEATURES)
            raise UsageError(f"features: {one[:60]!a} is none", hint=f"one of {known}")
        if name in found and name not in _MANY:
            raise UsageError(f"features: {name} is given twice")
        if (not value and FEATURES[name][:1].isalpha()) or (value and not FEATURES[name]):
            shown = f"{name}={FEATURES[name]}" if FEATURES[name] else name
            raise UsageError(f"features: write it as {shown}")
        _check_value(name, value)
        found.setdefault(name, []).append(value)
    return found


def _check_value(name: str, value: str) -> None:
    if name == "uploads":
        size, _, folder = value.partition(":")
        if not _SIZE.fullmatch(size) or (folder and not _PLACE.fullmatch(folder)):
            raise UsageError(f"features: {value[:60]!a} is no size, such as uploads=1G")
        return
    wanted = {
        "websocket": (_PLACE, "no prefix of a URL path, such as websocket=/ws/"),
        "php": (
            re.compile(rf"unix:{_PLACE.pattern}|{_HOST.pattern}:\d{{1,5}}", re.ASCII),
            "no socket or host and port, such as php=unix:/run/php/php-fpm.sock",
        ),
        "tls-origin": (_HOST, "no name of a host, such as tls-origin=app.example.com"),
        "origin-ca": (_PLACE, "no absolute path of a file"),
        "resolver": (_RESOLVER, "no address of a name server, such as resolver=10.96.0.10"),
    }.get(name)
    if value and wanted is not None and not wanted[0].fullmatch(value):
        raise UsageError(f"features: {value[:60]!a} is {wanted[1]}")


def check_features(site: Site, kind: Kind) -> None:
    """Nothing for features that a site of the kind can have.

    Errors: UsageError.
    """
    found = parse_features(site)
    passes = kind in ("cache", "proxy")
    wrong = next((one for one in found if one in _OF_PROXIES and not passes), None)
    if wrong is not None:
        raise UsageError(f"features: {wrong} is for the kinds proxy and cache; this is {kind}")
    if "php" in found and passes:
        raise UsageError(f"features: php is for files, of the kinds static and media, not {kind}")
    if "php" in found and len(site.roots) > 1:
        raise UsageError("features: php runs the files of one root; this site has several")
    taken = {*site.streams, *site.hot_locations}
    if clash := next((one for one in found.get("websocket", ()) if one in taken), None):
        raise UsageError(f"features: {clash} has a location already")


def beside(site: Site, kind: Kind, facts: Facts, workload: Workload | None) -> Beside:
    """The lines of what a complete site does beside its kind.

    Errors: UsageError for features that the kind does not have.
    """
    check_features(site, kind)
    found, build = parse_features(site), build_of(facts.nginx)
    workload = workload or Workload()
    passes = kind in ("cache", "proxy")
    settings: list[Setting] = []
    left: list[str] = [*_gzip_left(site, kind, facts, workload)]
    places: list[str] = []
    if "uploads" in found:
        settings += _uploads(found["uploads"][0], site, facts, workload)
    if "gzip-static" in found:
        settings += _gzip_static(build)
    if not passes:
        settings += _shutdown(build, site.http3, "clients of HTTP/3")
        php = Pass(found["php"][0] or PHP_SOCKET, front=True) if "php" in found else None
        if php is not None:
            settings.append(_line("server", "index", "index.php", "index.html", why="PHP first"))
        return Beside(
            settings,
            left_alone=left,
            php=php,
            gzip_reason=_gzip_reason(site, kind, facts, workload),
        )
    settings += _bounds(site, build)
    prefixes, seen = _websockets(found, site, workload)
    if prefixes:
        settings += _upgrading(prefixes, seen, build)
        places += [one for one in prefixes if one != "/"]
        left += _held_memory(facts, workload)
    settings += _shutdown(build, bool(prefixes or site.streams), "WebSockets and streams")
    settings += _prompts(site, facts, workload, settings)
    if "uploads" not in found:
        left.append(
            "client_max_body_size: 1m, nginx's own; a larger body is answered 413 "
            f"(--with uploads=SIZE){_like_uploads(workload)}"
        )
    if "tls-origin" in found:
        settings += _tls_origin(found, site)
    resolved, why = _resolver(found, site, build)
    settings += resolved
    left += why
    return Beside(
        settings,
        locations=places,
        left_alone=left,
        scheme="https" if "tls-origin" in found else "http",
        resolves=bool(resolved),
        gzip_reason=_gzip_reason(site, kind, facts, workload),
    )


def _line(
    context: DirectiveContext,
    directive: str,
    *args: str,
    why: str,
    block: str = "",
    lines: object = (),
) -> Setting:
    found = [list(one) for one in lines] if isinstance(lines, (list, tuple)) else []
    return Setting(
        context=context, directive=directive, args=[*args], reason=why, block=block, lines=found
    )


def _peak(workload: Workload) -> float | None:
    c = workload.concurrency
    return None if c.provenance == "assumed" else c.peak or c.mean


def _bounds(site: Site, build: Build) -> Iterator[Setting]:
    """The wait for a connection and the retries of one request, for each proxy.

    Source: ngx_http_proxy_module (proxy_next_upstream_tries since 1.7.5); RFC 6298, section 2.1: a
    lost SYN is sent again after 1 s and after 3 s.
    """
    why = "the default is 60s; a lost first packet is sent again after 1 s and 3 s"
    yield _line("http", "proxy_connect_timeout", "5s", why=why)
    if build.at_least(1, 7, 5) and any(addresses_of(one.servers) > 1 for one in site.upstreams):
        why = "a request that makes servers fail does not take out one after the other"
        yield _line("http", "proxy_next_upstream_tries", "2", why=why)
        why = "no second try of what took so long already"
        yield _line("http", "proxy_next_upstream_timeout", "10s", why=why)


def _shutdown(build: Build, holds: bool, what: str) -> Iterator[Setting]:  # noqa: FBT001  # a fact
    """The end of old workers after a reload. Source: nginx 1.11.11."""
    if holds and build.at_least(1, 11, 11):
        why = f"after a reload {what} would keep old workers for as long as one lasts"
        yield _line("main", "worker_shutdown_timeout", "10m", why=why)


_MEMORY_SHARE: Final = 16
_BODY_BUFFERS: Final = (1 << 20, 512 << 10, 256 << 10, 128 << 10, 64 << 10, 32 << 10)
_LEAST_BODY_BUFFER: Final = 16 << 10
"""``client_body_buffer_size`` of 64-bit builds. Source: ngx_http_core_merge_loc_conf()."""


def _body_buffer(facts: Facts, workload: Workload) -> int | None:
    """The largest buffer of which those of all requests take a sixteenth of the memory.

    None where nothing is known, or no more than the default fits.
    """
    memory = facts.memory.cgroup_limit_bytes or facts.memory.total_bytes
    peak = _peak(workload)
    if memory is None or not peak:
        return None
    fitting = (one for one in _BODY_BUFFERS if one * peak * _MEMORY_SHARE <= memory)
    return next(fitting, None)


def _uploads(value: str, site: Site, facts: Facts, workload: Workload) -> Iterator[Setting]:
    """Room for bodies: their size, the buffer before the disk, and the disk.

    Source: ngx_http_core_module (client_max_body_size 1m by default: 413), ngx_http_request_body.c.
    """
    size, _, folder = value.partition(":")
    number, unit = _SIZE.fullmatch(size).groups()  # type: ignore[union-attr]  # it was checked
    largest = int(number) * _FACTORS[unit.lower()]
    why = "a larger body is answered 413; the default is 1m"
    yield _line("server", "client_max_body_size", f"{number}{unit.lower()}", why=why)
    buffer = _body_buffer(facts, workload)
    peak = _peak(workload)
    if buffer is not None and peak:
        why = f"smaller bodies stay off the disk; {number_text(peak)} at once take "
        why += bytes_text(buffer * peak)
        yield _line("server", "client_body_buffer_size", f"{buffer >> 10}k", why=why)
    own = folder or _temp_path(site, facts)
    if own is None:
        return
    room = _room(own, facts)
    why = "bodies lie here until they are complete and passed on"
    if peak:
        why += f"; {number_text(peak)} of the largest take {bytes_text(largest * peak)}"
        why += "" if room is None else f", and {bytes_text(room)} are free"
    yield _line("http", "client_body_temp_path", own, "1", "2", why=why)


_BODIES: Final = ("POST", "PUT", "PATCH")
_BODY_SHARE: Final = 0.2


def _like_uploads(workload: Workload) -> str:
    """What looks like uploads: methods with bodies, or seconds for answers that take none."""
    methods = workload.traffic.methods if workload.traffic else {}
    share = sum(methods.get(one, 0.0) for one in _BODIES)
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
    if lasts < 1.0 or lasts < 100 * sending:  # a second, and next to none of it the answer's
        return ""
    return (
        f": requests last {number_text(round(lasts, 1))} s for answers of "
        f"{bytes_text(size.mean_bytes)}, as uploads do"
    )


def _temp_path(site: Site, facts: Facts) -> str | None:
    """The build's directory of bodies, else one on the roomiest disk that the facts have.

    Not beside served files or a cache. Source: auto/options (``--http-client-body-temp-path``).
    """
    own = build_of(facts.nginx).value_of("--http-client-body-temp-path")
    if own is not None and _PLACE.fullmatch(own):
        return own
    taken = (*site.roots, *site.cache_dirs)
    free = [
        one
        for one in facts.storage.paths
        if one.available_bytes and one.leaf_disks and not any(_is_at(x, one.path) for x in taken)
    ]
    roomiest = max(free, key=lambda one: one.available_bytes or 0, default=None)
    return None if roomiest is None else f"{roomiest.path.rstrip('/')}/client_body_temp"


def _is_at(path: str, folder: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _room(path: str, facts: Facts) -> int | None:
    """Free bytes of the file system that a path is on; null where it is not known."""
    on = [one for one in facts.storage.paths if one.mount_point and _is_at(path, one.mount_point)]
    nearest = max(on, key=lambda one: len(one.mount_point or ""), default=None)
    return nearest.available_bytes if nearest else None


_MODEL_PATH: Final = re.compile(
    r"/(?:chat/completions|completions|messages|responses|embeddings)/?$|^/api/(?:chat|generate)/?$"
)
"""Paths of language models. Source: the public references of the APIs of OpenAI (``/v1/responses``,
``/v1/chat/completions``), Anthropic (``/v1/messages``) and Ollama (``/api/chat``)."""
_PROMPT: Final = "32m"
"""The largest request of Anthropic's Messages API (its documentation, errors: 32 MB)."""


def _prompts(
    site: Site, facts: Facts, workload: Workload, settings: Sequence[Setting]
) -> Iterator[Setting]:
    """Room for prompts in the locations of models: with images they are larger than 1m."""
    if any(one.directive == "client_max_body_size" for one in settings):
        return
    buffer = _body_buffer(facts, workload)
    for place in filter(_MODEL_PATH.search, site.streams):
        why = "a prompt with images; the default of 1m answers 413"
        yield _line("location", "client_max_body_size", _PROMPT, why=why, block=place)
        if buffer is not None:
            why = "most prompts stay off the disk"
            yield _line(
                "location", "client_body_buffer_size", f"{buffer >> 10}k", why=why, block=place
            )


_LONG_SECONDS: Final = 60.0
"""``proxy_read_timeout``, after which nginx ends what says nothing."""
_SMALL_BYTES: Final = 64 << 10
_ONE: Final = 2.0
"""Requests of a connection up to which most carry one alone."""


def _websockets(
    found: Mapping[str, list[str]], site: Site, workload: Workload
) -> tuple[list[str], str]:
    """Locations of WebSockets, and what tells of them where nobody named them.

    A log has them as status 101. Without one they show as requests over HTTP/1.1 that last for
    minutes (Little's law), one a connection, with small answers: long polls do too, to which the
    lines do nothing.
    """
    if "websocket" in found:
        return list(dict.fromkeys(one or "/" for one in found["websocket"])), ""
    traffic, rate = workload.traffic, workload.rate
    if traffic is not None and traffic.statuses.get("101"):
        return ["/"], f"{traffic.statuses['101']:.2g} of the answers are 101"
    per_second = rate.peak_per_second or rate.mean_per_second
    peak, size = _peak(workload), workload.sizes.mean_bytes
    if not peak or not per_second or rate.provenance == "assumed" or site.streams:
        return [], ""
    lasts = peak / per_second
    reuse = workload.connection_reuse.requests_per_connection or math.inf
    is_one = reuse <= _ONE and workload.http_version.value == "1.1"
    if lasts < _LONG_SECONDS or not is_one or (size or 0.0) > _SMALL_BYTES:
        return [], ""
    return ["/"], f"requests last {number_text(round(lasts))} s, one a connection"


def _upgrading(prefixes: Sequence[str], seen: str, build: Build) -> Iterator[Setting]:
    """The lines of a WebSocket, as nginx's documentation has them (WebSocket proxying).

    Without an ``Upgrade`` the connection is kept for others, as ``upstream-keepalive`` wants it. An
    hour is what the documentation of ingress-nginx asks for (WebSockets: more than 3600 seconds).
    """
    why = f"a WebSocket is asked for; other requests keep the connection{seen and f' ({seen})'}"
    yield _line(
        "http",
        "map",
        "$http_upgrade",
        "$connection_upgrade",
        why=why,
        lines=[["default", "upgrade"], ["", ""]],
    )
    for place in prefixes:
        if not build.at_least(1, 29, 7):
            why = "an upgrade is of HTTP/1.1"
            yield _line("location", "proxy_http_version", "1.1", why=why, block=place)
        for name, value, why in (
            ("Upgrade", "$http_upgrade", "nginx passes on no hop-by-hop header by itself"),
            ("Connection", "$connection_upgrade", "upgrade, or nothing"),
        ):
            yield _line("location", "proxy_set_header", name, value, why=why, block=place)
        why = "a WebSocket that says nothing is ended after 60 s by default"
        yield _line("location", "proxy_read_timeout", "3600s", why=why, block=place)
        yield _line("location", "proxy_send_timeout", "3600s", why="likewise", block=place)


_HELD_BYTES: Final = (4 << 10) + (1 << 10) + (4 << 10) + 512
"""``request_pool_size``, ``client_header_buffer_size``, ``proxy_buffer_size`` (a page) and
``connection_pool_size``, by their defaults (ngx_http_core_module, ngx_http_proxy_module)."""


def _held_memory(facts: Facts, workload: Workload) -> Iterator[str]:
    """The memory of connections that are held for long."""
    peak = _peak(workload)
    memory = facts.memory.cgroup_limit_bytes or facts.memory.total_bytes
    if peak and memory:
        yield (
            f"memory: {number_text(peak)} connections that are held take "
            f"{bytes_text(peak * _HELD_BYTES)} of nginx's own buffers, and TLS and sockets more, "
            f"of {bytes_text(memory)}"
        )


def _tls_origin(found: Mapping[str, list[str]], site: Site) -> Iterator[Setting]:
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
        yield _line("http", directive, value, why=why)


def _name_of_servers(site: Site) -> str | None:
    """The one name that all servers go by; null for addresses, or for several."""
    names = {one for group in site.upstreams for one in map(_host_of, group.servers) if one}
    servers = [one for group in site.upstreams for one in group.servers]
    has_all = all(map(_host_of, servers))
    return names.pop() if len(names) == 1 and has_all else None


def _host_of(server: str) -> str | None:
    """The name of a ``server`` line; null for an address or a socket."""
    address = server.split()[0]
    host = address.partition(":")[0]
    is_address = address.startswith(("[", "unix:")) or not host.strip("0123456789.")
    return None if is_address or host == "localhost" else host


_SERVICE: Final = re.compile(r"\.svc\.([a-z0-9.-]*[a-z0-9])$")


def _resolver(
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
        return [], [
            f"resolve: {names[0]} is looked up when nginx starts or reloads; nginx 1.27.3 or newer "
            "can do it again by itself"
        ]
    service = _SERVICE.search(names[0])
    addresses = found.get("resolver") or (
        [f"kube-dns.kube-system.svc.{service[1]}"] if service else []
    )
    if not addresses:
        return [], [
            f"resolve: {names[0]} is looked up when nginx starts or reloads; with "
            "--with resolver=ADDRESS (a nameserver of /etc/resolv.conf) it is looked up again"
        ]
    why = "names of servers are looked up again when their answer has grown old"
    return [_line("http", "resolver", *addresses, why=why)], []


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
                _line("upstream", "zone", f"upstream_{group.name}", size, why=why, block=group.name)
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


def _gzip_static(build: Build) -> Iterator[Setting]:
    if build.lacks("--with-http_gzip_static_module"):
        raise UsageError("features: this nginx is built without gzip_static")
    why = "FILE.gz beside FILE is sent as it is: no CPU for it"
    yield _line("http", "gzip_static", "on", why=why)


def _gzip_reason(site: Site, kind: Kind, facts: Facts, workload: Workload) -> str:
    """Why text is compressed, with what it takes of the CPUs where that is known."""
    asked, cpus = gzip_cpus(facts, workload, kind, site.gzip), effective_cpus(facts).value
    if not asked or not cpus:
        return NOTHING.gzip_reason
    return f"{NOTHING.gzip_reason}, for {percent_text(asked / cpus, 2)} of the CPUs at the peak"


def _gzip_left(site: Site, kind: Kind, facts: Facts, workload: Workload) -> Iterator[str]:
    """Why nothing is compressed, where the CPUs are the reason."""
    asked = gzip_cpus(facts, workload, kind)
    cpus = effective_cpus(facts).value
    if site.gzip or asked is None or cpus is None or asked <= GZIP_SHARE * cpus:
        return
    origin = "; what the servers compress is passed on" if kind in ("cache", "proxy") else ""
    yield (
        f"gzip: at the peak it would take {asked:.2g} of {cpus:g} CPUs, and a tenth is its budget"
        f"{origin}"
    )


_KEY: Final = "|$http_accept_encoding"


def with_encodings(settings: Sequence[Setting]) -> list[Setting]:
    """The settings with three kinds of clients in a cache's key, not each spelling of a header.

    The server is asked for what all clients of a kind can read: zstd, br or gzip of its own making
    comes through, and the cache has at most four entries of a page. A weight behind a word
    (``br;q=0``) counts as a no.
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
        _line(
            "http",
            "map",
            "$http_accept_encoding",
            "$encoding",
            why=why,
            lines=[
                [f"~*^{gzip}{brotli}{zstd}", "zstd, br, gzip"],
                [f"~*^{gzip}{brotli}", "br, gzip"],
                [f"~*^{gzip}", "gzip"],
                ["default", ""],
            ],
        )
    )
    why = "the server compresses, for all clients of a kind alike"
    found.append(_line("location", "proxy_set_header", "Accept-Encoding", "$encoding", why=why))
    return found
