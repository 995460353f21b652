from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.documents.units import plural

MANY = 3
"""Files that are tried before the fallback."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``try_files`` that looks for several files per request."""
    for scope in context.scopes_that_set("try_files"):
        line = scope.sets("try_files")
        if line is None or len(line.args) <= MANY:
            continue
        if scope.value("open_file_cache", "off") == "off":
            yield Hit(
                line,
                f"each request looks for up to {plural(len(line.args) - 1, 'file')} on disk",
                [written(line), default("open_file_cache", "off")],
            )


_CONF = """
events { }
http { server { location / {
    root /srv/www;
    try_files $uri $uri.html $uri/index.html =404;
    %s
} } }
"""

RULE = Rule(
    id="io-try-files-no-cache",
    severity="advice",
    title="try_files looks for many files without a cache",
    why="Each candidate is a stat() in the event loop. In a cold directory, or over a network, it "
    "waits for the disk as a read does, and thread pools do not help.",
    fix="Set open_file_cache max=1000 inactive=60s; with open_file_cache_errors on; and raise "
    "worker_rlimit_nofile by 1000, or list fewer candidates. Until open_file_cache_valid expires "
    "(60 s by default; 3s is short) clients get the old version of a replaced or removed file.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#open_file_cache",
        "gixy: try_files_is_evil_too",
    ),
    proof="source-only",
    whole_tree=True,
    profiles=frozenset({"strict"}),
    about="Not reported in the default profile: frequently requested names are in memory, where a "
    "lookup costs microseconds.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "open_file_cache max=1000 inactive=60s; open_file_cache_errors on;"),
    check=check,
)
