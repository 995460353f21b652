"""``io-open-cache-inplace``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_seconds

LONG_SECONDS = 300.0
"""The default is 60 s."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Open files that are not looked at again for long."""
    if "open_file_cache_valid" not in context.names:
        return
    told: dict[Directive, Directive] = {}
    for served in context.served:
        cache = served.scope.effective("open_file_cache")
        valid = served.scope.effective("open_file_cache_valid")
        if served.via == "cache" or cache is None or cache.value == "off" or valid is None:
            continue
        seconds = parse_seconds(valid.value)
        if seconds is not None and seconds > LONG_SECONDS:
            told.setdefault(valid, cache)
    for valid, cache in told.items():
        yield Hit(
            valid,
            f"for up to {valid.value} a file that was changed in place is sent with its old size",
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
    title="open_file_cache trusts sizes for long",
    why="The cache keeps a file's descriptor and size. When the file is changed in place, clients "
    "get it cut at the old size, or too few bytes for the length that was promised, until the "
    "entry is looked at again. A file that is replaced by rename is only served late.",
    fix="open_file_cache_valid 60s; or less, and deploy by writing beside the file and renaming.",
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
