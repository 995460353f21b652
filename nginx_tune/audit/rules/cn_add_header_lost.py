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

_WATCHED_HEADERS = frozenset(
    {
        "strict-transport-security", "content-security-policy", "x-frame-options",
        "x-content-type-options", "referrer-policy", "permissions-policy",
        "access-control-allow-origin",
    }
)  # fmt: skip


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Blocks whose own ``add_header`` lines drop the inherited ones."""
    reported: set[Directive] = set()
    for scope in context.scopes_that_set("add_header"):
        if scope.value("add_header_inherit") == "merge":
            continue
        own = [line for line in (scope.own.block or Block([])).all("add_header") if line.args]
        if not own or own[0] in reported:
            continue
        kept = {line.value.lower() for line in own}
        watched = _WATCHED_HEADERS & _headers_that_matter(scope, context.profile == "strict")
        watched -= _NO_HEADERS if is_front(scope) else _HOST_HEADERS
        lost = [
            line
            for line in _outer_headers(scope)
            if line.value.lower() in watched - kept and _is_inherited_for(line, scope)
        ]
        if lost:
            reported.add(own[0])
            names = ", ".join(dict.fromkeys(line.value for line in lost))
            yield Hit(
                own[0],
                f"add_header in this block drops the inherited headers: {names}",
                [written(line) for line in lost[:3]],
            )


def _headers_that_matter(scope: Scope, is_strict: bool) -> frozenset[str]:
    """The headers that matter for the responses of this scope; few if they are not pages."""
    line = (scope.own.block or Block([])).first("return")
    if line is None and is_for_monitors(scope):
        return _NO_HEADERS
    if line is None:
        is_page = is_strict or not (_is_for_programs(scope) or is_for_own_files(scope))
        return _headers_for_endings(_endings(scope)) if is_page else _CROSS_ORIGIN_HEADERS
    if line.value in _REDIRECTS or not line.value.isdigit():
        return _REDIRECT_HEADERS
    text = " ".join(line.args[1:])
    if "<" in text:
        return _WATCHED_HEADERS
    types = _media_types(scope)
    is_for_programs = bool(types) and all(_is_program_type(one) for one in types)
    if _OF_CLIENTS.search(text):
        return _FILE_HEADERS if is_for_programs else _WATCHED_HEADERS
    if line.value != "200":
        return _CROSS_ORIGIN_HEADERS
    if not is_for_programs:
        return _FILE_HEADERS
    return (
        _NO_HEADERS if all(one.startswith("text/plain") for one in types) else _CROSS_ORIGIN_HEADERS
    )


def _is_for_programs(scope: Scope) -> bool:
    """True if programs request this scope and it serves no files."""
    if "/.well-known" in path_of(scope):
        return True
    has_files = any(scope.sets(name) for name in ("root", "alias", "try_files"))
    return is_for_programs(scope) and not has_files


def _is_inherited_for(line: Directive, scope: Scope) -> bool:
    """True if an outer line would apply to the response; errors get it only with ``always``."""
    answer = (scope.own.block or Block([])).first("return")
    code = answer.value if answer is not None and answer.value.isdigit() else "200"
    return line.args[-1] == "always" or code in _WITH_ALL_HEADERS


def _headers_for_endings(endings: frozenset[str]) -> frozenset[str]:
    known = _MEDIA | _PROGRAMS | (_DRAWINGS if endings & _SITE_ASSETS else _NO_HEADERS)
    if not endings or not endings <= known | _NON_PAGES:
        return _WATCHED_HEADERS
    return _CROSS_ORIGIN_HEADERS if endings <= known else _FILE_HEADERS


_NO_HEADERS: frozenset[str] = frozenset()
_HOST_HEADERS = frozenset({"strict-transport-security"})
_REDIRECTS = frozenset({"301", "302", "303", "307", "308"})
_WITH_ALL_HEADERS = _REDIRECTS | {"200", "201", "204", "206", "304"}
_REDIRECT_HEADERS = frozenset({"strict-transport-security", "access-control-allow-origin"})
_CROSS_ORIGIN_HEADERS = frozenset({"access-control-allow-origin"})
_FILE_HEADERS = frozenset({"x-content-type-options", "access-control-allow-origin"})
"""Headers that matter for files. Strict-Transport-Security is not among them: browsers remember it
for the whole host from its pages and redirects (RFC 6797, 8.1)."""


def _media_types(scope: Scope) -> list[str]:
    """The declared types of the text of a ``return``."""
    block = scope.own.block or Block([])
    types = [line.value for line in block.all("default_type") if line.args]
    types += [
        line.args[1]
        for line in block.all("add_header")
        if len(line.args) > 1 and line.value.lower() == "content-type"
    ]
    return types


def _is_program_type(media_type: str) -> bool:
    name = media_type.partition(";")[0].strip().lower()
    return name in _PROGRAM_TYPES or name.endswith("+json")


_OF_CLIENTS = re.compile(
    r"\$(?!\{?(?:time_\w+|msec|hostname|nginx_version|pid|connection|status|request_id|server_\w+|"
    r"remote_(?:addr|port)|binary_remote_addr|proxy_protocol_\w+|ssl_(?:protocol|cipher))\b)"
)
"""A variable that may hold a client's own text. nginx itself makes the others."""
_PROGRAM_TYPES = frozenset({"application/json", "text/plain", "text/event-stream", "text/css"})


