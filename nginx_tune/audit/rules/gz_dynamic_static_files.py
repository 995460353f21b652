import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.rules.io_sendfile_defeated import LARGE_FILE_BYTES
from nginx_tune.audit.storage import covering
from nginx_tune.conf.answer_bodies import text_filter
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.served import Served
from nginx_tune.conf.values import parse_bytes

_ENDINGS = re.compile(r"\\\.\(?(?:\?:)?([\w|?()\[\]-]+)\)?\$$")
r"""``\.(?:jpg|png)$`` at the end of a pattern."""
_WORD = re.compile(r"\w+")
_COMPRESSIBLE = frozenset({
    "css", "js", "mjs", "cjs", "json", "map", "svg", "svgz", "xml", "html", "htm", "xhtml", "txt",
    "csv", "md", "rss", "atom", "wasm", "ttf", "otf", "eot", "ico", "ics", "vtt", "tsv", "ts",
    "webmanifest", "geojson", "less", "scss",
})  # fmt: skip
"""Name endings of files that gzip makes smaller."""
_MEDIA_DIRECTORIES = frozenset({
    "audio", "avatars", "downloads", "images", "img", "isos", "media", "music", "photos",
    "pictures", "thumbnails", "thumbs", "uploads", "video", "videos",
})  # fmt: skip
"""Names of directories whose files are compressed by their own format."""
_FLAG = "--with-http_gzip_static_module"
_FILE_TYPE_PARTS = ("css", "javascript", "svg", "font", "*")
"""Parts of media types that are usually files, not responses of an application."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Static files that are compressed again for every request."""
    # A server with gzip_static anywhere has precompressed the files that matter.
    if "gzip_types" not in context.names:
        return
    mutable = {one.scope.server for one in context.passes if one.module == "fastcgi"}
    mutable |= {
        served.scope.server
        for served in context.served
        if served.scope.value("gzip_static", "off") != "off"
    }
    found: dict[Directive, Directive] = {}
    filters: dict[Directive, Directive] = {}
    for served in context.served:
        is_deployed = served.via != "cache" and served.scope.server not in mutable
        is_left = _is_media(served) or _is_rare(served) or _has_none(context, served)
        types = _gzip_types(served.scope) if is_deployed and not is_left else None
        if types is not None and (line := text_filter(served.scope)) is not None:
            filters[types] = line
        elif types is not None:
            found.setdefault(types, served.place)
    if not found:
        return
    if context.flags is None:
        yield MissingFacts(("nginx.flags",))
        return
    for types, place in found.items() if _FLAG in context.flags else ():
        yield Hit(
            types,
            f'files under "{place.value}" are compressed again for every request',
            [written(types), default("gzip_static", "off")],
            fix=_FIX_BESIDE.format(filters[types]) if types in filters else "",
        )


_FIX = (
    "create FILE.gz next to each file at deployment (gzip -k -9, with the same modification time). "
    "Leave out files that are rewritten between deployments: their old .gz would be served."
)
_FIX_BESIDE = (
    "Set gzip_static on; in the locations of these files, not where {0} is in effect (a .gz is "
    "served as it is), and " + _FIX
)


def _is_rare(served: Served) -> bool:
    """True if only a single file, error pages or ACME challenges are served."""
    path = served.scope.own.args[-1] if served.scope.own.args else ""
    is_inner = path.startswith("@") or served.scope.sets("internal") is not None
    return not served.is_whole or is_inner or "well-known" in path


def _is_media(served: Served) -> bool:
    """True if gzip is not used for the file names or types that are served here."""
    scope = served.scope
    args = scope.own.args
    directories = {*served.path.lower().split("/")[-2:], *"".join(args[-1:]).lower().split("/")}
    if not _MEDIA_DIRECTORIES.isdisjoint(directories):
        return True
    named = _ENDINGS.search(args[-1]) if args and args[0] in {"~", "~*"} else None
    if named is not None and _COMPRESSIBLE.isdisjoint(_WORD.findall(named[1].lower())):
        return True
    around = scope.chain[-1].block
    types = None if around is None else around.first("types")
    if types is None or types.block is None:
        return False
    gzip = scope.effective("gzip_types")
    compressed = {"text/html", *(() if gzip is None else gzip.args)}
    sent = {line.name for line in types.block} | {scope.value("default_type", "text/plain")}
    return "*" not in compressed and compressed.isdisjoint(sent)


def _has_none(context: Context, served: Served) -> bool:
    """True if the files of a directory are known not to gain from gzip.

    The directory is empty, all its files are shorter than ``gzip_min_length``, or most are larger
    than stylesheets and scripts.
    """
    dataset = covering(served.path, context.facts.datasets)
    if dataset is None:
        return False
    if dataset.complete and dataset.files == 0:
        return True
    shortest = parse_bytes(served.scope.value("gzip_min_length", "20")) or 0
    sizes = dataset.sizes
    return sizes is not None and (sizes.p50_bytes >= LARGE_FILE_BYTES or sizes.max_bytes < shortest)


def _gzip_types(scope: Scope) -> Directive | None:
    """The ``gzip_types`` line with types of static files; None if gzip is off or static."""
    if scope.value("gzip", "off") != "on" or scope.value("gzip_static", "off") != "off":
        return None
    types = scope.effective("gzip_types")
    if types is None or not any(part in arg for arg in types.args for part in _FILE_TYPE_PARTS):
        return None
    return types


_CONF = """
events {}
http {
    gzip on;
    gzip_types text/css application/javascript image/svg+xml;
    server { location / { root /srv/www; %s } }
}
"""
_HOST = linux(flags=("--with-threads", _FLAG))

RULE = Rule(
    id="gz-dynamic-static-files",
    severity="advice",
    title="static files are compressed again for every request",
    why="The same file is compressed again for every client, on the CPU of the event loop. A "
    "response that passes the gzip filter is read into memory, so sendfile is not used.",
    fix="Set gzip_static on; and " + _FIX,
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_gzip_static_module.html",
        "nginx: src/http/modules/ngx_http_gzip_filter_module.c, ngx_http_gzip_header_filter",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Reported where gzip_types names stylesheets, scripts, images or fonts, files are served "
    "from a directory, and the build has the module. gzip may stay on: it compresses the files "
    "without a .gz. Servers with PHP are skipped: such applications change their own files, and a "
    "stale .gz would be served instead of the new file. Locations with a filter that reads the "
    "text (ssi, sub_filter) are skipped: it leaves a .gz as it is. Locations for names or types "
    "that gzip is not used for (images, video) are skipped too, and so are directories of large "
    "files.",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "gzip_static on;", _HOST),
    check=check,
)
