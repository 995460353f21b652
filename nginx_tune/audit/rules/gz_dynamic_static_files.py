"""``gz-dynamic-static-files``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.rules.io_sendfile_defeated import LARGE_FILE_BYTES
from nginx_tune.audit.storage import covering
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.served import Served

_ENDINGS = re.compile(r"\\\.\(?(?:\?:)?([\w|?()\[\]-]+)\)?\$$")
r"""``\.(?:jpg|png)$`` at the end of a pattern."""
_WORD = re.compile(r"\w+")
_TEXTS = frozenset({
    "css", "js", "mjs", "cjs", "json", "map", "svg", "svgz", "xml", "html", "htm", "xhtml", "txt",
    "csv", "md", "rss", "atom", "wasm", "ttf", "otf", "eot", "ico", "ics", "vtt", "tsv", "ts",
    "webmanifest", "geojson", "less", "scss",
})  # fmt: skip
"""Endings of names that gzip makes smaller."""
_FLAG = "--with-http_gzip_static_module"
_OF_FILES = ("css", "javascript", "svg", "font", "*")
"""Parts of media types that are files rather than answers of a program."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Static files that are compressed again for each request."""
    # What a build compresses lies where gzip_static is on; beside it are error pages and images.
    if "gzip_types" not in context.names:
        return
    changing = {one.scope.server for one in context.passes if one.module == "fastcgi"}
    changing |= {
        one.scope.server for one in context.served if one.scope.value("gzip_static", "off") != "off"
    }
    found: dict[Directive, Directive] = {}
    for served in context.served:
        is_deployed = served.via != "cache" and served.scope.server not in changing
        is_media = _is_media(served.scope) or _holds_large_files(context, served)
        types = None if not is_deployed or is_media or _is_seldom(served) else _types(served.scope)
        if types is not None:
            found.setdefault(types, served.place)
    if not found:
        return
    if context.flags is None:
        yield MissingFacts(("nginx.flags",))
        return
    for types, place in found.items() if _FLAG in context.flags else ():
        yield Hit(
            types,
            f'files under "{place.value}" are compressed for each request',
            [written(types), default("gzip_static", "off")],
        )


def _is_seldom(served: Served) -> bool:
    """True if one file, pages of errors or challenges of certificates are all there is."""
    path = served.scope.own.args[-1] if served.scope.own.args else ""
    is_inner = path.startswith("@") or served.scope.sets("internal") is not None
    return not served.is_whole or is_inner or "well-known" in path


def _is_media(scope: Scope) -> bool:
    """True if a place is for names, or of types, that gzip is not asked for."""
    args = scope.own.args
    named = _ENDINGS.search(args[-1]) if args and args[0] in {"~", "~*"} else None
    if named is not None and _TEXTS.isdisjoint(_WORD.findall(named[1].lower())):
        return True
    around = scope.chain[-1].block
    types = None if around is None else around.first("types")
    if types is None or types.block is None:
        return False
    gzip = scope.effective("gzip_types")
    asked = {"text/html", *(() if gzip is None else gzip.args)}
    given = {line.name for line in types.block} | {scope.value("default_type", "text/plain")}
    return "*" not in asked and asked.isdisjoint(given)


def _holds_large_files(context: Context, served: Served) -> bool:
    """True if the files of a directory are known to be no stylesheets or scripts."""
    dataset = covering(served.path, context.facts.datasets)
    sizes = None if dataset is None else dataset.sizes
    return sizes is not None and sizes.p50_bytes >= LARGE_FILE_BYTES


def _types(scope: Scope) -> Directive | None:
    """The line that asks for gzip of types that static files have; none where it is not used."""
    if scope.value("gzip", "off") != "on" or scope.value("gzip_static", "off") != "off":
        return None
    types = scope.effective("gzip_types")
    if types is None or not any(part in arg for arg in types.args for part in _OF_FILES):
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
    title="static files are compressed for each request",
    why="The same file is compressed again for every client that asks, on the CPU of the event "
    "loop; and what passes the gzip filter is read into memory, so sendfile is not used.",
    fix="gzip_static on; and FILE.gz beside each file, made when files are deployed (gzip -k -9, "
    "with the same time of change).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_gzip_static_module.html",
        "nginx: src/http/modules/ngx_http_gzip_filter_module.c, ngx_http_gzip_header_filter",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Told where gzip_types names stylesheets, scripts, images or fonts, files are served "
    "from a directory, and the build has the module. gzip may stay on: it serves the files that "
    "have no .gz. Servers with PHP are passed over: such applications change their own files, and "
    "a .gz that nobody makes anew is served in place of the new file. So are places for names or "
    "types that gzip is not asked for (pictures, video), and directories of large files.",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "gzip_static on;", _HOST),
    check=check,
)