def _endings(scope: Scope) -> frozenset[str]:
    """Name endings of all files requested here, lowercase; empty if not known."""
    around = [directive for directive in scope.chain if directive.name == "location"]
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
        "ogv", "oga", "webm", "mov", "avi", "wav", "flac", "aac", "mpg", "mpeg", "flv", "ts",
        "m3u8",
    }
)  # fmt: skip
"""Files that browsers can mistake only for others of the same kind (MIME Sniffing, 8); nosniff
blocks only scripts and styles (Fetch, 2.2.6)."""
_PROGRAMS = frozenset({"js", "mjs", "css", "map"})
"""Scripts and styles: nosniff blocks those with a wrong type, but these endings give the right
one."""
_DRAWINGS = frozenset({"svg", "svgz"})
"""Drawings. Beside scripts, styles and fonts they belong to the site; elsewhere users may have
uploaded them."""
_SITE_ASSETS = _PROGRAMS | {"woff", "woff2", "ttf", "otf", "eot"}
_NON_PAGES = frozenset(
    {
        "json", "txt", "csv", "zip", "gz", "tgz", "bz2", "xz", "7z",
        "rar", "tar", "exe", "dmg", "iso", "deb", "rpm", "apk", "doc", "docx", "xls", "xlsx",
        "ppt", "pptx", "rtf", "odt", "wasm", "mpd", "webmanifest",
    }
)  # fmt: skip
"""Files that browsers neither display as pages nor execute, as they do SVG, PDF, XML and Flash."""


def _outer_headers(scope: Scope) -> list[Directive]:
    """The ``add_header`` lines that this scope would inherit if it had none of its own."""
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
    title="add_header in an inner block drops the inherited headers",
    why="A block with its own add_header inherits none from outside. Headers that protect the "
    "client or allow other origins are then missing from exactly these responses.",
    fix="Repeat the outer lines in this block (an included file keeps them in one place), or from "
    "nginx 1.29.3 set add_header_inherit merge;",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_headers_module.html#add_header",
        "nginx: src/http/modules/ngx_http_headers_filter_module.c, ngx_http_headers_merge_conf",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Only headers whose absence matters are watched: those that protect the client, and "
    "Access-Control-Allow-Origin. Caching headers differ between locations on purpose.\n\nWhich "
    "headers count depends on the responses. If return answers without a page, only "
    "Access-Control-Allow-Origin counts; in redirects Strict-Transport-Security counts too, and "
    "for plain text none. A line without always does not apply to errors anyway. Browsers keep "
    "Strict-Transport-Security for the whole host, so it counts only in the server itself and in "
    "its location /. Page headers do not count for archives and text files (an exact name, or a "
    "pattern for their endings). For scripts, styles, images, fonts, audio and video, the header "
    "about the type does not count either. Except in the profile strict, only "
    "Access-Control-Allow-Origin counts in locations without files and with a path such as api, ws "
    "or graphql, and for a site's own files by their path (static, assets, css).",
    by_absence=True,
    within=frozenset({"server", "location"}),
    bad=Example(_CONF % "add_header Cache-Control public;"),
    good=Example(_CONF % ""),
    check=check,
)
