"""``cn-add-header-lost``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.locations import (
    is_for_monitors,
    is_for_own_files,
    is_for_programs,
    is_front,
    path_of,
)
from nginx_tune.conf.scopes import Scope

_WATCHED = frozenset(
    {
        "strict-transport-security", "content-security-policy", "x-frame-options",
        "x-content-type-options", "referrer-policy", "permissions-policy",
        "access-control-allow-origin",
    }
)  # fmt: skip


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Levels whose own headers take the outer ones away."""
    told: set[Directive] = set()
    for scope in context.scopes_that_set("add_header"):
        if scope.value("add_header_inherit") == "merge":
            continue
        own = [line for line in (scope.own.block or Block([])).all("add_header") if line.args]
        if not own or own[0] in told:
            continue
        kept = {line.value.lower() for line in own}
        watched = _WATCHED & _wanted_by(scope, context.profile == "strict")
        watched -= _NONE if is_front(scope) else _OF_HOSTS
        lost = [
            line
            for line in _outer(scope)
            if line.value.lower() in watched - kept and _is_sent(line, scope)
        ]
        if lost:
            told.add(own[0])
            names = ", ".join(dict.fromkeys(line.value for line in lost))
            yield Hit(
                own[0],
                f"this level's add_header takes away those of the levels around it: {names}",
                [written(line) for line in lost[:3]],
            )


def _wanted_by(scope: Scope, is_strict: bool) -> frozenset[str]:
    """Headers that matter for the answers given here: of those that hold no page only some."""
    line = (scope.own.block or Block([])).first("return")
    if line is None and is_for_monitors(scope):
        return _NONE
    if line is None:
        is_page = is_strict or not (_asks_no_page(scope) or is_for_own_files(scope))
        return _of_names(_endings(scope)) if is_page else _FOR_OTHER_ORIGINS
    if line.value in _REDIRECTS or not line.value.isdigit():
        return _OF_REDIRECTS
    text = " ".join(line.args[1:])
    if "<" in text:
        return _WATCHED
    types = _types(scope)
    is_for_programs = bool(types) and all(_of_no_page(one) for one in types)
    if "$" in text:
        return _OF_FILES if is_for_programs else _WATCHED
    if line.value != "200":
        return _FOR_OTHER_ORIGINS
    if not is_for_programs:
        return _OF_FILES
    return _NONE if all(one.startswith("text/plain") for one in types) else _FOR_OTHER_ORIGINS


def _asks_no_page(scope: Scope) -> bool:
    """True if programs ask here, and no files are served to them."""
    if "/.well-known" in path_of(scope):
        return True
    has_files = any(scope.sets(name) for name in ("root", "alias", "try_files"))
    return is_for_programs(scope) and not has_files


def _is_sent(line: Directive, scope: Scope) -> bool:
    """True if an outer line would speak here: in errors only with ``always`` (its filter)."""
    answer = (scope.own.block or Block([])).first("return")
    code = answer.value if answer is not None and answer.value.isdigit() else "200"
    return line.args[-1] == "always" or code in _WITH_ALL_HEADERS


def _of_names(endings: frozenset[str]) -> frozenset[str]:
    known = _MEDIA | _PROGRAMS | (_DRAWINGS if endings & _OF_THE_SITE else _NONE)
    if not endings or not endings <= known | _NO_PAGES:
        return _WATCHED
    return _FOR_OTHER_ORIGINS if endings <= known else _OF_FILES


_NONE: frozenset[str] = frozenset()
_OF_HOSTS = frozenset({"strict-transport-security"})
_REDIRECTS = frozenset({"301", "302", "303", "307", "308"})
_WITH_ALL_HEADERS = _REDIRECTS | {"200", "201", "204", "206", "304"}
_OF_REDIRECTS = frozenset({"strict-transport-security", "access-control-allow-origin"})
_FOR_OTHER_ORIGINS = frozenset({"access-control-allow-origin"})
_OF_FILES = frozenset({"x-content-type-options", "access-control-allow-origin"})
"""Strict-Transport-Security is remembered for the whole host, from its pages and redirects
(RFC 6797, 8.1): that a script or a picture comes without it changes nothing."""


def _types(scope: Scope) -> list[str]:
    """Types that the text of a return is said to be."""
    block = scope.own.block or Block([])
    types = [line.value for line in block.all("default_type") if line.args]
    types += [
        line.args[1]
        for line in block.all("add_header")
        if len(line.args) > 1 and line.value.lower() == "content-type"
    ]
    return types


def _of_no_page(media_type: str) -> bool:
    name = media_type.partition(";")[0].strip().lower()
    return name in _PROGRAM_TYPES or name.endswith("+json")


