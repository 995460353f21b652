from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_seconds

LONG_SECONDS = 300.0
"""Longest acceptable time between revalidations; the default is 60 s."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Cached open files that are revalidated too rarely."""
    if "open_file_cache_valid" not in context.names:
        return
    reported: dict[Directive, Directive] = {}
    for served in context.served:
        cache = served.scope.effective("open_file_cache")
        valid = served.scope.effective("open_file_cache_valid")
        if served.via == "cache" or cache is None or cache.value == "off" or valid is None:
            continue
        seconds = parse_seconds(valid.value)
        if seconds is not None and seconds > LONG_SECONDS:
            reported.setdefault(valid, cache)
    for valid, cache in reported.items():
        yield Hit(
            valid,
            f"a file that changes in place is sent with its old size for up to {valid.value}",
            [written(cache), written(valid)],
        )


_CONF = """
events { }
http { server { location / {
    root /srv/www;
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid %s;
} } }
"""

RULE = Rule(
    id="io-open-cache-inplace",
    severity="warning",
    title="open_file_cache trusts file sizes for too long",
    why="The cache keeps a file's descriptor and size. If the file changes in place, clients get "
    "it truncated at the old size, or fewer bytes than Content-Length promises, until the entry is "
    "revalidated. A file that is replaced by rename is only updated late.",
    fix="Set open_file_cache_valid 60s; or less, and deploy by writing a new file and renaming it.",
    sources=(
        "github.com/h5bp/server-configs-nginx issue 203",
        "nginx: src/core/ngx_open_file_cache.c, ngx_open_cached_file",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % "1h"),
    good=Example(_CONF % "60s"),
    check=check,
)
