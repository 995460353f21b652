"""``site``: what only the operator knows and a full nginx.conf needs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import field

from nginx_tune.documents.base import Bytes, Count, Document, Part, Seconds

GZIP_LINE = re.compile(
    r"gzip(?:_(?:static|vary|proxied|types|min_length|comp_level|buffers|http_version|disable))?"
    r"(?: [^\s;{}#\"'$\\]{1,127}){1,200}"
)
"""A ``gzip`` line that may be written: nginx's own directives, and words that need no quotes."""


COMPRESSED_ORIGIN = "compressed-origin"
"""The feature of an origin that compresses by itself: what it sends is passed on."""


class Upstream(Part, frozen=True, kw_only=True):
    """A named group of origin servers."""

    name: str
    servers: list[str]


class SiteTls(Part, frozen=True, kw_only=True):
    """Certificate files on the target."""

    certificate: str
    certificate_key: str
    protocols: list[str] = []
    """``ssl_protocols``; none leaves it to what the build and its TLS library have."""


class CacheBounds(Part, frozen=True, kw_only=True):
    """What the operator lets a cache take."""

    max_bytes: Bytes | None = None
    """``max_size``."""
    min_free_bytes: Bytes | None = None
    """``min_free``."""


class Site(Document, frozen=True, kw_only=True, tag="nginx-tune/site/1"):
    """The operator's own choices; the defaults serve a first run."""

    listen: list[str] = field(default_factory=lambda: ["80"])
    """Addresses and ports, each with options of nginx's ``listen`` behind it. With ``tls`` all of
    them speak TLS, unless some say ``ssl`` (``["80", "443 ssl"]``): then these do, and HTTP/2 and
    HTTP/3 are theirs alone; the others stay as plain as they are written."""
    server_names: list[str] = field(default_factory=lambda: ["_"])
    roots: list[str] = field(default_factory=lambda: ["/var/www/html"])
    root_prefixes: list[str] = []
    """The URL prefix of each root, in the order of ``roots``: ``/videos/`` for files in
    ``ROOT/videos/``. Without them a request looks for its file in the roots in turn."""
    serves_files: bool = False
    """True if files of ``roots`` are served beside what is cached; ``plan`` sees it in the
    configuration."""
    cache_dirs: list[str] = []
    cache_bounds: dict[str, CacheBounds] = {}
    """Bounds of caches, by their directories; without one ``max_size`` is made of what the disk has
    room for."""
    upstreams: list[Upstream] = []
    tls: SiteTls | None = None
    cleartext_http2: bool = False
    """Whether clients, as a balancer in front, speak HTTP/2 without TLS (``listen … http2``)."""
    http3: bool = False
    """Whether clients are to be offered HTTP/3, over UDP beside TLS."""
    user: str | None = None
    """``user`` directive; null leaves it to the build's default."""
    mime_types: str | None = None
    """File of media types to include; null writes all of nginx's own into the file."""
    gzip: list[str] | None = None
    """``gzip`` lines of http, such as ``gzip on``; none leaves compression off. Null takes those
    of the installed configuration, else what is usual for the kind."""
    tcp_nopush: bool | None = None
    """Whether to write ``tcp_nopush on`` beside ``sendfile on``; null does as is installed."""
    features: list[str] = []
    """What the site does beside its kind, as ``generate --with`` takes it: ``uploads=1G``,
    ``websocket=/ws/``, ``php``, ``tls-origin=NAME``, ``origin-ca=FILE``, ``resolver=ADDRESS``,
    ``gzip-static``, ``compressed-origin``."""
    hot_locations: list[str] = []
    """Location prefixes whose files are asked for all the time and stay in memory."""
    streams: list[str] = []
    """Location prefixes whose answers are streams of events, passed on from an upstream."""
    live_files: list[str] = []
    """What says that files are replaced or removed while clients ask for them: a prefix of live
    playlists, of uploads. Then no descriptors are kept open, which would go on serving the old."""
    stream_silence_seconds: Seconds | None = None
    """How long such a stream may say nothing without having failed."""
    error_log: str | None = None
    """Main error log; null leaves it to the build's path."""
    access_log: str | None = None
    """Access log; null leaves it to the build's path."""
    other_access_logs: list[str] = []
    """Further access logs, beside ``access_log``; ``plan`` takes those of the configuration."""
    piped_logs: list[str] = []
    """Logs that are no files: a pipe, a terminal, a device or a link to one. They get no buffer.
    Without ``--facts`` it is seen on this host what the access logs are."""
    plain_logs: list[str] = []
    """Access logs that are known to be files; of any other that gets a buffer it is said that it
    must be one. Without ``--facts`` it is seen on this host."""
    log_files: Count | None = None
    """Log files that nginx has open, those of virtual hosts too, each of which takes a descriptor
    in every worker; null counts the two above. ``plan`` counts those of the configuration."""
    listening_sockets: Count | None = None
    """Addresses and ports that it listens on, likewise; null counts those of ``listen``."""


def tls_listens(listens: Sequence[str]) -> list[str]:
    """Those of a site with TLS that speak it: those that say ``ssl``, else all."""
    return [item for item in listens if "ssl" in item.split()[1:]] or list(listens)


def root_locations(site: Site) -> list[str]:
    """Names of the locations that serve the roots: their prefixes, or ``/``, ``@root_2`` and on."""
    if site.root_prefixes:
        return list(site.root_prefixes)
    return ["/", *(f"@root_{number}" for number in range(2, len(site.roots) + 1))]