_PROGRAM_TYPES = frozenset({"application/json", "text/plain", "text/event-stream", "text/css"})


def _endings(scope: Scope) -> frozenset[str]:
    """Endings of the names of all files that are asked for here; none where they are not known."""
    around = [one for one in scope.chain if one.name == "location"]  # an if has it around it
    args = around[-1].args if around else ()
    if len(args) != len(("~", "pattern")):
        return frozenset()
    if args[0] == "=":
        _, dot, ending = args[1].rpartition("/")[2].rpartition(".")
        return frozenset({ending.lower()} if dot else ())
    match = _ENDINGS.search(args[1]) if args[0] in {"~", "~*"} else None
    if match is None:
        return frozenset()
    words = match[1].lower().replace("?:", "").strip("()").split("|")
    endings = {re.sub(r"\w?\?", "", word) for word in words} | {
        word.replace("?", "") for word in words
    }
    return frozenset(endings - {""})


_ENDINGS = re.compile(r"\\?\.(\(?[\w|?:()]+\)?)\$?$", re.ASCII)
_MEDIA = frozenset(
    {
        "ico", "cur", "gif", "jpg", "jpeg", "jpe", "png", "apng", "webp", "avif", "bmp", "tif",
        "tiff", "ttf", "ttc", "otf", "eot", "woff", "woff2", "mp3", "mp4", "m4a", "m4v", "ogg",
        "ogv", "oga", "webm", "mov", "avi", "wav", "flac", "aac", "mpg", "mpeg", "flv",
    }
)  # fmt: skip
"""Browsers guess these to be others of their kind at most (MIME Sniffing, 8), and nosniff refuses
scripts and styles alone (Fetch, 2.2.6)."""
_PROGRAMS = frozenset({"js", "mjs", "css", "map"})
"""nosniff refuses what is of another type: files of these names are of the right one."""
_DRAWINGS = frozenset({"svg", "svgz"})
"""Beside scripts, styles and fonts they are the site's own, else they may be what users brought."""
_OF_THE_SITE = _PROGRAMS | {"woff", "woff2", "ttf", "otf", "eot"}
_NO_PAGES = frozenset(
    {
        "json", "txt", "csv", "zip", "gz", "tgz", "bz2", "xz", "7z",
        "rar", "tar", "exe", "dmg", "iso", "deb", "rpm", "apk", "doc", "docx", "xls", "xlsx",
        "ppt", "pptx", "rtf", "odt", "wasm", "ts", "m3u8", "mpd", "webmanifest",
    }
)  # fmt: skip
"""No SVG, PDF, XML and Flash: these run or show what they hold."""


def _outer(scope: Scope) -> list[Directive]:
    """The lines that would hold here if the level had none."""
    for level in reversed(scope.chain[:-1]):
        lines = [line for line in (level.block or Block([])).all("add_header") if line.args]
        if lines:
            return lines
    return []


_CONF = """
events {}
http { server {
    listen 80;
    add_header X-Content-Type-Options nosniff always;
    location /files/ { root /srv; %s }
} }
"""

RULE = Rule(
    id="cn-add-header-lost",
    severity="advice",
    title="an inner add_header takes the outer headers away",
    why="A level with any add_header takes none from outside. Headers that protect the client or "
    "let other origins in are then missing from just these answers.",
    fix="Repeat the outer lines beside this one (an included file keeps them together), or from "
    "nginx 1.29.3 add_header_inherit merge;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_headers_module.html#add_header",
        "nginx: src/http/modules/ngx_http_headers_filter_module.c, ngx_http_headers_merge_conf",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Only headers whose absence has consequences are watched: those that protect the client, "
    "and Access-Control-Allow-Origin. Caching headers differ from place to place on purpose. "
    "Where a level answers by return with no page in it, only the header for other origins counts, "
    "in redirects Strict-Transport-Security too, and of what is said to be plain text none. A line "
    "without always is not missed in an error, and Strict-Transport-Security, which a browser "
    "keeps for the host, is missed in the server itself and its location / alone. Of archives and "
    "texts (an exact name or a pattern that ends so) the headers about pages are none; of scripts, "
    "styles, pictures, fonts, sound and films nor is the one about their type. Of a location "
    "without files whose path says api, ws, graphql and their like, and of a site's own files by "
    "their path (static, assets, css), only the one for other origins is, but in the profile "
    "strict.",
    by_absence=True,
    within=frozenset({"server", "location"}),
    bad=Example(_CONF % "add_header Cache-Control public;"),
    good=Example(_CONF % ""),
    check=check,
)
