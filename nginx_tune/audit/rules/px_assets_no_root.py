import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

_NAMES = re.compile(r"\b(?:css|js|png|jpe\?g|jpe?g|gif|ico|svg|webp|woff2?|ttf|mp4|pdf)\b")
"""Endings of the files that a page loads."""
_END = re.compile(r"\\\.\(?(?:\?:)?[\w|?()-]+\)?\$?$")
r"""``\.(css|js)$`` at the end of a pattern."""
_CHANGES_NOTHING = re.compile(
    "expires|etag|add_header|add_trailer|more_(?:set|clear)_headers|access_log|error_log|log_.*|"
    "gzip.*|gunzip.*|brotli.*|sendfile.*|tcp_.*|open_file_cache.*|output_buffers|aio|directio|charset|"
    "types|default_type|if_modified_since|limit_rate.*|limit_req|keepalive_.*|"
    "proxy_(?!pass$|intercept_errors$).*"
)
"""Lines of a location that change neither the file nor the answer for a missing file."""
_ELSEWHERE = ("rewrite", "if", "return")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Locations for assets that have no files, beside a ``location /`` that passes them on."""
    passing = {
        id(passed.scope.server): passed.place
        for passed in context.passes
        if passed.scope.kind == "location" and passed.scope.own.args == ("/",)
    }
    reported: set[Directive] = set()
    for scope in context.scopes if passing else ():
        place = passing.get(id(scope.server))
        if place is None or scope.own in reported or not _lacks_files(scope):
            continue
        reported.add(scope.own)
        html = context.tree.full_path("html")
        yield Hit(
            scope.own,
            f"files with these names are looked for in {html or 'html below the prefix'}: no root "
            f"is set, and {place.name} of location / does not apply here",
            [default("root", "html"), written(place)],
        )


def _lacks_files(scope: Scope) -> bool:
    """True if a location for assets answers from nginx's default root."""
    if scope.kind != "location" or scope.own.block is None:
        return False
    if scope.own.args[:1] not in {("~",), ("~*",)}:
        return False
    end = _END.search(scope.own.args[-1])
    if end is None or not _NAMES.search(end[0]):
        return False
    if not all(map(_CHANGES_NOTHING.fullmatch, scope.own.block.lines)):
        return False
    server = scope.server.block
    if server is None or any(
        name in _ELSEWHERE or name.endswith(("_by_lua", "_by_lua_block", "_by_lua_file"))
        for name in server.lines
    ):
        return False
    errors = scope.effective_all("error_page")
    is_caught = any("404" in line.args[:-1] for line in errors)
    return not is_caught and scope.effective("root") is None


_CONF = """
events {}
http { server {
    listen 80; %s
    location / { proxy_pass http://127.0.0.1:81; }
    location ~* \\.(css|js|png)$ { expires 30d; }
} }
"""

RULE = Rule(
    id="px-assets-no-root",
    severity="warning",
    title="a location for assets without their files",
    why="A location with a pattern takes its names from location /, and does not inherit "
    "proxy_pass. Without root nginx looks for the files in html below its prefix, where an "
    "application has none: each such request gets 404.",
    fix="Set root to the directory of the application's files, or repeat the lines of location / "
    "that pass requests on.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#root",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_merge_loc_conf",
        "nginx: src/http/modules/ngx_http_static_module.c, ngx_http_static_handler",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    about="Reported only for a location whose other lines are about headers, logs, compression and "
    "the like, in a server that rewrites nothing, and where no error_page catches 404.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "root /srv/app/public;"),
    check=check,
)
