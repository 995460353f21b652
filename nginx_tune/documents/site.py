"""``site``: the operator's choices that a full nginx.conf needs."""

import re
from collections.abc import Sequence

from msgspec import field

from nginx_tune.documents.base import Bytes, Count, Document, Part, Seconds

GZIP_LINE = re.compile(
    r"gzip(?:_(?:static|vary|proxied|types|min_length|comp_level|buffers|http_version|disable))?"
    r"(?: [^\s;{}#\"'$\\]{1,127}){1,200}"
)
"""A ``gzip`` line that may be written. It is a directive of nginx itself, whose arguments have no
quotes."""


COMPRESSED_ORIGIN = "compressed-origin"
"""The feature for an origin whose compressed responses are passed on."""


class Upstream(Part, frozen=True, kw_only=True):
    """A named group of origin servers."""

    name: str
    servers: list[str]


class SiteTls(Part, frozen=True, kw_only=True):
    """Certificate files on the target."""

    certificate: str
    certificate_key: str
    protocols: list[str] = []
    """``ssl_protocols``; empty for the usual protocols of the build and its TLS library."""


class CacheBounds(Part, frozen=True, kw_only=True):
    """The operator's bounds of a cache."""

    max_bytes: Bytes | None = None
    """``max_size``."""
    min_free_bytes: Bytes | None = None
    """``min_free``."""


class Site(Document, frozen=True, kw_only=True, tag="nginx-tune/site/1"):
    """The operator's choices; the defaults suffice for a first run."""

    listen: list[str] = field(default_factory=lambda: ["80"])
    """Addresses and ports, each with options of ``listen``. With ``tls`` all of them use TLS,
    unless some have ``ssl`` (``["80", "443 ssl"]``): then only these do, and only they have HTTP/2
    and HTTP/3."""
    server_names: list[str] = field(default_factory=lambda: ["_"])
    roots: list[str] = field(default_factory=lambda: ["/var/www/html"])
    root_prefixes: list[str] = []
    """The URL prefix of each root, in the order of ``roots``: ``/videos/`` for files in
    ``ROOT/videos/``. Without prefixes, nginx searches the roots for a file one after the other."""
    roots_apart: bool = False
    """True if no request is searched in more than one of ``roots``; ``plan`` reads this from the
    configuration."""
    serves_files: bool = False
    """True if files of ``roots`` are served in addition to the cache; ``plan`` reads this from the
    configuration."""
    cache_dirs: list[str] = []
    cache_bounds: dict[str, CacheBounds] = {}
    """Bounds of caches by directory; without bounds, ``max_size`` follows from the disk's space."""
    upstreams: list[Upstream] = []
    tls: SiteTls | None = None
    cleartext_http2: bool = False
    """True if clients, such as a balancer in front, use HTTP/2 without TLS (``listen … http2``)."""
    http3: bool = False
    """True to offer HTTP/3 over UDP, in addition to TLS over TCP."""
    user: str | None = None
    """``user`` directive; null for the build's default."""
    mime_types: str | None = None
    """File of media types to include; null to write nginx's own list into the configuration."""
    gzip: list[str] | None = None
    """``gzip`` lines of http, such as ``gzip on``; empty for no compression. Null for the lines of
    the installed configuration, or else the usual ones of the kind of site."""
    tcp_nopush: bool | None = None
    """True for ``tcp_nopush on`` with ``sendfile on``; null as in the installed configuration."""
    features: list[str] = []
    """Features in addition to the kind, as for ``generate --with``: ``uploads=1G``,
    ``websocket=/ws/``, ``php``, ``tls-origin=NAME``, ``origin-ca=FILE``, ``resolver=ADDRESS``,
    ``gzip-static``, ``compressed-origin``."""
    hot_locations: list[str] = []
    """Location prefixes of constantly requested files, which stay in memory."""
    streams: list[str] = []
    """Location prefixes of event streams from an upstream."""
    live_files: list[str] = []
    """Prefixes of files that are replaced or removed while clients request them, such as live
    playlists or uploads. Their descriptors do not stay open, since nginx would serve old files."""
    stream_silence_seconds: Seconds | None = None
    """The longest time for which a healthy stream may be idle."""
    error_log: str | None = None
    """Main error log; null for the build's path."""
    access_log: str | None = None
    """Access log; null for the build's path."""
    other_access_logs: list[str] = []
    """Access logs in addition to ``access_log``; ``plan`` takes those of the configuration."""
    piped_logs: list[str] = []
    """Logs that are pipes, terminals, devices or links to one, and so get no buffer. Without
    ``--facts`` this host's logs are examined."""
    plain_logs: list[str] = []
    """Access logs that are known to be files. Other logs with a buffer get a note that they must be
    files. Without ``--facts`` this host's logs are examined."""
    log_files: Count | None = None
    """Number of open log files, including those of virtual hosts; each takes a descriptor in every
    worker. Null for one error log and one access log. ``plan`` counts the configuration's logs."""
    listening_sockets: Count | None = None
    """Number of listening addresses and ports; each takes a descriptor too. Null for those of
    ``listen``."""

    @property
    def log_paths(self) -> list[str]:
        """The access logs that are files with known absolute names."""
        return [
            log
            for log in dict.fromkeys([self.access_log or "", *self.other_access_logs])
            if log.startswith("/")
            and "$" not in log
            and not log.startswith(("/dev/", "/proc/"))
            and log not in self.piped_logs
        ]


def tls_listens(listens: Sequence[str]) -> list[str]:
    """The TLS listeners of a site with TLS: those with ``ssl``, or else all."""
    return [item for item in listens if "ssl" in item.split()[1:]] or list(listens)


def root_locations(site: Site) -> list[str]:
    """The names of the roots' locations: their prefixes, or ``/``, ``@root_2`` and so on."""
    if site.root_prefixes:
        return list(site.root_prefixes)
    return ["/", *(f"@root_{number}" for number in range(2, len(site.roots) + 1))]
