from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.values import parse_count

HIGH = 7
"""The lowest level that gains almost nothing for its CPU time; zlib's default is 6."""
HIGH_BROTLI = 10
"""The lowest level for which Brotli searches as Zopfli does; the default of ngx_brotli is 6."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Levels that cost far more than they save."""
    for line in context.client_lines("gzip_comp_level"):
        if (parse_count(line.value) or 0) >= HIGH:
            yield Hit(
                line,
                f"level {line.value} costs several times the CPU of level 5 for hardly smaller "
                "responses",
                [written(line)],
            )
    is_on = any(line.value.lower() == "on" for line in context.client_lines("brotli"))
    for line in context.client_lines("brotli_comp_level") if is_on else ():
        if (parse_count(line.value) or 0) >= HIGH_BROTLI:
            yield Hit(
                line,
                f"Brotli level {line.value} costs tens of times the CPU of level 6, for every "
                "response",
                [written(line)],
                fix="Use brotli_comp_level 4 to 6, and brotli_static with files compressed once "
                "at level 11.",
            )


_CONF = "events {} http { gzip on; gzip_comp_level %s; server { listen 80; return 204; } }"

RULE = Rule(
    id="gz-level-high",
    severity="advice",
    title="a compression level that is too high",
    why="The worker compresses in its event loop, and all its other connections wait meanwhile. "
    "gzip level 9 makes text one or two percent smaller than level 6 and takes much longer. Brotli "
    "levels 10 and 11 are for files that are compressed once.",
    fix="Use gzip_comp_level 4 to 6, or gzip_static with files compressed once at the highest "
    "level.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_comp_level",
        "zlib: deflate.c, configuration_table",
        "brotli: c/enc/quality.h, ZOPFLIFICATION_QUALITY",
        "https://github.com/google/ngx_brotli#brotli_comp_level",
    ),
    proof="proven",
    proven_on=("1.22",),
    seen="A megabyte of generated JSON, level 9 against level 4, measured by the worker's CPU time "
    "in this rule's test. Brotli 1.1.0 took 14 ms for a megabyte of JSON at level 6, 680 ms at "
    "level 10 and 1,430 ms at level 11 (2026-11-30).",
    bad=Example(_CONF % "9"),
    good=Example(_CONF % "5"),
    check=check,
)
